//! Where the groups of the controller `cpu` are on this machine.

use super::error::CgroupError;
use super::group::{Cgroup, Version};
use super::mounts::{Mount, mounts_in};
use std::fs;
use std::path::{Path, PathBuf};

/// The hierarchy with the controller `cpu`: of version 2 if it has it, else of version 1.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    version: Version,
    cpu: Mount,
    /// The hierarchy that counts CPU time, which may be the same.
    account: Option<Mount>,
}

impl Hierarchy {
    /// Finds it. Reads three files.
    ///
    /// # Errors
    /// [`CgroupError::NoController`], and if `/proc` cannot be read.
    pub fn find() -> Result<Hierarchy, CgroupError> {
        let mounts = mounts_in(&read(Path::new("/proc/self/mountinfo"))?);
        let own = read(Path::new("/proc/self/cgroup"))?;
        let has_cpu = |folder: &Path| {
            let text = fs::read_to_string(folder.join("cgroup.controllers"));
            text.is_ok_and(|text| text.split_whitespace().any(|name| name == "cpu"))
        };
        let v2 = mounts.iter().find(|mount| {
            let own = mount.group_in(&own).map(|group| mount.folder_of(&group));
            mount.is_v2() && (has_cpu(&mount.point) || own.is_some_and(|own| has_cpu(&own)))
        });
        if let Some(cpu) = v2 {
            let account = Some(cpu.clone());
            return Ok(Hierarchy { version: Version::V2, cpu: cpu.clone(), account });
        }
        let with = |controller| mounts.iter().find(|mount| mount.has(controller)).cloned();
        let cpu = with("cpu").ok_or(CgroupError::NoController)?;
        Ok(Hierarchy { version: Version::V1, cpu, account: with("cpuacct") })
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The group at the mount point: the root, or what a container sees as the root.
    pub fn top(&self) -> Cgroup {
        let account = self.account.as_ref().map(|account| account.point.clone());
        Cgroup::new(self.version, self.cpu.point.clone(), account)
    }

    /// The group with this folder; `None` if the folder is not in the hierarchy. Need not exist.
    pub fn group_at(&self, folder: &Path) -> Option<Cgroup> {
        let inside = folder.strip_prefix(&self.cpu.point).ok()?;
        let account = self.account.as_ref().map(|account| match inside.as_os_str().is_empty() {
            true => account.point.clone(),
            false => account.point.join(inside),
        });
        Some(Cgroup::new(self.version, folder.to_owned(), account))
    }

    /// The group of a process. Reads a file.
    ///
    /// # Errors
    /// `ENOENT` or `ESRCH` in [`CgroupError::Os`] if there is no such process.
    pub fn group_of(&self, pid: u32) -> Result<Cgroup, CgroupError> {
        self.group_in(Path::new(&format!("/proc/{pid}/cgroup")))
    }

    fn group_in(&self, file: &Path) -> Result<Cgroup, CgroupError> {
        let text = read(file)?;
        let folder_in =
            |mount: &Mount| -> Option<PathBuf> { Some(mount.folder_of(&mount.group_in(&text)?)) };
        let folder = folder_in(&self.cpu).ok_or(CgroupError::NoController)?;
        let account = self.account.as_ref().and_then(folder_in);
        Ok(Cgroup::new(self.version, folder, account))
    }

    /// Where this process may create groups: at the top if it has the right, else in its own group,
    /// which may be delegated to its user.
    ///
    /// # Errors
    /// [`CgroupError::NoRight`] with the file of its own group, also if the group was delegated
    /// without the controller.
    pub fn writable(&self) -> Result<Cgroup, CgroupError> {
        let top = self.top();
        if top.is_writable().is_ok() {
            return Ok(top);
        }
        let own = self.group_in(Path::new("/proc/self/cgroup"))?;
        own.is_writable()?;
        if self.version == Version::V2 {
            let controllers = read(&own.folder().join("cgroup.controllers"))?;
            let has_cpu = controllers.split(u8::is_ascii_whitespace).any(|name| name == b"cpu");
            let file = own.folder().join("cgroup.subtree_control");
            return if has_cpu { Ok(own) } else { Err(CgroupError::NoRight { file }) };
        }
        Ok(own)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CgroupError> {
    fs::read(path).map_err(|error| CgroupError::of(path, &error))
}
