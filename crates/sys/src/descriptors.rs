//! How many descriptors this process may have.
//!
//! Called by benches and tests that need thousands; see getrlimit(2), `RLIMIT_NOFILE`.

use crate::OsError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises what this process allows itself to what it may be allowed, and says how many that is
/// (`u64::MAX`: no limit). Two system calls. Programs that use select(2) must not: its sets end at 1024.
///
/// # Errors
/// What the kernel said; none that stock Linux is known to return.
pub fn raise_limit() -> Result<u64, OsError> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .map_err(OsError::of("setrlimit(RLIMIT_NOFILE)"))?;
    Ok(maximum.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_it_may_be_at_most() {
        let most = raise_limit().unwrap();
        let now = getrlimit(Resource::Nofile);
        assert_eq!((now.current, now.maximum.unwrap_or(u64::MAX)), (now.maximum, most));
    }
}
