//! What a network thread tells the server: that a flow or the thread itself has ended.
//!
//! The thread sends and never waits. The server receives.

use upcall_sys::local::{Connection, Received};

/// Something that the server must know at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkReport {
    /// The program of this session broke a queue of its flow, which is closed.
    Broken { session: u64 },
    /// The interface of this session's flow is down or gone.
    Gone { session: u64 },
    /// The thread with this number ends.
    Ended { number: u64 },
}

const BYTES: usize = 16;
const BROKEN: u64 = 1;
const GONE: u64 = 2;
const ENDED: u64 = 3;

impl NetworkReport {
    /// Sends it. Does not block. `false`: there is no room.
    pub(super) fn send(self, reports: &Connection) -> bool {
        let (kind, number) = match self {
            NetworkReport::Broken { session } => (BROKEN, session),
            NetworkReport::Gone { session } => (GONE, session),
            NetworkReport::Ended { number } => (ENDED, number),
        };
        let mut bytes = [0; BYTES];
        // Native order: both ends are threads of this process.
        bytes[..8].copy_from_slice(&kind.to_ne_bytes());
        bytes[8..].copy_from_slice(&number.to_ne_bytes());
        reports.send(&bytes, &[]).is_ok()
    }

    /// The next one. `None`: there is none. Does not block.
    pub(crate) fn receive(reports: &Connection) -> Option<NetworkReport> {
        let mut bytes = [0; BYTES];
        loop {
            let Ok(Received { len: BYTES, .. }) = reports.receive(&mut bytes) else { return None };
            let (&[kind, number], _) = bytes.as_chunks::<8>() else { return None };
            let [kind, number] = [kind, number].map(u64::from_ne_bytes);
            match kind {
                BROKEN => return Some(NetworkReport::Broken { session: number }),
                GONE => return Some(NetworkReport::Gone { session: number }),
                ENDED => return Some(NetworkReport::Ended { number }),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_report_comes_back_as_it_was() {
        let (server, thread) = Connection::pair().unwrap();
        let all = [
            NetworkReport::Broken { session: 1 },
            NetworkReport::Gone { session: u64::MAX },
            NetworkReport::Ended { number: 2 },
        ];
        assert!(all.into_iter().all(|report| report.send(&thread)));
        for report in all {
            assert_eq!(NetworkReport::receive(&server), Some(report));
        }
        assert_eq!(NetworkReport::receive(&server), None);
    }
}
