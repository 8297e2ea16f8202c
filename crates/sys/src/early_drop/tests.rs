mod judged;
mod packets;
mod reference;

use super::*;
use std::process::Command;

/// Runs `work` on a thread with a network namespace of its own. It has the ends `ours` and
/// `theirs` of a veth pair, both up.
fn in_own_network(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        // SAFETY: changes the network of this thread only, which has no socket yet.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", OsError::last("unshare"));
        ip("link add ours type veth peer name theirs");
        ip("link set ours up");
        ip("link set theirs up");
        work();
    });
    thread.join().unwrap();
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs root and ip: attaches a program to an interface of its own network"]
fn the_program_is_attached_as_long_as_its_owner() {
    in_own_network(|| {
        let ours = crate::interface::index("ours").unwrap();
        let drop_early = EarlyDrop::attach(ours, Request::Auto).unwrap();
        assert_eq!((drop_early.mode(), drop_early.native_refusal()), (Mode::Native, None));
        assert!(ip("link show ours").contains("xdp"), "{}", ip("link show ours"));
        drop_early.map_quota_page().unwrap();
        let second = EarlyDrop::attach(ours, Request::Auto).unwrap_err();
        assert!(matches!(second, AttachError::Busy(_)), "{second}");
        drop(drop_early);
        assert!(!ip("link show ours").contains("xdp"), "{}", ip("link show ours"));
        let lo = crate::interface::index("lo").unwrap();
        let generic = EarlyDrop::attach(lo, Request::Auto).unwrap();
        assert_eq!(generic.mode(), Mode::Generic);
        assert!(generic.native_refusal().is_some());
        assert!(matches!(EarlyDrop::attach(lo, Request::Native), Err(AttachError::Busy(_))));
    });
}
