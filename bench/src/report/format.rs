//! Formats numbers: three significant digits and a suitable unit.

/// Three significant digits: `1234`, `56.7`, `0.0891`.
pub fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// Exactly three digits if there is a fraction, so that columns align: `1.20`, `12.0`, `120`.
pub fn even(value: f64) -> String {
    let digits = if value.abs() < 9.995 {
        2
    } else if value.abs() < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.digits$}")
}

/// Thousands and millions: `987`, `12.3 k`, `4.56 M`.
pub fn count(value: f64) -> String {
    match value.abs() {
        x if x < 999.5 => short((value * 100.0).round() / 100.0),
        x if x < 999_500.0 => format!("{} k", even(value / 1e3)),
        x if x < 999_500_000.0 => format!("{} M", even(value / 1e6)),
        _ => format!("{} G", even(value / 1e9)),
    }
}

/// Bytes in powers of 1024: `512 B`, `64.0 MiB`.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if value < 1024.0 {
        return format!("{value:.0} B");
    }
    let (mut scaled, mut unit) = (value / 1024.0, 0);
    while scaled >= 1023.5 && unit + 1 < UNITS.len() {
        (scaled, unit) = (scaled / 1024.0, unit + 1);
    }
    format!("{} {}", even(scaled), UNITS[unit])
}

/// A time given in microseconds: `850 ns`, `12.3 µs`, `4.56 ms`, `7.89 s`.
pub fn micros(value: f64) -> String {
    match value {
        x if x < 0.9995 => format!("{:.0} ns", value * 1e3),
        x if x < 999.5 => format!("{} µs", even(value)),
        x if x < 999_500.0 => format!("{} ms", even(value / 1e3)),
        _ => format!("{} s", even(value / 1e6)),
    }
}

/// A time given in seconds: `0.52 s`, `48 s`, `3 min 20 s`.
pub fn seconds(value: f64) -> String {
    match value {
        x if x < 9.95 => format!("{} s", short(value)),
        x if x < 99.5 => format!("{value:.0} s"),
        _ => format!("{} min {:.0} s", (value / 60.0).floor(), value % 60.0),
    }
}

/// A ratio: `1.25×`.
pub fn times(value: f64) -> String {
    match value {
        x if x < 0.000995 => format!("{}×", short(value)),
        x if x < 0.0995 => format!("{value:.3}×"),
        _ => format!("{}×", even(value)),
    }
}

/// A share: `3.2 %`.
pub fn percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

/// The same without zeros at the end of a fraction, for axes: `50.0 k` becomes `50 k`.
pub fn trimmed(words: &str) -> String {
    let end = words.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(words.len());
    let (number, unit) = words.split_at(end);
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number}{unit}")
}

/// `1 round`, `3 rounds`.
pub fn plural(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        let counts = [0.0, 7.0, 999.0, 999.7, 12_345.0, 999_700.0, 4_560_000.0].map(count);
        assert_eq!(counts, ["0", "7", "999", "1.00 k", "12.3 k", "1.00 M", "4.56 M"]);
        let sizes = [0.0, 1023.0, 1024.0, 67_108_864.0, 1_073_741_823.0].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.00 KiB", "64.0 MiB", "1.00 GiB"]);
        let times = [0.85, 12.34, 4_560.0, 7_890_000.0].map(micros);
        assert_eq!(times, ["850 ns", "12.3 µs", "4.56 ms", "7.89 s"]);
        assert_eq!([0.5, 48.2, 200.0].map(seconds), ["0.5 s", "48 s", "3 min 20 s"]);
        assert_eq!([0.00123, 0.5, 12.0, 140.0].map(super::times), ["0.001×", "0.50×", "12.0×", "140×"]);
        let axes = ["50.0 k", "1.00×", "0", "100 k", "2.50 µs", "200"].map(trimmed);
        assert_eq!(axes, ["50 k", "1×", "0", "100 k", "2.5 µs", "200"]);
        assert_eq!([1234.0, 56.7, 0.0891, 20.0, 0.5].map(short), ["1234", "56.7", "0.0891", "20", "0.5"]);
    }
}
