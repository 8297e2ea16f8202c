//! Rust source as words and signs, without comments, strings and lifetimes.
//!
//! Enough of the lexical structure (Rust reference, "Tokens") to ask whether a
//! word stands in a file *as code*. Called by the gates `unsafe`, `files` and
//! `loom`. It never fails: text that is no Rust gives some tokens or none.

/// A word (identifier, keyword or number) or a single sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// As written.
    pub text: &'a str,
    /// Line it stands on, from 1.
    pub line: usize,
}

/// The tokens of `source`, in order. O(length).
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while let Some(first) = rest.chars().next() {
        let (length, is_code) = next_piece(rest, first);
        let (piece, behind) = rest.split_at(length);
        if is_code {
            found.push(Token { text: piece, line });
        }
        line += piece.matches('\n').count();
        rest = behind;
    }
    found
}

/// Whether `tokens` begin with `texts`.
pub fn starts_with(tokens: &[Token<'_>], texts: &[&str]) -> bool {
    tokens.len() >= texts.len() && tokens.iter().zip(texts).all(|(token, text)| token.text == *text)
}

/// Length in bytes of the piece that `rest` begins with, at least 1 character,
/// and whether it is a token.
fn next_piece(rest: &str, first: char) -> (usize, bool) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), false);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), false);
    }
    if let Some(length) = raw_string(rest) {
        return (length, false);
    }
    match first {
        '"' => (quoted(rest, '"'), false),
        '\'' => (char_or_lifetime(rest), false),
        'b' | 'c' if rest[1..].starts_with('"') => (1 + quoted(&rest[1..], '"'), false),
        'b' if rest[1..].starts_with('\'') => (1 + quoted(&rest[1..], '\''), false),
        _ if is_word(first) => (rest.find(|c| !is_word(c)).unwrap_or(rest.len()), true),
        _ => (first.len_utf8(), !first.is_whitespace()),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Length of the block comment `rest` begins with; they nest.
fn block_comment(rest: &str) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if here.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Length of the raw string (`r"`, `br#"`, ...) `rest` begins with.
fn raw_string(rest: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
        rest.strip_prefix(prefix).is_some_and(|after| after.starts_with(['"', '#']))
    })?;
    let after = &rest[prefix.len()..];
    let hashes = after.find(|c| c != '#')?;
    // `r#name` is a raw identifier: no quote behind the hashes.
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let opening = prefix.len() + hashes + 1;
    Some(body.find(&end).map_or(rest.len(), |at| opening + at + end.len()))
}

/// Length of the literal `rest` begins with, up to the closing `quote`.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// Length of the character literal or lifetime `rest` begins with.
fn char_or_lifetime(rest: &str) -> usize {
    let mut chars = rest.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(rest, '\''),
        _ => 1 + rest[1..].find(|c| !is_word(c)).unwrap_or(rest.len() - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokens(source).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_strings_and_lifetimes_are_no_code() {
        assert_eq!(texts("a // b\nc /* d /* e */ f */ g"), ["a", "c", "g"]);
        assert_eq!(texts(r#"let s = "un\"safe"; t"#), ["let", "s", "=", ";", "t"]);
        assert_eq!(texts(r##"r#"a "b" c"# d br"e" f"##), ["d", "f"]);
        assert_eq!(texts(r"b'\'' x '\u{41}' y 'z' w"), ["x", "y", "w"]);
        assert_eq!(texts("&'static mut T"), ["&", "mut", "T"]);
        assert_eq!(texts("f('\"', unsafe_code)"), ["f", "(", ",", "unsafe_code", ")"]);
    }

    #[test]
    fn raw_identifiers_are_code() {
        assert_eq!(texts("r#type + crate"), ["r", "#", "type", "+", "crate"]);
    }

    #[test]
    fn lines_count_through_strings_and_comments() {
        let all = tokens("\"a\nb\"\n/*\n*/ here");
        assert_eq!(all, [Token { text: "here", line: 4 }]);
    }

    #[test]
    fn text_that_ends_too_early_is_no_fault() {
        for source in ["\"abc", "/* /* */", "r#\"abc\"", "'", "b'", "'\\", "é'é", "r##"] {
            let _ = tokens(source);
        }
    }
}
