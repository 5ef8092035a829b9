//! When readers began, as far as retention must know: a version that was kept at that moment is kept for them.
//!
//! Readers hold sequence numbers, not times, and most live for one seek, so they note nothing. Instead the newest visible number is noted now
//! and then with the time before it was read. A reader at a later number began after that time.

use crate::sync::Mutex;
use base::{Seq, Time};
use std::time::Duration;

/// Notes are at least so far apart.
const APART: Duration = Duration::from_secs(1);

/// Maximum number of notes. When there are more, every second one of the older half goes.
const MAX_NOTES: usize = 1024;

/// Notes of sequence numbers and times, both ascending.
#[derive(Default)]
pub(crate) struct Moments(Mutex<Vec<(Seq, Time)>>);

impl Moments {
    /// Notes that `seq` was the newest visible number at `time` or later. If the clock was set back, readers at later numbers than those
    /// noted may have begun at `time`, too.
    pub(crate) fn note(&self, seq: Seq, time: Time) {
        let mut notes = self.0.lock();
        notes.iter_mut().rev().take_while(|note| note.1 > time).for_each(|note| note.1 = time);
        match notes.last() {
            Some(last) if last.0 >= seq || time < last.1.saturating_add(APART) => return,
            _ => notes.push((seq, time)),
        }
        if notes.len() > MAX_NOTES {
            let mut index = 0;
            notes.retain(|_| {
                index += 1;
                index > MAX_NOTES / 2 || index % 2 == 0
            });
        }
    }

    /// A time at or before the moment at which a reader that holds `seq` began.
    pub(crate) fn before(&self, seq: Seq) -> Time {
        let notes = self.0.lock();
        let earlier = notes.partition_point(|(noted, _)| *noted < seq);
        earlier.checked_sub(1).map_or(Time::MIN, |last| notes[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_began_after_the_last_note_of_an_earlier_number() {
        let moments = Moments::default();
        let at = |seconds: u64| Time::from_micros(1_000_000 * seconds);
        assert_eq!(moments.before(9), Time::MIN);
        for (seq, seconds) in [(10, 5), (11, 5), (20, 8), (20, 12), (30, 11)] {
            moments.note(seq, at(seconds));
        }
        assert_eq!([5, 10, 11, 20, 21, 31].map(|seq| moments.before(seq)), [0, 0, 5, 5, 8, 11].map(at));
        moments.note(30, at(7));
        assert_eq!(
            [11, 20, 21, 31].map(|seq| moments.before(seq)),
            [5, 5, 7, 7].map(at),
            "the clock was set back"
        );
        for i in 0..10_000 {
            moments.note(100 + i, at(100 + i));
        }
        assert!(moments.0.lock().len() <= MAX_NOTES);
        for i in 1..10_000u64 {
            let before = moments.before(100 + i);
            assert!(before <= at(99 + i) && (i < 9600 || before == at(99 + i)), "{i}: {before:?}");
        }
    }
}
