//! Tests of the memory that a runtime locks in a process with many threads, under each setting.
//! Child processes measure it.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use upcall_runtime::activity::ActivityParams;
use upcall_runtime::time::Span;
use upcall_runtime::{Config, MemoryLock, Notice, Runtime};

/// Names the setting to the child that tries it.
const SETTING: &str = "UPCALL_TEST_MEMORY_LOCK";
/// Threads of the child beside its main and scheduling threads.
const THREADS: usize = 21;
/// Bytes that a handler is the first to use.
const FRESH_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;

/// The measurements of a child.
#[derive(Debug)]
struct Found {
    /// Address space that is locked, in KiB.
    locked_space: u64,
    /// Memory that is locked, in KiB.
    locked_memory: u64,
    /// Page faults of a handler that used fresh memory.
    faults: u64,
    /// Whether a notice said that memory is not locked.
    refused: bool,
}

/// The sum of the numbers after `name`, in KiB, over all lines that begin with `name`.
fn sum(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let values = text.lines().filter_map(|line| line.strip_prefix(name));
    values.map(|rest| rest.split_whitespace().next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Minor faults of this thread: field 10 of its `stat`. Field 2, the name, is in parentheses.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let behind_name = stat.rsplit(')').next().unwrap();
    behind_name.split_whitespace().nth(7).unwrap().parse().unwrap()
}

/// Not a test by itself: a process with many threads under the setting that its parent names.
#[test]
fn as_a_process_with_many_threads() {
    let Ok(name) = std::env::var(SETTING) else { return };
    let memory_lock = MemoryLock::EVERY.into_iter().find(|lock| lock.name() == name).unwrap();
    let switch_cost = Some(Span::from_micros(1));
    let config = Config { memory_lock, switch_cost, ..Config::default() };
    let mut runtime = Runtime::start(config).unwrap();
    let barrier = Arc::new(Barrier::new(THREADS + 1));
    for _ in 0..THREADS {
        let barrier = barrier.clone();
        std::thread::spawn(move || {
            drop(std::hint::black_box(vec![1u8; 100])); // an arena of malloc
            barrier.wait();
            std::thread::park();
        });
    }
    barrier.wait();

    let mut fresh: Vec<u8> = Vec::with_capacity(FRESH_BYTES);
    let counted = Arc::new(AtomicU64::new(0));
    let count = counted.clone();
    let need = ActivityParams::new(Span::from_millis(10), Span::from_micros(50));
    let handler = runtime
        .handler("fresh", need, move |batch| {
            while batch.proceed() {}
            let before = faults();
            for page in fresh.spare_capacity_mut().chunks_mut(PAGE_BYTES) {
                page[0].write(1);
            }
            std::hint::black_box(&mut fresh);
            count.store(faults() - before, Ordering::Release);
            batch.finish();
        })
        .unwrap();
    runtime.run(handler).unwrap();
    runtime.wait(&[handler], None);
    println!(
        "\nfound {} {} {} {}",
        sum("/proc/self/status", "VmLck:"),
        sum("/proc/self/smaps", "Locked:"),
        counted.load(Ordering::Acquire),
        runtime.notices().iter().any(|notice| matches!(notice, Notice::NoMemoryLock(_))),
    );
}

/// Runs this program as the process above.
fn found(mut command: Command, setting: MemoryLock) -> Found {
    command.args(["as_a_process_with_many_threads", "--exact", "--nocapture"]);
    let output = command.env(SETTING, setting.name()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().find_map(|line| line.strip_prefix("found "));
    let errors = String::from_utf8_lossy(&output.stderr);
    let words: Vec<&str> = line.unwrap_or_else(|| panic!("{said}{errors}")).split(' ').collect();
    let number = |at: usize| words[at].parse().unwrap();
    let refused = words[3] == "true";
    Found { locked_space: number(0), locked_memory: number(1), faults: number(2), refused }
}

fn this_program() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

#[test]
fn memory_is_locked_unless_refused_or_not_asked_for() {
    for setting in MemoryLock::EVERY {
        let found = found(this_program(), setting);
        let is_locked = setting != MemoryLock::Off && !found.refused;
        assert_eq!(found.locked_space > 0, is_locked, "{setting:?}: {found:?}");
        assert!(setting != MemoryLock::Off || !found.refused, "{found:?}");
    }
}

#[test]
#[ignore = "needs root, to lock memory"]
fn each_setting_locks_as_it_says() {
    let [all, on_fault, off] = MemoryLock::EVERY.map(|setting| found(this_program(), setting));
    let shown = format!("{all:?} {on_fault:?} {off:?}");
    assert!(off.locked_memory < on_fault.locked_memory, "{shown}");
    assert!(on_fault.locked_memory < all.locked_memory, "{shown}");
    assert_eq!((off.locked_space, off.locked_memory), (0, 0), "{shown}");
    // Only `All` faults memory in before a handler uses it.
    assert!(all.faults < on_fault.faults && all.faults < off.faults, "{shown}");
}

#[test]
#[ignore = "needs root, to become another user"]
fn a_refused_lock_is_a_notice() {
    for setting in [MemoryLock::All, MemoryLock::OnFault] {
        let mut limited = Command::new("sh");
        // A limit that every user may set for themselves, and that no capability exceeds.
        limited.args(["-c", "ulimit -l 64 && exec \"$0\" \"$@\""]).uid(65_534);
        limited.arg(std::env::current_exe().unwrap());
        let found = found(limited, setting);
        assert!(found.refused && found.locked_space == 0, "{found:?}");
    }
}
