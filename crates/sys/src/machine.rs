//! A description of this machine for reports, because a figure means little without it.
//!
//! The command calls it once per run. It reads `/proc` and `/sys` and asks the kernel. It never
//! fails, because a report without a CPU's name is still useful.

use rustix::time::ClockId;
use std::fs;

/// The machine's properties that a reader of results needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// `"Intel(R) Xeon(R) Processor @ 2.50GHz"`; `"unknown"` if `/proc/cpuinfo` does not name it.
    pub cpu_model: String,
    /// The release that `uname -r` prints.
    pub kernel_release: String,
    /// CPUs online, including those that this process may not use; at least 1.
    pub cpus_online: u32,
    /// Timer ticks per second (`CONFIG_HZ`); `None` if the clock does not show them.
    pub tick_hz: Option<u32>,
}

impl Machine {
    /// This machine, now. Reads two files; allocates.
    pub fn describe() -> Machine {
        Machine {
            cpu_model: fs::read_to_string("/proc/cpuinfo")
                .ok()
                .and_then(|text| cpu_model(&text))
                .unwrap_or_else(|| "unknown".into()),
            kernel_release: kernel_release(),
            cpus_online: fs::read_to_string("/sys/devices/system/cpu/online")
                .ok()
                .and_then(|text| count_cpus(text.trim()))
                .unwrap_or(1),
            tick_hz: tick_hz(),
        }
    }
}

fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The first two numbers of the kernel's version, such as `(6, 18)`; `None` if its release does not
/// begin with them. One system call; allocates.
pub fn kernel_version() -> Option<(u32, u32)> {
    version_in(&kernel_release())
}

/// A release such as `6.18.44-generic` or `6.19-rc1`.
fn version_in(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// The first CPU's name: `model name` on x86, `Model` or `uarch` on other machines.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    ["model name", "Model", "cpu model", "uarch", "CPU part"].iter().find_map(|wanted| {
        let value = cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == *wanted).then(|| value.trim())
        })?;
        (!value.is_empty()).then(|| value.to_owned())
    })
}

/// Number of CPUs in a kernel list such as `0-3,8` (cpuset(7), "List format").
fn count_cpus(list: &str) -> Option<u32> {
    list.split(',')
        .map(|part| match part.split_once('-') {
            None => part.parse::<u32>().ok().map(|_| 1),
            Some((first, last)) => {
                last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
            }
        })
        .sum()
}

/// The coarse clock advances once per tick. Its resolution is the length of a tick.
fn tick_hz() -> Option<u32> {
    let tick_ns = crate::clock::nanos(rustix::time::clock_getres(ClockId::MonotonicCoarse));
    if tick_ns == 0 {
        return None;
    }
    // Ticks are rounded to whole nanoseconds: 300 Hz is 3333333 ns.
    u32::try_from((1_000_000_000 + tick_ns / 2) / tick_ns).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::describe();
        let cpus = crate::schedule::allowed_cpus().unwrap().len();
        assert!(machine.cpus_online as usize >= cpus);
        assert!(!machine.cpu_model.is_empty());
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(machine.kernel_release, release.trim());
        // Kernels offer 100, 250, 300 and 1000; some architectures others.
        assert!(machine.tick_hz.is_some_and(|hz| (24..=10_000).contains(&hz)), "{machine:?}");
    }

    #[test]
    fn the_version_is_the_first_two_numbers_of_the_release() {
        for (release, version) in [
            ("6.18.44-fc-v782", Some((6, 18))),
            ("6.1.0-13-amd64", Some((6, 1))),
            ("6.19-rc1", Some((6, 19))),
            ("7.0+", Some((7, 0))),
            ("6", None),
            ("", None),
            ("six.one", None),
        ] {
            assert_eq!(version_in(release), version, "{release}");
        }
        assert!(kernel_version().is_some_and(|version| version >= (4, 0)));
    }

    #[test]
    fn cpu_lists_are_counted() {
        for (list, count) in
            [("0", Some(1)), ("0-1", Some(2)), ("0-3,8,10-11", Some(7)), ("", None), ("3-1", None)]
        {
            assert_eq!(count_cpus(list), count, "{list}");
        }
    }

    #[test]
    fn the_name_is_found_on_x86_and_elsewhere() {
        assert_eq!(
            cpu_model("processor\t: 0\nmodel\t\t: 85\nmodel name\t: Xeon @ 2.5GHz: fast\n"),
            Some("Xeon @ 2.5GHz: fast".into())
        );
        assert_eq!(cpu_model("CPU part\t: 0xd0c\n"), Some("0xd0c".into()));
        assert_eq!(cpu_model("model name :\n"), None);
    }
}
