//! Rust source as words, signs, comments and literals.
//!
//! Enough of the lexical structure (Rust reference, "Tokens") to tell code from comments and
//! strings. The gates `unsafe`, `files` and `loom` call it. It never fails: text that is no Rust
//! gives some tokens or none.

/// A word (identifier, keyword or number) or a single sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// As written.
    pub text: &'a str,
    /// Its line, from 1.
    pub line: usize,
}

/// A stretch of source text of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// What it is.
    pub kind: Kind,
    /// As written.
    pub text: &'a str,
    /// The line it begins on, from 1.
    pub line: usize,
}

/// What a piece of source text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A word or a sign.
    Code,
    /// A comment: of a line or of a block, also a doc comment.
    Comment,
    /// A string, a character, or a lifetime.
    Literal,
    /// One character of white space.
    Space,
}

/// All of `source` as pieces, in order. O(length).
pub fn pieces(source: &str) -> impl Iterator<Item = Piece<'_>> {
    let (mut rest, mut line) = (source, 1);
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let (length, kind) = next_piece(rest, first);
        let (text, behind) = rest.split_at(length);
        let piece = Piece { kind, text, line };
        line += text.matches('\n').count();
        rest = behind;
        Some(piece)
    })
}

/// The words and signs of `source`, in order. O(length).
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let code = pieces(source).filter(|piece| piece.kind == Kind::Code);
    code.map(|piece| Token { text: piece.text, line: piece.line }).collect()
}

/// Whether `tokens` begin with `texts`.
pub fn starts_with(tokens: &[Token<'_>], texts: &[&str]) -> bool {
    tokens.len() >= texts.len() && tokens.iter().zip(texts).all(|(token, text)| token.text == *text)
}

/// The length in bytes of the first piece of `rest`, at least 1 character, and its kind.
fn next_piece(rest: &str, first: char) -> (usize, Kind) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), Kind::Comment);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), Kind::Comment);
    }
    if let Some(length) = raw_string(rest) {
        return (length, Kind::Literal);
    }
    match first {
        '"' => (quoted(rest, '"'), Kind::Literal),
        '\'' => (char_or_lifetime(rest), Kind::Literal),
        'b' | 'c' if rest[1..].starts_with('"') => (1 + quoted(&rest[1..], '"'), Kind::Literal),
        'b' if rest[1..].starts_with('\'') => (1 + quoted(&rest[1..], '\''), Kind::Literal),
        _ if is_word(first) => (rest.find(|c| !is_word(c)).unwrap_or(rest.len()), Kind::Code),
        _ if first.is_whitespace() => (first.len_utf8(), Kind::Space),
        _ => (first.len_utf8(), Kind::Code),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Length of the block comment at the start of `rest`. Block comments nest.
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

/// Length of the raw string (`r"`, `br#"`, ...) at the start of `rest`.
fn raw_string(rest: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
        rest.strip_prefix(prefix).is_some_and(|after| after.starts_with(['"', '#']))
    })?;
    let after = &rest[prefix.len()..];
    let hashes = after.find(|c| c != '#')?;
    // `r#name` is a raw identifier: no quote follows the hashes.
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let opening = prefix.len() + hashes + 1;
    Some(body.find(&end).map_or(rest.len(), |at| opening + at + end.len()))
}

/// Length of the literal at the start of `rest`, up to the closing `quote`.
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

/// Length of the character literal or lifetime at the start of `rest`.
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
    fn text_that_ends_too_early_is_accepted() {
        for source in ["\"abc", "/* /* */", "r#\"abc\"", "'", "b'", "'\\", "é'é", "r##"] {
            let _ = tokens(source);
        }
    }
}
