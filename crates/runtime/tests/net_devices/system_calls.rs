//! What receiving costs.

use super::files::packet;
use super::frames::{AnyPort, ends, receive, send};
use super::interfaces::{in_own_network, veth};
use super::packet_ring::ring;
use super::xdp::xdp;
use upcall_core::time::Instant;
use upcall_sys::early_drop::Request;

const FRAMES: u32 = 48;
/// This file is not there. A look for it shows up among the other calls.
const MARK: &str = "/upcall-mark-";

fn mark(name: &str) {
    assert!(!std::path::Path::new(&format!("{MARK}{name}")).exists());
}

/// Receives all frames that `ours` sends, and marks each call that finds none.
fn receive_marked(mut ours: AnyPort, mut theirs: AnyPort) {
    let route = (ends()[0], ends()[1]);
    receive(&mut theirs, Instant::ZERO, route, 1).unwrap();
    assert_eq!(send(&mut ours, Instant::ZERO, route, 0..FRAMES), FRAMES);
    let mut parts = Vec::with_capacity(4);
    let mut received = 0;
    mark("first");
    while received < FRAMES {
        theirs.receive(Instant::ZERO, &mut parts).unwrap();
        if parts.is_empty() {
            mark("none");
        }
        received += u32::try_from(parts.len()).unwrap();
        parts.drain(..).for_each(|part| theirs.release(part.frame).unwrap());
    }
    mark("last");
}

/// Runs `test` under strace, and checks that only receive calls that find nothing cost a system
/// call, one each.
fn costs_no_system_call(test: &str, work: fn()) {
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls.txt");
    in_own_network(test, &["strace", "-f", "-o", calls.to_str().unwrap()], work);
    // The inner process ends here too.
    if std::env::var_os("UPCALL_OWN_NETWORK").is_some() {
        return;
    }
    let calls = std::fs::read_to_string(calls).unwrap();
    let line_of = |name: &str| {
        calls.lines().position(|line| line.contains(&format!("{MARK}{name}"))).unwrap()
    };
    let (first, last) = (line_of("first"), line_of("last"));
    let thread = calls.lines().nth(first).unwrap().split(' ').next().unwrap();
    let between = calls.lines().skip(first + 1).take(last - first - 1);
    let (found_none, other): (Vec<&str>, Vec<&str>) =
        between.filter(|line| line.starts_with(thread)).partition(|line| line.contains(MARK));
    println!("{} calls found none", found_none.len());
    assert_eq!(other.len(), found_none.len(), "{other:#?}");
}

#[test]
#[ignore = "needs root, ip, unshare and strace: an interface in its own network"]
fn frames_that_come_over_af_xdp_cost_no_system_call() {
    let test = "system_calls::frames_that_come_over_af_xdp_cost_no_system_call";
    costs_no_system_call(test, || {
        veth();
        let (theirs, _program) = xdp("theirs", Request::Native);
        receive_marked(packet("ours"), theirs);
    });
}

#[test]
#[ignore = "needs root, ip, unshare and strace: an interface in its own network"]
fn frames_that_come_over_a_packet_ring_cost_no_system_call() {
    let test = "system_calls::frames_that_come_over_a_packet_ring_cost_no_system_call";
    costs_no_system_call(test, || {
        veth();
        receive_marked(packet("ours"), ring("theirs"));
    });
}
