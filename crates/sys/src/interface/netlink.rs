//! Requests to the kernel on netlink(7) sockets, and the attributes of its replies.
//!
//! Only what a list needs: one request, and its replies until the last. Everything that the kernel
//! sends is checked for its length.

use std::os::fd::OwnedFd;

use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

use crate::OsError;

/// `struct nlmsghdr`.
const HEAD_BYTES: usize = 16;
/// `struct genlmsghdr`.
pub(super) const GENERIC_HEAD_BYTES: usize = 4;
/// The kernel sends at most 32 KiB at once to a reader with this buffer.
const BUFFER_BYTES: usize = 32 * 1024;
/// The most bytes of all replies: a list of interfaces that is longer is no list.
const REPLY_BYTES_MAX: usize = 64 << 20;

const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The numbers of families begin here.
const CONTROL: u16 = 16;

const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;

/// A netlink socket.
pub(super) struct Socket {
    socket: OwnedFd,
    sequence: u32,
}

/// A message of the kernel, without its head.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) kind: u16,
    pub(super) content: Vec<u8>,
}

/// The head of a request to a generic family.
pub(super) fn generic_head(command: u8) -> [u8; GENERIC_HEAD_BYTES] {
    [command, 1, 0, 0]
}

impl Socket {
    /// A socket for links.
    pub(super) fn route() -> Result<Self, OsError> {
        // `NETLINK_ROUTE` is protocol 0.
        Socket::open(None)
    }

    /// A socket for generic families.
    pub(super) fn generic() -> Result<Self, OsError> {
        Socket::open(Some(GENERIC))
    }

    fn open(protocol: Option<rustix::net::Protocol>) -> Result<Self, OsError> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, protocol);
        let socket = socket.map_err(OsError::of("socket(AF_NETLINK)"))?;
        Ok(Socket { socket, sequence: 0 })
    }

    /// Sends a request for a list, and returns all replies.
    pub(super) fn dump(&mut self, kind: u16, content: &[u8]) -> Result<Vec<Reply>, OsError> {
        self.send(kind, REQUEST | DUMP, content)?;
        let mut all = Vec::new();
        let mut bytes = 0;
        loop {
            let replies = self.receive()?;
            bytes += replies.iter().map(|reply| reply.content.len()).sum::<usize>();
            for reply in replies {
                if reply.kind == DONE {
                    return Ok(all);
                }
                all.push(reply);
            }
            if bytes > REPLY_BYTES_MAX {
                return Err(OsError::new("recv(AF_NETLINK)", libc::EMSGSIZE));
            }
        }
    }

    /// Sends a request for one thing, and returns the replies.
    pub(super) fn ask(&mut self, kind: u16, content: &[u8]) -> Result<Vec<Reply>, OsError> {
        self.send(kind, REQUEST, content)?;
        self.receive()
    }

    /// Sends a request to make something, or to change what is there.
    pub(super) fn create(&mut self, kind: u16, content: &[u8]) -> Result<(), OsError> {
        self.send(kind, REQUEST | ACKNOWLEDGE | CREATE, content)?;
        self.receive().map(drop)
    }

    /// The number of a generic family; `None`: this kernel has none of this name.
    pub(super) fn family(&mut self, name: &str) -> Result<Option<u16>, OsError> {
        const GET_FAMILY: u8 = 3;
        const FAMILY_ID: u16 = 1;
        const FAMILY_NAME: u16 = 2;
        let mut content = generic_head(GET_FAMILY).to_vec();
        let bytes = u16::try_from(4 + name.len() + 1).unwrap_or(u16::MAX);
        content.extend([bytes.to_ne_bytes(), FAMILY_NAME.to_ne_bytes()].concat());
        content.extend(name.as_bytes());
        content.push(0);
        content.resize(content.len().next_multiple_of(4), 0);
        self.send(CONTROL, REQUEST, &content)?;
        let replies = match self.receive() {
            Err(error) if error.is_not_found() => return Ok(None),
            replies => replies?,
        };
        let of = |reply: &Reply| {
            let mut attributes = Attributes::of(reply.content.get(GENERIC_HEAD_BYTES..)?);
            let number = attributes.find(|attribute| attribute.kind == FAMILY_ID)?;
            Some(u16::from_ne_bytes(number.content.try_into().ok()?))
        };
        Ok(replies.iter().find_map(of))
    }

    fn send(&mut self, kind: u16, flags: u16, content: &[u8]) -> Result<(), OsError> {
        self.sequence += 1;
        let bytes = u32::try_from(HEAD_BYTES + content.len()).unwrap_or(u32::MAX);
        let mut message = bytes.to_ne_bytes().to_vec();
        message.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        message.extend([self.sequence.to_ne_bytes(), [0; 4]].concat());
        message.extend(content);
        let kernel = SocketAddrNetlink::new(0, 0);
        let sent = sendto(&self.socket, &message, SendFlags::empty(), &kernel);
        sent.map(drop).map_err(OsError::of("sendto(AF_NETLINK)"))
    }

    /// The next messages of the kernel. An error message is an error.
    fn receive(&mut self) -> Result<Vec<Reply>, OsError> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let received = loop {
            match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => continue,
                other => break other,
            }
        };
        let (bytes, _) = received.map_err(OsError::of("recv(AF_NETLINK)"))?;
        messages(&buffer[..bytes.min(BUFFER_BYTES)], self.sequence)
    }
}

