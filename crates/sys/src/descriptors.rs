//! The limit of open descriptors of this process.
//!
//! Benches and tests that need thousands of descriptors call this. See getrlimit(2),
//! `RLIMIT_NOFILE`.

use crate::OsError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit and returns it (`u64::MAX`: no limit). Two system calls.
/// Programs that use the C library's select(2) must not call it: their sets end at 1024.
///
/// # Errors
/// The kernel's error. Stock Linux is not known to return one.
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
    fn the_soft_limit_becomes_the_hard_limit() {
        let most = raise_limit().unwrap();
        let now = getrlimit(Resource::Nofile);
        assert_eq!((now.current, now.maximum.unwrap_or(u64::MAX)), (now.maximum, most));
    }
}
