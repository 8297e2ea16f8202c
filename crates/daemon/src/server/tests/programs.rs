//! Requests about programs that are refused before a group is made, and who may ask.

use super::status::ByHand;
use super::*;
use upcall_shm::wire::{ProgramReply, ProgramRequest, ProgramTerms, RefusalCause, RefusedProgram};

/// Beyond pid_max (4194304 on 64 bits), so it cannot exist.
const NO_PROCESS: u32 = 5_000_000;

fn share(share_ppm: u32) -> ProgramTerms {
    ProgramTerms { share_ppm, ..ProgramTerms::default() }
}

/// Asks, and expects a refusal.
#[track_caller]
fn refused(client: &ByHand, request: ProgramRequest) -> RefusedProgram {
    client.send(&ToDaemon::Program(request));
    match client.receive() {
        Some((ToDomain::Program(ProgramReply::Refused(refused)), _)) => refused,
        other => panic!("expected a refusal, found {other:?}"),
    }
}

#[test]
fn each_refusal_of_a_program_has_its_cause() {
    let daemon = Running::start(|_| {});
    let client = ByHand::connect(&daemon);
    let pid = std::process::id();
    let start = |pid, terms| ProgramRequest::Start { pid, terms, name: "p".into() };
    let adopt = |pid, terms| ProgramRequest::Adopt { pid, terms, name: "p".into() };
    let no_cpu = ProgramTerms { cpu: Some(4_000), ..share(100_000) };
    let both = ProgramTerms { weight: 2, ..share(100_000) };
    let small = ProgramTerms { cost_ns: 5_000_000, period_ns: 11_000_000, ..share(450_000) };
    for (request, cause) in [
        (start(NO_PROCESS, share(100_000)), RefusalCause::NoProcess),
        (adopt(NO_PROCESS, share(100_000)), RefusalCause::NoProcess),
        // The daemon itself.
        (adopt(pid, share(100_000)), RefusalCause::NoProcess),
        (start(NO_PROCESS, ProgramTerms::default()), RefusalCause::Terms),
        (start(NO_PROCESS, both), RefusalCause::Terms),
        (start(NO_PROCESS, no_cpu), RefusalCause::Cpu),
        (start(NO_PROCESS, share(1_000_000)), RefusalCause::NoRoom),
        (start(NO_PROCESS, small), RefusalCause::ShareTooSmall),
        (ProgramRequest::Change { pid, share_ppm: 1 }, RefusalCause::NoProgram),
        (ProgramRequest::Release { pid }, RefusalCause::NoProgram),
    ] {
        let refused = refused(&client, request.clone());
        assert_eq!(refused.cause, cause, "{request:?}: {refused:?}");
        assert!(!refused.reason.is_empty());
    }
    let too_small = refused(&client, start(NO_PROCESS, small));
    assert_eq!(too_small.asked_ppm, 450_000);
    assert!(too_small.fits_ppm > 630_000, "{too_small:?}");
    let reports =
        daemon.stop().into_iter().filter(|event| matches!(event, DaemonEvent::Refused { .. }));
    assert_eq!(reports.count(), 11);
}

#[test]
fn a_domain_cannot_ask_for_a_program() {
    let daemon = Running::start(|_| {});
    let domain = ByHand::connect(&daemon);
    domain.attach();
    domain.send(&ToDaemon::Program(ProgramRequest::Release { pid: NO_PROCESS }));
    while domain.receive().is_some() {}
    daemon.status_when(|reply| reply.domains.is_empty() && reply.programs.is_empty());
    daemon.stop();
}
