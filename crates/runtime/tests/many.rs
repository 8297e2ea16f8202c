//! Tests with more activities on a CPU than one page of a user area has slots for. They also
//! measure the memory that unused pages take.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use upcall_runtime::activity::{ActivityParams, Terms, WorkClass};
use upcall_runtime::discipline::DWS;
use upcall_runtime::time::Span;
use upcall_runtime::{ACTIVITIES_MAX, Config, CreateError, Runtime, clock};
use upcall_shm::user_area::{AREA_BYTES, PAGE_BYTES, PAGE_SLOTS, words_of};
use upcall_sys::memfd::SharedMapping;

fn start() -> Runtime {
    let cpus = upcall_runtime::default_cpus().unwrap()[..1].to_vec();
    let switch_cost = Some(Span::from_nanos(1));
    Runtime::start(Config { cpus, switch_cost, discipline: &DWS, ..Config::default() }).unwrap()
}

#[test]
fn the_maximum_number_of_tasks_can_be_woken_and_all_end() {
    let mut runtime = start();
    let params = ActivityParams::new(Span::from_secs(1), Span::from_nanos(100));
    let terms = Terms { class: WorkClass::Background, ..Terms::default() };
    let ended = Arc::new(AtomicU32::new(0));
    let ids: Vec<_> = (0..ACTIVITIES_MAX)
        .map(|number| {
            let ended = ended.clone();
            let code = async move |task: upcall_runtime::Task| {
                task.timed_sleep(clock::now() + Span::from_millis(1)).await;
                ended.fetch_add(1, Ordering::Relaxed);
            };
            runtime.task(&format!("t{number}"), (params, terms), code).unwrap()
        })
        .collect();
    let one_more = runtime.task("more", (params, terms), async |_| {});
    let activities_max = ACTIVITIES_MAX;
    let Err(CreateError::TooMany { activities_max: found }) = one_more else {
        panic!("expected a refusal, found {one_more:?}");
    };
    assert_eq!(found, activities_max);
    runtime.run_at(&ids, clock::now()).unwrap();
    for &id in &ids {
        assert_eq!(
            runtime.wait(&[id], Some(clock::after(Span::from_secs(60)))),
            [id],
            "it never ended"
        );
    }
    assert_eq!(ended.load(Ordering::Relaxed), ACTIVITIES_MAX);
    runtime.stop(|_, _| {});
}

#[test]
fn pages_of_slots_take_memory_when_they_are_used_even_where_all_memory_is_locked() {
    // The runtime locks all memory, if that is granted.
    let _runtime = start();
    let area = SharedMapping::create("upcall-test", AREA_BYTES).unwrap();
    let file = std::fs::File::from(area.fd().try_clone_to_owned().unwrap());
    let bytes = || file.metadata().unwrap().blocks() * 512;
    assert_eq!(bytes(), 2 * PAGE_BYTES as u64, "the header, and a page of slots");
    let _ = area.lock();
    assert_eq!(bytes(), 2 * PAGE_BYTES as u64, "locking does not fault pages in");
    area.words()[words_of(1)].store(1, Ordering::Relaxed);
    assert_eq!(bytes(), 3 * PAGE_BYTES as u64);
    assert_eq!(area.words().len(), words_of(2));
    assert_eq!(2 * PAGE_SLOTS, ACTIVITIES_MAX as usize);
}
