//! A measured process: a domain whose handlers always have work.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use upcall::activity::{ActivityParams, Claim, Terms};
use upcall::time::{Instant, Span};
use upcall::{Attach, Config, HandlerId, Runtime, clock};

use crate::workload::{PS_OF_QUANTUM, QUANTUM};

/// A PDU that is longer is counted.
const LONG: Span = Span::from_micros(150);

/// PDUs of a domain that took longer than others.
#[derive(Default)]
struct Longest {
    longest_ns: AtomicU64,
    long: AtomicU64,
}

impl Longest {
    fn note(&self, length: Span) {
        // Relaxed: one thread writes, and another reads at the end.
        if length > LONG {
            self.long.fetch_add(1, Relaxed);
        }
        if length.as_nanos() > self.longest_ns.load(Relaxed) {
            self.longest_ns.store(length.as_nanos(), Relaxed);
        }
    }
}

/// What a domain prints at its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    /// PDUs, each of which is a quantum.
    pub(crate) quanta: u64,
    /// Turns that it passed on.
    pub(crate) turns: u64,
    /// The longest PDU by the clock, with what interrupted it.
    pub(crate) longest_ns: u64,
    /// PDUs longer than 150 us.
    pub(crate) long: u64,
    /// The largest lag of an activity, behind or ahead, in its part of what the domain got.
    pub(crate) lag_ns_max: u64,
}

impl Ended {
    /// The line that [`Self::print`] printed.
    pub(crate) fn parse(line: &str) -> Self {
        let numbers: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        let Some(&[quanta, turns, longest_ns, long, lag_ns_max]) = numbers.as_deref() else {
            panic!("a domain printed `{line}`")
        };
        Ended { quanta, turns, longest_ns, long, lag_ns_max }
    }

    fn print(self) {
        let Ended { quanta, turns, longest_ns, long, lag_ns_max } = self;
        println!("{quanta} {turns} {longest_ns} {long} {lag_ns_max}");
    }
}

/// Runs handlers with these claims from the time that the parent writes until it writes again, and
/// prints what they did.
pub(crate) fn domain(socket: &Path, name: &str, claims: &[Claim]) {
    let daemon = Some(Attach { socket: socket.into(), name: name.to_owned() });
    let config = Config { daemon, discipline: &PS_OF_QUANTUM, ..Config::default() };
    let mut runtime = Runtime::start(config).expect("attached");
    let longest = Arc::new(Longest::default());
    let ids: Vec<HandlerId> =
        (1..).zip(claims).map(|of| always_busy(&mut runtime, of, longest.clone())).collect();
    println!("ready");
    let start = read_line().parse().expect("a number");
    runtime.run_at(&ids, Instant::from_nanos(start)).expect("the executor runs");
    read_line();
    let report = runtime.stop(|_, _| {});
    let counters = report.activities.iter().filter_map(|activity| activity.counters);
    let lags = report.activities.iter().filter_map(|activity| activity.statistics.lag);
    let lags = lags.map(|lag| lag.min_ns.unsigned_abs().max(lag.max_ns.unsigned_abs()));
    Ended {
        quanta: counters.map(|of| of.pdus).sum(),
        turns: report.domain_switches,
        longest_ns: longest.longest_ns.load(Relaxed),
        long: longest.long.load(Relaxed),
        lag_ns_max: lags.max().unwrap_or_default(),
    }
    .print();
}

/// A handler whose job of a second takes more than its claim gives in a second, in PDUs of a
/// quantum. So the next job is there when one ends. It declares less, which fits its claim also
/// with a hand-off for each quantum, whatever the daemon measured for one.
fn always_busy(
    runtime: &mut Runtime,
    (number, &claim): (u32, &Claim),
    longest: Arc<Longest>,
) -> HandlerId {
    let (batch, terms) = match claim {
        Claim::Share(share) => (share.ppm() / 90, Terms { share: Some(share), ..Terms::default() }),
        Claim::Weight(weight) => (10_000, Terms { weight: Some(weight), ..Terms::default() }),
    };
    let declared = Span::from_micros(10);
    let need = ActivityParams::new(Span::from_millis(1_000), declared).batch(batch).quantum(1);
    let work = move |batch: &mut upcall::Batch<'_>| {
        while batch.proceed() {
            let begun = clock::now();
            while clock::now().since(begun) < QUANTUM {}
            longest.note(clock::now().since(begun));
        }
    };
    runtime.handler(&format!("busy{number}"), (need, terms), work).expect("it is admitted")
}

fn read_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the parent writes");
    line.trim().to_owned()
}
