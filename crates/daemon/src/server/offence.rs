//! Offences: passes them from the watchdog's thread to the domain and to the daemon's program. The
//! watchdog also reports threads that have ended.
//!
//! The watchdog sends and never waits for the server. This module receives.

use core::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall_core::time::Span;
use upcall_shm::wire::ToDomain;
use upcall_sys::OsError;
use upcall_sys::local::{Connection, Received};
use upcall_sys::process::Signal;

use super::daemon::Daemon;
use super::event::{DaemonEvent, Trouble};
use super::session::VirtualProcessor;
use crate::watchdog::{Measure, Offence, Report};

const OFFENCE_BYTES: usize = 32;

impl Daemon {
    pub(super) fn take_offences(&mut self) {
        let mut buffer = [0; OFFENCE_BYTES];
        while let Ok(Received { len: OFFENCE_BYTES, .. }) = self.offences.receive(&mut buffer) {
            let Some(report) = decode(&buffer) else { continue };
            let (Report::Offence(Offence { generation, .. })
            | Report::ThreadEnded { generation, .. }
            | Report::Unseen { generation, .. }) = report;
            let generation = NonZeroU64::new(generation);
            let session = generation.and_then(|generation| self.session_of(generation));
            match (session, report) {
                (Some(session), Report::Offence(offence)) => self.take_offence(session, offence),
                (Some(session), Report::ThreadEnded { cpu, .. }) => self.end_thread(session, cpu),
                (Some(_), Report::Unseen { cpu, error, .. }) => {
                    self.events.push(DaemonEvent::Trouble(Trouble::Unseen { cpu, error }));
                }
                // The session has ended meanwhile.
                (None, _) => {}
            }
        }
        self.make_up_for_lost_reports();
    }

    /// Says how many reports were lost, and finds out what they said of threads that have ended.
    fn make_up_for_lost_reports(&mut self) {
        // Relaxed: a count.
        let count = self.reports_lost.swap(0, Ordering::Relaxed);
        if count == 0 {
            return;
        }
        self.events.push(DaemonEvent::Trouble(Trouble::LostReports { count }));
        let mut ended = Vec::new();
        for (&number, session) in &self.sessions {
            let all = session.domain.iter().flat_map(|domain| &domain.virtual_processors);
            let has_ended = |of: &&VirtualProcessor| {
                of.member.as_ref().is_some_and(|member| member.thread.has_ended())
            };
            ended.extend(all.filter(has_ended).map(|of| (number, of.group.cpu)));
        }
        ended.into_iter().for_each(|(session, cpu)| self.end_thread(session, cpu));
    }

    fn take_offence(&mut self, session: u64, offence: Offence) {
        let Offence { cpu, measure, held_ns, .. } = offence;
        let message = ToDomain::Offence { cpu, measure: measure as u32, held_ns };
        // A failure is ignored: an unresponsive domain is dealt with elsewhere.
        let _ = self.send(session, &message, &[]);
        let Ok(domain) = self.domain_of(session).map(|domain| domain.number.number()) else {
            return;
        };
        let name = self.registry.name(domain).unwrap_or_default().to_owned();
        let held = Span::from_nanos(held_ns);
        self.events.push(DaemonEvent::Offence { domain, name, cpu, measure, held });
        if measure == Measure::Killed
            && let Some(session) = self.sessions.get(&session)
        {
            let killed = session.process.send_signal(Signal::Kill);
            self.report_error(killed);
        }
    }
}

/// The number of a report that is no measure: the thread has ended.
const THREAD_ENDED: u64 = 0;
/// The same: the CPU time of the thread cannot be read, with the number of the error.
const UNSEEN: u64 = u64::MAX;
/// The operation of that error.
const READ: &str = "read(/proc/pid/task/tid/schedstat)";

/// Sends reports through `reports`. Never blocks: a report that finds no room is counted in `lost`.
/// The watchdog calls it. The counts in the kernel area remain.
pub(super) fn sender(reports: Connection, lost: Arc<AtomicU64>) -> impl FnMut(Report) {
    move |report| {
        if reports.send(&encode(&report), &[]).is_err() {
            // Relaxed: a count.
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Native byte order: both ends are threads of this process.
fn encode(report: &Report) -> [u8; OFFENCE_BYTES] {
    let words = match *report {
        Report::Offence(Offence { cpu, generation, measure, held_ns }) => {
            [u64::from(cpu), generation, measure as u64, held_ns]
        }
        Report::ThreadEnded { cpu, generation } => [u64::from(cpu), generation, THREAD_ENDED, 0],
        Report::Unseen { cpu, generation, error } => {
            let errno = u64::from(error.raw_os_error().unsigned_abs());
            [u64::from(cpu), generation, UNSEEN, errno]
        }
    };
    let mut bytes = [0; OFFENCE_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

fn decode(bytes: &[u8; OFFENCE_BYTES]) -> Option<Report> {
    let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
    let (cpu, generation) = (u32::try_from(words.next()?).ok()?, words.next()?);
    let number = words.next()?;
    if number == THREAD_ENDED {
        return Some(Report::ThreadEnded { cpu, generation });
    }
    if number == UNSEEN {
        let error = OsError::new(READ, i32::try_from(words.next()?).ok()?);
        return Some(Report::Unseen { cpu, generation, error });
    }
    let measure = Measure::of_number(u32::try_from(number).ok()?)?;
    Some(Report::Offence(Offence { cpu, generation, measure, held_ns: words.next()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_report_comes_back_as_it_was() {
        let (cpu, generation) = (3, 7);
        for report in [
            Report::Offence(Offence { cpu, generation, measure: Measure::Demoted, held_ns: 9 }),
            Report::ThreadEnded { cpu, generation },
            Report::Unseen { cpu, generation, error: OsError::new(READ, 24) },
        ] {
            assert_eq!(decode(&encode(&report)), Some(report));
        }
    }
    #[test]
    fn reports_to_a_server_that_does_not_read_are_counted_and_never_wait() {
        let (server, reports) = Connection::pair().unwrap();
        let lost = Arc::new(AtomicU64::new(0));
        let mut report = sender(reports, lost.clone());
        let sent = 100_000;
        for _ in 0..sent {
            report(Report::ThreadEnded { cpu: 0, generation: 1 });
        }
        let mut buffer = [0; OFFENCE_BYTES];
        let read = std::iter::from_fn(|| server.receive(&mut buffer).ok()).count() as u64;
        let lost = lost.load(Ordering::Relaxed);
        assert!(lost > 0 && read > 0, "{lost} lost, {read} read");
        assert_eq!(lost + read, sent);
    }
}
