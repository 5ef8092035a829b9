//! Converts between bytes and text: escapes, hexadecimal, sizes.
//!
//! Keys and values are bytes; terminals and text files need lines. The *escaped* form is one line of valid UTF-8
//! without tabs and without control characters. It converts back to the same bytes:
//!
//! ```text
//!   \\  \t  \n  \r   backslash, tab, newline, carriage return
//!   \xHH             any other control character, and any byte that is not part of valid UTF-8
//!   everything else  unchanged
//! ```

use std::borrow::Cow;

/// Appends `bytes` in escaped form.
pub fn escape_into(out: &mut Vec<u8>, bytes: &[u8]) {
    if is_plain(bytes) {
        return out.extend_from_slice(bytes);
    }
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        let mut plain = 0;
        for (at, c) in valid.char_indices() {
            let named = match c {
                '\\' => Some(b'\\'),
                '\t' => Some(b't'),
                '\n' => Some(b'n'),
                '\r' => Some(b'r'),
                _ => None,
            };
            // Escape a byte order mark: at the start of a file it would be removed.
            if named.is_none() && !c.is_control() && c != '\u{feff}' {
                continue;
            }
            out.extend_from_slice(&valid.as_bytes()[plain..at]);
            plain = at + c.len_utf8();
            match named {
                Some(name) => out.extend_from_slice(&[b'\\', name]),
                None => valid.as_bytes()[at..plain].iter().for_each(|b| escape_byte(out, *b)),
            }
        }
        out.extend_from_slice(&valid.as_bytes()[plain..]);
        chunk.invalid().iter().for_each(|b| escape_byte(out, *b));
    }
}

/// Whether the bytes are printable ASCII without a backslash, as most keys are, so that nothing needs an escape.
fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| matches!(b, b' '..=b'~') && *b != b'\\')
}

fn escape_byte(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(&[b'\\', b'x', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// The escaped form, for messages.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    escape_into(&mut out, bytes);
    String::from_utf8(out).expect("the escaped form is UTF-8")
}

/// Like [`escape`], but for the first `limit` bytes at most; for messages and drawings.
pub fn escape_short(bytes: &[u8], limit: usize) -> String {
    let mut text = escape(&bytes[..bytes.len().min(limit)]);
    if bytes.len() > limit {
        text.push('…');
    }
    text
}

/// Converts the escaped form back to bytes, or returns what is wrong with it.
pub fn unescape(text: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    if !text.contains(&b'\\') {
        return Ok(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|b| *b == b'\\') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let (byte, used) = match rest.first() {
            Some(b'\\') => (b'\\', 1),
            Some(b't') => (b'\t', 1),
            Some(b'n') => (b'\n', 1),
            Some(b'r') => (b'\r', 1),
            Some(b'x') => match rest.get(1..3).and_then(hex_byte) {
                Some(byte) => (byte, 3),
                None => return Err("\\x is not followed by two hexadecimal digits".into()),
            },
            Some(other) => return Err(format!("unknown escape \\{}", escape(&[*other]))),
            None => return Err("a single backslash at the end".into()),
        };
        out.push(byte);
        rest = &rest[used..];
    }
    out.extend_from_slice(rest);
    Ok(Cow::Owned(out))
}

fn hex_byte(pair: &[u8]) -> Option<u8> {
    let digit = |b: u8| char::from(b).to_digit(16);
    Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)
}

/// Appends `bytes` as hexadecimal digits, two per byte.
pub fn hex_into(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend(bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]));
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len() * 2);
    hex_into(&mut out, bytes);
    String::from_utf8(out).expect("digits are UTF-8")
}

/// Converts hexadecimal digits back to bytes.
pub fn unhex(text: &[u8]) -> Result<Vec<u8>, String> {
    if !text.len().is_multiple_of(2) {
        return Err(format!("hexadecimal needs two digits per byte, but there are {} digits", text.len()));
    }
    text.chunks_exact(2)
        .map(|pair| hex_byte(pair).ok_or_else(|| format!("{:?} is not a hexadecimal byte", escape(pair))))
        .collect()
}

/// Parses a number of bytes: `4096`, `64k`, `64KiB`, `1.5G`. Units are powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("{text:?} is not a size: write 4096, 64KiB, 512MiB or 1G")),
    };
    let wrong = || format!("{text:?} is not a size: write 4096, 64KiB, 512MiB or 1G");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(wrong);
    }
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * (1u64 << shift) as f64;
    if bytes.is_finite() && bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(wrong()) }
}

/// A readable number of bytes: `0 B`, `1.5 KiB`, `20.0 GiB`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A count with separators: `1,234,567`.
pub fn human_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with a noun: `1 line`, `2,000 lines`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", human_count(count), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_bytes_survives_escaping() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let bytes = [a, b, b'e'];
                let text = escape(&bytes);
                assert!(!text.contains(['\t', '\n', '\r']) && !text.chars().any(char::is_control));
                assert_eq!(&*unescape(text.as_bytes()).unwrap(), bytes, "{text}");
                assert_eq!(unhex(hex(&bytes).as_bytes()).unwrap(), bytes);
            }
        }
    }

    #[test]
    fn text_stays_readable() {
        assert_eq!(escape("Zürich 東京".as_bytes()), "Zürich 東京");
        assert_eq!(escape(b"a\tb\\\x00\xff\x1b["), "a\\tb\\\\\\x00\\xff\\x1b[");
        assert_eq!(escape("\u{feff}\u{9b}".as_bytes()), "\\xef\\xbb\\xbf\\xc2\\x9b");
        assert_eq!(escape_short(b"abcdef", 3), "abc…");
    }

    #[test]
    fn wrong_escapes_are_named() {
        for (text, why) in [("\\q", "unknown"), ("\\x4", "two hex"), ("\\xgg", "two hex"), ("a\\", "single")]
        {
            assert!(unescape(text.as_bytes()).unwrap_err().contains(why), "{text}");
        }
        assert!(unhex(b"abc").is_err() && unhex(b"zz").is_err());
    }

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("7", 7), ("64k", 65536), ("64KiB", 65536), ("1.5 MiB", 3 << 19), ("2G", 2 << 30)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "x", "1x", "-1", "1e400", "99999999999T", "."] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(
            (human_bytes(1023), human_bytes(1536), human_bytes(1 << 20)),
            ("1023 B".into(), "1.5 KiB".into(), "1.0 MiB".into())
        );
        assert_eq!(
            (human_count(7), human_count(1234), human_count(1234567)),
            ("7".into(), "1,234".into(), "1,234,567".into())
        );
    }
}
