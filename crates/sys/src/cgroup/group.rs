//! One control group: its weight, its processes, its CPU time and the groups inside it.

use super::error::CgroupError;
use crate::OsError;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// The version of a hierarchy (cgroups(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy for each controller, or for a few together.
    V1,
    /// One hierarchy for all controllers.
    V2,
}

/// The greatest weight, in the unit of [`Cgroup::set_weight`].
pub const WEIGHT_MAX_PPM: u32 = 1_000_000;

const PROCESSES: &str = "cgroup.procs";
/// Looks for processes that an account lacks: those start others meanwhile.
const COMPLETIONS_MAX: usize = 8;
const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// A control group. The value is only its name: dropping it changes nothing. Two values are equal
/// if they have the same folder.
#[derive(Clone, Debug)]
pub struct Cgroup {
    version: Version,
    folder: PathBuf,
    /// The folder that counts its CPU time; `None` if nothing does.
    account: Option<PathBuf>,
}

impl PartialEq for Cgroup {
    fn eq(&self, other: &Self) -> bool {
        self.folder == other.folder
    }
}

impl Eq for Cgroup {}

impl Cgroup {
    pub(crate) fn new(version: Version, folder: PathBuf, account: Option<PathBuf>) -> Self {
        Cgroup { version, folder, account }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The version of its hierarchy.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether it is the root of the hierarchy of this machine. The root seen in a container is
    /// not.
    pub fn is_root(&self) -> bool {
        // The root alone has the first file and has not the second (cgroups(7)).
        match self.version {
            Version::V1 => self.folder.join("release_agent").exists(),
            Version::V2 => !self.folder.join("cgroup.type").exists(),
        }
    }

    /// Whether it exists.
    pub fn exists(&self) -> bool {
        self.folder.is_dir()
    }

    /// The group `name` inside this one, which may or may not exist.
    #[must_use]
    pub fn child(&self, name: &str) -> Cgroup {
        let account = self.account.as_ref().map(|account| account.join(name));
        Cgroup { version: self.version, folder: self.folder.join(name), account }
    }

    /// Creates the group `name` inside this one, without processes. Two system calls. If its CPU
    /// time is counted elsewhere, and this process has no right there, nothing counts it.
    ///
    /// # Errors
    /// `EEXIST` in [`CgroupError::Os`]. See [`CgroupError`].
    pub fn create(&self, name: &str) -> Result<Cgroup, CgroupError> {
        let mut child = self.child(name);
        fs::create_dir(&child.folder).map_err(|error| CgroupError::of(&child.folder, &error))?;
        if let Some(account) = child.separate_account() {
            match fs::create_dir(account) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => child.account = None,
                _ => {}
            }
        }
        Ok(child)
    }

    /// Removes the group. Blocks for some milliseconds at most.
    ///
    /// # Errors
    /// [`CgroupError::Busy`] if it has processes or groups. No error if it does not exist.
    pub fn remove(&self) -> Result<(), CgroupError> {
        remove_folder(&self.folder)?;
        match self.separate_account() {
            None => Ok(()),
            Some(account) => remove_folder(account).or_else(|_| {
                // Another program may have moved a process in the first hierarchy alone.
                let left = fs::read_to_string(account.join(PROCESSES)).unwrap_or_default();
                let above = account.parent().unwrap_or(account).join(PROCESSES);
                for pid in left.lines() {
                    let _ = fs::write(&above, pid);
                }
                remove_folder(account)
            }),
        }
    }

