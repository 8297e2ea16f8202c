//! Finds the known key that a misspelt key stands for.
//!
//! The table calls it for unknown keys only.

/// Longest key that is compared. A longer key is no typing error.
const KEY_BYTES_MAX: usize = 32;

/// The known key that `key` most likely stands for, the first one of equals. They differ by at most
/// two letters that were added, left out, changed or swapped with an adjacent one. In a key of up
/// to five letters it is one letter, because two would make another word. Case, and `-` in place
/// of `_`, do not count.
pub(super) fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    if key.len() > KEY_BYTES_MAX {
        return None;
    }
    let key: Vec<char> = key.to_lowercase().replace('-', "_").chars().collect();
    let most = if key.len() <= 5 { 1 } else { 2 };
    let distances = known.iter().map(|known| (distance(&key, known), *known));
    let (distance, nearest) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= most).then_some(nearest)
}

/// Number of edits between the two texts: insertions, deletions, changes and swaps of adjacent
/// letters (optimal string alignment). O(product of the lengths).
fn distance(from: &[char], to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    rows[0] = (0..=to.len()).collect();
    for i in 1..=from.len() {
        rows[i][0] = i;
        for j in 1..=to.len() {
            let change = usize::from(from[i - 1] != to[j - 1]);
            let mut least =
                (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["rate", "frame_rate", "cost", "class", "cpus"];

    #[test]
    fn a_typing_error_finds_its_key() {
        for (typed, meant) in [
            ("rte", "rate"),
            ("raet", "rate"),
            ("Rate", "rate"),
            ("frame-rate", "frame_rate"),
            ("cots", "cost"),
            ("clas", "class"),
            ("cpu", "cpus"),
            ("farme_rat", "frame_rate"),
        ] {
            assert_eq!(nearest(typed, KNOWN), Some(meant), "{typed}");
        }
    }

    #[test]
    fn a_different_word_finds_no_key() {
        for typed in ["", "x", "xyz", "name", "period", "deadline", &"rate".repeat(100)] {
            assert_eq!(nearest(typed, KNOWN), None, "{typed}");
        }
        assert_eq!(nearest("rate", &[]), None);
    }
}
