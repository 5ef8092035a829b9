//! The amplification model of Parallax: how many bytes a store reads and writes until all records have reached its last level, by where
//! it puts the values and how it merges levels.
//!
//! Source: the thesis of Parallax, section 2.1 (equations 2.1 to 2.4) and the end of section 3.0.3 (the ratio R(i)). The store has `l`
//! levels on the disk, each `f` times as large as the one before; level 0 is in memory. When a level is full, it is merged into the next.
//!
//! ```text
//!            per byte of records that move from level i to i + 1     read                     written
//!   leveled     the level that is full                               1 (level 0: nothing)     1
//!               the level below, 0 to f - 1 times as large           (f - 1) / 2              (f - 1) / 2
//!   fragmented  the level that is full                               1 (level 0: nothing)     1
//!               the level below                                      -                        -
//!               the last level, when a guard has T tables            j / f for each merge of j tables, likewise written
//! ```
//!
//! With separated values, keys and references move, and records are written once, to the log that is also the recovery log. With transient
//! segments, too: the flush writes records to them, and where the records reach the last levels (one or two), they are read once and merged
//! in place.
//!
//! The thesis counts no recovery log for values in place; here [`Shape::log`] adds it, one more byte written for each byte of records
//! whose values the value log does not hold. Fragmented merging is not in the thesis: it is that of PebblesDB (section 3), where tables are
//! attached to the guards of the next level without rewriting what is there.

/// The shape of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Levels on the disk, at least 1.
    pub levels: u32,
    /// Size of a level as a multiple of the one before, at least 2.
    pub growth: u32,
    /// Tables of a guard of the last level at which they are merged, at least 2. Only for [`Merge::Fragmented`].
    pub guard_tables: u32,
    /// Bytes of a reference to a value. 0 in the thesis.
    pub reference: u32,
    /// Counts the recovery log of records whose values are in place. Not in the thesis.
    pub log: bool,
}

/// What happens to a level when the one above is merged into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// It is read and written whole.
    Leveled,
    /// Tables are attached to its guards. Guards of the last level are merged when they have [`Shape::guard_tables`] tables.
    Fragmented,
}

/// Where values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Beside their keys, in all levels.
    Tree,
    /// In a value log.
    Log,
    /// In transient segments down to these last levels (one: the last, N-1 of the thesis; two: the last but one, N-2), then in place.
    Transient(u32),
}

/// The sizes of a record, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of the key.
    pub key: u32,
    /// Of the value.
    pub value: u32,
}

/// Sizes of records by the ratio of key and record (section 2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Above `T_SM`: values in place.
    Small,
    /// Between both: values in transient segments.
    Medium,
    /// Up to `T_ML`: values in the log.
    Large,
}

impl Sizes {
    /// Bytes of key and value.
    pub fn record(self) -> f64 {
        f64::from(self.key) + f64::from(self.value)
    }

    /// The ratio p of key and record. 1 for an empty record.
    pub fn ratio(self) -> f64 {
        match self.record() {
            0.0 => 1.0,
            record => f64::from(self.key) / record,
        }
    }

    /// The class for the thresholds `small_above` (`T_SM`) and `large_up_to` (`T_ML`).
    pub fn class(self, small_above: f64, large_up_to: f64) -> Class {
        match self.ratio() {
            p if p > small_above => Class::Small,
            p if p > large_up_to => Class::Medium,
            _ => Class::Large,
        }
    }
}

/// Bytes read and written for each byte of records.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Bytes read.
    pub read: f64,
    /// Bytes written: the write amplification.
    pub written: f64,
}

impl Traffic {
    /// Bytes read and written: the I/O amplification, D / S of the thesis.
    pub fn io(self) -> f64 {
        self.read + self.written
    }

    fn add(&mut self, read: f64, written: f64) {
        self.read += read;
        self.written += written;
    }
}

