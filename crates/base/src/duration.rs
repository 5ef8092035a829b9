//! Durations as text: a whole number and a unit, such as `7d`.

use std::time::Duration;

/// The units, and their microseconds.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1000),
    ("us", 1),
];

/// A duration in the largest unit of which it is a multiple: `d`, `h`, `min`, `s`, `ms` or `us`.
pub fn duration_text(duration: Duration) -> String {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let (unit, each) = UNITS.into_iter().find(|(_, each)| micros.is_multiple_of(*each)).unwrap_or(("us", 1));
    format!("{}{unit}", micros / each)
}

/// The duration that a text says, at least a microsecond; `None` if it is no such text.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let each = UNITS.into_iter().find(|(name, _)| *name == unit)?.1;
    let micros = number.parse::<u64>().ok()?.checked_mul(each).filter(|micros| *micros > 0)?;
    Some(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_and_read() {
        for text in ["7d", "25h", "61min", "59s", "1500ms", "1us"] {
            assert_eq!(duration_text(parse_duration(text).unwrap()), text);
        }
        assert_eq!(duration_text(Duration::from_secs(86_400)), "1d");
        for refused in ["", "7", "d", "0s", "-1s", "1.5s", "1y", "1 s", "99999999999999d"] {
            assert_eq!(parse_duration(refused), None, "{refused}");
        }
    }
}
