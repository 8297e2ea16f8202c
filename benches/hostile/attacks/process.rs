//! What happens to a process, and what it does to itself: stops, debuggers, children, ends.

use std::path::Path;
use std::process::Command;

use super::{Attack, Outside, attack, attacking, behave, endless_asking, run};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        outside: Outside::StopAndContinue,
        ..attack("SIGSTOP", "stopped inside a handler, continued 1 s later", endless_asking)
    },
    Attack {
        outside: Outside::Trace,
        long_calls: true,
        ..attack("strace", "`strace -f` attached while its handlers make system calls", chatty)
    },
    Attack {
        outside: Outside::Debugger,
        long_calls: true,
        ..attack("debugger", "stopped by gdb, continued 1 s later", behave)
    },
    Attack {
        outside: Outside::Kill,
        ends: true,
        long_calls: true,
        ..attack("SIGKILL", "killed inside a handler", endless_asking)
    },
    Attack { long_calls: true, ..attack("fork", "a handler starts busy children", forks) },
    Attack {
        other_user: true,
        long_calls: true,
        ..attack("fork bomb, other", "children that fork and loop, all in its class", fork_bomb)
    },
    Attack {
        long_calls: true,
        ..attack("exec", "a handler becomes another program, which loops", execs)
    },
    Attack { ends: true, long_calls: true, ..attack("exit", "exit() inside a handler", exits) },
    Attack { ends: true, long_calls: true, ..attack("abort", "abort() inside a handler", aborts) },
    Attack {
        outside: Outside::RestartDaemon,
        ..attack("restart", "the daemon is killed and started again", behave)
    },
    Attack {
        outside: Outside::RestartDaemon,
        ..attack("restart, endless", "the same during an endless loop", endless_asking)
    },
];

fn chatty(socket: &Path) {
    run(socket, |batch| {
        while batch.proceed() {
            attacking();
            for _ in 0..20 {
                let _ = std::fs::metadata("/");
            }
        }
    });
}

fn forks(socket: &Path) {
    let mut children = 0;
    run(socket, move |batch| {
        while batch.proceed() {
            if children < 4 {
                children += 1;
                // The child ends after some seconds, or when the bench ends the row.
                let _ = Command::new("timeout").args(["4", "sh", "-c", BUSY]).spawn();
            }
        }
    });
}

/// A program that says that it attacks, and loops.
const BUSY: &str = "echo attacking; while :; do :; done";

/// 127 processes that start one another, each of which then loops. Ends after some seconds.
fn fork_bomb(socket: &Path) {
    let script = "bomb() { if [ $1 -gt 0 ]; then bomb $(($1-1)) & bomb $(($1-1)) & \
                  else echo attacking; fi; \
                  while :; do :; done; }; bomb 6 & wait";
    let mut started = false;
    run(socket, move |batch| {
        while batch.proceed() {
            if !std::mem::replace(&mut started, true) {
                let _ = Command::new("timeout").args(["4", "sh", "-c", script]).spawn();
            }
        }
    });
}

fn execs(socket: &Path) {
    run(socket, |_| {
        use std::os::unix::process::CommandExt;
        let error = Command::new("sh").args(["-c", BUSY]).exec();
        eprintln!("exec: {error}");
    });
}

fn exits(socket: &Path) {
    run(socket, |_| {
        attacking();
        std::process::exit(0)
    });
}

fn aborts(socket: &Path) {
    run(socket, |_| {
        attacking();
        std::process::abort()
    });
}
