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
    /// The number of these values.
    pub live_count: u64,
    /// The number of dead entries that a collection has to find out about, those of keyspaces without order.
    pub dead_count: u64,
    /// It cannot be collected: a table that no version has any more, but a reader, refers to it; or it could not be read.
    pub pinned: bool,
    /// Tables refer to values in it, not only indexes of keyspaces without order.
    pub has_tables: bool,
}

/// What a value counts beside its bytes, because a collection has its place in memory.
const MEMORY_PER_VALUE: u64 = 64;

/// What a dead entry of a keyspace without order counts, because a collection has its key in memory.
const MEMORY_PER_DEAD: u64 = 128;

/// The files to collect together, as indices, or none. Nothing is collected until more than `garbage_percent` of the bytes of all files are
/// dead. Then those files are taken of which the greatest part is dead: until fewer are dead without them, or `max_live_bytes` are alive in
/// them together, what a collection has in memory included, but at least one. Files that are pinned are not taken.
///
/// Collecting the deadest first frees most for each byte copied; what is collected later has had time to die.
pub fn pick(files: &[FileUse], garbage_percent: u32, max_live_bytes: u64) -> Vec<usize> {
    let is_pinned = |file: &FileUse| file.pinned && !planted(Bug::CollectDespiteReaders);
    let sum = |of: fn(&FileUse) -> u64| {
        files.iter().filter(|f| !is_pinned(f)).fold(0, |sum: u64, f| sum.saturating_add(of(f)))
    };
    // Without the files that cannot be collected: what is dead in them would make others be collected again and again.
    let (mut all, mut dead) = (sum(|f| f.file_bytes), sum(|f| f.dead_bytes));
    let too_many =
        |dead: u64, all: u64| u128::from(dead) * 100 > u128::from(all) * u128::from(garbage_percent);
    let mut order: Vec<usize> =
        (0..files.len()).filter(|&i| !is_pinned(&files[i]) && files[i].dead_bytes > 0).collect();
    order.sort_by_key(|&i| files[i].file);
    // By the dead part, descending: a/b > c/d as a d > c b.
    let product = |dead: &FileUse, of: &FileUse| u128::from(dead.dead_bytes) * u128::from(of.file_bytes);
    order.sort_by(|&a, &b| product(&files[b], &files[a]).cmp(&product(&files[a], &files[b])));
    let (mut picked, mut live): (Vec<usize>, u64) = (Vec::new(), 0);
    for i in order {
        let file = &files[i];
        live = live.saturating_add(cost(file));
        if !too_many(dead, all) || !picked.is_empty() && live > max_live_bytes {
            break;
        }
        dead = dead.saturating_sub(file.dead_bytes);
        all = all.saturating_sub(file.dead_bytes);
        picked.push(i);
    }
    picked
}

/// What a collection of a file copies and has in memory.
fn cost(file: &FileUse) -> u64 {
    let memory = file.live_count.saturating_mul(MEMORY_PER_VALUE);
    let memory = memory.saturating_add(file.dead_count.saturating_mul(MEMORY_PER_DEAD));
    memory.saturating_add(file.live_bytes)
}

/// The files to collect together where the number of dead entries counts, because an index in memory has a slot for each, and not their bytes: those
/// of which the greatest part of the entries is dead, and an eighth at least, as far as [`pick`] would take.
pub fn pick_by_count(files: &[FileUse], max_live_bytes: u64) -> Vec<usize> {
    let all = |file: &FileUse| u128::from(file.live_count) + u128::from(file.dead_count);
    let is_worthwhile = |file: &FileUse| !file.pinned && u128::from(file.dead_count) * 8 >= all(file).max(1);
    let mut order: Vec<usize> = (0..files.len()).filter(|&i| is_worthwhile(&files[i])).collect();
    order.sort_by_key(|&i| files[i].file);
    let product = |dead: &FileUse, of: &FileUse| u128::from(dead.dead_count) * all(of);
    order.sort_by(|&a, &b| product(&files[b], &files[a]).cmp(&product(&files[a], &files[b])));
    let (mut picked, mut sum): (Vec<usize>, u64) = (Vec::new(), 0);
    for i in order {
        sum = sum.saturating_add(cost(&files[i]));
        if !picked.is_empty() && sum > max_live_bytes {
            break;
        }
        picked.push(i);
    }
    picked
}

/// How many of these files a collection takes together, the first ones: as far as [`pick`] would.
pub fn pick_first(files: &[FileUse], max_live_bytes: u64) -> usize {
    let mut sum: u64 = 0;
    let fits = |file: &&FileUse| {
        sum = sum.saturating_add(cost(file));
        sum <= max_live_bytes
    };
    files.iter().take_while(fits).count().max(files.len().min(1))
}

/// So many small files of about one length are merged. Lengths are about the same if they are below one limit and not below the next, which is this
/// part of it: so a file of merged ones usually is of the next length, and a byte is copied about once for each limit.
const MERGED: usize = 8;

/// The least of these limits.
const SMALLEST: u64 = 512;

/// More files are not merged at once.
const MOST_MERGED: usize = 1024;

