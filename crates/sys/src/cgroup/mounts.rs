//! Reads where control groups are mounted, and in which ones a process is. Pure.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The group that the mount point shows.
    root: PathBuf,
    pub(super) point: PathBuf,
    /// `None` in version 2: then files in the groups name the controllers.
    controllers: Option<Vec<String>>,
}

impl Mount {
    pub(super) fn is_v2(&self) -> bool {
        self.controllers.is_none()
    }

    /// Whether it is the hierarchy of version 1 with this controller.
    pub(super) fn has(&self, controller: &str) -> bool {
        self.controllers.iter().flatten().any(|name| name == controller)
    }

    /// The folder of the group with this path in the hierarchy; the mount point itself if the mount
    /// does not show the group.
    pub(super) fn folder_of(&self, group: &Path) -> PathBuf {
        match group.strip_prefix(&self.root) {
            Ok(inside) if inside.as_os_str().is_empty() => self.point.clone(),
            Ok(inside) => self.point.join(inside),
            Err(_) => self.point.clone(),
        }
    }

    /// Whether a line of `/proc/pid/cgroup` is about this hierarchy.
    fn is_of(&self, controllers: &str) -> bool {
        match &self.controllers {
            None => controllers.is_empty(),
            Some(mine) => controllers.split(',').any(|name| mine.iter().any(|own| own == name)),
        }
    }

    /// The path of a process's group, from the text of its `/proc/pid/cgroup` (cgroups(7)).
    pub(super) fn group_in(&self, text: &[u8]) -> Option<PathBuf> {
        text.split(|&byte| byte == b'\n').find_map(|line| {
            let mut parts = line.splitn(3, |&byte| byte == b':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let controllers = core::str::from_utf8(controllers).ok()?;
            self.is_of(controllers).then(|| PathBuf::from(OsString::from_vec(path.to_vec())))
        })
    }
}

/// The hierarchies in the text of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
pub(super) fn mounts_in(text: &[u8]) -> Vec<Mount> {
    text.split(|&byte| byte == b'\n').filter_map(mount_of).collect()
}

/// `id parent device root point options [optional ...] - type source options`
fn mount_of(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let end = fields.iter().position(|field| *field == b"-")?;
    let (root, point) = (path(fields.get(3)?), path(fields.get(4)?));
    let controllers = match *fields.get(end + 1)? {
        b"cgroup2" => None,
        b"cgroup" => {
            let options = core::str::from_utf8(fields.get(end + 3)?).ok()?;
            Some(options.split(',').map(str::to_owned).collect())
        }
        _ => return None,
    };
    Some(Mount { root, point, controllers })
}

/// Undoes the kernel's escapes: a backslash and three octal digits.
fn path(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let octal = digits.and_then(|digits| core::str::from_utf8(digits).ok());
        let byte = octal.and_then(|octal| u8::from_str_radix(octal, 8).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &[u8] = b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        33 31 0:30 / /sys/fs/cgroup/cpu\\040acct rw,relatime - cgroup cgroup rw,cpuacct\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:3 - cgroup2 cgroup2 rw\n";
    const OF_PROCESS: &[u8] = b"9:name=systemd:/s\n2:cpuacct:/a b\n1:cpu:/x:y\n0::/u\n";

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let mounts = mounts_in(V1);
        let points: Vec<_> = mounts.iter().map(|mount| mount.point.to_str().unwrap()).collect();
        assert_eq!(
            points,
            ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu acct", "/sys/fs/cgroup/unified"]
        );
        assert!(mounts[0].has("cpu") && !mounts[0].has("cpuacct") && !mounts[0].is_v2());
        assert!(mounts[2].is_v2() && !mounts[2].has("cpu"));
        assert_eq!(mounts_in(b""), []);
        assert_eq!(mounts_in(b"1 2 - cgroup2\n- - -\n"), []);
    }

    #[test]
    fn the_group_of_a_process_is_found_in_each_hierarchy() {
        let groups: Vec<_> =
            mounts_in(V1).iter().map(|mount| mount.group_in(OF_PROCESS).unwrap()).collect();
        assert_eq!(groups, [Path::new("/x:y"), Path::new("/a b"), Path::new("/u")]);
        assert_eq!(mounts_in(V1)[0].group_in(b"3:memory:/m\n0::/u\n"), None);
    }

    #[test]
    fn a_mount_shows_the_groups_below_its_root() {
        let text = b"1 2 0:9 /docker/a /cg rw - cgroup cgroup rw,cpu,cpuacct\n";
        let [mount] = &mounts_in(text)[..] else { panic!() };
        assert!(mount.has("cpu") && mount.has("cpuacct"));
        let folder = |group: &str| mount.folder_of(Path::new(group));
        assert_eq!(folder("/docker/a"), Path::new("/cg"));
        assert_eq!(folder("/docker/a/b"), Path::new("/cg/b"));
        assert_eq!(folder("/docker/ab"), Path::new("/cg"));
    }
}
