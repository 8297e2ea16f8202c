//! A claim of another share in a process whose admission is the daemon's.

use upcall_core::activity::{ActivityParams, Claim};
use upcall_core::admission::{Reason, Share};
use upcall_core::time::Span;
use upcall_daemon::server::{Config, Daemon};
use upcall_runtime::{Attach, Config as RuntimeConfig, Runtime};

/// A daemon has no PS. The claim changed nothing there, and the call must not say that it did.
#[test]
fn a_domain_is_told_that_its_daemon_has_no_shares() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("upcalld");
    let cpu = *upcall_runtime::default_cpus().unwrap().last().unwrap();
    let daemon = Daemon::start(Config::new(socket.clone(), vec![cpu])).unwrap();
    let stopper = daemon.stopper();
    let thread = std::thread::spawn(move || daemon.run(|_, _| {}));
    let attach = Some(Attach { socket, name: "domain".to_owned() });
    let config = RuntimeConfig { daemon: attach, ..RuntimeConfig::default() };
    let mut runtime = Runtime::start(config).unwrap();
    let params = ActivityParams::new(Span::from_millis(20), Span::from_micros(100));
    let handler = runtime.handler("video", params, |_| {}).unwrap();
    for claim in [Claim::Weight(7), Claim::Share(Share::from_ppm(200_000).unwrap())] {
        let refusal = runtime.reweigh(handler, claim).unwrap_err();
        assert_eq!(refusal.name, "video");
        assert_eq!(refusal.reason, Reason::NotShared { policy: "rmdp" });
    }
    drop(runtime);
    stopper.stop();
    thread.join().unwrap();
}
