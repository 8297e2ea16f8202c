//! Table 1 and Figure 9 of split-level-1991 (§5.2) on this machine. The table has the cost of
//! reading a message and going on to the next, with and without a wake. It compares handlers that
//! read streams, threads that block, epoll, and tokio. The figure has the total cost for 5 network
//! and 3 device activities, by the rate of messages.
//!
//! ```text
//! cargo bench -p upcall-benches --bench split_level [-- OPTIONS]
//!   table        only Table 1
//!   figure       only Figure 9
//!   --draw PATH  draws Figure 9; PATH counts from the workspace
//!   --smoke      to see that it works
//! ```
//!
//! The bench only asserts that all messages were read, because the machine is shared. Read the
//! ratios.

#![forbid(unsafe_code)]

use std::path::Path;

use upcall::FIFO_PRIORITY;
use upcall_benches::{heading, measured_cpu, steal_ms};
use upcall_sys::schedule::{self, allowed_cpus};

mod draw;
mod feed;
mod figure;
mod log;
mod reader;
mod ready_messages;
mod table;
mod variant;
mod wakes;

fn main() {
    if let Ok(spec) = std::env::var(reader::ROLE) {
        return reader::serve(&spec);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_asked = |what: &str| arguments.iter().any(|argument| argument == what);
    let cpu = measured_cpu();
    // With only one CPU the second is the same, and its rows show nothing new.
    let others = allowed_cpus().unwrap_or_default();
    let other = others.into_iter().find(|&other| other != cpu).unwrap_or(cpu);
    println!("{}", heading("split_level"));
    if other == cpu {
        println!("one CPU is allowed: what comes from the other comes from the same");
    }
    if let Err(error) = schedule::fifo_permission(FIFO_PRIORITY + 1) {
        println!("the readers ran in the ordinary class: {error:?}");
    }
    let before_ms = steal_ms(cpu);
    if !is_asked("figure") {
        table::run([cpu, other]);
    }
    if !is_asked("table") {
        let curves = figure::run([cpu, other]);
        let path = arguments.iter().skip_while(|argument| *argument != "--draw").nth(1);
        // Cargo starts a bench in the folder of its package.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        if let Some(path) = path.map(|path| root.join(path)) {
            std::fs::write(&path, draw::picture(&curves)).expect("the picture can be written");
            println!("drawn: {}", path.display());
        }
    }
    if let (Some(before), Some(after)) = (before_ms, steal_ms(cpu)) {
        println!("the host ran something else on the measured CPU for {} ms", after - before);
    }
}
