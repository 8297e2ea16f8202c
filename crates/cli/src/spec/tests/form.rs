//! The form of error messages about a file. The property tests beside it and the fuzz target share
//! it; each brings its own `Spec`.

use super::{FAULTS_MAX, Spec};

/// Reads the file and checks the form of every error. Panics if an error has another form.
pub fn check(bytes: &[u8]) {
    let error = match Spec::parse("spec.toml", bytes) {
        Ok(spec) => {
            let places: Vec<usize> =
                spec.activities().iter().map(|activity| activity.place().position()).collect();
            assert!(places.is_sorted());
            assert!(!places.is_empty());
            return;
        }
        Err(error) => error,
    };
    let mut positions = Vec::new();
    for line in error.lines() {
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(line.chars().count() < 600, "{line:?}");
        let mut parts = line.splitn(4, ':');
        assert_eq!(parts.next(), Some("spec.toml"));
        positions.push((parts.next().and_then(number), parts.next().and_then(number)));
    }
    assert!((1..=FAULTS_MAX).contains(&positions.len()));
    assert!(positions.is_sorted(), "{error}");
    // A position must lie inside the file.
    let lines = bytes.iter().filter(|&&b| b == b'\n').count() + 1;
    for (line, _) in &positions {
        assert!(line.is_none_or(|line| (1..=lines).contains(&line)), "{error}");
    }
    assert!(error.to_string().lines().count() >= positions.len());
}

fn number(text: &str) -> Option<usize> {
    text.parse().ok()
}
