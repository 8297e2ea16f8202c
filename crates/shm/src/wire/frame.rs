//! The frame of a message: its head, words and texts, and the checks on their lengths. The
//! [module's head](super) has the table.

use core::fmt;
use std::collections::VecDeque;

/// Version of the messages.
pub const PROTOCOL_VERSION: u32 = 12;
/// The greatest length of a message.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// The greatest length of a text, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Why a datagram is not a message: a fault of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// The datagram is shorter or longer than its head states, or longer than any message.
    Length {
        /// Bytes received.
        found: usize,
    },
    /// The datagram is of another version.
    Version {
        /// The version found.
        found: u32,
    },
    /// This end knows no such message.
    Kind {
        /// The kind found.
        found: u32,
    },
    /// The words or texts do not fit the kind, or one is out of its range.
    Content {
        /// The kind of the message.
        kind: u32,
    },
    /// A text is not UTF-8, or is too long.
    Text,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            WireError::Length { found } => {
                write!(f, "an incomplete message of {found} bytes")
            }
            WireError::Version { found } => {
                write!(f, "protocol version {found}, expected {PROTOCOL_VERSION}")
            }
            WireError::Kind { found } => write!(f, "unknown message {found}"),
            WireError::Content { kind } => write!(f, "message {kind} with content out of range"),
            WireError::Text => {
                write!(f, "a text that is not UTF-8 of at most {TEXT_BYTES_MAX} bytes")
            }
        }
    }
}

impl core::error::Error for WireError {}

/// A datagram in parts, with its lengths checked.
pub(super) struct Frame {
    pub(super) kind: u32,
    pub(super) words: Vec<u64>,
    pub(super) texts: VecDeque<String>,
}

const HEAD_BYTES: usize = 16;

impl Frame {
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let length = WireError::Length { found: bytes.len() };
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(length);
        }
        let mut rest = bytes;
        let version = take_u32(&mut rest).ok_or(length)?;
        if version != PROTOCOL_VERSION {
            return Err(WireError::Version { found: version });
        }
        let kind = take_u32(&mut rest).ok_or(length)?;
        let counts = take_u32(&mut rest).zip(take_u32(&mut rest));
        let (word_count, text_count) = counts.ok_or(length)?;
        let mut words = Vec::new();
        for _ in 0..word_count {
            let (word, behind) = rest.split_first_chunk().ok_or(length)?;
            words.push(u64::from_ne_bytes(*word));
            rest = behind;
        }
        let mut texts = VecDeque::new();
        for _ in 0..text_count {
            let len = take_u32(&mut rest).ok_or(length)? as usize;
            let (text, behind) = rest.split_at_checked(len).ok_or(length)?;
            let text = core::str::from_utf8(text).map_err(|_| WireError::Text)?;
            if text.len() > TEXT_BYTES_MAX {
                return Err(WireError::Text);
            }
            texts.push_back(text.to_owned());
            rest = behind;
        }
        if !rest.is_empty() {
            return Err(length);
        }
        Ok(Frame { kind, words, texts })
    }
}

pub(super) fn encode(kind: u32, words: &[u64], texts: &[&String]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + words.len() * 8);
    let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    for head in [PROTOCOL_VERSION, kind, count(words.len()), count(texts.len())] {
        bytes.extend(head.to_ne_bytes());
    }
    words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
    for text in texts {
        let mut end = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let cut = &text[..end];
        bytes.extend(count(cut.len()).to_ne_bytes());
        bytes.extend(cut.as_bytes());
    }
    debug_assert!(bytes.len() <= MESSAGE_BYTES_MAX);
    bytes
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    let (found, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u32::from_ne_bytes(*found))
}

pub(super) fn narrow(word: u64, content: WireError) -> Result<u32, WireError> {
    u32::try_from(word).map_err(|_| content)
}

pub(super) fn flag(word: u64, content: WireError) -> Result<bool, WireError> {
    match word {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(content),
    }
}
