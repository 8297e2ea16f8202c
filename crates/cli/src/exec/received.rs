//! What the packet quotas of a program did, in the report of `upcall exec`.

use serde::Serialize;

use crate::ps;

/// What a quota did, as the JSON shows it. Documented in docs/contract.md.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Received {
    pub destination: String,
    pub interval_ns: u64,
    pub depth: u32,
    /// Whether the daemon kept the quota to the end.
    pub kept_to_end: bool,
    /// Null: the daemon has ended.
    pub passed: Option<u64>,
    pub dropped: Option<u64>,
}

impl Received {
    /// The line for people.
    pub fn line(&self) -> String {
        let Received { destination, depth, .. } = self;
        let limit = format!("{}, {depth} at once", rate(self.interval_ns));
        match (self.passed, self.dropped) {
            (Some(0), Some(0)) => format!(
                "{destination}: no packet came (quota {limit}): is it the port of the program, and \
                 do its packets come by an interface of the daemon?"
            ),
            (Some(passed), Some(dropped)) => format!(
                "{destination}: {passed} packets passed, {dropped} were dropped (quota {limit})"
            ),
            _ => format!(
                "{destination}: limited until the daemon ended, packets not counted (quota {limit})"
            ),
        }
    }
}

/// Packets a second.
pub fn rate(interval_ns: u64) -> String {
    format!("{} packets/s", ps::packet_quotas::rate(interval_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_passed_and_what_was_dropped() {
        let received = Received {
            destination: "udp:5004".to_owned(),
            interval_ns: 10_101_010,
            depth: 3,
            kept_to_end: true,
            passed: Some(900),
            dropped: Some(48_000),
        };
        let line = received.line();
        let expected = "udp:5004: 900 packets passed, 48000 were dropped \
                        (quota 99.0 packets/s, 3 at once)";
        assert_eq!(line, expected);
        let none = Received { passed: Some(0), dropped: Some(0), ..received.clone() };
        assert!(none.line().contains("no packet came"), "{}", none.line());
        let gone = Received { passed: None, dropped: None, ..received };
        assert!(gone.line().contains("not counted"), "{}", gone.line());
    }
}
