//! The load around the activities of a run: embedded senders and background load.

use upcall::load::{SenderCounts, Senders};
use upcall::time::Instant;

use crate::exit::Failure;
use crate::plan::Plan;
use crate::spec::Spec;
use crate::stream::sender_plan;
use crate::{background, output};

/// Running load. Its drop ends it.
pub struct Load {
    background: Vec<background::Running>,
    senders: Option<Senders>,
    /// Positions of the activities that the senders send to.
    targets: Vec<usize>,
}

impl Load {
    /// Starts the background load on `cpus`, and senders that wait for [`Load::begin`].
    ///
    /// # Errors
    /// A program cannot be started. Those started before are ended.
    pub fn start(spec: &Spec, plan: &Plan<'_>, cpus: &[u32]) -> Result<Self, Failure> {
        let background = background::start(spec, cpus)?;
        let (senders, targets) = start_senders(spec, plan)?;
        Ok(Load { background, senders, targets })
    }

    /// Lets the senders begin at `at`.
    pub fn begin(&self, at: Instant) {
        if let Some(senders) = &self.senders {
            senders.start(at);
        }
    }

    /// Ends the senders. Returns what each sent, with the position of its activity.
    ///
    /// # Errors
    /// The senders failed.
    pub fn stop_senders(&mut self) -> Result<Vec<(usize, SenderCounts)>, Failure> {
        let counts =
            self.senders.take().map(Senders::stop).transpose().map_err(Failure::of_error)?;
        Ok(self.targets.iter().copied().zip(counts.unwrap_or_default()).collect())
    }

    /// Ends the background load. Returns its CPU times.
    pub fn stop(self) -> Vec<output::Background> {
        background::stop(self.background)
    }
}

fn start_senders(spec: &Spec, plan: &Plan<'_>) -> Result<(Option<Senders>, Vec<usize>), Failure> {
    let mut plans = Vec::new();
    let mut targets = Vec::new();
    for (activity, planned) in plan.activities.iter().enumerate() {
        let Some((stream, mapping)) = planned.stream() else { continue };
        if stream.embedded_source {
            targets.push(activity);
            plans.push(sender_plan(stream, mapping).map_err(|found| {
                let expected = "a stream whose packets Upcall can make";
                Failure::of_error(spec.source.error_in(&stream.place, "source", &found, expected))
            })?);
        }
    }
    if plans.is_empty() {
        return Ok((None, targets));
    }
    let command = background::own_command(crate::args::SEND_COMMAND)?;
    let cpus = background::other_cpus(&plan.platform.cpus)?;
    let senders = Senders::spawn(&command, &cpus, &plans).map_err(Failure::of_error)?;
    Ok((Some(senders), targets))
}
