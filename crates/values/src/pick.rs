//! Which files of values a collection takes: a pure function of what they have alive.

use base::planted::{Bug, planted};

/// A file with values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentFile {
    /// The log with this number.
    Log(u64),
    /// The value file with this number.
    Values(u64),
}

/// A file with values, and the sum of the references to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileUse {
    /// The file.
    pub file: SegmentFile,
    /// The segments whose values are in it.
    pub segments: Vec<u64>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the values in it that tables refer to.
    pub live_bytes: u64,
    /// Bytes of the file that a collection would free, about: not keys and headers of live values.
    pub dead_bytes: u64,
    /// A table that no version has any more, but a reader, refers to it.
    pub pinned: bool,
}

/// The files to collect together, as indices, or none. Nothing is collected until more than `garbage_percent` of the bytes of all files are
/// dead. Then those files are taken of which the greatest part is dead: until fewer are dead without them, or `max_live_bytes` are alive in
/// them together, but at least one. Files that are pinned are not taken.
///
/// Collecting the deadest first frees most for each byte copied; what is collected later has had time to die.
pub fn pick(files: &[FileUse], garbage_percent: u32, max_live_bytes: u64) -> Vec<usize> {
    let mut all: u64 = files.iter().map(|f| f.file_bytes).sum();
    let mut dead: u64 = files.iter().map(|f| f.dead_bytes).sum();
    let too_many =
        |dead: u64, all: u64| u128::from(dead) * 100 > u128::from(all) * u128::from(garbage_percent);
    let is_pinned = |file: &FileUse| file.pinned && !planted(Bug::CollectDespiteReaders);
    let mut order: Vec<usize> =
        (0..files.len()).filter(|&i| !is_pinned(&files[i]) && files[i].dead_bytes > 0).collect();
    order.sort_by_key(|&i| files[i].file);
    // By the dead part, descending: a/b > c/d as a d > c b.
    let product = |dead: &FileUse, of: &FileUse| u128::from(dead.dead_bytes) * u128::from(of.file_bytes);
    order.sort_by(|&a, &b| product(&files[b], &files[a]).cmp(&product(&files[a], &files[b])));
    let (mut picked, mut live) = (Vec::new(), 0);
    for i in order {
        let file = &files[i];
        live += file.live_bytes;
        if !too_many(dead, all) || !picked.is_empty() && live > max_live_bytes {
            break;
        }
        dead -= file.dead_bytes;
        all -= file.dead_bytes;
        picked.push(i);
    }
    picked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(file: u64, file_bytes: u64, live_bytes: u64) -> FileUse {
        let file = SegmentFile::Log(file);
        let dead_bytes = file_bytes.saturating_sub(live_bytes);
        FileUse { file, segments: Vec::new(), file_bytes, live_bytes, dead_bytes, pinned: false }
    }

    #[test]
    fn the_deadest_are_collected_first_until_few_are_dead() {
        // 230 of 1220 bytes are dead, 19 %.
        let files = [used(1, 100, 95), used(2, 100, 40), used(3, 1000, 850), used(4, 10, 0), used(5, 10, 5)];
        assert_eq!(pick(&files, 19, 1000), [0; 0]);
        assert_eq!(pick(&files, 18, 1000), [3, 1], "160 of 1150, 14 %, without the dead of these two");
        assert_eq!(pick(&files, 13, 1000), [3, 1, 4, 2]);
        assert_eq!(pick(&files, 13, 41), [3, 1], "the third has 5 alive");
        assert_eq!(pick(&files[1..2], 10, 0), [0], "at least one");
        assert_eq!(pick(&files, 0, 1 << 40), [3, 1, 4, 2, 0]);
        assert_eq!(pick(&[used(1, u64::MAX / 2, 0), used(2, 5, 9)], 0, 0), [0], "more alive than there is");
        let pinned = FileUse { pinned: true, ..used(4, 10, 0) };
        assert_eq!(pick(&[pinned, used(5, 10, 5)], 10, 100), [1]);
    }
}
