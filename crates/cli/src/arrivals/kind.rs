//! The kinds of files that hold arrivals.

use core::fmt;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Packets, in the old format.
    Pcap,
    /// Packets, in the new format.
    PcapNg,
    /// A trace of `upcall run --trace` or `upcall sim --trace`.
    Trace,
    /// Text with one time a line.
    Text,
}

impl Kind {
    /// The kind of a file that begins with `head`, or `None` if it is of no known kind.
    pub(super) fn of(head: &[u8]) -> Option<Kind> {
        let white = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c);
        match head {
            [0xd4, 0xc3, 0xb2, 0xa1, ..] | [0xa1, 0xb2, 0xc3, 0xd4, ..] => Some(Kind::Pcap),
            [0x4d, 0x3c, 0xb2, 0xa1, ..] | [0xa1, 0xb2, 0x3c, 0x4d, ..] => Some(Kind::Pcap),
            [0x0a, 0x0d, 0x0d, 0x0a, ..] => Some(Kind::PcapNg),
            _ if head.iter().all(|byte| white(byte) || !byte.is_ascii_control()) => {
                Some(Kind::Text)
            }
            [0x0a, ..] => Some(Kind::Trace),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Pcap | Kind::PcapNg => "a capture",
            Kind::Trace => "a trace",
            Kind::Text => "a text",
        })
    }
}
