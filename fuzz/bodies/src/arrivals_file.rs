//! Recorded arrivals from any bytes: a capture, a trace or a text. The reader accepts or refuses
//! them.

use upcall_cli::arrivals::{ARRIVALS_MAX, read};

/// The first two bytes are a port (0: none), and the rest is the file. Panics if the arrivals are
/// not in order, or if there are more with a port than without.
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
        // Without a port the file may be refused because of an arrival that the port leaves out.
        let most = all.map_or(usize::MAX, |all| all.at.len());
        assert!((1..=most).contains(&selected.at.len()) && selected.at.is_sorted());
    }
}