/// The messages in `bytes` that answer request `sequence`.
fn messages(mut bytes: &[u8], sequence: u32) -> Result<Vec<Reply>, OsError> {
    let mut all = Vec::new();
    while let Some((head, _)) = bytes.split_first_chunk::<HEAD_BYTES>() {
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = word(0) as usize;
        let Some(content) = bytes.get(HEAD_BYTES..length) else { break };
        let kind = u16::from_ne_bytes([head[4], head[5]]);
        if word(8) == sequence {
            if kind == ERROR
                && let Some((number, _)) = content.split_first_chunk::<4>()
                && let number @ ..0 = i32::from_ne_bytes(*number)
            {
                return Err(OsError::new("a request on AF_NETLINK", number.saturating_neg()));
            }
            all.push(Reply { kind, content: content.to_vec() });
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(all)
}

/// The attributes of a message.
pub(super) struct Attributes<'b>(&'b [u8]);

/// An attribute.
pub(super) struct Attribute<'b> {
    /// Without its flags.
    pub(super) kind: u16,
    pub(super) content: &'b [u8],
}

impl<'b> Attributes<'b> {
    pub(super) fn of(content: &'b [u8]) -> Self {
        Attributes(content)
    }
}

impl<'b> Iterator for Attributes<'b> {
    type Item = Attribute<'b>;

    fn next(&mut self) -> Option<Attribute<'b>> {
        /// `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
        const FLAGS: u16 = 0xc000;
        let (head, _) = self.0.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & !FLAGS;
        let content = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Attribute { kind, content })
    }
}

impl Attribute<'_> {
    pub(super) fn u32(&self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.content.try_into().ok()?))
    }

    pub(super) fn u64(&self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.content.try_into().ok()?))
    }

    /// A text that ends with a zero.
    pub(super) fn text(&self) -> String {
        let text = self.content.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, sequence: u32, content: &[u8]) -> Vec<u8> {
        let bytes = u32::try_from(HEAD_BYTES + content.len()).unwrap();
        let mut message = bytes.to_ne_bytes().to_vec();
        message.extend([kind.to_ne_bytes(), [0; 2]].concat());
        message.extend([sequence.to_ne_bytes(), [0; 4]].concat());
        message.extend(content);
        message.resize(message.len().next_multiple_of(4), 0);
        message
    }

    #[test]
    fn messages_of_other_requests_are_left_out() {
        let bytes = [message(16, 1, b"old"), message(16, 2, b"new")].concat();
        let found = messages(&bytes, 2).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].kind, &found[0].content[..]), (16, &b"new"[..]));
        for at in 0..bytes.len() {
            let _ = messages(&bytes[..at], 2);
        }
    }

    #[test]
    fn an_error_of_the_kernel_is_an_error() {
        let refused = message(ERROR, 1, &(-1i32).to_ne_bytes());
        assert!(messages(&refused, 1).is_err());
        let acknowledged = message(ERROR, 1, &0i32.to_ne_bytes());
        assert!(messages(&acknowledged, 1).is_ok());
    }

    #[test]
    fn an_unknown_family_is_no_error() {
        let mut socket = Socket::generic().unwrap();
        assert_eq!(socket.family("upcall-none").unwrap(), None);
        assert!(socket.family("nlctrl").unwrap().is_some());
    }
}
