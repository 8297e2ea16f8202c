//! Compiles the programs of `fuzz/fuzz_targets` on stable Rust, without libFuzzer, so that no
//! change of a body breaks them unseen. Each becomes a test here, which calls its body without
//! bytes.

#![expect(unused_attributes, reason = "each program says that it has no `main`")]

// The programs name the crate of the macro.
extern crate self as libfuzzer_sys;

/// In the place of the macro of libFuzzer.
#[macro_export]
macro_rules! fuzz_target {
    (|$data:ident: &[u8]| $body:expr) => {
        #[test]
        fn accepts_nothing() {
            let $data: &[u8] = &[];
            $body;
        }
    };
}

/// The programs, each a module.
macro_rules! programs {
    ($($name:ident $path:literal),* $(,)?) => {
        $(#[path = $path] mod $name;)*

        #[test]
        fn every_target_is_compiled() {
            let compiled = [$(stringify!($name)),*];
            let targets = upcall_fuzz_bodies::TARGETS.iter().map(|(name, _)| *name);
            assert!(targets.eq(compiled), "expected all targets in their order");
        }
    };
}

programs! {
    spec "../../fuzz_targets/spec.rs",
    trace "../../fuzz_targets/trace.rs",
    arrivals "../../fuzz_targets/arrivals.rs",
    rmdp "../../fuzz_targets/rmdp.rs",
    rm "../../fuzz_targets/rm.rs",
    dws "../../fuzz_targets/dws.rs",
    ps "../../fuzz_targets/ps.rs",
    ps_account "../../fuzz_targets/ps_account.rs",
    ps_groups "../../fuzz_targets/ps_groups.rs",
    dwcs "../../fuzz_targets/dwcs.rs",
    wire "../../fuzz_targets/wire.rs",
    registry "../../fuzz_targets/registry.rs",
    user_area "../../fuzz_targets/user_area.rs",
    turn_page "../../fuzz_targets/turn_page.rs",
    kernel_area "../../fuzz_targets/kernel_area.rs",
    stream "../../fuzz_targets/stream.rs",
    event_channel "../../fuzz_targets/event_channel.rs",
    packet "../../fuzz_targets/packet.rs",
    packet_schedule "../../fuzz_targets/packet_schedule.rs",
    host "../../fuzz_targets/host.rs",
}
