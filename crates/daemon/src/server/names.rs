//! Texts of clients as the daemon shows them: in its log, its status and its metrics.
//!
//! A text of another user could otherwise forge a line, control a terminal or fill a log.

use std::fmt::Write as _;

/// The most characters of a text that are shown.
const SHOWN_MAX: usize = 64;

/// The text without control characters and without characters that change the direction or the
/// place of others, and not longer than 64 characters. Such characters become escapes.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (number, character) in text.chars().enumerate() {
        if number == SHOWN_MAX {
            shown.push('…');
            break;
        }
        match is_invisible(character) {
            // Writing to a String does not fail.
            true => drop(write!(shown, "{}", character.escape_default())),
            false => shown.push(character),
        }
    }
    shown
}

/// Control characters, and the format characters of Unicode that reorder, join or hide text.
fn is_invisible(character: char) -> bool {
    let formats = ['\u{ad}', '\u{61c}', '\u{180e}', '\u{feff}'];
    character.is_control()
        || formats.contains(&character)
        || ('\u{200b}'..='\u{200f}').contains(&character)
        || ('\u{2028}'..='\u{202e}').contains(&character)
        || ('\u{2060}'..='\u{206f}').contains(&character)
        || ('\u{fff9}'..='\u{fffb}').contains(&character)
        || ('\u{e0000}'..='\u{e007f}').contains(&character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_forge_a_line_or_control_a_terminal() {
        assert_eq!(shown("player 1 `ä`"), "player 1 `ä`");
        assert_eq!(shown("a\nupcalld: b\x1b[2J"), "a\\nupcalld: b\\u{1b}[2J");
        assert_eq!(shown("abc\u{202e}fdp"), "abc\\u{202e}fdp");
        assert_eq!(shown(&"x".repeat(1_000)), format!("{}…", "x".repeat(64)));
        assert_eq!(shown(&"x".repeat(64)), "x".repeat(64));
    }
}
