//! Ranges of keys, and the limits of keys and values.

use base::expiry::EXPIRY_LEN;
use base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use base::{Error, Result, compare_keys};
use std::ops::{Bound, RangeBounds};

/// The greatest lengths of keys and values, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    key: usize,
    value: usize,
}

impl Limits {
    /// Without history.
    pub(crate) const PLAIN: Limits = Limits { key: MAX_KEY_LEN, value: MAX_VALUE_LEN };
    /// With history: version keys, and values with what is stored behind them, have the limits of others.
    pub(crate) const HISTORY: Limits =
        Limits { key: history::version_key::MAX_KEY_LEN, value: MAX_VALUE_LEN - history::MAX_SUFFIX };

    /// Maximum length of a value with an expiry, in bytes.
    pub(crate) fn expiring_value(self) -> usize {
        self.value - EXPIRY_LEN
    }

    /// Checks the limits of a key and a value.
    #[inline]
    pub(crate) fn check(self, key: &[u8], value: &[u8]) -> Result<()> {
        match key.len() <= self.key && value.len() <= self.value {
            true => Ok(()),
            false => Err(self.exceeded(key, value)),
        }
    }

    #[cold]
    fn exceeded(self, key: &[u8], value: &[u8]) -> Error {
        let (what, most, len) = match key.len() > self.key {
            true => ("key", self.key, key.len()),
            false => ("value", self.value, value.len()),
        };
        Error::invalid(format!("a {what} may have {most} bytes; this one has {len}"))
    }
}

/// A range of keys: from an inclusive start to an exclusive end.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub from: Vec<u8>,
    pub to: Option<Vec<u8>>,
}

/// The smallest key greater than `key`.
pub(crate) fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

impl Bounds {
    pub(crate) fn new<K: AsRef<[u8]>, R: RangeBounds<K>>(range: &R) -> Bounds {
        let from = match range.start_bound() {
            Bound::Included(key) => key.as_ref().to_vec(),
            Bound::Excluded(key) => successor(key.as_ref()),
            Bound::Unbounded => Vec::new(),
        };
        let to = match range.end_bound() {
            Bound::Included(key) => Some(successor(key.as_ref())),
            Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        Bounds { from, to }
    }

    /// That of one key.
    pub(crate) fn of_key(key: &[u8]) -> Bounds {
        Bounds { from: key.to_vec(), to: Some(successor(key)) }
    }

    /// The only key in the range, if there is only one.
    pub(crate) fn only_key(&self) -> Option<&[u8]> {
        let end = self.to.as_deref()?.split_last()?;
        (end == (&0, &self.from[..])).then_some(&self.from[..])
    }

    /// Whether it is the range of all keys.
    pub(crate) fn is_all(&self) -> bool {
        self.from.is_empty() && self.to.is_none()
    }

    /// The range in which the tree of the older versions has those of these keys.
    pub(crate) fn of_versions(&self) -> Bounds {
        let prefix = history::version_key::prefix_of;
        Bounds { from: prefix(&self.from), to: self.to.as_deref().map(prefix) }
    }

    pub(crate) fn prefix(prefix: &[u8]) -> Bounds {
        // The end is the prefix with its last byte that can be counted up counted up, and nothing behind it.
        let to = prefix.iter().rposition(|&byte| byte < 0xff).map(|last| {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end
        });
        Bounds { from: prefix.to_vec(), to }
    }

    /// A range to be deleted: its bounds are no longer than keys may be. `None` when no key lies in it.
    pub(crate) fn of_deleted<K: AsRef<[u8]>, R: RangeBounds<K>>(
        range: &R,
        limits: Limits,
    ) -> Result<Option<Bounds>> {
        for bound in [range.start_bound(), range.end_bound()] {
            if let Bound::Included(key) | Bound::Excluded(key) = bound {
                limits.check(key.as_ref(), &[])?;
            }
        }
        let mut bounds = Bounds::new(range);
        // A bound longer than the longest key is replaced by the next one that a key can equal.
        if bounds.from.len() > limits.key {
            match Bounds::prefix(&bounds.from[..limits.key]).to {
                Some(next) => bounds.from = next,
                None => return Ok(None),
            }
        }
        if let Some(to) = bounds.to.take_if(|to| to.len() > limits.key) {
            bounds.to = Bounds::prefix(&to[..limits.key]).to;
        }
        // An empty end means no upper bound elsewhere; here it is an empty range.
        Ok((bounds.to.as_ref().is_none_or(|to| bounds.from < *to)).then_some(bounds))
    }

    /// Whether a key lies in the range.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        !self.is_before_start(key) && self.is_before_end(key)
    }

