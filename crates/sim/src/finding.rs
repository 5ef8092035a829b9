//! [`Finding`]: the report of a check when the store and the model disagree.

use std::fmt;

/// A violation by the store, in words. It becomes the message of the failing test.
#[derive(Clone, PartialEq, Eq)]
pub struct Finding(String);

/// The result of a check.
pub type Outcome<T = ()> = Result<T, Finding>;

impl Finding {
    /// A finding with this message.
    pub fn new(what: impl Into<String>) -> Finding {
        Finding(what.into())
    }

    /// The same finding with `context` before its message.
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Finding {
        Finding(format!("{context}: {}", self.0))
    }
}

/// Operations of these tests must not fail, except where an expected error is matched at the call.
impl From<cairn::Error> for Finding {
    fn from(error: cairn::Error) -> Finding {
        Finding(format!("the library reports {error:?}"))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns a [`Finding`] with the given message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err($crate::finding::Finding::new(format!($($words)+)));
        }
    };
}
pub(crate) use ensure;

/// Bytes as text: printable ones unchanged, long ones cut, with their length.
pub fn show(bytes: &[u8]) -> String {
    const SHOWN: usize = 40;
    match bytes.get(..SHOWN) {
        Some(start) if bytes.len() > SHOWN => {
            format!("\"{}\"... ({} bytes)", start.escape_ascii(), bytes.len())
        }
        _ => format!("\"{}\"", bytes.escape_ascii()),
    }
}

/// [`show`] for an optional value.
pub fn show_option<T: AsRef<[u8]>>(bytes: Option<T>) -> String {
    bytes.map_or_else(|| "nothing".to_owned(), |b| show(b.as_ref()))
}

/// The first difference between two contents in key order, in words; `None` if they are equal.
pub fn first_difference<'a>(
    got: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    want: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Option<String> {
    let (mut got, mut want) = (got.peekable(), want.peekable());
    loop {
        let (g, w) = (got.peek(), want.peek());
        let words = match (g, w) {
            (None, None) => return None,
            (Some(g), Some(w)) if g == w => {
                got.next();
                want.next();
                continue;
            }
            (Some(g), Some(w)) if g.0 == w.0 => {
                format!("key {} has {} instead of {}", show(g.0), show(g.1), show(w.1))
            }
            (Some(g), w) if w.is_none_or(|w| g.0 < w.0) => {
                format!("key {} = {} should not be there", show(g.0), show(g.1))
            }
            (_, Some(w)) => format!("key {} = {} is missing", show(w.0), show(w.1)),
            (Some(_), None) => unreachable!("a key without a counterpart was handled"),
        };
        return Some(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(got: &[(&str, &str)], want: &[(&str, &str)]) -> Option<String> {
        fn bytes<'a>(pairs: &'a [(&str, &str)]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
            pairs.iter().map(|(k, v)| (k.as_bytes(), v.as_bytes()))
        }
        first_difference(bytes(got), bytes(want))
    }

    #[test]
    fn differences_are_found_wherever_they_are() {
        let want = [("a", "1"), ("c", "2")];
        assert_eq!(difference(&want, &want), None);
        assert!(difference(&want[..1], &want).unwrap().contains("\"c\" = \"2\" is missing"));
        assert!(difference(&want[1..], &want).unwrap().contains("\"a\" = \"1\" is missing"));
        assert!(difference(&want, &want[..1]).unwrap().contains("\"c\" = \"2\" should not"));
        assert!(difference(&[("a", "1"), ("b", "0"), ("c", "2")], &want).unwrap().contains("\"b\""));
        assert!(difference(&[("a", "1"), ("c", "3")], &want).unwrap().contains("\"3\" instead of \"2\""));
    }
}
