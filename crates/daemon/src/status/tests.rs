//! Who may see what, and what is told of those who went meanwhile.

use super::*;
use crate::registry::{Owner, Quota};
use upcall_core::admission::Platform;
use upcall_core::discipline::RMDP;
use upcall_shm::wire::{MESSAGE_BYTES_MAX, Need, TEXT_BYTES_MAX};

/// Activities of a domain: three of these are more than a socket takes at once.
const MANY: usize = 128;

/// Two users that are neither root nor, as a rule, whoever tests.
const ONE: u32 = 70_001;
const OTHER: u32 = 70_002;

fn registry() -> Registry {
    let platform = Platform {
        cpus: vec![1],
        cpu_limit: Share::CPU_LIMIT_DEFAULT,
        switch_cost: Span::ZERO,
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    };
    let mut registry =
        Registry::new(&RMDP, platform, Quota { domains_max: 9, share_max_ppm: u64::MAX });
    for uid in [ONE, OTHER, ONE] {
        registry.attach(Owner { uid, pid: 1 }, "d", "rmdp").unwrap();
    }
    registry
}

/// The domains that are told, and how many are not.
fn seen_by(uid: u32, registry: &Registry) -> (Vec<u32>, u32) {
    let credentials = Credentials { pid: 1, uid, gid: 1 };
    let scene = Scene { registry, sites: &[] };
    let telling = Telling::begin(&scene, &credentials, false);
    let Some(StatusPart::End { hidden_domains, .. }) = telling.end else { panic!("no end") };
    (telling.domains.iter().map(|(number, _)| *number).collect(), hidden_domains)
}

#[test]
fn root_and_the_daemons_user_see_all_others_their_own() {
    let registry = registry();
    assert_eq!(seen_by(0, &registry), (vec![1, 2, 3], 0));
    assert_eq!(seen_by(process::effective_user(), &registry), (vec![1, 2, 3], 0));
    assert_eq!(seen_by(ONE, &registry), (vec![1, 3], 1));
    assert_eq!(seen_by(OTHER, &registry), (vec![2], 2));
    assert_eq!(seen_by(70_003, &registry), (vec![], 3));
}

#[test]
fn a_domain_that_went_meanwhile_is_left_out_also_if_its_number_is_taken_again() {
    let mut registry = registry();
    let (here, there) = Connection::pair().unwrap();
    let credentials = Credentials { pid: 1, uid: 0, gid: 0 };
    let mut telling =
        Telling::begin(&Scene { registry: &registry, sites: &[] }, &credentials, true);
    registry.detach(1);
    registry.detach(3);
    registry.attach(Owner { uid: OTHER, pid: 2 }, "new", "rmdp").unwrap();
    assert!(telling.go_on(&Scene { registry: &registry, sites: &[] }, &here).unwrap());
    let mut told = Vec::new();
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    while let Ok(received) = there.receive(&mut buffer) {
        told.push(ToDomain::decode(&buffer[..received.len]).unwrap());
    }
    let [ToDomain::Status(cpu), ToDomain::Status(domain), ToDomain::Status(end)] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(matches!(cpu, StatusPart::Cpu(CpuStatus { cpu: 1, limit_ppm: 900_000, .. })));
    assert!(matches!(domain, StatusPart::Domain(DomainStatus { domain: 2, uid: OTHER, .. })));
    assert!(matches!(end, StatusPart::End { real_time: true, .. }));
}

#[test]
fn what_does_not_fit_is_kept_a_domain_at_a_time_and_sent_when_there_is_room() {
    let mut registry = registry();
    let need = Need {
        period_ns: 1_000_000_000,
        deadline_ns: 1_000_000_000,
        batch: 1,
        quantum: 1,
        pdu_cost_ns: 1_000,
        ..Need::default()
    };
    let name = "n".repeat(TEXT_BYTES_MAX);
    for domain in 1..=3 {
        for _ in 0..MANY {
            registry.create(domain, &name, &need, false).unwrap();
        }
    }
    let (here, there) = Connection::pair().unwrap();
    let credentials = Credentials { pid: 1, uid: 0, gid: 0 };
    let scene = Scene { registry: &registry, sites: &[] };
    let mut telling = Telling::begin(&scene, &credentials, true);
    let (mut told, mut waits) = (0, 0);
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    while !telling.go_on(&scene, &here).unwrap() {
        waits += 1;
        // Of one domain: itself, and its activities.
        assert!(telling.messages.len() <= 1 + MANY);
        for _ in 0..10 {
            told += u64::from(there.receive(&mut buffer).is_ok());
        }
    }
    while there.receive(&mut buffer).is_ok() {
        told += 1;
    }
    assert!(waits > 0, "all of it fitted");
    assert_eq!(told, 1 + 3 * (1 + MANY as u64) + 1);
    drop(there);
    let mut telling = Telling::begin(&scene, &credentials, true);
    assert!(telling.go_on(&scene, &here).is_err(), "it has gone");
}
