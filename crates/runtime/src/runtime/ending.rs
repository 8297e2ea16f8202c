//! How handlers end, one by one and all together, and what is said of them then.

use std::time::Duration;

use upcall_core::scheduler::Counters;
use upcall_core::time::Span;
use upcall_core::trace::{Crossing, Record};

use crate::clock;
use crate::events::Posts;
use crate::executive::{Control, Job};
use crate::statistics::{ActivityReport, Report};
use crate::virtual_time::{VirtualReport, VirtualTime};

use super::{Activity, ExecutiveThread, HandlerId, Runtime, abort};

/// How long `stop` waits for a handler to yield.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// Fewest times it looks before it gives up: a virtual machine that was paused
/// finds the grace used up, and nobody has run meanwhile.
const STOP_LOOKS_MIN: u32 = 20;

impl Drop for Runtime {
    /// Ends all delivery, as [`Runtime::stop`] does. In a thread that panics, handlers
    /// have their abort phase before: see [`Runtime::give_abort_phase`].
    fn drop(&mut self) {
        if std::thread::panicking() {
            let deadline = clock::after(abort::WITHIN_AT_PANIC);
            self.abort_phase(Some(deadline), |_, _| {});
        }
        self.quit();
    }
}

impl Runtime {
    /// Suspends a handler, gives back all it held (`rts_close`), and says how it
    /// did. Blocks until the executive let go of it, a quantum normally.
    ///
    /// `None` if it is closed already, or if it did not yield within half a
    /// second: then it still holds what it held, and may be closed again. Also `None`
    /// for a virtual-time handler, which is closed nevertheless: its report is another
    /// one, [`Runtime::close_virtual`].
    pub fn close(&mut self, id: HandlerId) -> Option<ActivityReport> {
        let Some(activity) = &self.activities[id.0] else {
            let _ = self.close_virtual(id);
            return None;
        };
        let (executive, number) = (activity.executive, activity.id);
        let _ = activity.posts.as_ref().map(Posts::close);
        // A close that was given up is under way already, or done by now.
        if !self.executives[executive].closing.contains(&number) {
            self.executives[executive].closing.push(number);
            self.send(executive, Control::Close { id: number });
        }
        self.launch(executive).ok()?;
        let give_up = clock::now() + Span::from(STOP_GRACE);
        loop {
            let mut retired = Vec::new();
            while let Ok(one) = self.executives[executive].link.retired.pop() {
                retired.push(one);
            }
            // Their last records were sent before they were retired.
            self.poll(|_, _| {});
            self.executives[executive].retired.extend(retired);
            let kept = &mut self.executives[executive].retired;
            if let Some(at) = kept.iter().position(|retired| retired.id == number) {
                // The handler is dropped here, not in the executive.
                let counters = kept.swap_remove(at).counters;
                let thread = &mut self.executives[executive];
                thread.closing.retain(|&closing| closing != number);
                thread.taken[number.0 as usize] = false;
                let activity = self.activities[id.0].take()?;
                self.release(activity.reserved);
                return Some(self.report_of(activity, counters));
            }
            if clock::now() >= give_up {
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Suspends a virtual-time handler, drops it, and says how it did. Blocks until it
    /// returned, a quantum normally.
    ///
    /// `None` if it is closed already, or is none, or if it did not return within half
    /// a second: then it may be closed again.
    pub fn close_virtual(&mut self, id: HandlerId) -> Option<VirtualReport> {
        let virtual_time = self.virtual_time.as_ref().filter(|known| known.has(id))?;
        virtual_time.suspend(id);
        let give_up = clock::now() + Span::from(STOP_GRACE);
        loop {
            let report = virtual_time.take(id);
            if report.is_some() || clock::now() >= give_up {
                return report;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Ends all delivery and says how it went. Waits half a second for handlers
    /// to yield; one that does not is left behind and named in the report.
    pub fn stop(mut self, on_job: impl FnMut(HandlerId, &Job)) -> Report {
        self.quit();
        self.poll(on_job);
        let mut report = Report { offences: self.offences(), ..Report::default() };
        let virtual_time = self.virtual_time.take();
        report.virtual_handlers = virtual_time.map(VirtualTime::into_reports).unwrap_or_default();
        self.poll_trace(|cpu, record| report.trace.push((cpu, *record)));
        let mut outcomes = Vec::new();
        for executive in &mut self.executives {
            let finished = executive.thread.take_if(|thread| thread.is_finished());
            if executive.thread.is_some() {
                report.stuck.push(executive.cpu);
            }
            // Relaxed: a statistic; the thread was joined or is given up.
            let lost = &executive.link.shared.jobs_lost;
            report.jobs_lost += lost.load(std::sync::atomic::Ordering::Relaxed);
            let outcome = finished.and_then(|thread| thread.join().ok());
            let records = outcome.as_ref().map_or(0, |(outcome, _)| outcome.records_lost);
            if records > 0 {
                let gap = Record { now: clock::now(), crossing: Crossing::Lost { records } };
                report.trace.push((executive.cpu, gap));
            }
            outcomes.push(outcome);
        }
        for (outcome, kernel_switches) in outcomes.iter().flatten() {
            report.activity_switches += outcome.switches;
            report.domain_switches += outcome.handoffs;
            report.kernel_switches += kernel_switches;
            report.wakeup.merge(&outcome.wakeup);
        }
        for activity in std::mem::take(&mut self.activities).into_iter().flatten() {
            let counters = outcomes[activity.executive]
                .as_ref()
                .and_then(|(outcome, _)| outcome.counters[activity.id.0 as usize]);
            report.activities.push(self.report_of(activity, counters));
        }
        report
    }

    /// Tells all executives to quit, and gives them the grace to do so.
    fn quit(&mut self) {
        for executive in 0..self.executives.len() {
            if self.executives[executive].runs() {
                self.send(executive, Control::Quit);
            }
        }
        if let Some(virtual_time) = &self.virtual_time {
            virtual_time.quit();
        }
        let runs = |runtime: &Self| {
            let mut executives = runtime.executives.iter();
            executives.any(ExecutiveThread::runs)
                || runtime.virtual_time.as_ref().is_some_and(VirtualTime::runs)
        };
        let give_up = clock::now() + Span::from(STOP_GRACE);
        let mut looks = 0;
        while (clock::now() < give_up || looks < STOP_LOOKS_MIN) && runs(self) {
            std::thread::sleep(Duration::from_millis(1));
            looks += 1;
        }
    }

    fn report_of(&self, activity: Activity, counters: Option<Counters>) -> ActivityReport {
        let executive = &self.executives[activity.executive];
        ActivityReport {
            name: activity.name,
            cpu: executive.cpu,
            params: activity.params,
            counters,
            statistics: activity.statistics,
            faulted: executive.link.shared.is_faulted(activity.id),
        }
    }
}
