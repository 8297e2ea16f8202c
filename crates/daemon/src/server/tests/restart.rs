//! A daemon that ends, and another one that starts at the same socket while domains run.

use super::status::ByHand;
use super::*;
use upcall_core::discipline::DWCS;
use upcall_runtime::status::{Status, status};
use upcall_runtime::{CreateError, Notice};
use upcall_shm::wire::{Need, ToDaemon, ToDomain};

impl Running {
    /// Starts another daemon at the same socket.
    fn restart(&mut self, change: impl FnOnce(&mut Config)) {
        let (stopper, thread) = Running::serve(&self.socket, change);
        (self.stopper, self.thread) = (stopper, Some(thread));
    }
}

/// Sets a fixed cost of hand-offs, so that two daemons admit the same activities.
fn priced(config: &mut Config) {
    config.switch_cost = Some(Span::from_micros(20));
}

/// As `priced`, for a daemon that takes no claim.
fn taking_no_claim(config: &mut Config) {
    priced(config);
    config.claims_within = Span::ZERO;
}

fn completed(domains: &mut [Runtime], handlers: &[Vec<HandlerId>]) -> Vec<u64> {
    let mut counts = Vec::new();
    for (domain, ids) in domains.iter_mut().zip(handlers) {
        domain.poll(|_, _| {});
        counts.extend(ids.iter().map(|&id| domain.statistics(id).unwrap().jobs));
    }
    counts
}

/// Waits until each handler has completed some more jobs.
#[track_caller]
fn wait_for_jobs(domains: &mut [Runtime], handlers: &[Vec<HandlerId>]) {
    let before = completed(domains, handlers);
    wait_until("jobs of all", || {
        let now = completed(domains, handlers);
        now.iter().zip(&before).all(|(now, before)| *now > before + 3)
    });
}

/// All reservations, as the daemon's status shows them.
fn reserved(status: &Status) -> Vec<(u32, u32, String, u64, String)> {
    let mut all: Vec<_> = status
        .domains
        .iter()
        .flat_map(|domain| {
            domain.activities.iter().map(|activity| {
                let name = activity.name.clone();
                (activity.order, activity.cpu, name, activity.reserved_ppm, domain.name.clone())
            })
        })
        .collect();
    all.sort_unstable();
    all
}

fn handoffs(status: &Status) -> u64 {
    status
        .domains
        .iter()
        .flat_map(|domain| &domain.virtual_processors)
        .map(|virtual_processor| virtual_processor.counters.handoffs)
        .sum()
}

/// Running domains, each with a handler of 20 % and one of 10 %.
fn set(daemon: &Running, names: &[&str]) -> (Vec<Runtime>, Vec<Vec<HandlerId>>) {
    let mut domains: Vec<_> = names.iter().map(|name| daemon.domain(name)).collect();
    let handlers: Vec<Vec<_>> = domains
        .iter_mut()
        .map(|domain| {
            let create = |period_ms: u64| {
                let params =
                    ActivityParams::new(Span::from_millis(period_ms), Span::from_micros(500));
                domain.handler(&format!("t{period_ms}"), params.batch(4), spin).unwrap()
            };
            [10, 20].map(create).to_vec()
        })
        .collect();
    for (domain, ids) in domains.iter_mut().zip(&handlers) {
        domain.run_at(ids, upcall_runtime::clock::now()).unwrap();
    }
    (domains, handlers)
}