    /// The names of the groups inside this one.
    ///
    /// # Errors
    /// See [`CgroupError`].
    pub fn children(&self) -> Result<Vec<String>, CgroupError> {
        let entries =
            fs::read_dir(&self.folder).map_err(|error| CgroupError::of(&self.folder, &error))?;
        let folders = entries.flatten().filter(|entry| entry.path().is_dir());
        Ok(folders.filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    /// Gives the groups inside this one weights, in version 2. Before, the kernel divides as if
    /// they were one. In version 1 they always have weights, and nothing happens.
    ///
    /// # Errors
    /// [`CgroupError::Busy`] if the group has processes and is not the root. See [`CgroupError`].
    pub fn divide(&self) -> Result<(), CgroupError> {
        match self.version {
            Version::V1 => Ok(()),
            Version::V2 => self.write(SUBTREE_CONTROL, "+cpu"),
        }
    }

    /// Undoes [`Cgroup::divide`]; no effect if a group inside this one divides.
    pub fn unite(&self) {
        if self.version == Version::V2 {
            let _ = self.write(SUBTREE_CONTROL, "-cpu");
        }
    }

    /// Whether [`Cgroup::divide`] has no effect any more.
    pub fn is_divided(&self) -> bool {
        let has_cpu = |text: String| text.split_whitespace().any(|name| name == "cpu");
        self.version == Version::V1 || self.read(SUBTREE_CONTROL).is_ok_and(has_cpu)
    }

    /// Sets the weight against its siblings, in millionths of the greatest weight. Weights from
    /// 10,000 on are exact to 0.5 %; in version 1 those from 400 on. One write, about 20 us.
    ///
    /// # Errors
    /// See [`CgroupError`].
    pub fn set_weight(&self, ppm: u32) -> Result<(), CgroupError> {
        let (file, range) = self.version.weight();
        self.write(file, &to_kernel(ppm, range).to_string())
    }

    /// The weight against its siblings, in millionths of the greatest weight.
    ///
    /// # Errors
    /// See [`CgroupError`].
    pub fn weight(&self) -> Result<u32, CgroupError> {
        let (file, (_, most)) = self.version.weight();
        let weight = self.number(file)?;
        let ppm = weight.saturating_mul(WEIGHT_MAX_PPM.into()) / u64::from(most);
        Ok(u32::try_from(ppm).unwrap_or(WEIGHT_MAX_PPM))
    }

    /// Permits threads of the group the real-time class as in another group, that above it. Version
    /// 1 with `CONFIG_RT_GROUP_SCHED` forbids it in a new group; elsewhere nothing happens.
    ///
    /// # Errors
    /// `EINVAL` in [`CgroupError::Os`] if groups beside it have the permission already.
    pub fn permit_real_time_as(&self, above: &Cgroup) -> Result<(), CgroupError> {
        match self.folder.join(RT_RUNTIME).exists() {
            true => self.write(RT_RUNTIME, above.read(RT_RUNTIME)?.trim()),
            false => Ok(()),
        }
    }

    /// As [`Cgroup::permit_real_time_as`], with a part of that, such as a half for 2: for one of
    /// several groups beside each other. All of it for each is more than the group above has.
    ///
    /// # Errors
    /// As [`Cgroup::permit_real_time_as`].
    pub fn permit_real_time_part_of(&self, above: &Cgroup, part: u64) -> Result<(), CgroupError> {
        if !self.folder.join(RT_RUNTIME).exists() {
            return Ok(());
        }
        let runtime = above.read(RT_RUNTIME)?;
        // -1: all the time. Then a part of each period.
        let whole_us = match runtime.trim().parse::<u64>() {
            Ok(runtime_us) => runtime_us,
            Err(_) => self.number(RT_PERIOD)?,
        };
        self.write(RT_RUNTIME, &(whole_us / part.max(1)).to_string())
    }

    /// Moves a process with all its threads into the group. What it starts from now on is in the
    /// group, too. Blocks for some milliseconds at most, while the kernel lets forks finish.
    ///
    /// # Errors
    /// `ESRCH` in [`CgroupError::Os`] if there is no such process or it has ended; `EINVAL` for a
    /// thread of the kernel, and where the group forbids the real-time class to a thread that has
    /// it. [`CgroupError::Busy`] in version 2 if the group divides among groups inside it.
    pub fn add(&self, pid: u32) -> Result<(), CgroupError> {
        self.write(PROCESSES, &pid.to_string())?;
        if let Some(account) = self.separate_account() {
            // The account does not matter for the share. It misses what it cannot have.
            let _ = fs::write(account.join(PROCESSES), pid.to_string());
        }
        Ok(())
    }

    /// Takes the processes of the group into its account, where that is another hierarchy. A
    /// process that was started while [`Cgroup::add`] moved its parent may be in the group alone.
    /// Two system calls if all are there; some more a process that is not. Allocates.
    pub fn complete_account(&self) {
        let Some(account) = self.separate_account() else { return };
        let file = account.join(PROCESSES);
        for _ in 0..COMPLETIONS_MAX {
            let counted = fs::read_to_string(&file).unwrap_or_default();
            let counted: BTreeSet<&str> = counted.lines().collect();
            let inside = self.processes().unwrap_or_default();
            let missing = inside.iter().map(u32::to_string);
            let missing = missing.filter(|pid| !counted.contains(pid.as_str()));
            // It fails for a process that has ended.
            if missing.filter(|pid| fs::write(&file, pid).is_ok()).count() == 0 {
                return;
            }
        }
    }

    /// The processes of the group, without those of groups inside it. Allocates.
    ///
    /// # Errors
    /// See [`CgroupError`].
    pub fn processes(&self) -> Result<Vec<u32>, CgroupError> {
        let text = self.read(PROCESSES)?;
        // 0 stands for a process that this namespace does not see.
        let mut all: Vec<u32> =
            text.lines().filter_map(|line| line.parse().ok()).filter(|&pid| pid != 0).collect();
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// The CPU time of all threads that were ever in the group, in ns. `None` if nothing counts it.
    pub fn cpu_time_ns(&self) -> Option<u64> {
        let account = self.account.as_ref()?;
        match self.version {
            Version::V1 => read_number(&account.join("cpuacct.usage")).ok(),
            Version::V2 => {
                let text = fs::read_to_string(account.join("cpu.stat")).ok()?;
                let us = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
                us.trim().parse::<u64>().ok()?.checked_mul(1_000)
            }
        }
    }

    /// Whether this process may create groups in it, and move processes to and from it.
    pub(crate) fn is_writable(&self) -> Result<(), CgroupError> {
        use rustix::fs::{Access, access};
        for path in [self.folder.clone(), self.folder.join(PROCESSES)] {
            if let Err(errno) = access(&path, Access::WRITE_OK) {
                let error = OsError::of("access")(errno);
                return Err(CgroupError::of(&path, &error.into()));
            }
        }
        Ok(())
    }

    /// The folder of the account, if it is another one.
    fn separate_account(&self) -> Option<&Path> {
        self.account.as_deref().filter(|&account| account != self.folder)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), CgroupError> {
        let path = self.folder.join(file);
        // Not `fs::write`: it would create what is missing, which the kernel refuses as a right.
        let written = fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
        written.map_err(|error| CgroupError::of(&path, &error))
    }

    fn read(&self, file: &str) -> Result<String, CgroupError> {
        let path = self.folder.join(file);
        fs::read_to_string(&path).map_err(|error| CgroupError::of(&path, &error))
    }

    fn number(&self, file: &str) -> Result<u64, CgroupError> {
        let path = self.folder.join(file);
        read_number(&path).map_err(|error| CgroupError::of(&path, &error))
    }
}

const RT_RUNTIME: &str = "cpu.rt_runtime_us";
const RT_PERIOD: &str = "cpu.rt_period_us";

impl Version {
    /// The file of a group's weight, the least and the greatest weight.
    fn weight(self) -> (&'static str, (u32, u32)) {
        match self {
            Version::V1 => ("cpu.shares", (2, 262_144)),
            Version::V2 => ("cpu.weight", (1, 10_000)),
        }
    }
}

/// Converts a weight to the kernel's unit, rounded to the nearest.
fn to_kernel(ppm: u32, (least, most): (u32, u32)) -> u32 {
    let whole = u64::from(WEIGHT_MAX_PPM);
    let weight = (u64::from(ppm) * u64::from(most) + whole / 2) / whole;
    u32::try_from(weight).unwrap_or(most).clamp(least, most)
}

/// Removes a group's folder; no error if there is none.
fn remove_folder(folder: &Path) -> Result<(), CgroupError> {
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CgroupError::of(folder, &error))
        }
        _ => Ok(()),
    }
}

fn read_number(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}
