//! Which versions are kept: [`Retention`], the rule, and [`RetentionSink`], which applies it to the entries of a merge.

use crate::stored::{Ended, split_historical};
use crate::version_key;
use base::duration::{duration_text, parse_duration};
use base::expiry::without_expiry;
use base::{Error, ErrorKind, Result, Seq, Slice, Time, Trailer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tree::EvictionSink;

/// Counted retention keeps so many versions at least: one that a range delete ended is all that tells of it.
const LEAST: u64 = 2;

/// Which older versions of a key are kept. The newest version of a key that exists always is.
///
/// Retention is a promise to keep: what falls out of it goes with the next compaction that meets it, and may be seen until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// None: only the newest version of each key.
    None,
    /// All.
    All,
    /// As many of the newest versions of each key, the newest one included, at least 1.
    Versions(u64),
    /// Those that were the newest at some time within this duration before now.
    Age(Duration),
    /// Those that [`Retention::Versions`] or [`Retention::Age`] keeps.
    VersionsOrAge(u64, Duration),
}

impl Retention {
    fn versions(self) -> Option<u64> {
        match self {
            Retention::Versions(versions) | Retention::VersionsOrAge(versions, _) => Some(versions),
            _ => None,
        }
    }

    /// Whether it keeps a whole number of versions, at least 1, and of microseconds, at least 1: others are not written as text.
    pub fn is_valid(&self) -> bool {
        self.to_string().parse().is_ok_and(|parsed: Retention| parsed == *self)
    }

    /// Whether versions go because a key has later ones.
    pub fn counts_versions(self) -> bool {
        self.versions().is_some()
    }

    /// How many versions of a key a merge of the historical tree keeps at most, if their number alone decides. (One fewer where the newest of all is not among
    /// those that it meets, which a value tells, and a delete or a reader does not.)
    pub fn most_kept(self) -> Option<u64> {
        match self {
            Retention::Versions(versions) => Some(versions.max(LEAST)),
            _ => None,
        }
    }

    /// The age at which versions go by themselves; `None` if it takes more, or they do not.
    pub fn only_age(self) -> Option<Duration> {
        match self {
            Retention::Age(age) => Some(age),
            _ => None,
        }
    }

    /// The age that versions have at least when they go.
    pub fn age(self) -> Option<Duration> {
        match self {
            Retention::Age(age) | Retention::VersionsOrAge(_, age) => Some(age),
            _ => None,
        }
    }
}

/// As options are written: `none`, `all`, `versions(3)`, `age(7d)`, `versions(3) or age(12h)`.
impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Retention::None => f.write_str("none"),
            Retention::All => f.write_str("all"),
            Retention::Versions(versions) => write!(f, "versions({versions})"),
            Retention::Age(age) => write!(f, "age({})", duration_text(*age)),
            Retention::VersionsOrAge(versions, age) => {
                write!(f, "versions({versions}) or age({})", duration_text(*age))
            }
        }
    }
}

impl FromStr for Retention {
    type Err = Error;

    fn from_str(text: &str) -> Result<Retention> {
        let rule = match text.split_once(" or ") {
            Some((versions, age)) => {
                versions_in(versions).zip(age_in(age)).map(|(n, age)| Retention::VersionsOrAge(n, age))
            }
            None => match text {
                "none" => Some(Retention::None),
                "all" => Some(Retention::All),
                _ => versions_in(text).map(Retention::Versions).or_else(|| age_in(text).map(Retention::Age)),
            },
        };
        rule.ok_or_else(|| {
            let forms =
                "none, all, versions(3), age(7d), or versions(3) or age(12h), with d, h, min, s, ms or us";
            Error::invalid(format!("{text:?} is no retention: {forms}"))
        })
    }
}

/// The argument of `versions(...)`, at least 1.
fn versions_in(text: &str) -> Option<u64> {
    text.strip_prefix("versions(")?.strip_suffix(')')?.parse().ok().filter(|versions| *versions > 0)
}

/// The argument of `age(...)`, at least a microsecond.
fn age_in(text: &str) -> Option<Duration> {
    parse_duration(text.strip_prefix("age(")?.strip_suffix(')')?)
}

/// A version that a merge of the historical tree meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met {
    /// Its time.
    pub time: Time,
    /// Its sequence number.
    pub seq: Seq,
    /// Whether it is a delete.
    pub is_delete: bool,
    /// The time of a later version, or [`Time::MAX`]: a delete, or a value that had expired, which was the newest version when it came here.
    pub until: Time,
    /// `until`, or the time from which on such a version may go.
    pub holds: Time,
}