#[test]
fn domains_keep_their_reservations_across_daemons() {
    let mut daemon = Running::start(priced);
    let (mut domains, handlers) = set(&daemon, &["left", "right"]);
    wait_for_jobs(&mut domains, &handlers);
    let before = reserved(&status(&daemon.socket).unwrap());
    assert_eq!(before.len(), 4, "{before:?}");

    for _ in 0..2 {
        daemon.end();
        wait_for_jobs(&mut domains, &handlers);
        let error = domains[0].handler("new", params(100), spin).unwrap_err();
        assert!(matches!(error, CreateError::Daemon(_)), "{error:?}");

        daemon.restart(priced);
        wait_until("domain attached again", || {
            reserved(&status(&daemon.socket).unwrap()) == before
        });
        wait_until("turn", || {
            let reply = status(&daemon.socket).unwrap();
            reply.domains.iter().all(|domain| domain.virtual_processors.len() == 1)
        });
        let passed = handoffs(&status(&daemon.socket).unwrap());
        wait_for_jobs(&mut domains, &handlers);
        wait_until("hand-offs", || handoffs(&status(&daemon.socket).unwrap()) > passed + 10);
    }

    // 60 % are reserved, and the hand-offs' share.
    let mut new_domain = daemon.domain("new");
    let wide = ActivityParams::new(Span::from_millis(10), Span::from_millis(4));
    let error = new_domain.handler("wide", wide, spin).unwrap_err();
    assert!(matches!(error, CreateError::RefusedByDaemon { .. }), "{error:?}");
    // A new activity comes last in the order, and a closed one has gone.
    let small = domains[1].handler("small", params(100), spin).unwrap();
    domains[1].run(small).unwrap();
    close(&mut domains[0], handlers[0][0]);
    let after = reserved(&status(&daemon.socket).unwrap());
    assert_eq!(after.len(), 4, "{after:?}");
    assert_eq!(after[..3], before[1..]);
    assert_eq!(after[3].2, "small");
    assert!(domains.iter().all(|domain| domain.notices().iter().all(is_of_rights)));
    let reports: Vec<_> = domains.into_iter().map(|domain| domain.stop(|_, _| {})).collect();
    assert!(reports.iter().all(|report| report.stuck.is_empty()));
    drop(new_domain);
    daemon.stop_without_offence("domains_keep_their_reservations_across_daemons");
}

fn is_of_rights(notice: &Notice) -> bool {
    !matches!(notice, Notice::NotTakenOver { .. })
}

#[test]
fn activities_closed_without_a_daemon_are_not_claimed() {
    let mut daemon = Running::start(priced);
    let (mut domains, handlers) = set(&daemon, &["one"]);
    daemon.end();
    wait_until("detached domain", || domains[0].handler("new", params(100), spin).is_err());
    close(&mut domains[0], handlers[0][1]);
    daemon.restart(priced);
    let names = || {
        let reply = reserved(&status(&daemon.socket).unwrap());
        reply.into_iter().map(|(_, _, name, ..)| name).collect::<Vec<_>>()
    };
    wait_until("claim", || !names().is_empty());
    wait_until("second attachment", || domains[0].handler("new", params(100), spin).is_ok());
    assert_eq!(names(), ["t10", "new"]);
    drop(domains);
    daemon.stop();
}

#[test]
fn a_late_claim_is_refused_and_its_activity_runs_on_below_all_with_a_notice() {
    let mut daemon = Running::start(priced);
    let (mut domains, handlers) = set(&daemon, &["one"]);
    wait_for_jobs(&mut domains, &handlers);
    daemon.end();
    daemon.restart(taking_no_claim);
    wait_until("notices", || {
        domains[0].poll(|_, _| {});
        domains[0].notices().iter().filter(|notice| !is_of_rights(notice)).count() == 2
    });
    let refused = domains[0].notices().iter().filter_map(|notice| match notice {
        Notice::NotTakenOver { activity, reason } => Some((activity.as_str(), reason.as_str())),
        _ => None,
    });
    let late = "the claim came too late after the start of the daemon";
    assert_eq!(refused.collect::<Vec<_>>(), [("t10", late), ("t20", late)]);
    assert_eq!(reserved(&status(&daemon.socket).unwrap()), []);
    wait_for_jobs(&mut domains, &handlers);
    drop(domains);
    assert!(!daemon.stop().iter().any(is_false_rank), "ranks below all are allowed");
}

#[test]
fn a_claim_beyond_a_lower_limit_is_granted() {
    let mut daemon = Running::start(priced);
    let (mut domains, handlers) = set(&daemon, &["one"]);
    daemon.end();
    daemon.restart(|config| {
        priced(config);
        config.cpu_limit = Share::from_ppm(250_000).unwrap();
    });
    wait_until("claims", || reserved(&status(&daemon.socket).unwrap()).len() == 2);
    wait_for_jobs(&mut domains, &handlers);
    domains[0].poll(|_, _| {});
    assert!(domains[0].notices().iter().all(is_of_rights), "{:?}", domains[0].notices());
    drop(domains);
    daemon.stop();
}

#[test]
fn domains_do_not_attach_to_a_daemon_with_another_policy() {
    let mut daemon = Running::start(priced);
    let (mut domains, handlers) = set(&daemon, &["one"]);
    daemon.end();
    daemon.restart(|config| {
        priced(config);
        config.discipline = &upcall_core::discipline::DWS;
    });
    wait_for_jobs(&mut domains, &handlers);
    let events = daemon.end();
    assert!(
        !events.iter().any(|event| matches!(event, DaemonEvent::Attached { .. })),
        "{events:?}"
    );
    daemon.restart(priced);
    wait_until("claims", || reserved(&status(&daemon.socket).unwrap()).len() == 2);
    drop(domains);
    daemon.stop();
}

