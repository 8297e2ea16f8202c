//! A listening socket that a service manager opened and passes on (sd_listen_fds(3)).

use super::listener::Listener;
use crate::OsError;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use std::env;
use std::ffi::OsStr;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The first descriptor that a service manager passes.
const FIRST: RawFd = 3;

/// Whether this process has taken its descriptor.
static TAKEN: AtomicBool = AtomicBool::new(false);

impl Listener {
    /// The socket that a service manager passed to this process. `None` if none was passed, or if
    /// an earlier call took it. The function reads `LISTEN_PID` and `LISTEN_FDS` and leaves the
    /// environment unchanged. It makes the socket non-blocking and closed on exec. Does not block.
    /// Allocates.
    ///
    /// # Errors
    /// `EINVAL` if more than one socket was passed. `EPROTOTYPE` if the descriptor is no listening
    /// Unix socket of kind `SOCK_SEQPACKET`. `EBADF`, `ENOTSOCK`.
    pub fn passed() -> Result<Option<Listener>, OsError> {
        const OPERATION: &str = "LISTEN_FDS";
        let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        if number("LISTEN_PID") != Some(std::process::id()) {
            return Ok(None);
        }
        match number("LISTEN_FDS") {
            None | Some(0) => return Ok(None),
            Some(1) => {}
            Some(_) => return Err(OsError::new(OPERATION, libc::EINVAL)),
        }
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Ok(None);
        }
        // SAFETY: F_GETFD reads a flag and accepts any number.
        if unsafe { libc::fcntl(FIRST, libc::F_GETFD) } < 0 {
            return Err(OsError::last(OPERATION));
        }
        // SAFETY: the descriptor is open. The service manager opened it for this process, which
        // LISTEN_PID names. `TAKEN` lets only one call per process take it.
        Listener::adopt(unsafe { OwnedFd::from_raw_fd(FIRST) }).map(Some)
    }

    /// Takes over a socket that already listens.
    ///
    /// # Errors
    /// `EPROTOTYPE` if `fd` is no listening Unix socket of kind `SOCK_SEQPACKET`. `ENOTSOCK`.
    fn adopt(fd: OwnedFd) -> Result<Listener, OsError> {
        let failed = OsError::of("getsockopt");
        let fits = sockopt::socket_domain(&fd).map_err(&failed)? == AddressFamily::UNIX
            && sockopt::socket_type(&fd).map_err(&failed)? == SocketType::SEQPACKET
            && sockopt::socket_acceptconn(&fd).map_err(&failed)?;
        if !fits {
            return Err(OsError::new("LISTEN_FDS", libc::EPROTOTYPE));
        }
        rustix::io::ioctl_fionbio(&fd, true).map_err(OsError::of("ioctl(FIONBIO)"))?;
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)
            .map_err(OsError::of("fcntl(F_SETFD)"))?;
        Ok(Listener::of(fd))
    }

    /// The path of the socket; `None` if it has none. One system call. Allocates.
    ///
    /// # Errors
    /// Stock Linux is not known to return one.
    pub fn path(&self) -> Result<Option<PathBuf>, OsError> {
        let address = rustix::net::getsockname(self.as_fd()).map_err(OsError::of("getsockname"))?;
        let address = SocketAddrUnix::try_from(address).map_err(OsError::of("getsockname"))?;
        let path = address.path().map(|path| OsStr::from_bytes(path.to_bytes()).into());
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::{Access, Connection};
    use rustix::net::SocketFlags;

    #[test]
    fn a_listening_socket_is_taken_over_and_accepts() {
        let folder = env::temp_dir().join(format!("upcall-passed-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("socket");
        let bound = Listener::bind(&path, Access::Owner).unwrap();
        // A service manager passes the socket blocking and kept on exec.
        let passed = rustix::io::dup(&bound).unwrap();
        rustix::io::ioctl_fionbio(&passed, false).unwrap();
        let listener = Listener::adopt(passed).unwrap();
        assert_eq!(listener.path().unwrap().as_deref(), Some(&*path));
        assert!(listener.accept().unwrap().is_none(), "it does not block");
        let flags = rustix::io::fcntl_getfd(listener.as_fd()).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        let _client = Connection::connect(&path).unwrap();
        assert!(listener.accept().unwrap().is_some());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn another_kind_of_descriptor_is_refused() {
        let errno = |fd: OwnedFd| Listener::adopt(fd).unwrap_err().raw_os_error();
        let socket =
            |kind| rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        assert_eq!(errno(socket(SocketType::STREAM).unwrap()), libc::EPROTOTYPE);
        // This socket does not listen.
        assert_eq!(errno(socket(SocketType::SEQPACKET).unwrap()), libc::EPROTOTYPE);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(errno(file.into()), libc::ENOTSOCK);
    }

    #[test]
    fn without_a_service_manager_no_socket_is_passed() {
        assert!(Listener::passed().unwrap().is_none());
    }
}
