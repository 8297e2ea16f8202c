//! No content of a file makes the reader panic, and all its errors keep their form.

use super::{STREAM, TASK};
use crate::spec::{FAULTS_MAX, Source, Spec};
use form::check;
use proptest::prelude::*;

#[path = "form.rs"]
mod form;

const CONTRACT: &str = include_str!("../../../../../examples/contract.toml");

/// Pieces that are inserted into a valid file; they mean something to the reader.
const PIECES: &[&str] = &[
    "[[stream]]\n",
    "[[task]]\n",
    "[[background]]\n",
    "[task]\n",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'''",
    "\"\"\"",
    "=",
    ".",
    ",",
    "#",
    "\n",
    "\r\n",
    "\\",
    "\\u0000",
    "\u{feff}",
    "\u{202e}",
    "\u{4e2d}",
    "-",
    "+",
    "0",
    "1e9",
    "nan",
    "0x",
    "true",
    "1979-05-27",
    "9223372036854775808",
    "\"0 ms\"",
    "\"-1 ms\"",
    "\"99999999999999999999999999 s\"",
    "\"1/0/s\"",
    "\"udp://\"",
    "\"xdp://eth1/127.0.0.1:1\"",
    "\"[::1]:1\"",
    "name = \"t1\"\n",
    "same_cpu_as = \"t1\"\n",
    "rate = \"1/s\"\n",
    "size = \"1 B\"\n",
    "spin = 1\n",
    "command = []\n",
    "class = \"bulk\"\n",
    "policy = \"ps\"\n",
    "cpus = [0, 0]\n",
    "a.b.c = 1\n",
];

/// A place in a text, in millionths of its length.
fn place(text: &str, millionths: u64) -> usize {
    let at = u128::from(millionths) * text.len() as u128 / 1_000_000;
    let mut at = usize::try_from(at).unwrap_or(0).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// One change to a text: a part removed, a piece inserted.
fn change(text: &mut String, (from, length, piece): (u64, usize, usize)) {
    let start = place(text, from);
    let mut end = (start + length).min(text.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    text.replace_range(start..end, PIECES.get(piece).copied().unwrap_or_default());
}

/// One line of a text copied or moved to another place.
fn shuffle(text: &str, (from, to, copy): (usize, usize, bool)) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let from = from % lines.len();
    let line = if copy { lines[from] } else { lines.remove(from) };
    lines.insert(to % (lines.len() + 1), line);
    lines.join("\n")
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_in_form(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
    }

    #[test]
    fn arbitrary_text_is_refused_in_form(text in any::<String>()) {
        check(text.as_bytes());
    }

    #[test]
    fn pieces_in_any_order_are_read_in_form(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40),
    ) {
        check(pieces.concat().as_bytes());
    }

    #[test]
    fn a_changed_file_is_read_in_form(
        changes in prop::collection::vec((0..1_000_000_u64, 0..30_usize, 0..80_usize), 1..6),
        moves in prop::collection::vec(any::<(usize, usize, bool)>(), 0..4),
    ) {
        let mut text = format!("{CONTRACT}{STREAM}{TASK}");
        for line in moves {
            text = shuffle(&text, line);
        }
        for one in changes {
            change(&mut text, one);
        }
        check(text.as_bytes());
    }

    #[test]
    fn a_file_with_bytes_replaced_is_read_in_form(
        bytes in prop::collection::vec((0..1_000_000_u64, any::<u8>()), 1..10),
    ) {
        let mut text = CONTRACT.as_bytes().to_vec();
        for (at, byte) in bytes {
            let at = place(CONTRACT, at);
            text[at] = byte;
        }
        check(&text);
    }

    #[test]
    fn an_error_anywhere_has_an_excerpt(
        text in any::<String>(),
        from in 0..300_usize,
        length in 0..9_usize,
    ) {
        let source = Source::new("spec.toml", &text);
        let error = source.error_at(from..from + length, "key", "this", "that").to_string();
        prop_assert!(error.starts_with("spec.toml:"));
    }

    #[test]
    fn a_value_of_any_text_is_read_in_form(
        line in 0..30_usize,
        value in any::<String>(),
    ) {
        let mut lines: Vec<String> = CONTRACT.lines().map(str::to_string).collect();
        let line = line % lines.len();
        if let Some((key, _)) = lines[line].split_once('=') {
            lines[line] = format!("{key}= {value:?}");
        }
        check(lines.join("\n").as_bytes());
    }
}
