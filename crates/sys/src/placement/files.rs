//! The files of sysfs and procfs that tell the placement.

use super::change::Change;
use super::place::{Cpus, Placement};
use crate::OsError;
use std::fs;
use std::path::{Path, PathBuf};

/// Link types of `include/uapi/linux/if_arp.h`.
const ARPHRD_LOOPBACK: u32 = 772;

/// Drivers whose packets come from processes of this machine, on the CPU of the sender.
const OF_THIS_MACHINE: [&str; 3] = ["veth", "tun", "loopback"];

/// The folders of one interface. Tests use folders of their own.
pub(super) struct Files {
    pub(super) sys: PathBuf,
    pub(super) proc: PathBuf,
    pub(super) interface: String,
}

impl Files {
    pub(super) fn of_kernel(interface: &str) -> Files {
        Files { sys: "/sys".into(), proc: "/proc".into(), interface: interface.to_owned() }
    }

    fn folder(&self) -> PathBuf {
        self.sys.join("class/net").join(&self.interface)
    }

    pub(super) fn placement(&self, index: u32) -> Result<Placement, OsError> {
        let folder = self.folder();
        if number(&folder.join("ifindex")) != Some(index) {
            return Err(OsError::new("read(/sys/class/net)", libc::ENODEV));
        }
        let driver = self.driver();
        let peer = number(&folder.join("iflink")).filter(|&peer| peer != index);
        let mut napi_threads = self.napi_threads();
        napi_threads.sort_unstable();
        let interrupts = self.interrupts();
        let poll = if !napi_threads.is_empty() {
            self.listed(napi_threads.iter().map(|thread| self.cpus_of_thread(*thread)))
        } else if OF_THIS_MACHINE.contains(&driver.as_str()) {
            Cpus::Senders
        } else {
            self.listed(interrupts.iter().map(|interrupt| self.cpus_of_interrupt(*interrupt)))
        };
        let masks = self.rps_files().into_iter().filter_map(|path| fs::read_to_string(path).ok());
        let mut rps_cpus: Vec<u32> = masks.flat_map(|mask| cpus_of_mask(&mask)).collect();
        rps_cpus.sort_unstable();
        rps_cpus.dedup();
        let veth_peer = peer.filter(|_| driver == "veth");
        Ok(Placement { driver, veth_peer, napi_threads, interrupts, rps_cpus, poll })
    }

    /// The CPUs of several threads or interrupts.
    fn listed(&self, each: impl Iterator<Item = Option<Vec<u32>>>) -> Cpus {
        let Some(lists) = each.collect::<Option<Vec<_>>>() else { return Cpus::Unknown };
        let mut cpus = lists.concat();
        cpus.sort_unstable();
        cpus.dedup();
        match cpus.is_empty() {
            true => Cpus::Unknown,
            false => Cpus::Listed(cpus),
        }
    }

