//! Halls on their way out, on real pages and with their threads.

use std::sync::atomic::{AtomicBool, Ordering};

use upcall_shm::DomainId;
use upcall_shm::turn_page::{ASLEEP, PAGE_BYTES, TurnPage};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::schedule;

use super::*;
use crate::kls::{self, Kls};
use crate::site::{Known, Site};

fn staffed(site: &Arc<Site>, uid: u32) -> Staffed {
    let hall = Arc::new(Hall::new(site.cpu, uid).unwrap());
    let thread = kls::start(Kls::new(site.clone(), hall.clone(), None)).unwrap();
    site.set_halls(|halls| halls.push(hall.clone()));
    (hall, thread)
}

fn site() -> Arc<Site> {
    Arc::new(Site::new(*schedule::allowed_cpus().unwrap().last().unwrap()))
}

fn until(is_so: impl Fn() -> bool) {
    let give_up = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < give_up, "not so in a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn halls_that_left_are_freed_and_those_in_use_stay() {
    let (site, mut usher) = (site(), Usher::start().unwrap());
    let stays = staffed(&site, 1);
    let mut left = Vec::new();
    for _ in 0..20 {
        let goes = staffed(&site, 2);
        left.push(Arc::downgrade(&goes.0));
        site.close(&goes.0);
        usher.see_out(goes);
    }
    // The thread of the one that stays was roused, and has forgotten the others.
    until(|| left.iter().all(|hall| hall.strong_count() == 0));
    assert_eq!((usher.leaving_of(site.cpu, 1), usher.leaving_of(site.cpu, 2)), (0, 0));
    assert!(!stays.1.is_finished());
    assert_eq!(site.halls().len(), 1);
    site.close(&stays.0);
    usher.see_out(stays);
}

#[test]
fn a_hall_that_somebody_still_knows_is_counted_as_leaving() {
    let (site, mut usher) = (site(), Usher::start().unwrap());
    let mut known = Known::default();
    let goes = staffed(&site, 7);
    known.refresh(&site);
    site.close(&goes.0);
    usher.see_out(goes);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((usher.leaving_of(site.cpu, 7), usher.leaving_of(site.cpu, 8)), (1, 0));
    known.refresh(&site);
    until(|| usher.leaving_of(site.cpu, 7) == 0);
}

#[test]
fn a_hall_leaves_though_somebody_goes_on_writing_into_its_bell() {
    let (site, mut usher) = (site(), Usher::start().unwrap());
    let goes = staffed(&site, 3);
    let fd = goes.0.turn.memory().fd().try_clone_to_owned().unwrap();
    let page = TurnPage::attach(SharedMapping::from_fd(fd, PAGE_BYTES).unwrap()).unwrap();
    let enough = Arc::new(AtomicBool::new(false));
    let scribbler = std::thread::spawn({
        let enough = enough.clone();
        move || {
            while !enough.load(Ordering::Relaxed) {
                for value in [0, u64::from(ASLEEP)] {
                    page.bell(DomainId::DAEMON).store(value, Ordering::Relaxed);
                }
            }
        }
    });
    let left = Arc::downgrade(&goes.0);
    site.close(&goes.0);
    usher.see_out(goes);
    drop(usher);
    assert_eq!(left.strong_count(), 0);
    enough.store(true, Ordering::Relaxed);
    scribbler.join().unwrap();
}