/// What a workload of one size of records reads and writes.
///
/// ```
/// use bench::model::{Merge, Place, Shape, Sizes, traffic};
///
/// let shape = Shape { levels: 3, growth: 8, guard_tables: 4, reference: 0, log: false };
/// let record = Sizes { key: 24, value: 1000 };
/// // Equation 2.2: l - 1 + f l.
/// assert_eq!(traffic(&shape, Merge::Leveled, Place::Tree, record).io(), 26.0);
/// ```
pub fn traffic(shape: &Shape, merge: Merge, place: Place, sizes: Sizes) -> Traffic {
    let (mut total, record) = (Traffic::default(), sizes.record());
    if record == 0.0 {
        return total;
    }
    // What moves, as a share of the record, when the value is elsewhere.
    let entry = f64::from(sizes.key) / record + f64::from(shape.reference) / record;
    // The first level whose records have their values in place.
    let in_place_from = match place {
        Place::Tree => 0,
        Place::Log => u32::MAX,
        Place::Transient(last) => shape.levels.saturating_sub(last) + 1,
    };
    match place {
        Place::Log => total.add(0.0, 1.0),
        Place::Transient(last) if shape.levels > last => total.add(0.0, 1.0),
        _ => {}
    }
    if shape.log && place != Place::Log {
        total.add(0.0, 1.0);
    }
    for target in 1..=shape.levels {
        let (above, here) = match in_place_from {
            from if target < from => (entry, entry),
            from if target == from && target > 1 => (entry + 1.0, 1.0),
            // What is above has the values, too: a level in place, or the memtable.
            _ => (1.0, 1.0),
        };
        total.add(if target == 1 { 0.0 } else { above }, here);
        let below = merged_below(shape, merge, target) * here;
        total.add(below, below);
    }
    total
}

/// How often what is in level `target` is read and written, for each byte that comes into it.
fn merged_below(shape: &Shape, merge: Merge, target: u32) -> f64 {
    let growth = f64::from(shape.growth);
    match merge {
        Merge::Leveled => (growth - 1.0) / 2.0,
        Merge::Fragmented if target < shape.levels => 0.0,
        // The guards are full for the first time with T tables, which become one; then after T - 1 more each time.
        Merge::Fragmented => {
            let step = (shape.guard_tables - 1).max(1) as usize;
            (shape.guard_tables..=shape.growth).step_by(step).map(|tables| f64::from(tables) / growth).sum()
        }
    }
}

/// Where hybrid placement puts values of a class; `last`: the levels in which medium values are in place.
pub fn hybrid(class: Class, last: u32) -> Place {
    match class {
        Class::Small => Place::Tree,
        Class::Medium => Place::Transient(last),
        Class::Large => Place::Log,
    }
}

