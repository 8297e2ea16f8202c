//! The choice of the KLS thread by accounts, on real pages and without threads.

use std::sync::Arc;

use upcall_core::policy::ps::request_key;
use upcall_shm::user_area::{Owner, Rank};
use upcall_sys::memfd::SharedMapping;

use super::*;
use crate::group::Member;
use crate::group::tests::{member, sleeping_thread};
use crate::registry::Parts;

const MS: Span = Span::from_millis(1);

struct Fixture {
    group: DomainGroup,
    owners: Vec<Owner<SharedMapping>>,
    members: Members,
    accounts: Accounts,
}

/// A group of two domains with these parts, and that of ordinary programs.
fn fixture(parts: [u32; 2], ordinary: u32) -> Fixture {
    let group = DomainGroup::new(0, 1).unwrap().by_time_quantum(Some(MS));
    let all: Vec<(Arc<Member>, _)> =
        [1, 2].map(|number| member(&group, number, sleeping_thread())).into();
    let (list, owners): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let shares: Vec<_> = (1..)
        .zip(parts)
        .filter_map(|(number, ppm)| Some((DomainId::new(number)?, Share::from_ppm(ppm)?)))
        .collect();
    let ordinary = Share::from_ppm(ordinary);
    group.set_shares(&Parts { of_domains: shares, of_groups: Vec::new(), ordinary });
    Fixture { group, owners, members: list.into(), accounts: Accounts::new(MS) }
}

impl Fixture {
    fn publish(&mut self, domain: usize, request: Option<Span>) {
        let rank = request.map(|request| Rank::new(request_key(request), 1).into());
        self.owners[domain - 1].publish(rank);
    }

    /// The domain that has the turn passes it to the daemon, as its runtime does.
    fn return_turn(&mut self, now: Instant) {
        self.accounts.load(&self.group, &self.members);
        self.accounts.of.advance(now);
        let state = TurnState { served: 0, ..self.accounts.of.state() };
        self.accounts.of.load(state);
        self.accounts.store(&self.group, &self.members);
    }

    fn choose(&mut self, now: Instant) -> Turn {
        self.group.refresh(&self.members, now);
        self.accounts.choose(&self.group, &self.members, now)
    }
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + MS * 1_000 + Span::from_millis(ms)
}

#[test]
fn domains_that_are_always_busy_get_their_parts_and_so_do_ordinary_programs() {
    let mut fixture = fixture([600_000, 300_000], 100_000);
    fixture.publish(1, Some(MS));
    fixture.publish(2, Some(MS));
    let mut turns = [0u32; 3];
    for ms in 0..2_000 {
        match fixture.choose(at(ms)) {
            Turn::Domain(domain) => {
                turns[domain.number() as usize] += 1;
                fixture.return_turn(at(ms + 1));
            }
            Turn::Ordinary(until) => {
                assert_eq!(until, at(ms + 1));
                turns[0] += 1;
            }
            Turn::Nothing => panic!("both domains are busy"),
        }
    }
    for (found, expected) in turns.into_iter().zip([200, 1_200, 600]) {
        assert!(found.abs_diff(expected) <= 25, "{turns:?}");
    }
}

#[test]
fn a_wake_up_does_not_end_the_turn_of_ordinary_programs() {
    let mut fixture = fixture([500_000, 300_000], 200_000);
    fixture.publish(1, Some(MS));
    let mut ms = 0;
    let until = loop {
        if let Turn::Ordinary(until) = fixture.choose(at(ms)) {
            break until;
        }
        ms += 1;
        fixture.return_turn(at(ms));
    };
    let middle = at(ms) + Span::from_micros(300);
    fixture.publish(2, Some(MS));
    assert_eq!(fixture.choose(middle), Turn::Ordinary(until));
    assert!(matches!(fixture.choose(until), Turn::Domain(_)));
}

#[test]
fn words_that_a_domain_overwrote_do_not_stop_the_choice() {
    let mut fixture = fixture([600_000, 300_000], 100_000);
    fixture.publish(1, Some(MS));
    fixture.publish(2, Some(MS));
    let domain = |number| DomainId::new(number).unwrap();
    for round in 0..50 {
        let service =
            Service { charged_ns: u64::MAX / 2, served: u64::MAX, allowance_ns: i64::MIN };
        fixture.group.turn.set_service(service);
        fixture.group.turn.set_lag(domain(1), 1, i64::MIN);
        fixture.group.turn.set_lag(domain(2), 1, i64::MAX);
        assert!(matches!(fixture.choose(at(round)), Turn::Domain(_)));
    }
    // All of that is repaired by the next choice.
    let mut turns = 0;
    for ms in 51..251 {
        turns += u32::from(fixture.choose(at(ms)) == Turn::Domain(domain(1)));
        fixture.return_turn(at(ms + 1));
    }
    assert!(turns > 100, "{turns}");
}

#[test]
fn a_domain_without_work_or_part_is_not_chosen() {
    let mut fixture = fixture([600_000, 0], 100_000);
    assert_eq!(fixture.choose(at(0)), Turn::Nothing);
    fixture.publish(2, Some(MS));
    assert_eq!(fixture.choose(at(1)), Turn::Nothing);
    fixture.publish(1, Some(MS));
    assert_eq!(fixture.choose(at(2)), Turn::Domain(DomainId::new(1).unwrap()));
}

/// The domain was stopped, or the host had the CPU: the daemon cannot tell how much of the time was
/// service.
#[test]
fn a_turn_that_was_taken_is_not_charged_by_the_daemon() {
    let mut fixture = fixture([600_000, 300_000], 100_000);
    fixture.publish(1, Some(MS));
    assert_eq!(fixture.choose(at(0)), Turn::Domain(DomainId::new(1).unwrap()));
    let lag = |fixture: &Fixture| lag_ns(&fixture.group, DomainId::new(1).unwrap(), 1);
    let before = lag(&fixture);
    fixture.choose(at(50));
    assert_eq!((lag(&fixture), before), (Some(0), Some(0)));
    fixture.return_turn(at(51));
    assert!(lag(&fixture) < Some(0));
}
