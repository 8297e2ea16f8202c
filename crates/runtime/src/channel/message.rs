//! The messages between service and client when a client registers, calls or leaves. Events do not
//! use them.
//!
//! A message begins with 9 bytes: the version and the kind. Numbers follow in native byte order,
//! because both processes are on one machine.

use super::errors::ServiceRefusal;
use super::event::Words;
use super::segment::Forms;

const VERSION: &[u8; 8] = b"upchan01";
/// The length of the longest message.
pub(super) const BYTES_MAX: usize = 64;

/// A message to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToService {
    /// `signal` is the signal that notifies the client. 0 stands for its wake word.
    Register {
        signal: i32,
        value: i32,
    },
    Call(Words),
    /// The client leaves in order.
    Bye,
}

/// A message to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToClient {
    /// Comes with the descriptor of the channel's memory.
    Registered(Forms),
    Reply(Words),
    Refused(ServiceRefusal),
    Bye,
}

/// An encoded message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoded {
    bytes: [u8; BYTES_MAX],
    len: usize,
}

impl Encoded {
    fn new(kind: u8, numbers: &[u8]) -> Self {
        let mut bytes = [0; BYTES_MAX];
        bytes[..8].copy_from_slice(VERSION);
        bytes[8] = kind;
        bytes[9..9 + numbers.len()].copy_from_slice(numbers);
        Encoded { bytes, len: 9 + numbers.len() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl ToService {
    pub(super) fn encode(&self) -> Encoded {
        match self {
            ToService::Register { signal, value } => {
                let mut numbers = [0; 8];
                numbers[..4].copy_from_slice(&signal.to_ne_bytes());
                numbers[4..].copy_from_slice(&value.to_ne_bytes());
                Encoded::new(1, &numbers)
            }
            ToService::Call(words) => Encoded::new(2, &words.map(u64::to_ne_bytes).concat()),
            ToService::Bye => Encoded::new(3, &[]),
        }
    }

    /// `None` if the bytes are no message that a client of this version sends.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        match split(bytes)? {
            (1, numbers) => {
                let (signal, value) = numbers.split_at_checked(4)?;
                let number = |bytes: &[u8]| Some(i32::from_ne_bytes(bytes.try_into().ok()?));
                Some(ToService::Register { signal: number(signal)?, value: number(value)? })
            }
            (2, numbers) => Some(ToService::Call(words(numbers)?)),
            (3, []) => Some(ToService::Bye),
            _ => None,
        }
    }
}

impl ToClient {
    pub(super) fn encode(&self) -> Encoded {
        match self {
            ToClient::Registered(forms) => {
                Encoded::new(1, &forms.to_words().map(u32::to_ne_bytes).concat())
            }
            ToClient::Reply(words) => Encoded::new(2, &words.map(u64::to_ne_bytes).concat()),
            ToClient::Refused(refusal) => Encoded::new(
                3,
                &[match refusal {
                    ServiceRefusal::Full => 1,
                    ServiceRefusal::NoCall => 2,
                    ServiceRefusal::Signal => 3,
                    ServiceRefusal::Resources => 4,
                }],
            ),
            ToClient::Bye => Encoded::new(4, &[]),
        }
    }

    /// `None` if the bytes are no message that a service of this version sends.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        match split(bytes)? {
            (1, numbers) => {
                let mut found = [0; 6];
                if numbers.len() != 24 {
                    return None;
                }
                for (number, bytes) in found.iter_mut().zip(numbers.chunks_exact(4)) {
                    *number = u32::from_ne_bytes(bytes.try_into().ok()?);
                }
                Some(ToClient::Registered(Forms::from_words(found)?))
            }
            (2, numbers) => Some(ToClient::Reply(words(numbers)?)),
            (3, [1]) => Some(ToClient::Refused(ServiceRefusal::Full)),
            (3, [2]) => Some(ToClient::Refused(ServiceRefusal::NoCall)),
            (3, [3]) => Some(ToClient::Refused(ServiceRefusal::Signal)),
            (3, [4]) => Some(ToClient::Refused(ServiceRefusal::Resources)),
            (4, []) => Some(ToClient::Bye),
            _ => None,
        }
    }
}

/// Splits a message into its kind and its numbers.
fn split(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (kind, numbers) = bytes.strip_prefix(VERSION)?.split_first()?;
    Some((*kind, numbers))
}

fn words(numbers: &[u8]) -> Option<Words> {
    let mut found = Words::default();
    if numbers.len() != size_of::<Words>() {
        return None;
    }
    for (word, bytes) in found.iter_mut().zip(numbers.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use upcall_shm::channel::Form;

    #[test]
    fn messages_decode_to_what_was_encoded_and_prefixes_do_not_decode() {
        let forms = Forms {
            to_service: Form::Slots { levels: 3, depth: 4 },
            to_client: Form::Ring { slots: 8 },
        };
        let words = [1, 2, 3, 4, u64::MAX];
        for message in
            [ToService::Register { signal: 40, value: -1 }, ToService::Call(words), ToService::Bye]
        {
            let bytes = message.encode();
            assert_eq!(ToService::decode(bytes.bytes()), Some(message));
            for len in 0..bytes.bytes().len() {
                assert_eq!(ToService::decode(&bytes.bytes()[..len]), None, "{message:?}");
            }
        }
        let refusals = [
            ServiceRefusal::Full,
            ServiceRefusal::NoCall,
            ServiceRefusal::Signal,
            ServiceRefusal::Resources,
        ];
        let message = [ToClient::Registered(forms), ToClient::Reply(words), ToClient::Bye];
        for message in message.into_iter().chain(refusals.map(ToClient::Refused)) {
            let bytes = message.encode();
            assert_eq!(ToClient::decode(bytes.bytes()), Some(message));
            for len in 0..bytes.bytes().len() {
                assert_eq!(ToClient::decode(&bytes.bytes()[..len]), None, "{message:?}");
            }
        }
        assert_eq!(ToClient::decode(b"upchan02\x04"), None);
    }
}