/// In merges of the historical tree: drops the versions that a retention does not keep. Versions come in the order of the tree: by key, and of one key
/// the latest first.
///
/// A merge need not have all versions of a key. Those that it does not have are not counted, so a version goes rather later than sooner.
pub struct RetentionSink {
    retention: Retention,
    /// Versions that ended until then are too old.
    horizon: Time,
    /// The newest sequence number that the oldest snapshot sees: newer versions make no other go.
    newest_seq: Seq,
    prefix: Vec<u8>,
    started: bool,
    /// The number of later versions of the key.
    later: u64,
    /// The time of the last of them.
    last: Option<Time>,
}

impl RetentionSink {
    /// For a merge at `now`, while the oldest snapshot has this sequence number and was taken at this time.
    pub fn new(retention: Retention, now: Time, oldest_snapshot: Option<(Seq, Time)>) -> RetentionSink {
        let (newest_seq, taken) = oldest_snapshot.unwrap_or((Seq::MAX, Time::MAX));
        let horizon = retention.age().map_or(Time::MIN, |age| now.min(taken).saturating_sub(age));
        RetentionSink {
            retention,
            horizon,
            newest_seq,
            prefix: Vec::new(),
            started: false,
            later: 0,
            last: None,
        }
    }

    /// The same, with at least this horizon, which was found before for the readers of that moment.
    pub fn from_horizon(self, horizon: Option<Time>) -> RetentionSink {
        RetentionSink { horizon: self.horizon.max(horizon.unwrap_or(Time::MIN)), ..self }
    }

    /// Whether retention does not keep this version of the key with `prefix`.
    pub fn drops(&mut self, prefix: &[u8], met: Met) -> bool {
        if !self.started || self.prefix != prefix {
            self.started = true;
            self.prefix.clear();
            self.prefix.extend_from_slice(prefix);
            // A version that ended has a later one, which is in the primary tree or elsewhere in this one.
            // If it ended at its own time, it was replaced. What is stored as the end of a delete may be that of a range delete, which is no
            // version after it.
            let has_ended = !met.is_delete && met.until > met.time && met.until < Time::MAX;
            let has_later = has_ended && self.newest_seq == Seq::MAX;
            (self.later, self.last) = (u64::from(has_later), None);
        }
        let by_number = self.retention.versions().map(|versions| self.later >= versions.max(LEAST));
        let by_age = self.retention.age().map(|_| met.holds <= self.horizon);
        // Two writes at one time are one version.
        if met.seq <= self.newest_seq && self.last != Some(met.time) {
            self.later += 1;
            self.last = Some(met.time);
        }
        match (by_number, by_age) {
            (Some(by_number), Some(by_age)) => by_number && by_age,
            (by_number, by_age) => by_number.or(by_age).unwrap_or(false),
        }
    }
}

impl EvictionSink for RetentionSink {
    fn see(&mut self, key: &[u8], trailer: Trailer, stored: &[u8], kept: bool) -> Result<bool> {
        let met = version_key::split(key).and_then(|(prefix, time)| {
            let (stored, _) = without_expiry(trailer, stored)?;
            let Ended { until, is_delete, holds, .. } = split_historical(stored, time)?.1;
            Some((prefix, Met { time, seq: trailer.seq(), is_delete, until, holds }))
        });
        let Some((prefix, met)) = met else {
            let what = format!("the entry {:?} is no version of a key", Slice::copy_from(key));
            return Err(Error::new(ErrorKind::Corruption, what));
        };
        // Also one that is not kept anyway: another reader may see it, and then it counts.
        let drops = self.drops(prefix, met);
        Ok(kept && !drops)
    }

    /// Versions with an expiry stay as long as others.
    fn takes_expired(&self, _: &[u8], _: Trailer) -> bool {
        false
    }

