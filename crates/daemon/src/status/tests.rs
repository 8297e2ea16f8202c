//! Which domains a user sees, and the status of domains that go meanwhile.

use super::*;
use crate::registry::{Owner, Quota};
use upcall_core::admission::Platform;
use upcall_core::discipline::RMDP;
use upcall_core::time::Instant;
use upcall_shm::wire::{MESSAGE_BYTES_MAX, Need, TEXT_BYTES_MAX};

/// Activities of a domain. The messages of three such domains do not fit into a socket at once.
const MANY: usize = 128;

/// Two users that are neither root nor, usually, the user that runs the tests.
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

/// The domains that a user sees, and the number of those that it does not see.
fn seen_by(uid: u32, registry: &Registry) -> (Vec<u32>, u32) {
    let credentials = Credentials { pid: 1, uid, gid: 1 };
    let source = StatusSource { registry, cpu_states: &[] };
    let status_reply = StatusReply::begin(&source, &credentials, false);
    let Some(StatusPart::End { hidden_domains, .. }) = status_reply.end else { panic!("no end") };
    (status_reply.domains.iter().map(|(number, _)| *number).collect(), hidden_domains)
}

#[test]
fn root_and_the_daemons_user_see_all_domains_others_their_own() {
    let registry = registry();
    assert_eq!(seen_by(0, &registry), (vec![1, 2, 3], 0));
    assert_eq!(seen_by(process::effective_user(), &registry), (vec![1, 2, 3], 0));
    assert_eq!(seen_by(ONE, &registry), (vec![1, 3], 1));
    assert_eq!(seen_by(OTHER, &registry), (vec![2], 2));
    assert_eq!(seen_by(70_003, &registry), (vec![], 3));
}

#[test]
fn a_detached_domain_is_left_out_even_if_its_number_is_reused() {
    let mut registry = registry();
    let (here, there) = Connection::pair().unwrap();
    let credentials = Credentials { pid: 1, uid: 0, gid: 0 };
    let mut status_reply = StatusReply::begin(
        &StatusSource { registry: &registry, cpu_states: &[] },
        &credentials,
        true,
    );
    registry.detach(1, Instant::ZERO);
    registry.detach(3, Instant::ZERO);
    registry.attach(Owner { uid: OTHER, pid: 2 }, "new", "rmdp").unwrap();
    let source = StatusSource { registry: &registry, cpu_states: &[] };
    while status_reply.send_more(&source, &here).unwrap() != Sent::All {}
    let mut messages = Vec::new();
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    while let Ok(received) = there.receive(&mut buffer) {
        messages.push(ToDomain::decode(&buffer[..received.len]).unwrap());
    }
    let [ToDomain::Status(cpu), ToDomain::Status(domain), ToDomain::Status(end)] = &messages[..]
    else {
        panic!("{messages:?}");
    };
    assert!(matches!(cpu, StatusPart::Cpu(CpuStatus { cpu: 1, limit_ppm: 900_000, .. })));
    assert!(matches!(domain, StatusPart::Domain(DomainStatus { domain: 2, uid: OTHER, .. })));
    assert!(matches!(end, StatusPart::End { real_time: true, .. }));
}

#[test]
fn unsent_messages_are_kept_for_one_domain_at_a_time() {
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
    let source = StatusSource { registry: &registry, cpu_states: &[] };
    let mut status_reply = StatusReply::begin(&source, &credentials, true);
    let (mut received, mut waits) = (0, 0);
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    loop {
        match status_reply.send_more(&source, &here).unwrap() {
            Sent::All => break,
            Sent::Part => continue,
            Sent::SocketFull => waits += 1,
        }
        // The messages of one domain: its own and one for each activity.
        assert!(status_reply.messages.len() <= 1 + MANY);
        for _ in 0..10 {
            received += u64::from(there.receive(&mut buffer).is_ok());
        }
    }
    while there.receive(&mut buffer).is_ok() {
        received += 1;
    }
    assert!(waits > 0, "the whole reply fitted into the socket");
    assert_eq!(received, 1 + 3 * (1 + MANY as u64) + 1);
    drop(there);
    let mut status_reply = StatusReply::begin(&source, &credentials, true);
    assert!(status_reply.send_more(&source, &here).is_err(), "the inspector has gone");
}