    fn driver(&self) -> String {
        let folder = self.folder();
        if let Some(name) = fs::read_link(folder.join("device/driver"))
            .ok()
            .and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned()))
        {
            return name;
        }
        match number(&folder.join("type")) {
            Some(ARPHRD_LOOPBACK) => "loopback".to_owned(),
            _ => crate::ethtool::driver(&self.interface).unwrap_or_default(),
        }
    }

    /// Kernel threads are named `napi/INTERFACE-NUMBER` (`net/core/dev.c`).
    fn napi_threads(&self) -> Vec<u32> {
        // The scan of all processes is needed only here.
        if number(&self.folder().join("threaded")).is_none_or(|threaded| threaded == 0) {
            return Vec::new();
        }
        let prefix = format!("napi/{}-", self.interface);
        let processes = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_ours = |pid: &u32| {
            let name = fs::read_to_string(self.proc.join(format!("{pid}/comm")));
            name.is_ok_and(|name| {
                let rest = name.trim_end().strip_prefix(&prefix);
                rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
            })
        };
        numbers.filter(is_ours).collect()
    }

    fn cpus_of_thread(&self, thread: u32) -> Option<Vec<u32>> {
        let status = fs::read_to_string(self.proc.join(format!("{thread}/status"))).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        cpus_of_list(line)
    }

    /// The receive interrupts of the device, ascending. A virtio device has those of its parent.
    fn interrupts(&self) -> Vec<u32> {
        let device = self.folder().join("device");
        let folders = [device.join("msi_irqs"), device.join("../msi_irqs")];
        let entries = folders.iter().find_map(|folder| fs::read_dir(folder).ok());
        let numbers = entries.into_iter().flatten().flatten();
        let mut numbers: Vec<u32> =
            numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        numbers.extend(number(&device.join("irq")).filter(|&irq| irq > 0 && numbers.is_empty()));
        numbers.sort_unstable();
        let (receiving, others): (Vec<u32>, Vec<u32>) =
            numbers.into_iter().partition(|interrupt| self.receives(*interrupt));
        if receiving.is_empty() { others } else { receiving }
    }

    /// Whether the name of an interrupt says that it is for receiving: `virtio2-input.0`,
    /// `eth0-TxRx-3`.
    fn receives(&self, interrupt: u32) -> bool {
        let path = self.sys.join(format!("kernel/irq/{interrupt}/actions"));
        let name = fs::read_to_string(path).unwrap_or_default().to_ascii_lowercase();
        name.contains("input") || name.contains("rx")
    }

    fn cpus_of_interrupt(&self, interrupt: u32) -> Option<Vec<u32>> {
        let folder = self.proc.join(format!("irq/{interrupt}"));
        let read = |file| cpus_of_list(&fs::read_to_string(folder.join(file)).ok()?);
        // The first file is empty until the interrupt is in use.
        let effective = read("effective_affinity_list").filter(|cpus| !cpus.is_empty());
        effective.or_else(|| read("smp_affinity_list"))
    }

    /// The file `rps_cpus` of each receive queue.
    fn rps_files(&self) -> Vec<PathBuf> {
        let queues = fs::read_dir(self.folder().join("queues")).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = queues
            .filter(|queue| queue.file_name().to_string_lossy().starts_with("rx-"))
            .map(|queue| queue.path().join("rps_cpus"))
            .collect();
        files.sort();
        files
    }

    pub(super) fn set_rps_cpus(&self, cpus: &[u32]) -> Result<Change, OsError> {
        let files = self.rps_files();
        if files.is_empty() {
            return Err(OsError::new("write(rps_cpus)", libc::ENOENT));
        }
        let mut change = Change { operation: "write(rps_cpus)", old: Vec::new() };
        for path in files {
            if let Err(error) = change.write(path, &mask_of(cpus)) {
                // The error that the caller gets is the first one.
                let _ = change.restore();
                return Err(error);
            }
        }
        Ok(change)
    }

    pub(super) fn set_threaded(&self, threaded: bool) -> Result<Change, OsError> {
        let mut change = Change { operation: "write(threaded)", old: Vec::new() };
        let text = if threaded { "1" } else { "0" };
        change.write(self.folder().join("threaded"), text)?;
        Ok(change)
    }
}

fn number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The CPUs of a mask such as `1,00000003`: words of 32 bits in hexadecimal, the highest first.
pub(super) fn cpus_of_mask(mask: &str) -> Vec<u32> {
    let words = mask.trim().rsplit(',').map(|word| u32::from_str_radix(word, 16).unwrap_or(0));
    (0..)
        .step_by(32)
        .zip(words)
        .flat_map(|(first, word)| {
            (0..32).filter(move |bit| word >> bit & 1 != 0).map(move |bit| first + bit)
        })
        .collect()
}

/// The mask of these CPUs, as [`cpus_of_mask`] reads it.
pub(super) fn mask_of(cpus: &[u32]) -> String {
    let highest = cpus.iter().max().map_or(0, |cpu| cpu / 32);
    let word = |at: u32| {
        let ours = cpus.iter().filter(|cpu| *cpu / 32 == at);
        ours.fold(0, |word: u32, cpu| word | 1 << (cpu % 32))
    };
    let words: Vec<String> = (0..=highest).rev().map(|at| format!("{:08x}", word(at))).collect();
    words.join(",")
}

/// The CPUs of a list such as `0-2,5`. `None` if it is no such list.
pub(super) fn cpus_of_list(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in list.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}
