//! Keys and values as keyspaces with history store them, and rules of retention.

use base::expiry::{expiry_bytes, without_expiry};
use base::{EntryKind, Time, Trailer};
use history::{
    Retention, primary_suffix, primary_times_of, put_historical, split_historical, split_primary, times_of,
    version_key,
};

/// The first byte selects the decoder. What is accepted is the same when it is written again.
pub(crate) fn versions(data: &[u8]) -> bool {
    let Some((kind, bytes)) = data.split_first() else { return false };
    match kind % 5 {
        0 => key(bytes).is_some(),
        1 => historical(bytes).is_some(),
        2 => split_primary(bytes).is_some_and(|(value, time)| {
            let mut again = value.to_vec();
            again.extend_from_slice(&primary_suffix(time));
            assert_eq!(again, bytes);
            true
        }),
        3 => std::str::from_utf8(bytes).is_ok_and(retention),
        _ => expiring(bytes).is_some(),
    }
}

/// What either tree stores of an entry with an expiry.
fn expiring(bytes: &[u8]) -> Option<()> {
    let trailer = Trailer::new(1, EntryKind::ExpiringPut);
    let (stored, expiry) = without_expiry(trailer, bytes)?;
    let (value, time) = split_primary(stored)?;
    assert_eq!(primary_times_of(b"key", trailer, bytes), Some((time, Time::MAX)));
    let again = [value, &primary_suffix(time), &expiry_bytes(expiry?)].concat();
    assert_eq!(again, bytes);
    let mut key = Vec::new();
    version_key::put_version_key(&mut key, b"key", time);
    let holds = split_historical(stored, time).map(|(_, ended)| (time, ended.holds));
    assert_eq!(times_of(&key, trailer, bytes), holds);
    Some(())
}

fn key(bytes: &[u8]) -> Option<()> {
    let (prefix, time) = version_key::split(bytes)?;
    let mut key = Vec::new();
    if !version_key::put_key_of(&mut key, prefix) {
        return None;
    }
    let mut again = Vec::new();
    version_key::put_version_key(&mut again, &key, time);
    assert_eq!(again, bytes);
    Some(())
}

/// Eight bytes of a time, and what is stored.
fn historical(bytes: &[u8]) -> Option<()> {
    let (time, stored) = bytes.split_first_chunk()?;
    let time = Time::from_micros(u64::from_le_bytes(*time));
    let (value, ended) = split_historical(stored, time)?;
    assert!(ended.until >= time);
    let mut again = value.to_vec();
    put_historical(&mut again, time, ended);
    assert_eq!(again, stored);
    Some(())
}

fn retention(text: &str) -> bool {
    let Ok(rule) = text.parse::<Retention>() else { return false };
    assert_eq!(rule.to_string().parse::<Retention>().ok(), Some(rule));
    true
}
