//! Times on the command line: RFC 3339, relative to now, or in microseconds.

use cairn::{Time, Ttl};
use jiff::Timestamp;
use std::time::{Duration, SystemTime};

/// The forms in which times are given, for help texts.
pub const FORMS: &str = "a time as RFC 3339 (2026-11-25T10:00:00Z), relative to now (-90s, -15min, -2h, -7d, or `now`), or in \
                         microseconds since 1970";

/// Units of relative times, and their seconds.
const UNITS: [(&str, u64); 6] = [("min", 60), ("ms", 0), ("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];

/// Units of times that are numbers, in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TimeUnit {
    /// Seconds since 1970, also with a fraction
    S,
    /// Milliseconds since 1970
    Ms,
    /// Microseconds since 1970
    #[default]
    Us,
    /// Nanoseconds since 1970; the last three digits are cut off
    Ns,
}

/// Reads a time of a record: RFC 3339, or a number of units since 1970.
pub fn parse_time_of_record(text: &str, unit: TimeUnit) -> Result<Time, String> {
    let wrong =
        || format!("{text:?} is no time: RFC 3339 (2026-11-25T10:00:00Z), or a number since 1970, are");
    let at = |micros: Option<u64>| micros.map(Time::from_micros).ok_or_else(wrong);
    if let Ok(number) = text.parse::<u64>() {
        return at(match unit {
            TimeUnit::S => number.checked_mul(1_000_000),
            TimeUnit::Ms => number.checked_mul(1_000),
            TimeUnit::Us => Some(number),
            TimeUnit::Ns => Some(number / 1_000),
        });
    }
    if let (TimeUnit::S, Some((seconds, fraction))) = (unit, text.split_once('.')) {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(seconds) || !digits(fraction) {
            return Err(wrong());
        }
        let micros = format!("{fraction:0<6}")[..6].parse::<u64>().ok();
        let whole = seconds.parse::<u64>().ok().and_then(|seconds| seconds.checked_mul(1_000_000));
        return at(whole.zip(micros).and_then(|(whole, micros)| whole.checked_add(micros)));
    }
    at(micros_of(text))
}

fn micros_of(rfc3339: &str) -> Option<u64> {
    let at: Timestamp = rfc3339.parse().ok()?;
    u64::try_from(at.as_microsecond()).ok()
}

/// Reads a time, for arguments.
pub fn parse_time(text: &str) -> Result<Time, String> {
    parse_at(text, Time::from(SystemTime::now()))
}

fn parse_at(text: &str, now: Time) -> Result<Time, String> {
    let wrong = || format!("{text:?} is no time: give {FORMS}");
    if text == "now" {
        return Ok(now);
    }
    if let Some(ago) = text.strip_prefix('-') {
        let (unit, seconds) = UNITS.iter().find(|(unit, _)| ago.ends_with(unit)).ok_or_else(wrong)?;
        let number: u64 = ago[..ago.len() - unit.len()].parse().map_err(|_| wrong())?;
        let ago = match seconds {
            0 => Some(Duration::from_millis(number)),
            seconds => number.checked_mul(*seconds).map(Duration::from_secs),
        };
        return Ok(now.saturating_sub(ago.ok_or_else(wrong)?));
    }
    if let Ok(micros) = text.parse() {
        return Ok(Time::from_micros(micros));
    }
    micros_of(text).map(Time::from_micros).ok_or_else(wrong)
}

/// Reads a duration, as the option `ttl` has it.
pub fn parse_ttl(text: &str) -> Result<Duration, String> {
    let ttl = text.parse::<Ttl>().ok().and_then(Ttl::duration);
    ttl.ok_or_else(|| {
        format!("{text:?} is no duration: a number with d, h, min, s, ms or us, such as 7d, is")
    })
}

/// What is written for the expiry of an entry that never expires.
pub const NEVER: &str = "never";

/// Reads the expiry of a record: a time, or [`NEVER`], which is [`Time::MAX`].
pub fn parse_expiry_of_record(text: &str, unit: TimeUnit) -> Result<Time, String> {
    match text {
        NEVER => Ok(Time::MAX),
        _ => parse_time_of_record(text, unit).map_err(|why| format!("{why}, or {NEVER:?}")),
    }
}

/// An expiry as it is read.
pub fn format_expiry(expiry: Option<Time>) -> String {
    expiry.map_or_else(|| NEVER.to_owned(), format_time)
}

/// A time as RFC 3339, in UTC; as microseconds where that has no form.
pub fn format_time(time: Time) -> String {
    let at = i64::try_from(time.micros()).ok().and_then(|micros| Timestamp::from_microsecond(micros).ok());
    at.map_or_else(|| time.micros().to_string(), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_forms() {
        let now = Time::from_micros(1_764_064_800_000_000);
        let at = |text| parse_at(text, now).map(Time::micros);
        assert_eq!(at("2025-11-25T10:00:00Z"), Ok(1_764_064_800_000_000));
        assert_eq!(at("2025-11-25T11:00:00.5+01:00"), Ok(1_764_064_800_500_000));
        assert_eq!(at("1764064800000000"), Ok(1_764_064_800_000_000));
        assert_eq!(at("now"), Ok(now.micros()));
        let ago = |micros: u64| Ok(now.micros() - micros);
        assert_eq!(
            ["-2h", "-90s", "-15min", "-15m", "-250ms", "-7d"].map(at),
            [7_200_000_000, 90_000_000, 900_000_000, 900_000_000, 250_000, 604_800_000_000].map(ago)
        );
        for wrong in ["", "-", "-2", "-2y", "-h", "yesterday", "2025-11-25", "-99999999999999999999d"] {
            assert!(at(wrong).unwrap_err().contains("RFC 3339"), "{wrong}");
        }
    }

    #[test]
    fn times_of_records_have_units() {
        let at = |text, unit| parse_time_of_record(text, unit).map(Time::micros);
        assert_eq!(at("1764064800", TimeUnit::S), Ok(1_764_064_800_000_000));
        assert_eq!(at("1764064800.5", TimeUnit::S), Ok(1_764_064_800_500_000));
        assert_eq!(at("1764064800.0000019", TimeUnit::S), Ok(1_764_064_800_000_001));
        assert_eq!(at("1764064800123", TimeUnit::Ms), Ok(1_764_064_800_123_000));
        assert_eq!(at("1764064800123456", TimeUnit::Us), Ok(1_764_064_800_123_456));
        assert_eq!(at("1764064800123456789", TimeUnit::Ns), Ok(1_764_064_800_123_456));
        for unit in [TimeUnit::S, TimeUnit::Ms, TimeUnit::Us, TimeUnit::Ns] {
            assert_eq!(at("2025-11-25T10:00:00Z", unit), Ok(1_764_064_800_000_000));
            for wrong in ["", "-2h", "now", "1.", ".5", "1.x", "1e9", "-1", "1969-12-31T23:59:59Z"] {
                assert!(at(wrong, unit).unwrap_err().contains("RFC 3339"), "{wrong}");
            }
        }
        for (far, unit) in [("18446744073709551615", TimeUnit::S), ("18446744073710.0", TimeUnit::S)] {
            assert!(at(far, unit).is_err(), "{far}");
        }
    }

    #[test]
    fn what_is_printed_is_read() {
        for micros in [0, 1_764_064_800_000_001, 5_000_000] {
            let text = format_time(Time::from_micros(micros));
            assert_eq!(parse_at(&text, Time::MIN), Ok(Time::from_micros(micros)), "{text}");
        }
        assert_eq!(format_time(Time::from_micros(1_764_064_800_500_000)), "2025-11-25T10:00:00.5Z");
        assert_eq!(format_time(Time::from_micros(u64::MAX - 1)), (u64::MAX - 1).to_string());
    }
}