    fn take_expired(&mut self, key: &[u8], trailer: Trailer, stored: &[u8]) -> Result<()> {
        self.see(key, trailer, stored, false).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Time {
        Time::MIN.saturating_add(seconds as u32 * SECOND)
    }

    /// The times, in seconds, of the versions of one key that are kept at 100 s. Versions: time, until, sequence number.
    fn kept(
        retention: Retention,
        snapshot: Option<(Seq, u64)>,
        versions: &[(u64, Option<u64>, Seq)],
    ) -> Vec<u64> {
        let mut sink = RetentionSink::new(retention, at(100), snapshot.map(|(seq, taken)| (seq, at(taken))));
        let stays = |&&(time, until, seq): &&(u64, Option<u64>, Seq)| {
            let (until, holds) = (until.map_or(Time::MAX, at), at(until.unwrap_or(time)));
            !sink.drops(b"k", Met { time: at(time), seq, is_delete: until == Time::MAX, until, holds })
        };
        versions.iter().filter(stays).map(|version| version.0).collect()
    }

    /// The newest version, of 90 s, is in the primary tree.
    const OLDER: [(u64, Option<u64>, Seq); 4] =
        [(80, Some(90), 8), (60, Some(80), 6), (50, Some(60), 5), (10, Some(50), 1)];

    #[test]
    fn versions_are_kept_by_number_and_by_age() {
        let (all, last_50, last_49) = (vec![80, 60, 50, 10], 50 * SECOND, 49 * SECOND);
        assert_eq!(kept(Retention::All, None, &OLDER), all);
        assert_eq!(kept(Retention::Versions(5), None, &OLDER), all);
        assert_eq!(kept(Retention::Versions(3), None, &OLDER), [80, 60], "and the one of 90 s");
        assert_eq!(
            kept(Retention::Versions(1), None, &OLDER),
            [80],
            "one more: a range delete may have ended it"
        );
        assert_eq!(
            kept(Retention::Age(51 * SECOND), None, &OLDER),
            all,
            "that of 10 s was the newest at 49 s"
        );
        assert_eq!(kept(Retention::Age(last_50), None, &OLDER), [80, 60, 50], "at 50 s it was not");
        assert_eq!(kept(Retention::Age(Duration::ZERO), None, &OLDER), [0; 0]);
        assert_eq!(kept(Retention::VersionsOrAge(3, last_49), None, &OLDER), [80, 60, 50]);
        assert_eq!(kept(Retention::VersionsOrAge(9, SECOND), None, &OLDER), all);
    }

    #[test]
    fn a_key_that_is_deleted_has_its_newest_version_here() {
        let deleted = [(90, None, 9), (80, Some(90), 8), (60, Some(80), 6)];
        assert_eq!(kept(Retention::Versions(2), None, &deleted), [90, 80]);
        assert_eq!(kept(Retention::Age(11 * SECOND), None, &deleted), [90, 80]);
        assert_eq!(kept(Retention::Age(10 * SECOND), None, &deleted), [0; 0], "nor the delete");
        // Written twice at the same time: one version.
        let twice = [(90, None, 9), (90, None, 8), (60, Some(90), 6)];
        assert_eq!(kept(Retention::Versions(2), None, &twice), [90, 90, 60]);
        let replaced = [(90, Some(90), 8), (60, Some(90), 6)];
        assert_eq!(kept(Retention::Versions(2), None, &replaced), [90, 60], "the one of 90 s is the newest");
    }

    #[test]
    fn a_snapshot_keeps_what_its_moment_kept() {
        // Taken at 70 s, after the sequence number 6: it sees the versions of 60 s, 50 s and 10 s.
        let snapshot = Some((6, 70));
        assert_eq!(kept(Retention::Versions(2), snapshot, &OLDER), [80, 60, 50]);
        assert_eq!(kept(Retention::Age(21 * SECOND), snapshot, &OLDER), [80, 60, 50, 10]);
        assert_eq!(kept(Retention::Age(20 * SECOND), snapshot, &OLDER), [80, 60, 50]);
    }

    #[test]
    fn keys_are_counted_by_themselves() {
        let mut sink = RetentionSink::new(Retention::Versions(2), at(0), None);
        let open = Met { time: at(1), seq: 1, is_delete: true, until: Time::MAX, holds: at(1) };
        let times = [(b"a", 3), (b"a", 2), (b"a", 1), (b"b", 1)];
        let dropped = times.map(|(prefix, time)| sink.drops(prefix, Met { time: at(time), ..open }));
        assert_eq!(dropped, [false, false, true, false]);
    }

    #[test]
    fn rules_are_written_and_read() {
        let texts =
            ["none", "all", "versions(3)", "age(7d)", "age(25h)", "age(61min)", "age(59s)", "age(1500ms)"];
        for text in texts.into_iter().chain(["age(1us)", "versions(1) or age(12h)"]) {
            assert_eq!(text.parse::<Retention>().unwrap().to_string(), text);
        }
        assert_eq!("age(1440min)".parse::<Retention>().unwrap().to_string(), "age(1d)");
        for refused in
            ["", "ALL", "versions(0)", "versions(-1)", "versions(1", "age(0s)", "age(1)", "age(s)", "age(1y)"]
        {
            assert!(refused.parse::<Retention>().is_err(), "{refused}");
        }
        for refused in ["age(99999999999999d)", "age(1d) or versions(2)", "versions(1) or all", "age(1.5s)"] {
            assert!(refused.parse::<Retention>().is_err(), "{refused}");
        }
    }
}