/// R(i) of section 3.0.3: the capacity of the first N - `last` levels of N as a share of all, and so the share of medium records whose
/// transient segments are not freed yet.
pub fn waiting_share(shape: &Shape, last: u32) -> f64 {
    let power = |levels: u32| f64::from(shape.growth).powf(f64::from(levels));
    (power(shape.levels.saturating_sub(last)) - 1.0) / (power(shape.levels) - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Sizes = Sizes { key: 24, value: 1000 };

    fn shape(levels: u32, growth: u32) -> Shape {
        Shape { levels, growth, guard_tables: 4, reference: 0, log: false }
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9 * b.abs().max(1.0), "{a} and {b}");
    }

    /// Equation 2.1, merge by merge, for a first level of size 1.
    fn by_merges(levels: u32, growth: u64) -> f64 {
        let last = growth.pow(levels);
        let level = |i: u32| {
            let size = growth.pow(i);
            let merges = last / size;
            let above = merges * size * if i == 0 { 1 } else { 2 };
            above + 2 * (1..=merges).map(|j| ((j - 1) % growth) * size).sum::<u64>()
        };
        (0..levels).map(level).sum::<u64>() as f64 / last as f64
    }

    #[test]
    fn in_place_is_equation_2_1_and_2_2() {
        for (levels, growth) in [(1, 2), (2, 4), (3, 8), (4, 10), (6, 4)] {
            let io = traffic(&shape(levels, growth), Merge::Leveled, Place::Tree, RECORD).io();
            close(io, by_merges(levels, growth.into()));
            close(io, f64::from(levels - 1 + growth * levels));
        }
    }

    #[test]
    fn separation_gains_what_equation_2_4_says() {
        for (levels, growth, key, value) in
            [(3, 8, 24, 9), (4, 10, 24, 104), (4, 10, 24, 1004), (2, 4, 10, 1 << 20)]
        {
            let (shape, sizes) = (shape(levels, growth), Sizes { key, value });
            let in_place = traffic(&shape, Merge::Leveled, Place::Tree, sizes).io();
            let separated = traffic(&shape, Merge::Leveled, Place::Log, sizes).io();
            let levels = f64::from(levels - 1 + growth * levels);
            close(in_place / separated, levels / (sizes.ratio() * levels + 1.0));
        }
    }

    #[test]
    fn transient_values_are_written_once_before_their_last_levels() {
        let shape = shape(4, 8);
        let p = RECORD.ratio();
        // Three levels of keys: (1 + 7) + 2 (2 + 7); the record once into its segment; the last level: keys, and 2 + 7 for records.
        let last = traffic(&shape, Merge::Leveled, Place::Transient(1), RECORD);
        close(last.io(), 26.0 * p + 1.0 + p + 9.0);
        let last_but_one = traffic(&shape, Merge::Leveled, Place::Transient(2), RECORD);
        close(last_but_one.io(), 17.0 * p + 1.0 + p + 18.0);
        let all = traffic(&shape, Merge::Leveled, Place::Transient(4), RECORD);
        assert_eq!(all, traffic(&shape, Merge::Leveled, Place::Tree, RECORD));
        let more = traffic(&shape, Merge::Leveled, Place::Transient(9), RECORD);
        assert_eq!(more, all, "more levels than there are");
    }

    #[test]
    fn attaching_rewrites_the_last_level_only() {
        // Four levels: each byte is written four times, and read three times.
        let attach = traffic(&shape(4, 3), Merge::Fragmented, Place::Tree, RECORD);
        assert_eq!(attach, Traffic { read: 3.0, written: 4.0 }, "no guard of 3 tables is merged at 4");
        // With 8 tables for each guard of the last level: merged at 4 and 7 tables.
        let merged = traffic(&shape(4, 8), Merge::Fragmented, Place::Tree, RECORD);
        assert_eq!(merged, Traffic { read: 3.0 + 11.0 / 8.0, written: 4.0 + 11.0 / 8.0 });
    }

    #[test]
    fn logs_and_references_count() {
        let plain = shape(3, 8);
        let with = Shape { reference: 16, log: true, ..plain };
        let sum = |place| {
            let (with, plain) = (
                traffic(&with, Merge::Leveled, place, RECORD),
                traffic(&plain, Merge::Leveled, place, RECORD),
            );
            with.io() - plain.io()
        };
        close(sum(Place::Tree), 1.0);
        close(sum(Place::Log), 26.0 * 16.0 / 1024.0);
        close(sum(Place::Transient(1)), 1.0 + 18.0 * 16.0 / 1024.0);
        let empty = traffic(&with, Merge::Leveled, Place::Log, Sizes { key: 0, value: 0 });
        assert_eq!(empty, Traffic::default());
    }

    #[test]
    fn classes_and_waiting_space_are_those_of_the_thesis() {
        let class = |key, value| Sizes { key, value }.class(0.2, 0.02);
        // "If keys are roughly 20 bytes, small pairs have values below 80 bytes, large ones above 1,000."
        assert_eq!(
            [class(20, 79), class(20, 80), class(20, 979), class(20, 980)],
            [Class::Small, Class::Medium, Class::Medium, Class::Large]
        );
        // "R(1) will delay freeing between 10 % (f = 8) and 25 % (f = 4), R(2) at most 6 %."
        let share = |growth, last| (waiting_share(&shape(5, growth), last) * 100.0).round();
        assert_eq!(
            [share(8, 1), share(4, 1), share(4, 2), share(8, 2), share(8, 5)],
            [12.0, 25.0, 6.0, 2.0, 0.0]
        );
    }
}
