//! Reads the arrivals from a trace of Upcall: the PDUs of a job had arrived by its release.

use super::error::ArrivalsError;
use super::limits::TRACE_BYTES_MAX;
use super::note::Note;
use super::timeline::Timeline;
use std::io::Read;
use upcall::scheduler::Command;
use upcall_sim::trace::{self, Crossing};

/// Most names that an error lists.
const NAMES_TOLD: usize = 8;

/// Reads the times. Returns how many jobs of `name` the trace has.
pub(super) fn read(
    input: impl Read,
    name: &str,
    times: &mut Timeline,
    notes: &mut Vec<Note>,
) -> Result<u64, ArrivalsError> {
    let mut bytes = Vec::new();
    input.take(TRACE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(ArrivalsError::Io)?;
    if bytes.len() as u64 > TRACE_BYTES_MAX {
        return Err(ArrivalsError::TraceTooLong);
    }
    let traces = trace::read_all(&bytes).map_err(ArrivalsError::Trace)?;
    drop(bytes);
    let all =
        || traces.iter().flat_map(|of| of.header.activities.iter().map(move |each| (of, each)));
    let Some((trace, named)) = all().find(|(_, named)| named.name == name) else {
        let names = all().map(|(_, named)| named.name.clone());
        return Err(ArrivalsError::NoActivity { known: names.take(NAMES_TOLD).collect() });
    };
    let (mut jobs, mut lost) = (0, 0_u64);
    let cpus = trace.header.cpus.iter().zip(&trace.records);
    let of_cpu = cpus.filter(|((cpu, _), _)| *cpu == named.cpu);
    for record in of_cpu.flat_map(|(_, records)| records) {
        match record.crossing {
            Crossing::Command(Some(Command::JobDone(job)))
            | Crossing::Notice(Some(Command::JobDone(job)))
                if job.id == named.id =>
            {
                jobs += 1;
                for _ in 0..job.pdus {
                    times.push(i128::from(job.release.as_nanos()))?;
                }
            }
            Crossing::Lost { records } => lost = lost.saturating_add(records),
            _ => {}
        }
    }
    if lost > 0 {
        notes.push(Note::Lost { records: lost });
    }
    Ok(jobs)
}
