//! Tests of the verdict of the bench `hostile`. They are tests of the library, because a bench
//! without a harness has none.

use std::time::Duration;

use crate::outcome::{ArrivalReport, AttackerReport, Outcome, Size, VictimReport, judge_growth};

fn victim(missed: u64) -> VictimReport {
    VictimReport { due: 600, missed, worst_ns: 1, reported: true }
}

/// A row in which everything is as promised.
fn good() -> Outcome {
    let acted = Some(Duration::from_secs(3));
    let arrivals = ArrivalReport { count: 9, worst: Duration::from_millis(5), refused: None };
    Outcome {
        millis: 4_000,
        attack: Duration::from_secs(3),
        victims: vec![victim(0), victim(0)],
        ordinary_ms: Some(Some(1_000)),
        arrivals: Some(Some(arrivals)),
        arrival_max: Duration::from_millis(5),
        attacker: AttackerReport { acted, ..AttackerReport::default() },
        measures: vec!["others go first (5.0 ms)".to_owned()],
        ..Outcome::default()
    }
}

/// The faults after a change of the good row.
fn faults(change: impl FnOnce(&mut Outcome)) -> String {
    let mut outcome = good();
    change(&mut outcome);
    outcome.faults().join(", ")
}

#[test]
fn a_row_without_a_fault_holds() {
    assert_eq!(faults(|_| {}), "");
}

#[test]
fn a_row_shows_the_worst_response_and_what_became_of_the_attacker() {
    let mut outcome = good();
    outcome.victims[1].worst_ns = 2_500_000;
    outcome.outside = "thread state t, ".to_owned();
    assert!((outcome.worst_ms() - 2.5).abs() < 1e-9);
    assert_eq!(outcome.became(), "thread state t, others go first (5.0 ms), runs");
}

#[test]
fn a_missed_job_and_a_victim_without_a_report_break_a_row() {
    assert_eq!(faults(|it| it.victims[1] = victim(2)), "2 of 1200 jobs missed");
    let silent = VictimReport { due: 600, missed: 600, worst_ns: 0, reported: false };
    let text = faults(|it| it.victims[0] = silent);
    assert_eq!(text, "600 of 1200 jobs missed, 1 victims did not report");
}

#[test]
fn an_attacker_that_did_not_attack_breaks_a_row() {
    let text = faults(|it| {
        it.attacker = AttackerReport {
            panic: Some("refused".to_owned()),
            ended: Some("exit status: 101".to_owned()),
            ..AttackerReport::default()
        };
    });
    assert_eq!(
        text,
        "ERROR: the attacker panicked: refused, \
         ERROR: the attacker did not attack (exit status: 101)"
    );
    let text = faults(|it| it.attacker.acted = Some(Duration::from_millis(10)));
    assert_eq!(text, "ERROR: the attacker acted for 10.0ms only");
}

#[test]
fn an_attacker_that_ends_early_breaks_a_row() {
    let ended = Some("exit status: 0".to_owned());
    let text = faults(|it| it.attacker.ended.clone_from(&ended));
    assert_eq!(text, "ERROR: the attacker ended before the row (exit status: 0)");
    let text = faults(|it| {
        it.ends = true;
        it.attacker.ended = ended;
    });
    assert_eq!(text, "", "its attack is to end");
    assert_eq!(faults(|it| it.ends = true), "ERROR: the attacker did not end");
}

#[test]
fn a_daemon_that_grew_breaks_the_promise() {
    let before = Size { resident_kib: 4_248, descriptors: 13, mappings: 61 };
    let after = Size { resident_kib: 4_504, mappings: 69, ..before };
    let judge = |detached, after| judge_growth(10_000, detached, before, after);
    let found = judge(10_000, after).unwrap();
    assert!(found.contains("4248 -> 4504 KiB, descriptors 13 -> 13, mappings 61 -> 69"), "{found}");
    let broken = |detached, after| {
        let why = judge(detached, after).unwrap_err();
        why.rsplit_once(" (").unwrap().1.to_owned()
    };
    assert_eq!(broken(9_999, after), "not each domain was detached)");
    assert_eq!(broken(10_000, Size { resident_kib: 4_505, ..after }), "its memory grew)");
    let text = broken(10_000, Size { descriptors: 14, ..after });
    assert_eq!(text, "its descriptors are not the same)");
    assert_eq!(broken(10_000, Size { mappings: 70, ..after }), "its mappings grew)");
    assert!(judge(10_000, Size::default()).is_err(), "its size is unknown");
}

#[test]
fn a_defence_that_failed_breaks_a_row() {
    let text = faults(|it| it.attacker.breaches.push("the daemon granted it".to_owned()));
    assert_eq!(text, "the daemon granted it");
}

#[test]
fn a_measure_against_a_victim_breaks_a_row() {
    let text = faults(|it| it.measures.push("VICTIM others go first (5.0 ms)".to_owned()));
    assert_eq!(text, "1 measures against victims");
    let of_user = "VICTIMS' USER its user woke the daemon for nothing".to_owned();
    let text = faults(|it| it.measures.push(of_user.clone()));
    assert_eq!(text, "1 measures against victims");
    let text = faults(|it| {
        it.shares_user = true;
        it.measures.push(of_user);
    });
    assert_eq!(text, "", "it is against the attacker");
}

#[test]
fn an_ordinary_program_must_report_and_progress() {
    assert_eq!(faults(|it| it.ordinary_ms = None), "", "a row without one");
    let text = faults(|it| it.ordinary_ms = Some(None));
    assert_eq!(text, "the ordinary program did not report");
    let text = faults(|it| it.ordinary_ms = Some(Some(999)));
    assert_eq!(text, "the ordinary program got 999 ms");
}

#[test]
fn domains_must_attach_during_the_attack_and_in_time() {
    let report = |count, millis, refused: Option<&str>| {
        let (worst, refused) = (Duration::from_millis(millis), refused.map(str::to_owned));
        Some(Some(ArrivalReport { count, worst, refused }))
    };
    assert_eq!(faults(|it| it.arrivals = None), "", "a row without any");
    let text = faults(|it| it.arrivals = Some(None));
    assert_eq!(text, "the domains that attach did not report");
    assert_eq!(faults(|it| it.arrivals = report(0, 0, None)), "no domain attached meanwhile");
    let text = faults(|it| it.arrivals = report(3, 1, Some("busy")));
    assert_eq!(text, "after 3 domains one did not attach: busy");
    let text = faults(|it| it.arrivals = report(3, 6, None));
    assert_eq!(text, "a domain attached after 6.0ms");
}

#[test]
fn a_trouble_of_the_bench_breaks_a_row() {
    let text = faults(|it| it.troubles.push("the daemon ended".to_owned()));
    assert_eq!(text, "the daemon ended");
}
