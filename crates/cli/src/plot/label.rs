//! Names and numbers in the form that pictures show.

/// Most letters beside a row.
pub const LABEL_MAX: usize = 30;
/// Most letters of a name that has its count beside it.
pub const NAME_MAX: usize = 18;

/// A label of at most `letters_max` letters, with an ellipsis where it is cut.
pub fn shortened(label: &str, letters_max: usize) -> String {
    match label.char_indices().nth(letters_max) {
        Some((end, _)) => format!("{}…", &label[..end]),
        None => label.to_owned(),
    }
}

/// Nanoseconds as milliseconds, with all digits.
pub fn format_ms(ns: f64) -> String {
    trimmed(ns / 1e6) + " ms"
}

/// Six decimal places, without trailing zeros.
pub fn trimmed(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
