//! Recorded arrivals from any bytes: a capture, a trace or a text, read or refused.

use upcall_cli::arrivals::{ARRIVALS_MAX, read};

/// Two bytes are a port, 0 for none, and the rest is the file. Panics if arrivals come
/// out of order, or more by a port than without.
pub fn arrivals(data: &[u8]) {
    let Some((port, file)) = data.split_first_chunk() else { return };
    let port = Some(u16::from_be_bytes(*port)).filter(|&port| port > 0);
    let all = read(file, "audio", None);
    if let Ok(all) = &all {
        assert!(!all.at.is_empty() && all.at.len() <= ARRIVALS_MAX && all.at.is_sorted());
    }
    if port.is_some()
        && let Ok(selected) = read(file, "audio", port)
    {
        // What is left out may be what made the whole impossible.
        let most = all.map_or(usize::MAX, |all| all.at.len());
        assert!((1..=most).contains(&selected.at.len()) && selected.at.is_sorted());
    }
}