/// The small files to merge into one, as indices, or none: of keyspaces without order, each flush leaves a file, however little is in it. Files below
/// `below` bytes are merged when eight of about one length are there: all of them, the smallest limit first, until `max_live_bytes` are alive
/// in them, but at most 1,024.
///
/// Files to whose values tables refer are left alone: to find the references, a collection reads these tables, which may be all there are.
pub fn pick_small(files: &[FileUse], below: u64, max_live_bytes: u64) -> Vec<usize> {
    // A file of more than half of the bytes may be the only one that fits.
    let may_merge = |file: &FileUse| !file.pinned && !file.has_tables && cost(file) <= max_live_bytes / 2;
    let mut limits = vec![below];
    while let Some(next) = limits.last().map(|limit| limit / MERGED as u64).filter(|next| *next >= SMALLEST) {
        limits.push(next);
    }
    let mut from = 0;
    for below in limits.into_iter().rev() {
        let is_of_length = |file: &FileUse| (from..below).contains(&file.file_bytes);
        let mut picked: Vec<usize> =
            (0..files.len()).filter(|&i| is_of_length(&files[i]) && may_merge(&files[i])).collect();
        if picked.len() >= MERGED {
            picked.truncate(MOST_MERGED);
            let mut sum: u64 = 0;
            picked.retain(|&i| {
                sum = sum.saturating_add(cost(&files[i]));
                sum <= max_live_bytes
            });
            return picked;
        }
        from = below;
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(file: u64, file_bytes: u64, live_bytes: u64) -> FileUse {
        let file = SegmentFile::Log(file);
        let dead_bytes = file_bytes.saturating_sub(live_bytes);
        FileUse {
            file,
            segments: Vec::new(),
            file_bytes,
            live_bytes,
            dead_bytes,
            live_count: 0,
            dead_count: 0,
            pinned: false,
            has_tables: false,
        }
    }

    #[test]
    fn small_files_are_merged_with_those_of_their_length() {
        const BELOW: u64 = 16 << 20;
        let many = |count: u64, bytes: u64| (0..count).map(move |number| used(number, bytes, bytes));
        let few = [many(7, 100), many(7, 3000), many(7, 20 << 10), many(7, 200 << 10), many(7, 1 << 20)];
        let few: Vec<FileUse> = few.into_iter().flatten().collect();
        assert!(pick_small(&few, BELOW, 1 << 30).is_empty(), "seven of each length");
        let picks = |bytes| {
            let enough: Vec<_> = few.iter().cloned().chain([used(40, bytes, bytes)]).collect();
            pick_small(&enough, BELOW, 1 << 30)
        };
        let with_last = |from: usize| (from..from + 7).chain([35]).collect::<Vec<_>>();
        assert_eq!(picks(1 << 20), with_last(28));
        assert_eq!(picks((2 << 20) - 1), with_last(28));
        assert_eq!(picks(256 << 10), with_last(28));
        assert!(picks(2 << 20).is_empty(), "the first of its length");
        assert_eq!(picks((256 << 10) - 1), with_last(21));
        assert_eq!(picks((32 << 10) - 1), with_last(14));
        assert_eq!(picks((4 << 10) - 1), with_last(7));
        assert_eq!(picks(511), with_last(0));
        assert!(picks(BELOW).is_empty(), "it is not small");
        // Until they are too many at once; all that fit, if there are more.
        let more: Vec<FileUse> = many(2000, 1000).collect();
        assert_eq!(pick_small(&more, BELOW, 3000), [0, 1, 2]);
        assert_eq!(pick_small(&more, BELOW, 1 << 30).len(), 1024);
        assert!(pick_small(&more, BELOW, 1999).is_empty(), "two do not fit");
        assert!(pick_small(&more, 1000, 1 << 30).is_empty(), "with a smaller limit");
        assert!(pick_small(&more, 0, 1 << 30).is_empty());
    }

    #[test]
    fn files_that_cannot_be_merged_are_not_in_the_way_of_others() {
        let others = |change: fn(&mut FileUse)| {
            let mut files: Vec<FileUse> = (0..8).map(|n| used(n, 1000, 1000)).collect();
            change(&mut files[7]);
            let without = pick_small(&files, 16 << 20, 1 << 20);
            files.push(used(99, 1000, 1000));
            (without.len(), pick_small(&files, 16 << 20, 1 << 20).contains(&7))
        };
        assert_eq!(others(|_| ()), (8, true));
        assert_eq!(others(|file| file.pinned = true), (0, false));
        assert_eq!(others(|file| file.has_tables = true), (0, false));
        assert_eq!(others(|file| file.dead_count = 1 << 20), (0, false));
    }

    #[test]
    fn where_entries_count_the_deadest_are_those_with_most_dead_entries() {
        let counted =
            |file, live_count, dead_count| FileUse { live_count, dead_count, ..used(file, 1000, 990) };
        let files =
            [counted(1, 90, 10), counted(2, 10, 90), counted(3, 0, 5), counted(4, 5, 0), counted(5, 50, 50)];
        assert_eq!(pick_by_count(&files, 1 << 20), [2, 1, 4]);
        assert_eq!(pick_by_count(&files, 1), [2]);
        let pinned = files.map(|file| FileUse { pinned: true, ..file });
        assert!(pick_by_count(&pinned, 1 << 20).is_empty());
    }

    #[test]
    fn the_first_files_are_taken_as_far_as_they_fit() {
        let files = [used(1, 100, 40), used(2, 100, 50), used(3, 100, 0)];
        for (most, count) in [(0, 1), (40, 1), (89, 1), (90, 3), (1 << 40, 3)] {
            assert_eq!(pick_first(&files, most), count, "{most}");
        }
        assert_eq!(pick_first(&[], 9), 0);
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
        // What is dead in a file that cannot be collected is no reason to collect another.
        let pinned = FileUse { pinned: true, ..used(4, 1000, 0) };
        assert_eq!(pick(&[pinned, used(5, 100, 95)], 10, 100), [0; 0]);
        let many = FileUse { live_count: 10, ..used(6, 100, 10) };
        assert_eq!(pick(&[used(7, 100, 0), many], 0, 640), [0], "650 with the places");
    }
}
