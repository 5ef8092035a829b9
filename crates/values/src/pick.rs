//! Which segments a collection takes: a pure function of what they have alive.

/// A segment, and the sum of the references to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// Its number.
    pub segment: u64,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// Bytes of the values in it that tables refer to.
    pub live_bytes: u64,
}

impl SegmentUse {
    fn dead_bytes(&self) -> u64 {
        self.file_bytes.saturating_sub(self.live_bytes)
    }
}

/// The segments to collect together, or none. They are those of which the greatest part is dead, at least `garbage_percent` of each, with
/// at most `max_live_bytes` alive together, but at least one.
///
/// Collecting the deadest first frees most for each byte copied; what is collected later has had time to die.
pub fn pick(segments: &[SegmentUse], garbage_percent: u32, max_live_bytes: u64) -> Vec<u64> {
    let is_due = |s: &&SegmentUse| {
        s.dead_bytes() > 0 && u128::from(s.dead_bytes()) * 100 >= u128::from(s.file_bytes) * u128::from(garbage_percent)
    };
    let mut due: Vec<&SegmentUse> = segments.iter().filter(is_due).collect();
    // By the dead part, descending: a/b > c/d as a d > c b.
    due.sort_by_key(|s| s.segment);
    due.sort_by(|a, b| {
        let (a, b) = (
            u128::from(a.dead_bytes()) * u128::from(b.file_bytes),
            u128::from(b.dead_bytes()) * u128::from(a.file_bytes),
        );
        b.cmp(&a)
    });
    let mut live = 0;
    let fits = |s: &&&SegmentUse| {
        let first = live == 0;
        live += s.live_bytes;
        first || live <= max_live_bytes
    };
    due.iter().take_while(fits).map(|s| s.segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(segment: u64, file_bytes: u64, live_bytes: u64) -> SegmentUse {
        SegmentUse { segment, file_bytes, live_bytes }
    }

    #[test]
    fn the_deadest_are_collected_first_as_many_as_fit() {
        let segments = [used(1, 100, 95), used(2, 100, 40), used(3, 1000, 900), used(4, 10, 1), used(5, 100, 40)];
        assert_eq!(pick(&segments, 10, 1000), [4, 2, 5, 3]);
        assert_eq!(pick(&segments, 10, 81), [4, 2, 5]);
        assert_eq!(pick(&segments, 10, 0), [4], "at least one");
        assert_eq!(pick(&segments, 50, 1000), [4, 2, 5]);
        assert_eq!(pick(&segments, 95, 1000), [0; 0]);
        assert_eq!(pick(&segments, 0, 1 << 40), [4, 2, 5, 3, 1]);
        assert_eq!(pick(&[used(1, u64::MAX, 0), used(2, 5, 9)], 0, 0), [1], "more alive than there is");
    }
}
