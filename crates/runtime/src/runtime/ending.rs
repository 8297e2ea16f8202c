//! How handlers end, one by one and all together, and how they are reported.

use std::time::Duration;

use upcall_core::time::Span;
use upcall_core::trace::{Crossing, Record};

use crate::clock;
use crate::cpu::link::{Control, End};
use crate::events::Posts;
use crate::id::HandlerId;
use crate::mailbox::Job;
use crate::panics;
use crate::statistics::{ActivityReport, Report};
use crate::virtual_time::{VirtualReport, VirtualTime};

use super::{Activity, ExecutorThread, Runtime, abort};

/// How long `stop` waits for a handler to yield.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// `stop` looks at least this often before it gives up. After a pause of the virtual machine the
/// grace is used up, but no thread has run meanwhile.
const STOP_LOOKS_MIN: u32 = 20;

impl Drop for Runtime {
    /// Ends all delivery, as [`Runtime::stop`] does. In a thread that panics, the handlers' abort
    /// phase comes first: see [`Runtime::give_abort_phase`].
    fn drop(&mut self) {
        if std::thread::panicking() {
            let deadline = clock::after(abort::WITHIN_AT_PANIC);
            self.abort_phase(Some(deadline), |_, _| {});
        }
        self.quit();
        panics::flush();
    }
}

impl Runtime {
    /// Suspends a handler, gives back its reservation (`rts_close`), and returns its report. Blocks
    /// until the executor has released the handler, normally for a quantum.
    ///
    /// `None` if the handler is closed already, or if it did not yield within half a second: then
    /// it keeps its reservation, and may be closed again. Also `None` for a virtual-time handler,
    /// which is closed nevertheless: [`Runtime::close_virtual`] returns its report.
    pub fn close(&mut self, id: HandlerId) -> Option<ActivityReport> {
        let Some(activity) = &self.activities[id.0] else {
            let _ = self.close_virtual(id);
            return None;
        };
        let (executor, number) = (activity.executor, activity.id);
        let _ = activity.posts.as_ref().map(Posts::close);
        // If an earlier call gave up, its close is still under way, or done by now.
        if !self.executors[executor].closing.contains(&number) {
            self.executors[executor].closing.push(number);
            self.send(executor, Control::Close { id: number });
        }
        self.launch(executor).ok()?;
        let give_up = clock::now() + Span::from(STOP_GRACE);
        loop {
            let mut retired = Vec::new();
            while let Ok(one) = self.executors[executor].link.retired.pop() {
                retired.push(one);
            }
            // The executor sent their last records before it retired them.
            self.poll(|_, _| {});
            self.executors[executor].retired.extend(retired);
            let kept = &mut self.executors[executor].retired;
            if let Some(at) = kept.iter().position(|retired| retired.id == number) {
                // This thread drops the handler, not the executor.
                let end = kept.swap_remove(at).end;
                let thread = &mut self.executors[executor];
                thread.closing.retain(|&closing| closing != number);
                thread.taken[number.0 as usize] = false;
                let activity = self.activities[id.0].take()?;
                self.release(activity.reserved);
                return Some(self.report_of(activity, end));
            }
            if clock::now() >= give_up {
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Suspends a virtual-time handler, drops it, and returns its report. Blocks until the handler
    /// has returned, normally for a quantum.
    ///
    /// `None` for a handler that is closed already or of another kind, or that did not return
    /// within half a second. In the last case the handler may be closed again.
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

    /// Ends all delivery and returns the report. Waits half a second for handlers to yield. A
    /// handler that does not yield is left behind, and the report names its CPU. If handlers
    /// panicked, waits up to two seconds more until their messages are written.
    pub fn stop(mut self, on_job: impl FnMut(HandlerId, &Job)) -> Report {
        self.quit();
        self.poll(on_job);
        let mut report = Report { offences: self.offences(), ..Report::default() };
        let virtual_time = self.virtual_time.take();
        report.virtual_handlers = virtual_time.map(VirtualTime::into_reports).unwrap_or_default();
        self.poll_trace(|cpu, record| report.trace.push((cpu, *record)));
        let mut outcomes = Vec::new();
        for executor in &mut self.executors {
            let finished = executor.thread.take_if(|thread| thread.is_finished());
            if executor.thread.is_some() {
                report.stuck.push(executor.cpu);
            }
            // Relaxed: a statistic; the thread has ended or is left behind.
            let lost = &executor.link.shared.jobs_lost;
            report.jobs_lost += lost.load(std::sync::atomic::Ordering::Relaxed);
            let outcome = finished.and_then(|thread| thread.join().ok());
            let records = outcome.as_ref().map_or(0, |(outcome, _)| outcome.records_lost);
            if records > 0 {
                let gap = Record { now: clock::now(), crossing: Crossing::Lost { records } };
                report.trace.push((executor.cpu, gap));
            }
            outcomes.push(outcome);
        }
        panics::flush();
        for (outcome, kernel_switches) in outcomes.iter().flatten() {
            report.activity_switches += outcome.switches;
            report.domain_switches += outcome.handoffs;
            report.kernel_switches += kernel_switches;
            report.wakeup.merge(&outcome.wakeup);
        }
        for activity in std::mem::take(&mut self.activities).into_iter().flatten() {
            let end = outcomes[activity.executor]
                .as_mut()
                .map(|(outcome, _)| std::mem::take(&mut outcome.ends[activity.id.0 as usize]));
            report.activities.push(self.report_of(activity, end.unwrap_or_default()));
        }
        report
    }

    /// Tells all executors to quit, and waits for them, at most for `STOP_GRACE`.
    fn quit(&mut self) {
        // Posters keep their inboxes, which nothing empties any more.
        let posts = self.activities.iter().flatten().filter_map(|activity| activity.posts.as_ref());
        posts.for_each(Posts::close);
        for executor in 0..self.executors.len() {
            if self.executors[executor].runs() {
                self.send(executor, Control::Quit);
            }
        }
        if let Some(virtual_time) = &self.virtual_time {
            virtual_time.quit();
        }
        let runs = |runtime: &Self| {
            let mut executors = runtime.executors.iter();
            executors.any(ExecutorThread::runs)
                || runtime.virtual_time.as_ref().is_some_and(VirtualTime::runs)
        };
        let give_up = clock::now() + Span::from(STOP_GRACE);
        let mut looks = 0;
        while (clock::now() < give_up || looks < STOP_LOOKS_MIN) && runs(self) {
            std::thread::sleep(Duration::from_millis(1));
            looks += 1;
        }
    }

    fn report_of(&self, activity: Activity, end: End) -> ActivityReport {
        let executor = &self.executors[activity.executor];
        ActivityReport {
            name: activity.name,
            cpu: executor.cpu,
            params: activity.params,
            counters: end.counters,
            statistics: activity.statistics,
            faulted: executor.link.shared.is_faulted(activity.id),
            panic: end.panic,
        }
    }
}
