//! A handler that never returns, in a process without a daemon: it keeps no ordinary program from
//! its CPU, the program learns of it, and the thread gets its class back.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use upcall_core::activity::ActivityParams;
use upcall_core::time::Span;
use upcall_runtime::{Config, Measure, Runtime};
use upcall_sys::schedule::{self, Class};

/// A bound for what should happen within a second.
const LIMIT: Duration = Duration::from_secs(60);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The class of the thread of this process with that name.
fn class_of(name: &str) -> Option<Class> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut named = threads.filter(|thread| {
        std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    });
    let tid = named.next()?.file_name().to_str()?.parse().ok()?;
    schedule::class_of(tid).ok()
}

/// Ends both loops, also if the test fails.
struct Ends<'a>(&'a AtomicBool, &'a AtomicU64);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
        self.1.store(1, Relaxed);
    }
}

/// Before, such a handler kept the real-time class for ever, and nothing was reported.
#[test]
fn a_handler_that_never_returns_leaves_half_of_its_cpu_to_an_ordinary_program() {
    let mut runtime = Runtime::start(Config::default()).unwrap();
    let Some(real_time) = runtime.real_time() else {
        let test = "a_handler_that_never_returns_leaves_half_of_its_cpu_to_an_ordinary_program";
        let _ = writeln!(std::io::stderr(), "skipped: {test}: no right to the real-time class");
        return;
    };
    let fifo = Class::Fifo { priority: real_time.band.handlers() };
    let cpu = runtime.config().cpus[0];
    let [over, ran, ordinary] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
    let need = ActivityParams::new(Span::from_millis(20), Span::from_micros(50));
    let (over_in, ran_in) = (over.clone(), ran.clone());
    let id = runtime.handler("endless", need, move |batch| {
        batch.proceed();
        while over_in.load(Relaxed) == 0 {
            ran_in.fetch_add(1, Relaxed);
        }
    });
    let (id, quit) = (id.unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _ends = Ends(&quit, &over);
        scope.spawn(|| {
            schedule::pin_thread(&[cpu]).unwrap();
            while !quit.load(Relaxed) {
                ordinary.fetch_add(1, Relaxed);
            }
        });
        runtime.run(id).unwrap();
        let mut offences = Vec::new();
        wait_until("it is reported", || {
            offences.extend(runtime.offences());
            !offences.is_empty()
        });
        assert_eq!(offences[0].cpu, cpu);
        assert_eq!(offences[0].measure, Measure::Demoted);
        let thread = format!("upcall-cpu{cpu}");
        assert_eq!(class_of(&thread), Some(Class::Ordinary));

        // Linux leaves ordinary threads a twentieth of a CPU beside a FIFO thread. Beside an
        // ordinary thread it is half.
        let before = [&ran, &ordinary].map(|count| count.load(Relaxed));
        std::thread::sleep(Duration::from_millis(400));
        let [ran, ordinary] =
            [(&ran, before[0]), (&ordinary, before[1])].map(|(count, b)| count.load(Relaxed) - b);
        assert!(ordinary > ran / 5, "{ordinary} beside {ran}");
        assert_eq!(runtime.offences(), [], "an upcall is one offence");

        over.store(1, Relaxed);
        wait_until("the thread gets its class back", || class_of(&thread) == Some(fifo));
    });
    let report = runtime.stop(|_, _| {});
    assert_eq!(report.stuck, []);
}
