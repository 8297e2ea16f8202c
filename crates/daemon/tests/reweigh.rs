//! A claim of another share in a process whose admission is the daemon's.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use upcall_core::activity::{ActivityParams, Claim};
use upcall_core::admission::{Reason, Share};
use upcall_core::time::Span;

use support::Server;

/// The policy of this daemon has no shares. The claim changed nothing there, and the call must not
/// say that it did.
#[test]
fn a_domain_is_told_that_its_daemon_has_no_shares() {
    let server = Server::start(|_| {});
    let mut runtime = server.attach("domain");
    let params = ActivityParams::new(Span::from_millis(20), Span::from_micros(100));
    let handler = runtime.handler("video", params, |_| {}).unwrap();
    for claim in [Claim::Weight(7), Claim::Share(Share::from_ppm(200_000).unwrap())] {
        let refusal = runtime.reweigh(handler, claim).unwrap_err();
        assert_eq!(refusal.name, "video");
        assert_eq!(refusal.reason, Reason::NotShared { policy: "rmdp" });
    }
    drop(runtime);
    server.stop();
}
