//! Which files may be mapped for writing: those where a store into the mapping cannot fail.
//!
//! A page that was written back is read-only, and the next store into it faults. A failed fault kills the process
//! with a signal. On ext4 the page keeps its block, and on tmpfs it needs none. A copy-on-write file system allocates
//! a new block for each write-back and may be out of space. On ext4 with `data=journal` each store needs the journal,
//! which is gone after the file system shuts down. Therefore only files on tmpfs and on ext4 without data journaling are mapped.

use std::fs::File;

/// Whether `file` lies on a file system where stores into a mapping cannot fail; see the module.
#[cfg(target_os = "linux")]
pub(super) fn is_mappable(file: &File) -> bool {
    const EXT4: u64 = 0xef53;
    const TMPFS: u64 = 0x0102_1994;
    match rustix::fs::fstatfs(file).map(|stat| stat.f_type as u64) {
        Ok(TMPFS) => true,
        Ok(EXT4) => !may_journal_data(file),
        _ => false,
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_mappable(_file: &File) -> bool {
    false
}

/// Whether ext4 journals the data of this file. True if that cannot be determined.
#[cfg(target_os = "linux")]
fn may_journal_data(file: &File) -> bool {
    use rustix::fs::{IFlags, fstat, ioctl_getflags, major, minor};
    if ioctl_getflags(file).is_ok_and(|flags| flags.contains(IFlags::JOURNALING)) {
        return true;
    }
    // The list of mounts omits options that are the default of the file system, so read the list in /proc/fs/ext4.
    let options = fstat(file).ok().and_then(|stat| {
        let device = format!("/sys/dev/block/{}:{}", major(stat.st_dev), minor(stat.st_dev));
        let name = std::fs::read_link(device).ok()?.file_name()?.to_owned();
        std::fs::read_to_string(std::path::Path::new("/proc/fs/ext4").join(name).join("options")).ok()
    });
    options.is_none_or(|options| journals_data(&options))
}

/// Whether the mount options of a file system, one per line, include data journaling. True for an empty list.
#[cfg(target_os = "linux")]
fn journals_data(options: &str) -> bool {
    options.is_empty() || options.lines().any(|option| option.trim() == "data=journal")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn data_journaling_is_read_from_the_mount_options() {
        for (options, journals) in [
            ("rw\nbarrier\ndata=ordered\ncommit=5\n", false),
            ("rw\ndata=writeback\n", false),
            ("rw\nnojournal_checksum\n", false),
            ("rw\nbarrier\ndata=journal\ncommit=5\n", true),
            ("", true),
        ] {
            assert_eq!(journals_data(options), journals, "{options}");
        }
    }

    #[test]
    fn a_file_on_an_unknown_file_system_is_not_mapped() {
        assert!(!is_mappable(&File::open("/proc/version").unwrap()));
        // procfs is not ext4, so there is no list of its options.
        assert!(may_journal_data(&File::open("/proc/version").unwrap()));
    }
}
