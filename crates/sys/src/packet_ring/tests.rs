use super::*;
use std::io::Write;

const FORM: PacketRingForm =
    PacketRingForm { block_bytes: 16384, blocks: 4, slot_bytes: 2048, slots: 16 };

#[test]
fn sizes_that_do_not_fit_are_refused() {
    for form in [
        PacketRingForm { slot_bytes: 0, ..FORM },
        PacketRingForm { slot_bytes: 32768, ..FORM },
        PacketRingForm { block_bytes: 1000, slot_bytes: 500, ..FORM },
        PacketRingForm { slots: 15, ..FORM },
        PacketRingForm { blocks: 0, ..FORM },
    ] {
        match PacketRing::open(1, form) {
            Err(error) if error.is_permission() => {
                // Not by a macro, because the output of a passing test is hidden.
                let test = "packet_ring::tests::sizes_that_do_not_fit_are_refused";
                let _ = writeln!(std::io::stderr(), "skipped: {test}: {error}");
                return;
            }
            Err(error) => assert_eq!(error.raw_os_error(), libc::EINVAL, "{error}"),
            Ok(_) => panic!("{form:?} is taken"),
        }
    }
}

#[test]
fn a_missing_right_or_interface_is_an_error() {
    let error = PacketRing::open(u32::MAX >> 1, FORM).unwrap_err();
    let expected = [libc::EPERM, libc::ENODEV, libc::ENXIO];
    assert!(expected.contains(&error.raw_os_error()), "{error}");
}
