use super::*;
use crate::clock::{process_cpu_ns, sleep_until_ns};
use crate::memfd::SharedMapping;
use crate::schedule::{allowed_cpus, set_fifo, set_ordinary, set_timer_slack_least};
use core::sync::atomic::Ordering::Relaxed;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;

const MINUTE_NS: u64 = 60_000_000_000;
const PIPES: SpawnOptions<'_> = SpawnOptions {
    stdin: Stream::Pipe,
    stdout: Stream::Pipe,
    stderr: Stream::Inherit,
    inherit: None,
};

fn shell(script: &str, options: SpawnOptions<'_>) -> Child {
    let command = ["sh", "-c", script].map(String::from);
    spawn(&command, &allowed_cpus().unwrap(), options).unwrap()
}

/// All output of the child until it ends or closes its output.
fn output(child: &mut Child) -> String {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    text.trim().to_owned()
}

fn lines(child: &mut Child, count: usize) -> Vec<String> {
    let reader = BufReader::new(child.stdout.take().unwrap());
    reader.lines().take(count).map(Result::unwrap).collect()
}

/// Whether a process exists, also as a zombie.
fn exists(pid: u32) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap()
}

fn pause() {
    sleep_until_ns(monotonic_ns() + 1_000_000);
}

fn wait(child: &Child) -> Exit {
    loop {
        if let Some(exit) = child.try_wait().unwrap() {
            return exit;
        }
        pause();
    }
}

#[test]
fn dropping_a_child_ends_its_children_and_grandchildren() {
    // The subshell's child would outlive its parent's death if nobody waited for it.
    let script = "sleep 1000 & echo $!; (sleep 1000 & echo $!; wait) & echo $!; wait";
    let mut child = shell(script, PIPES);
    let mut pids: Vec<u32> =
        lines(&mut child, 3).iter().map(|line| line.parse().unwrap()).collect();
    pids.push(child.pid());
    assert!(pids.iter().all(|&pid| exists(pid)), "{pids:?}");
    drop(child);
    assert!(!pids.iter().any(|&pid| exists(pid)), "{pids:?}");
}

#[test]
fn dropping_a_child_ends_orphans_of_a_leader_that_ended_first() {
    let mut child = shell("sleep 1000 & echo $!", PIPES);
    let orphan: u32 = lines(&mut child, 1)[0].parse().unwrap();
    assert_eq!(wait(&child), Exit::Code(0));
    assert!(exists(orphan));
    child.terminate(0).unwrap();
    assert!(!exists(orphan) && !exists(child.pid()));
}

#[test]
fn a_child_that_ignores_sigterm_is_killed_after_the_grace() {
    let mut child = shell("trap '' TERM; echo ready; while :; do sleep 1; done", PIPES);
    assert_eq!(lines(&mut child, 1), ["ready"]);
    child.terminate(5_000_000).unwrap();
    assert_eq!(child.try_wait().unwrap(), Some(Exit::Signal(libc::SIGKILL)));
    assert!(!exists(child.pid()));
}

#[test]
fn a_child_that_handles_sigterm_ends_by_itself() {
    let mut child = shell("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done", PIPES);
    assert_eq!(lines(&mut child, 1), ["ready"]);
    child.terminate(MINUTE_NS).unwrap();
    assert_eq!(child.try_wait().unwrap(), Some(Exit::Code(7)));
}

#[test]
fn the_cpu_time_of_a_busy_child_is_counted_once() {
    let mut child = shell("while :; do :; done", SpawnOptions::default());
    while process_cpu_ns(child.pid()).unwrap() < 20_000_000 {
        pause();
    }
    let usage = child.terminate(MINUTE_NS).unwrap();
    assert!(usage.cpu_ns() >= 15_000_000, "{usage:?}");
    assert_eq!(child.try_wait().unwrap(), Some(Exit::Signal(libc::SIGTERM)));
    assert_eq!(child.terminate(0).unwrap(), usage);
    child.kill_group().unwrap(); // the group is empty
}

#[test]
fn the_cpu_time_of_descendants_counts_whether_reaped_by_their_parent_or_not() {
    // The shell waits for the first busy process but not for the second: SIGTERM ends the shell
    // before.
    let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let mut child = shell(&format!("({busy}); (while :; do :; done) & echo $!; wait"), PIPES);
    let second: u32 = lines(&mut child, 1)[0].parse().unwrap();
    while process_cpu_ns(second).unwrap() < 20_000_000 {
        pause();
    }
    let second_ns = process_cpu_ns(second).unwrap();
    let usage = child.terminate(MINUTE_NS).unwrap();
    // The first uses tens of milliseconds at least, but the test asserts only that it counts.
    assert!(usage.cpu_ns() > second_ns, "{usage:?}, second alone {second_ns}");
    assert!(!exists(second));
}

