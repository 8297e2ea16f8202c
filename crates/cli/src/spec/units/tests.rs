//! Units: exact values are kept exactly, others are refused.

use super::*;
use Reason::{Malformed, Negative, TooFine, TooLarge, Unit};
use proptest::prelude::*;

#[test]
fn durations_are_exact() {
    for (text, ns) in [
        ("20 ms", 20_000_000),
        ("250 us", 250_000),
        ("1500 ns", 1_500),
        ("2 s", 2_000_000_000),
        ("1.5 ms", 1_500_000),
        ("10s", 10_000_000_000),
        (" 3\tmin ", 180_000_000_000),
        ("0.5 \u{b5}s", 500),
        ("0.5 \u{3bc}s", 500),
        ("0 ms", 0),
        ("007 ns", 7),
        ("0.000000001 s", 1),
        ("1.000000000000000000000000000000000000000000 ns", 1),
        // 0.1 + 0.2 in binary is not 0.3.
        ("0.3 s", 300_000_000),
        ("18446744073.709551615 s", u64::MAX),
        ("18446744073709551615 ns", u64::MAX),
    ] {
        assert_eq!(parse_duration(text), Ok(Span::from_nanos(ns)), "{text}");
    }
}

#[test]
fn sizes_are_decimal_or_binary() {
    for (text, bytes) in [
        ("1470 B", 1470),
        ("8 KiB", 8192),
        ("8kB", 8000),
        ("1 MiB", 1 << 20),
        ("1 MB", 1_000_000),
        ("1.5 GiB", 3 << 29),
        ("10 GB", 10_000_000_000),
        ("0.5 KiB", 512),
        ("18446744073.709551615 GB", u64::MAX),
    ] {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
}

#[test]
fn bandwidths_are_decimal() {
    for (text, bps) in [
        ("1.5 Mbit/s", 1_500_000),
        ("9600 bit/s", 9600),
        ("64kbit/s", 64_000),
        ("2.5 Gbit/s", 2_500_000_000),
    ] {
        assert_eq!(parse_bandwidth(text), Ok(bps), "{text}");
    }
}

#[test]
fn rates_are_rounded_up_to_a_millionth() {
    for (text, micro_hertz) in [
        ("90/s", 90_000_000),
        ("90 / s", 90_000_000),
        ("29.97/s", 29_970_000),
        ("30000/1001/s", 29_970_030),
        ("3/min", 50_000),
        ("1/min", 16_667),
        ("1/3/s", 333_334),
        ("1 / 4 / min", 4_167),
        ("0.000001/s", 1),
        ("0.0000000001/s", 1),
        ("0/s", 0),
        ("1000000000/s", 1_000_000_000_000_000),
        ("60000000000/min", 1_000_000_000_000_000),
        ("50 Hz", 50_000_000),
        (" 50Hz ", 50_000_000),
        ("30000/1001 Hz", 29_970_030),
        ("44.1 kHz", 44_100_000_000),
        ("1/3 kHz", 333_333_334),
        ("1000000 kHz", 1_000_000_000_000_000),
    ] {
        assert_eq!(parse_rate(text), Ok(Rate::from_micro_hertz(micro_hertz)), "{text}");
    }
}

#[test]
fn shares_are_millionths() {
    for (text, ppm) in
        [("45 %", 450_000), ("90%", 900_000), ("0.0001 %", 1), ("100.0 %", 1_000_000), ("0 %", 0)]
    {
        assert_eq!(parse_share(text), Ok(ppm), "{text}");
    }
}

/// The reason for which each text is refused as each quantity.
#[test]
fn each_refused_text_has_a_reason() {
    for (text, reason) in [
        ("", Malformed),
        ("ms", Malformed),
        ("20", Malformed),
        ("twenty ms", Malformed),
        (".5 ms", Malformed),
        ("5. ms", Malformed),
        ("1.2.3 ms", Malformed),
        ("+5 ms", Malformed),
        ("1-2 ms", Malformed),
        ("\u{663} ms", Malformed),
        ("- 5 ms", Malformed),
        ("--5 ms", Malformed),
        ("-5 ms", Negative),
        ("-0 ms", Negative),
        ("20 MS", Unit),
        ("20 h", Unit),
        ("2 ms 5 us", Unit),
        ("1e3 ms", Unit),
        ("1_000 ms", Unit),
        ("1,5 ms", Unit),
        ("20 ms/s", Unit),
        ("5 m s", Unit),
        ("0.5 ns", TooFine),
        ("1.0000001 ms", TooFine),
        ("0.0000000000000000000000001 s", TooFine),
        ("18446744073709551616 ns", TooLarge),
        ("18446744074 s", TooLarge),
        ("999999999999999999999999999999999999999999 ns", TooLarge),
    ] {
        let error = parse_duration(text).unwrap_err();
        assert_eq!(error.reason, reason, "{text}");
    }
    for (text, reason) in [
        ("1470", Malformed),
        ("-1 B", Negative),
        ("1.5 B", TooFine),
        ("0.0001 KiB", TooFine),
        ("8 KB", Unit),
        ("8 kiB", Unit),
        ("8 b", Unit),
        ("18446744074 GB", TooLarge),
        ("17179869184 GiB", TooLarge),
    ] {
        assert_eq!(parse_size(text).unwrap_err().reason, reason, "{text}");
    }
    for (text, reason) in [
        ("1", Malformed),
        ("-1 bit/s", Negative),
        ("0.5 bit/s", TooFine),
        ("1 Mbit", Unit),
        ("1 Mb/s", Unit),
        ("1 MB/s", Unit),
        ("18446744074 Gbit/s", TooLarge),
    ] {
        assert_eq!(parse_bandwidth(text).unwrap_err().reason, reason, "{text}");
    }
    for (text, reason) in [
        ("90", Malformed),
        ("/s", Malformed),
        ("90/", Malformed),
        ("90//s", Malformed),
        ("1/2/3/s", Malformed),
        ("1/0/s", Malformed),
        ("1/-2/s", Malformed),
        ("1/+2/s", Malformed),
        ("1/2.5/s", Malformed),
        ("1/4294967296/s", Malformed),
        ("-90/s", Negative),
        ("90/h", Unit),
        ("90/ms", Unit),
        ("90 fps", Unit),
        ("50 hz", Unit),
        ("50/Hz", Unit),
        ("90 s", Unit),
        ("1 mHz", Unit),
        ("1 MHz", Unit),
        ("Hz", Malformed),
        ("1/0 Hz", Malformed),
        ("1000000.001 kHz", TooLarge),
        ("18446744073709551615 kHz", TooLarge),
        ("0.0000000000000000001/s", TooFine),
        ("1000000000.1/s", TooLarge),
        ("1000000000001/min", TooLarge),
        ("99999999999999999999999/s", TooLarge),
    ] {
        assert_eq!(parse_rate(text).unwrap_err().reason, reason, "{text}");
    }
    for (text, reason) in [
        ("45", Malformed),
        ("%", Malformed),
        ("-1 %", Negative),
        ("45 percent", Unit),
        ("0.00001 %", TooFine),
        ("100.0001 %", TooLarge),
        ("99999999999999 %", TooLarge),
    ] {
        assert_eq!(parse_share(text).unwrap_err().reason, reason, "{text}");
    }
}

#[test]
fn an_error_says_what_was_found_and_expected() {
    for (error, text) in [
        (parse_duration("20").unwrap_err(), "found \"20\", expected a duration such as \"20 ms\""),
        (
            parse_duration("20 h").unwrap_err(),
            "found \"20 h\", expected a duration such as \"20 ms\", in ns, us, ms, s or min",
        ),
        (
            parse_size("-1 B").unwrap_err(),
            "found \"-1 B\", expected a size such as \"1470 B\", not negative",
        ),
        (parse_share("101 %").unwrap_err(), "found \"101 %\", expected a share of at most 100 %"),
        (
            parse_bandwidth("\n").unwrap_err(),
            "found \"\\n\", expected a bandwidth such as \"1.5 Mbit/s\"",
        ),
    ] {
        assert_eq!(error.to_string(), text);
    }
}

/// `count` of the stored unit, written as a decimal number of `unit`, with the places it needs.
/// Only for units that are powers of ten.
fn decimal(count: u64, unit: u64) -> String {
    let places = unit.ilog10() as usize;
    match places {
        0 => count.to_string(),
        _ => format!("{}.{:0places$}", count / unit, count % unit),
    }
}

proptest! {
    #[test]
    fn every_duration_is_read_back_in_every_unit(ns in any::<u64>(), space in "[ \t]{0,3}") {
        const UNITS: [(&str, u64); 5] =
            [("ns", 1), ("us", 1_000), ("\u{b5}s", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
        for (name, size) in UNITS {
            let text = format!("{}{space}{name}", decimal(ns, size));
            prop_assert_eq!(parse_duration(&text), Ok(Span::from_nanos(ns)), "{}", text);
        }
        let minutes = ns / 60_000_000_000;
        let whole = Span::from_nanos(minutes * 60_000_000_000);
        prop_assert_eq!(parse_duration(&format!("{minutes} min")), Ok(whole));
    }

    #[test]
    fn every_size_is_read_back_in_every_unit(bytes in any::<u64>()) {
        for (name, size) in [("B", 1), ("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)] {
            let text = format!("{} {name}", decimal(bytes, size));
            prop_assert_eq!(parse_size(&text), Ok(bytes), "{}", text);
        }
        for (name, shift) in [("KiB", 10), ("MiB", 20), ("GiB", 30)] {
            let whole = bytes >> shift;
            let text = format!("{whole} {name}");
            prop_assert_eq!(parse_size(&text), Ok(whole << shift), "{}", text);
        }
    }

    #[test]
    fn every_bandwidth_is_read_back_in_every_unit(bps in any::<u64>()) {
        const UNITS: [(&str, u64); 4] =
            [("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)];
        for (name, size) in UNITS {
            let text = format!("{} {name}", decimal(bps, size));
            prop_assert_eq!(parse_bandwidth(&text), Ok(bps), "{}", text);
        }
    }

    #[test]
    fn every_rate_and_share_is_read_back(
        micro_hertz in 0..=RATE_MAX.as_micro_hertz(),
        ppm in 0..=SHARE_PPM_MAX,
    ) {
        let text = format!("{}/s", decimal(micro_hertz, 1_000_000));
        prop_assert_eq!(parse_rate(&text), Ok(Rate::from_micro_hertz(micro_hertz)), "{}", text);
        let text = format!("{} %", decimal(u64::from(ppm), 10_000));
        prop_assert_eq!(parse_share(&text), Ok(ppm), "{}", text);
    }

    #[test]
    fn a_fraction_is_never_read_as_less(number in 0..1_000_000_u64, divisor in 1..=u32::MAX) {
        let text = format!("{number}/{divisor}/s");
        let read = u128::from(parse_rate(&text).unwrap().as_micro_hertz()) * u128::from(divisor);
        let asked = u128::from(number) * 1_000_000;
        prop_assert!(read >= asked && read < asked + u128::from(divisor), "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused_with_a_reason(
        text in "[0-9./ +eE%a-zA-Z\u{b5}-]{0,40}|.{0,40}",
    ) {
        for refused in [
            parse_duration(&text).err(),
            parse_size(&text).err(),
            parse_bandwidth(&text).err(),
            parse_rate(&text).err(),
            parse_share(&text).err(),
        ].into_iter().flatten() {
            prop_assert!(refused.to_string().starts_with("found \""));
        }
    }
}
