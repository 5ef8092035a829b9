//! A memory limit for one process and the page cache that it fills, through the kernel's control groups.
//!
//! Without a limit, a machine with much memory keeps the whole database in its page cache, and the storage is not
//! measured. A limit makes engines comparable: an engine that uses more memory itself leaves less for the cache of
//! its files.
//!
//! Supports both versions of control groups. The group is created below the group of this program (version 1), or
//! below the nearest one that delegates the memory controller (version 2, where a group with processes has no child
//! groups), so existing limits stay in force. This usually requires root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// A control group with a memory limit. Dropping it removes the group, whose processes must have ended.
pub struct Cgroup {
    dir: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// File names of each version.
struct Names {
    limit: &'static str,
    /// The limit of memory plus swap (version 1) or of swap (version 2). Does not exist without support for swap.
    swap: &'static str,
    events: &'static str,
}

impl Version {
    fn names(self) -> Names {
        match self {
            Version::V1 => Names {
                limit: "memory.limit_in_bytes",
                swap: "memory.memsw.limit_in_bytes",
                events: "memory.oom_control",
            },
            Version::V2 => Names { limit: "memory.max", swap: "memory.swap.max", events: "memory.events" },
        }
    }

    /// The value of the swap limit that prevents the use of swap.
    fn swap_limit(self, bytes: u64) -> u64 {
        match self {
            Version::V1 => bytes,
            Version::V2 => 0,
        }
    }
}

impl Cgroup {
    /// Creates a group with a limit. The error says what is missing.
    pub fn create(limit_bytes: u64) -> Result<Cgroup, String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
        let place = parent(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?);
        let (version, parent) = place.ok_or("the kernel offers no control of memory here")?;
        let dir = parent.join(format!("cairn-bench-{}", std::process::id()));
        if let Err(e) = fs::create_dir(&dir)
            && e.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(format!("make {}: {e}", dir.display()));
        }
        let group = Cgroup { dir, version };
        let names = version.names();
        group.write(names.limit, limit_bytes)?;
        if group.dir.join(names.swap).exists() {
            group.write(names.swap, version.swap_limit(limit_bytes))?;
        }
        Ok(group)
    }

    fn write(&self, name: &str, bytes: u64) -> Result<(), String> {
        let path = self.dir.join(name);
        fs::write(&path, bytes.to_string()).map_err(|e| format!("write {bytes} to {}: {e}", path.display()))
    }

    /// The file to which a process writes its id to become a member.
    pub fn procs(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// Whether a member was killed because memory ran out.
    pub fn out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.dir.join(self.version.names().events)).unwrap_or_default();
        events.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|n| n.trim() != "0")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Frees the remaining page cache of its processes. Only version 1 has this file; best effort.
        let _ = fs::write(self.dir.join("memory.force_empty"), "0");
        // A killed process leaves the group after a short delay.
        for _ in 0..50 {
            match fs::remove_dir(&self.dir) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => thread::sleep(Duration::from_millis(20)),
                _ => return,
            }
        }
        eprintln!("cairn-bench: the control group {} could not be removed", self.dir.display());
    }
}

/// Moves this process into the group.
pub fn join(procs: &Path) -> Result<(), String> {
    fs::write(procs, std::process::id().to_string()).map_err(|e| format!("join {}: {e}", procs.display()))
}

/// The directory below which a group can be created, from `/proc/self/mountinfo` and `/proc/self/cgroup`.
fn parent(mounts: &str, own: &str) -> Option<(Version, PathBuf)> {
    let own_v1 = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        fields.next()?.split(',').any(|controller| controller == "memory").then(|| fields.next())?
    });
    if let Some(own) = own_v1
        && let Some(dir) = locate(mounts, "cgroup", "memory", own)
    {
        return Some((Version::V1, dir));
    }
    let own_v2 = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let dir = locate(mounts, "cgroup2", "", own_v2)?;
    let hands_on = |dir: &&Path| {
        let controllers = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
        controllers.split_whitespace().any(|controller| controller == "memory")
    };
    Some((Version::V2, dir.ancestors().find(hands_on)?.to_path_buf()))
}

/// The path of the group `own` of a hierarchy: below the mount of type `kind` that has `option`.
fn locate(mounts: &str, kind: &str, option: &str, own: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let (mut left, right) = (left.split(' ').skip(3), right.split(' ').collect::<Vec<_>>());
        let (root, point) = (left.next()?, left.next()?);
        let fits = right.first() == Some(&kind)
            && (option.is_empty() || right.last()?.split(',').any(|o| o == option));
        // A container sees only a part of the hierarchy: `root` is the part that is mounted.
        let below = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
        fits.then(|| Path::new(point).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
        30 20 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        31 20 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        32 20 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn groups_are_made_below_ones_own() {
        let found = parent(V1, "9:cpu:/\n4:memory:/jobs/7\n0::/\n");
        assert_eq!(found, Some((Version::V1, PathBuf::from("/sys/fs/cgroup/memory/jobs/7"))));
        let container = V1.replace("0:28 / ", "0:28 /docker/1 ");
        assert_eq!(
            parent(&container, "4:memory:/docker/1/x\n").unwrap().1,
            Path::new("/sys/fs/cgroup/memory/x")
        );
        assert_eq!(parent("", "4:memory:/\n"), None);
    }

    #[test]
    fn version_2_needs_an_ancestor_that_hands_memory_on() {
        let root = tempfile::tempdir().unwrap();
        let scope = root.path().join("user/session");
        fs::create_dir_all(&scope).unwrap();
        let mounts = format!("32 20 0:29 / {} rw - cgroup2 cgroup2 rw\n", root.path().display());
        assert_eq!(parent(&mounts, "0::/user/session\n"), None);
        fs::write(root.path().join("user/cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        let found = parent(&mounts, "0::/user/session\n");
        assert_eq!(found, Some((Version::V2, root.path().join("user"))));
    }

    /// Where limits are permitted, a process that exceeds its limit is killed, and the group reports it.
    #[test]
    fn the_limit_holds() {
        let group = match Cgroup::create(32 << 20) {
            Ok(group) => group,
            Err(why) => return eprintln!("not tested: {why}"),
        };
        let script = format!(
            "echo $$ > {} && exec head -c 200m /dev/zero | tail -c 150m > /dev/null",
            group.procs().display()
        );
        assert!(!group.out_of_memory());
        let mut child = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
        child.wait().unwrap();
        assert!(group.out_of_memory());
        let dir = group.dir.clone();
        drop(group);
        assert!(!dir.exists());
    }
}
