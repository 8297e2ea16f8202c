//! Work that runs although admission refused it.

use super::*;
use upcall_runtime::status::status;

#[test]
fn work_that_was_refused_runs_below_all_and_is_no_offence() {
    let daemon = Running::start(|config| config.switch_cost = Some(Span::from_micros(20)));
    let mut reserved = daemon.domain("reserved");
    let attach = Attach { socket: daemon.socket.clone(), name: "soft".to_owned() };
    let config =
        RuntimeConfig { daemon: Some(attach), unscreened: true, ..RuntimeConfig::default() };
    let mut soft = Runtime::start(config).unwrap();
    // 85 % of the CPU are reserved, and little of them is used.
    let wide = ActivityParams::new(Span::from_millis(20), Span::from_millis(17));
    let first = reserved.handler("wide", wide, |batch| while batch.proceed() {}).unwrap();
    let refused = soft.handler("soft", params(2), spin).unwrap();
    reserved.run(first).unwrap();
    soft.run(refused).unwrap();
    let give_up = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        soft.poll(|_, _| {});
        reserved.poll(|_, _| {});
        let jobs = [soft.statistics(refused), reserved.statistics(first)];
        if jobs.iter().flatten().all(|statistics| statistics.jobs > 20) {
            break;
        }
        assert!(std::time::Instant::now() < give_up, "not 20 jobs of both in a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
    let reply = status(&daemon.socket).unwrap();
    let shown: Vec<_> = (reply.domains.iter().flat_map(|domain| &domain.activities))
        .map(|activity| (activity.name.as_str(), activity.unscreened, activity.reserved_ppm))
        .collect();
    assert_eq!(shown, [("wide", false, 850_000), ("soft", true, 0)]);
    // Its reservations leave room as if it were not there.
    let mut third = daemon.domain("third");
    third
        .handler("fits", ActivityParams::new(Span::from_millis(20), Span::from_micros(500)), |_| {})
        .unwrap();
    drop((soft, reserved, third));
    let is_false = |event: &DaemonEvent| {
        matches!(event, DaemonEvent::Offence { measure: Measure::Disbelieved, .. })
    };
    assert!(!daemon.stop().iter().any(is_false));
}
