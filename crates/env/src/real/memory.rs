//! How much memory the process may use, including the page cache that it fills.

use std::fs;
use std::path::Path;

/// The memory of the machine, or the limit of the process's control group if that is lower, in bytes; 0 if unknown.
/// Looks for control groups at their usual mount point.
pub(super) fn memory() -> u64 {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let Some(total) = total(&read("/proc/meminfo")) else { return 0 };
    limit(Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup")).map_or(total, |limit| limit.min(total))
}

/// Memory of the machine, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// The lowest limit of the control groups of the process below `root`. The limit of a group applies to its
/// descendants.
fn limit(root: &Path, groups: &str) -> Option<u64> {
    let places = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let path = if path.contains("..") { "" } else { path };
        // Version 2 names no controllers. Beside version 1 it is mounted in a subdirectory.
        match controllers {
            "" => Some((path, &["", "unified"][..], &["memory.max", "memory.high"][..])),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some((path, &["memory"][..], &["memory.limit_in_bytes"][..]))
            }
            _ => None,
        }
    });
    let mut lowest: Option<u64> = None;
    for (path, mounts, files) in places {
        for root in mounts.iter().map(|mount| root.join(mount)) {
            let group = root.join(path);
            for above in group.ancestors().take_while(|above| above.starts_with(&root)) {
                for file in files {
                    let text = fs::read_to_string(above.join(file)).unwrap_or_default();
                    let limit = text.trim().parse().ok();
                    lowest = lowest.into_iter().chain(limit).min();
                }
            }
        }
    }
    lowest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_on_the_way_up_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |groups: &str| super::limit(root.path(), groups);
        assert_eq!(limit("0::/a/b\n"), None);
        write("a/b/memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), None);
        write("a/memory.max", "3000\n");
        write("memory.max", "5000\n");
        write("c/memory.high", "2500\n");
        assert_eq!(limit("0::/c/d\n"), Some(2500));
        write("unified/e/memory.max", "2400\n");
        assert_eq!(limit("0::/e\n"), Some(2400));
        write("unified/e/memory.high", "2300\n");
        assert_eq!(limit("0::/e/f\n"), Some(2300));
        assert_eq!(limit("0::/a/b\n"), Some(3000));
        assert_eq!(limit("0::/elsewhere\n"), Some(5000));
        assert_eq!(limit("0::/\n"), Some(5000));
        write("memory/x/memory.limit_in_bytes", "2000\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit("5:cpu,memory:/x\n4:cpuset:/y\n0::/a/b\n"), Some(2000));
        assert_eq!(limit("5:memory:/x/gone\n"), Some(2000));
        assert_eq!(limit("5:memory:/\n"), Some(9_223_372_036_854_771_712));
        assert_eq!(limit("nonsense\n\n7:memory\n5:memory:/../..\n"), Some(9_223_372_036_854_771_712));
    }

    #[test]
    fn memory_of_the_machine() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       24636780 kB\n"), Some(24_636_780 << 10));
        assert_eq!((total(""), total("MemTotal: many kB"), total("MemTotal: 5")), (None, None, None));
        if cfg!(target_os = "linux") {
            assert!(memory() > 1 << 20);
        }
    }
}