    /// Whether no key lies in the range.
    pub(crate) fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    /// Whether a key may lie in this range, which is not empty, and in `[from, to)`.
    pub(crate) fn meets(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        let ends_after = |end: Option<&[u8]>, start: &[u8]| end.is_none_or(|end| start < end);
        ends_after(self.to.as_deref(), from) && ends_after(to, &self.from)
    }

    /// What lies in this range and in `[from, to)`; `None` if nothing does.
    pub(crate) fn part(&self, from: &[u8], to: Option<&[u8]>) -> Option<Bounds> {
        let to = match (self.to.as_deref(), to) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let part = Bounds { from: from.max(&self.from).to_vec(), to: to.map(<[u8]>::to_vec) };
        (!part.is_empty()).then_some(part)
    }

    /// Most ranges have no lower bound, and no key is compared then: the call took a fourth of a backward step.
    #[inline]
    pub(crate) fn is_before_start(&self, key: &[u8]) -> bool {
        !self.from.is_empty() && compare_keys(key, &self.from).is_lt()
    }

    #[inline]
    pub(crate) fn is_before_end(&self, key: &[u8]) -> bool {
        self.to.as_ref().is_none_or(|to| compare_keys(key, to).is_lt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_to_delete_are_no_longer_than_keys() {
        let longest = |last: u8| [&[b'k'; MAX_KEY_LEN - 1][..], &[last]].concat();
        let deleted = |range: (Bound<Vec<u8>>, Bound<Vec<u8>>)| {
            let bounds = Bounds::of_deleted(&range, Limits::PLAIN)?;
            Ok::<_, Error>(bounds.map(|bounds| (bounds.from, bounds.to)))
        };
        let short = [&[b'k'; MAX_KEY_LEN - 2][..], b"l"].concat();
        use Bound::{Excluded, Included, Unbounded};
        let all = (Unbounded, Unbounded);
        assert_eq!(deleted(all).unwrap(), Some((Vec::new(), None)));
        assert_eq!(
            deleted((Excluded(longest(b'a')), Included(longest(b'y')))).unwrap(),
            Some((longest(b'b'), Some(longest(b'z'))))
        );
        assert_eq!(deleted((Excluded(longest(0xff)), Unbounded)).unwrap(), Some((short.clone(), None)));
        assert_eq!(deleted((Unbounded, Included(longest(0xff)))).unwrap(), Some((Vec::new(), Some(short))));
        let last = vec![0xff; MAX_KEY_LEN];
        assert_eq!(deleted((Excluded(last.clone()), Unbounded)).unwrap(), None);
        assert_eq!(deleted((Unbounded, Included(last))).unwrap(), Some((Vec::new(), None)));
        for range in [(Included(b"b".to_vec()), Excluded(b"b".to_vec())), (Unbounded, Excluded(Vec::new()))] {
            assert_eq!(deleted(range).unwrap(), None);
        }
        assert!(deleted((Included(vec![0; MAX_KEY_LEN + 1]), Unbounded)).is_err());
        assert!(deleted((Unbounded, Excluded(vec![0; MAX_KEY_LEN + 1]))).is_err());
    }

    #[test]
    fn bounds_are_normalised() {
        let bounds = Bounds::new(&("a"..="b"));
        assert_eq!((&bounds.from[..], bounds.to.as_deref()), (&b"a"[..], Some(&b"b\0"[..])));
        let bounds = Bounds::prefix(b"a\xff\xff");
        assert_eq!(bounds.to.as_deref(), Some(&b"b"[..]));
        assert_eq!(Bounds::prefix(b"\xff").to, None);
        assert_eq!(Bounds::prefix(b"").to, None);
    }
}
