//! The frame of a message: its head, words and texts, and the checks on their lengths. The table is
//! in the [module's head](super).

use core::fmt;
use std::collections::VecDeque;

/// Of the messages below.
pub const PROTOCOL_VERSION: u32 = 4;
/// No message is longer.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// No name or reason is longer, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;

/// What came is no message: the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// Shorter or longer than its head says, or than any message is.
    Length {
        /// Bytes that came.
        found: usize,
    },
    /// Of another version.
    Version {
        /// That one.
        found: u32,
    },
    /// No such message at this end.
    Kind {
        /// That one.
        found: u32,
    },
    /// Other words or texts than the kind has, or one out of its range.
    Content {
        /// Of which kind.
        kind: u32,
    },
    /// A text that is not UTF-8, or too long.
    Text,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            WireError::Length { found } => {
                write!(f, "a message of {found} bytes that is not whole")
            }
            WireError::Version { found } => {
                write!(f, "protocol version {found}, expected {PROTOCOL_VERSION}")
            }
            WireError::Kind { found } => write!(f, "unknown message {found}"),
            WireError::Content { kind } => write!(f, "message {kind} with content out of range"),
            WireError::Text => {
                write!(f, "a text that is no UTF-8 of at most {TEXT_BYTES_MAX} bytes")
            }
        }
    }
}

impl core::error::Error for WireError {}

/// A datagram taken apart, its lengths checked.
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