#[test]
fn a_false_claim_gets_no_used_place_and_no_excess_capacity() {
    let mut daemon = Running::start(priced);
    let (mut domains, handlers) = set(&daemon, &["honest"]);
    daemon.end();
    daemon.restart(priced);
    wait_until("claims", || reserved(&status(&daemon.socket).unwrap()).len() == 2);
    let before = reserved(&status(&daemon.socket).unwrap());
    let false_claimant = ByHand::connect(&daemon);
    let (_, _, cpu, _) = false_claimant.attach();
    let claim = |order: u32, cpu: u32, percent: u64| {
        let need = Need {
            period_ns: 10_000_000,
            deadline_ns: 10_000_000,
            batch: 1,
            quantum: 1,
            pdu_cost_ns: percent * 100_000,
            ..Need::default()
        };
        let name = "lie".to_owned();
        false_claimant.send(&ToDaemon::Claim {
            request: 1,
            unscreened: false,
            cpu,
            order,
            need,
            name,
        });
        loop {
            match false_claimant.receive() {
                Some((ToDomain::Refused { reason, .. }, _)) => return Some(reason),
                Some((ToDomain::Granted { .. }, _)) => return None,
                // The honest domain's thread may attach after its claims.
                Some((ToDomain::Peer { .. }, _)) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let taken = before[0].0;
    assert!(claim(taken, cpu, 1).unwrap().contains("is taken"));
    assert!(claim(5, cpu, 75).unwrap().contains("would"));
    assert!(claim(5, cpu + 1, 1).unwrap().contains("not among those"));
    for never_granted in [3 << 30, u32::MAX, u32::MAX - 1] {
        assert!(claim(never_granted, cpu, 1).unwrap().contains("no former daemon granted it"));
    }
    assert_eq!(reserved(&status(&daemon.socket).unwrap()), before);
    // A plausible claim is granted.
    assert_eq!(claim(5, cpu, 1), None);
    wait_for_jobs(&mut domains, &handlers);
    drop((domains, false_claimant));
    daemon.stop();
}

/// A domain asks the next daemon for the share of its event server. If another one has it by then,
/// the event server ends with a notice.
#[test]
fn event_servers_keep_their_shares_across_daemons_or_end_with_a_notice() {
    let windows = |config: &mut Config| {
        priced(config);
        config.discipline = &DWCS;
    };
    let mut daemon = Running::start(windows);
    let attach = |daemon: &Running, name: &str| {
        let attach = Some(Attach { socket: daemon.socket.clone(), name: name.to_owned() });
        let config = RuntimeConfig { daemon: attach, discipline: &DWCS, ..Default::default() };
        Runtime::start(config).unwrap()
    };
    let cpu = *schedule::allowed_cpus().unwrap().last().unwrap();
    let half = Share::from_ppm(500_000);
    let mut one = attach(&daemon, "one");
    one.reserve_events(cpu, half).unwrap();
    let is_free = |other: &mut Runtime| {
        let granted = other.reserve_events(cpu, half).is_ok();
        other.reserve_events(cpu, None).unwrap();
        granted
    };
    let mut other = attach(&daemon, "other");
    assert!(!is_free(&mut other));
    drop(other);
    daemon.end();
    daemon.restart(windows);
    // Another domain that asked for the share meanwhile would be granted it.
    wait_until("claim", || {
        let cpus = status(&daemon.socket).unwrap().cpus;
        cpus.iter().any(|of| of.cpu == cpu && of.reserved_ppm >= 500_000)
    });
    let mut other = attach(&daemon, "other");
    assert!(!is_free(&mut other));
    let ends = |domain: &mut Runtime| {
        domain.poll(|_, _| {});
        domain.notices().iter().any(|notice| matches!(notice, Notice::NoEventServer { .. }))
    };
    assert!(!ends(&mut one));
    // The next daemon admits no half of a CPU.
    drop(other);
    daemon.end();
    daemon.restart(|config| {
        windows(config);
        config.cpu_limit = Share::from_ppm(400_000).unwrap();
    });
    wait_until("notice", || ends(&mut one));
    let less = Share::from_ppm(400_000);
    wait_until("attachment", || one.reserve_events(cpu, less).is_ok());
    drop(one);
    daemon.stop();
}
