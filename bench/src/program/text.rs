//! Parses and formats sizes and numbers.

/// A number of bytes with an optional unit of 1024: `67108864`, `64M`, `64MB`, `64MiB`, `1.5g`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 =
        number.parse().map_err(|_| "a size is a number and a unit, such as 64MiB".to_string())?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("unknown unit {unit:?}: use K, M, G or T")),
    };
    let bytes = number * (1u64 << shift) as f64;
    if bytes < (1u64 << 60) as f64 { Ok(bytes as u64) } else { Err("that is too large".to_string()) }
}

/// A limit: a size, or `none`.
pub fn parse_limit(text: &str) -> Result<Limit, String> {
    if text == "none" { Ok(Limit(None)) } else { parse_size(text).map(|bytes| Limit(Some(bytes))) }
}

/// A size, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<u64>);

/// `64 MiB`, with as many digits as are useful.
pub fn human_bytes(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            let digits = usize::from(size.fract() > 0.04 && size < 100.0);
            return format!("{size:.digits$} {unit}");
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

/// `1,234,567`.
pub fn human_count(count: f64) -> String {
    if count < 10.0 && count > 0.0 {
        return format!("{count:.1}");
    }
    let digits = format!("{count:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `45 s`, `12 min`, `2 h 05 min`.
pub fn human_seconds(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        _ if minutes < 100 => format!("{minutes} min"),
        _ => format!("{} h {:02} min", minutes / 60, minutes % 60),
    }
}

/// `1 engine`, `2 engines`.
pub fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("17", 17), ("64MiB", 64 << 20), ("2g", 2 << 30), ("0.5 kB", 512)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "x", "MiB", "1x", "-1", "1.1.1", "99999999999T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(parse_limit("none"), Ok(Limit(None)));
        assert_eq!(parse_limit("2GiB"), Ok(Limit(Some(2 << 30))));
    }

    #[test]
    fn numbers_for_people() {
        let bytes = [0, 1023, 1536, 64 << 20, 2 << 30, 3 << 40].map(human_bytes);
        assert_eq!(bytes, ["0 B", "1023 B", "1.5 KiB", "64 MiB", "2 GiB", "3.0 TiB"]);
        let counts = [0.0, 3.25, 999.0, 1000.4, 1_234_567.0].map(human_count);
        assert_eq!(counts, ["0", "3.2", "999", "1,000", "1,234,567"]);
        let times = [3.0, 99.0, 120.0, 3600.0, 7500.0].map(human_seconds);
        assert_eq!((plural(1, "group"), plural(0, "group")), ("1 group".into(), "0 groups".into()));
        assert_eq!(times, ["3 s", "99 s", "2 min", "60 min", "2 h 05 min"]);
    }
}