#[test]
fn a_child_runs_on_its_cpus_in_its_own_group_with_ordinary_slack() {
    set_timer_slack_least().unwrap();
    let cpu = *allowed_cpus().unwrap().last().unwrap();
    let script = "grep Cpus_allowed_list /proc/self/status | tr -dc 0-9; echo; \
                  cut -d' ' -f5 /proc/self/stat; cat /proc/self/timerslack_ns";
    let command = ["sh", "-c", script].map(String::from);
    let mut child = spawn(&command, &[cpu], PIPES).unwrap();
    let found = output(&mut child);
    let expected = [cpu.to_string(), child.pid().to_string(), "50000".to_owned()];
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
}

#[test]
#[ignore = "needs the right to SCHED_FIFO: run by cargo xtask ci where it is granted"]
fn a_child_of_a_fifo_thread_is_ordinary() {
    set_fifo(1).unwrap();
    let child = shell("sleep 1000", SpawnOptions::default());
    set_ordinary().unwrap();
    // SAFETY: the call takes a number only.
    let class = unsafe { libc::sched_getscheduler(child.pid.as_raw_pid()) };
    assert_eq!(class, libc::SCHED_OTHER);
}

#[test]
fn a_child_reads_and_writes_pipes() {
    let mut child = shell("cat", PIPES);
    child.stdin.take().unwrap().write_all(b"there and back").unwrap();
    assert_eq!(output(&mut child), "there and back");
    assert_eq!(wait(&child), Exit::Code(0));
}

#[test]
fn a_child_inherits_the_same_shared_memory() {
    let mapping = SharedMapping::create("upcall-test", 4096).unwrap();
    let passed = |number| SpawnOptions { inherit: Some((mapping.fd(), number)), ..PIPES };
    // 3 is where the standard library's own pipe would land. 250 is free. The third is the
    // mapping's own number.
    for (turn, number) in [3, 250, mapping.fd().as_raw_fd()].into_iter().enumerate() {
        // By its name, because dash supports no descriptors above 9. Opened for reading too,
        // because the file may not be truncated. printf takes octal.
        let script = format!("printf '\\00{}' 1<> /proc/self/fd/{number}", turn + 1);
        let child = shell(&script, passed(number));
        assert_eq!(wait(&child), Exit::Code(0));
        assert_eq!(mapping.words()[0].load(Relaxed), turn as u64 + 1, "{number}");
    }
}

#[test]
fn a_missing_program_is_an_error_even_with_a_descriptor_at_3() {
    let mapping = SharedMapping::create("upcall-test", 4096).unwrap();
    let command = ["/nonexistent/upcall".to_owned()];
    for inherit in [None, Some((mapping.fd(), 3))] {
        let options = SpawnOptions { inherit, ..SpawnOptions::default() };
        let error = spawn(&command, &allowed_cpus().unwrap(), options).unwrap_err();
        assert_eq!(error, OsError::new("spawn", libc::ENOENT));
    }
    assert_eq!(mapping.words()[0].load(Relaxed), 0);
}

#[test]
fn a_command_that_cannot_start_is_refused() {
    let cpus = allowed_cpus().unwrap();
    let mapping = SharedMapping::create("upcall-test", 4096).unwrap();
    let sleep = ["sleep".to_owned(), "1000".to_owned()];
    let onto_stdout = SpawnOptions { inherit: Some((mapping.fd(), 1)), ..SpawnOptions::default() };
    for (command, cpus, options) in [
        (&[][..], &cpus[..], SpawnOptions::default()),
        (&sleep, &[], SpawnOptions::default()),
        (&sleep, &[1023], SpawnOptions::default()),
        (&sleep, &cpus, onto_stdout),
    ] {
        let error = spawn(command, cpus, options).unwrap_err();
        assert_eq!(error.raw_os_error(), libc::EINVAL, "{error}");
    }
}

#[test]
fn a_child_dies_with_the_thread_that_started_it() {
    let child = std::thread::spawn(|| shell("sleep 1000", SpawnOptions::default()));
    let child = child.join().unwrap();
    assert_eq!(wait(&child), Exit::Signal(libc::SIGKILL));
}

#[test]
fn die_with_parent_fails_if_the_parent_is_another_process() {
    let error = die_with_parent(std::process::id()).unwrap_err();
    assert_eq!(error.raw_os_error(), libc::ESRCH);
    assert_eq!(die_with_parent(u32::MAX).unwrap_err().raw_os_error(), libc::ESRCH);
    // The call set the flag before it failed. Clear it for the other tests.
    rustix::process::set_parent_process_death_signal(None).unwrap();
}

#[test]
fn an_inherited_descriptor_is_copied_and_closed_on_exec() {
    let mapping = SharedMapping::create("upcall-test", 4096).unwrap();
    let number = mapping.fd().as_raw_fd();
    let copy = inherited_fd(number).unwrap();
    assert_ne!(copy.as_raw_fd(), number);
    for fd in [copy.as_fd(), mapping.fd()] {
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
    SharedMapping::from_fd(copy, 4096).unwrap();
    for number in [-1, 0, 2, 19_999] {
        assert_eq!(inherited_fd(number).unwrap_err().raw_os_error(), libc::EBADF);
    }
}
