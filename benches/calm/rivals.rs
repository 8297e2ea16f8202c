//! The real-time threads of other programs, and whether they ran.
//!
//! A thread of the class FIFO, RR or DEADLINE (sched(7)) that runs on the measured CPU takes time
//! that no promise covers. Threads of the kernel, of this process, of its descendants and of its
//! session (setsid(2)) do not count. An attacker may leave a process behind. That process has
//! another parent then, but stays in the session: a run cannot be excused by its own attacker. A
//! thread that starts and ends between two readings stays unseen.

use std::collections::BTreeMap;
use std::fs;

/// The number of a process and of its thread.
type Key = (u32, u32);

/// One such thread.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thread {
    name: String,
    /// The CPU on which it ran last.
    cpu: u32,
    /// CPU time so far (Documentation/scheduler/sched-stats.rst).
    ran_ns: u64,
}

/// The real-time threads of other programs at one moment.
#[derive(Debug)]
pub(super) struct Rivals(BTreeMap<Key, Thread>);

impl Rivals {
    /// Reads `/proc`. O(threads of the system).
    pub(super) fn now() -> Rivals {
        let read = |pid| Some((pid, Stat::read(&format!("/proc/{pid}/stat"))?));
        let processes: BTreeMap<u32, Stat> = numbers_in("/proc").filter_map(read).collect();
        let others = processes.keys().filter(|&&pid| !is_own(&processes, pid));
        let threads = others.flat_map(|&pid| {
            let tasks = numbers_in(&format!("/proc/{pid}/task"));
            tasks.filter_map(move |tid| Some(((pid, tid), thread_of(pid, tid)?)))
        });
        Rivals(threads.collect())
    }

    /// The name of one that has run since, and ran last on `cpu`.
    pub(super) fn that_ran_on(&self, cpu: u32) -> Option<String> {
        self.that_ran(Rivals::now(), cpu)
    }

    fn that_ran(&self, later: Rivals, cpu: u32) -> Option<String> {
        later.0.into_iter().find_map(|(key, now)| {
            let before_ns = self.0.get(&key).map_or(0, |before| before.ran_ns);
            (now.cpu == cpu && now.ran_ns > before_ns).then_some(now.name)
        })
    }
}

/// The numbers among the names in a folder.
fn numbers_in(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process is this one, of its session, or was started by it.
fn is_own(processes: &BTreeMap<u32, Stat>, mut pid: u32) -> bool {
    let own = std::process::id();
    let session = |pid| processes.get(&pid).map(|stat| stat.session);
    if session(pid).is_some() && session(pid) == session(own) {
        return true;
    }
    for _ in 0..processes.len() {
        if pid == own {
            return true;
        }
        let Some(stat) = processes.get(&pid) else { return false };
        pid = stat.parent;
    }
    false
}

fn thread_of(pid: u32, tid: u32) -> Option<Thread> {
    let task = format!("/proc/{pid}/task/{tid}");
    let stat = Stat::read(&format!("{task}/stat"))?;
    let schedstat = fs::read_to_string(format!("{task}/schedstat")).ok()?;
    let ran_ns = schedstat.split_whitespace().next()?.parse().ok()?;
    let is_rival = stat.is_real_time && !stat.is_kernel_thread;
    is_rival.then_some(Thread { name: stat.name, cpu: stat.cpu, ran_ns })
}

/// Fields of a `stat` file (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    parent: u32,
    session: u32,
    is_kernel_thread: bool,
    cpu: u32,
    is_real_time: bool,
}

impl Stat {
    fn read(path: &str) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(path).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        /// PF_KTHREAD of the kernel's include/linux/sched.h.
        const KERNEL_THREAD: u64 = 0x0020_0000;
        /// SCHED_FIFO, SCHED_RR and SCHED_DEADLINE.
        const REAL_TIME: [u32; 3] = [1, 2, 6];
        // The name may contain spaces and parentheses.
        let (before, after) = text.rsplit_once(')')?;
        let name = before.split_once('(')?.1.to_owned();
        // The first of them is field 3.
        let fields: Vec<&str> = after.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let flags: u64 = field(9)?.parse().ok()?;
        Some(Stat {
            name,
            parent: field(4)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            is_kernel_thread: flags & KERNEL_THREAD != 0,
            cpu: field(39)?.parse().ok()?,
            is_real_time: REAL_TIME.contains(&field(41)?.parse().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stat line of a thread of that policy, parent 5 and those flags, last on CPU 1.
    fn line(flags: u64, policy: u32) -> String {
        // Fields 10 to 37, then exit_signal, processor, rt_priority, policy.
        let zeros = " 0".repeat(28);
        format!("7 (a) b) R 5 7 8 0 -1 {flags}{zeros} 17 1 60 {policy} 0")
    }

    #[test]
    fn the_fields_of_a_thread_are_found_behind_any_name() {
        let stat = Stat::parse(&line(0x40, 1)).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent, stat.session, stat.cpu), ("a) b", 5, 8, 1));
        assert!(stat.is_real_time && !stat.is_kernel_thread);
        assert!(!Stat::parse(&line(0x40, 0)).unwrap().is_real_time);
        assert!(Stat::parse(&line(0x0020_0040, 1)).unwrap().is_kernel_thread);
        assert_eq!(Stat::parse("7 (short) R 5"), None);
    }

    #[test]
    fn this_process_its_descendants_and_its_session_are_no_rivals() {
        let own = std::process::id();
        let process = |parent, session| {
            let stat = Stat::parse(&line(0x40, 1)).unwrap();
            Stat { parent, session, ..stat }
        };
        let processes = BTreeMap::from([
            (own, process(1, 7)),
            (own + 1, process(own, 7)),
            // A descendant with a session of its own, and an orphan of the session.
            (own + 2, process(own + 1, own + 2)),
            (own + 3, process(1, 7)),
            (1, process(0, 1)),
        ]);
        let found = [own, own + 1, own + 2, own + 3, 1].map(|pid| is_own(&processes, pid));
        assert_eq!(found, [true, true, true, true, false]);
    }

    #[test]
    fn a_rival_disturbs_only_if_it_ran_meanwhile_on_that_cpu() {
        let at = |ran_ns, cpu| {
            Rivals(BTreeMap::from([((7, 8), Thread { name: "other".to_owned(), cpu, ran_ns })]))
        };
        assert_eq!(at(5, 1).that_ran(at(6, 1), 1).as_deref(), Some("other"));
        assert_eq!(at(5, 1).that_ran(at(5, 1), 1), None, "it did not run");
        assert_eq!(at(5, 1).that_ran(at(6, 0), 1), None, "it ran elsewhere");
        let none = Rivals(BTreeMap::new());
        assert_eq!(none.that_ran(at(6, 1), 1).as_deref(), Some("other"), "it is new");
    }
}
