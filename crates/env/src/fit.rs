//! Whether part of a file may be mapped for writing: no store into it may need anything that can fail.
//!
//! A page that was written out is read-only, and the next store into it faults. On ext4 it has a place already, and in memory (tmpfs) it needs none; a
//! file system that writes every page to a new place may have none left, and the process would be killed. It would be, too, where ext4 journals the
//! content of files: each store then needs the journal, and that is gone when the file system shuts down.

use std::fs::File;

/// See the module.
#[cfg(target_os = "linux")]
pub(crate) fn is_fit(file: &File) -> bool {
    const EXT4: u64 = 0xef53;
    const TMPFS: u64 = 0x0102_1994;
    match rustix::fs::fstatfs(file).map(|stat| stat.f_type as u64) {
        Ok(TMPFS) => true,
        Ok(EXT4) => !may_journal_content(file),
        _ => false,
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_fit(_file: &File) -> bool {
    false
}

/// Whether ext4 journals what is written to a file, or does not say that it does not.
#[cfg(target_os = "linux")]
fn may_journal_content(file: &File) -> bool {
    use rustix::fs::{IFlags, fstat, ioctl_getflags, major, minor};
    if ioctl_getflags(file).is_ok_and(|flags| flags.contains(IFlags::JOURNALING)) {
        return true;
    }
    // The list of mounts leaves out what is the file system's own default.
    let options = fstat(file).ok().and_then(|stat| {
        let device = format!("/sys/dev/block/{}:{}", major(stat.st_dev), minor(stat.st_dev));
        let name = std::fs::read_link(device).ok()?.file_name()?.to_owned();
        std::fs::read_to_string(std::path::Path::new("/proc/fs/ext4").join(name).join("options")).ok()
    });
    options.is_none_or(|options| journals_content(&options))
}

/// What the options of a file system say of it, one in a line.
#[cfg(target_os = "linux")]
fn journals_content(options: &str) -> bool {
    options.is_empty() || options.lines().any(|option| option.trim() == "data=journal")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_journal_for_content_is_told_from_the_options() {
        for (options, journals) in [
            ("rw\nbarrier\ndata=ordered\ncommit=5\n", false),
            ("rw\ndata=writeback\n", false),
            ("rw\nnojournal_checksum\n", false),
            ("rw\nbarrier\ndata=journal\ncommit=5\n", true),
            ("", true),
        ] {
            assert_eq!(journals_content(options), journals, "{options}");
        }
    }

    #[test]
    fn what_does_not_say_is_not_fit() {
        assert!(!is_fit(&File::open("/proc/version").unwrap()));
        // No file system of ext4, so nothing says how it journals.
        assert!(may_journal_content(&File::open("/proc/version").unwrap()));
    }
}
