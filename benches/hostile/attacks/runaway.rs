//! Attacks of a process that no daemon watches: its own watchdog must act.

use std::path::Path;
use std::time::Duration;

use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Config, Runtime};

use super::{Attack, Beside, attack, attacking, spin};

pub(crate) const ATTACKS: &[Attack] = &[Attack {
    beside: Beside::Ordinary,
    ..attack("endless, own", "as `endless, alone`, in a process without the daemon", endless)
}];

fn endless(_socket: &Path) {
    let cpus = vec![upcall_benches::measured_cpu()];
    let mut runtime = Runtime::start(Config { cpus, ..Config::default() }).expect("it starts");
    let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(100));
    let id = runtime.handler("attack", need, |_| {
        attacking();
        loop {
            spin(1_000_000);
        }
    });
    runtime.run(id.expect("it is admitted")).expect("the executor runs");
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}
