//! Reads metrics in the text format of Prometheus, as `Database::metrics` gives them.

use crate::failure::{Failure, Result};
use std::collections::BTreeMap;

/// The labels of a sample, by name.
pub type Labels = BTreeMap<String, String>;

/// Samples by the name of their metric, without `cairn_`.
#[derive(Debug, Default)]
pub struct Metrics(BTreeMap<String, Vec<(Labels, f64)>>);

impl Metrics {
    /// Reads a text, which may have metrics of other libraries, too.
    pub fn parse(text: &str) -> Result<Metrics> {
        let mut metrics = Metrics::default();
        for (n, line) in text.lines().enumerate() {
            let Some(sample) = line.strip_prefix("cairn_") else { continue };
            let wrong = || Failure::bad_input(format!("line {} of the metrics: {line:?}", n + 1));
            let (name, labels, value) = parse_sample(sample).ok_or_else(wrong)?;
            metrics.0.entry(name.to_owned()).or_default().push((labels, value));
        }
        match metrics.0.is_empty() {
            true => Err(Failure::bad_input("there is no metric of Cairn in the answer")),
            false => Ok(metrics),
        }
    }

    /// The samples as a text that is read as these.
    #[cfg(feature = "fuzzing")]
    pub fn to_text(&self) -> String {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let line = |name: &str, labels: &Labels, value: f64| {
            let labels: Vec<String> =
                labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
            format!("cairn_{name}{{{}}} {value}\n", labels.join(","))
        };
        let samples = self.0.iter().flat_map(|(name, samples)| samples.iter().map(move |s| (name, s)));
        samples.map(|(name, (labels, value))| line(name, labels, *value)).collect()
    }

    /// The samples of a metric.
    pub fn all(&self, name: &str) -> &[(Labels, f64)] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// The sum of the samples of a metric that have these labels; `None` without any.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let matches =
            |of: &Labels| labels.iter().all(|(name, value)| of.get(*name).is_some_and(|v| v == value));
        let samples: Vec<f64> =
            self.all(name).iter().filter(|(of, _)| matches(of)).map(|(_, value)| *value).collect();
        (!samples.is_empty()).then(|| samples.iter().sum())
    }

    /// The values of a label that the samples of a metric have, in their order.
    pub fn values<'a>(&'a self, name: &str, label: &str) -> Vec<&'a str> {
        let mut values: Vec<&str> = Vec::new();
        for value in self.all(name).iter().filter_map(|(labels, _)| labels.get(label)) {
            if !values.contains(&value.as_str()) {
                values.push(value);
            }
        }
        values
    }
}

/// `name{label="value",...} number`
fn parse_sample(sample: &str) -> Option<(&str, Labels, f64)> {
    let end = sample.find(['{', ' ', '\t'])?;
    let (name, mut rest) = sample.split_at(end);
    let mut labels = Labels::new();
    if let Some(inside) = rest.trim_start().strip_prefix('{') {
        rest = inside.trim_start();
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once('=')?;
            let after = after.trim_start().strip_prefix('"')?;
            let (value, len) = unescape(after)?;
            labels.insert(label.trim().to_owned(), value);
            rest = after.get(len..)?.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        rest = &rest[1..];
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name, labels, value))
}

/// A value up to its quotation mark, and the bytes that it takes with that.
fn unescape(text: &str) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, at + 1)),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_by_name_and_labels() {
        let text = "# HELP cairn_a A.\n# TYPE cairn_a gauge\ncairn_a 1.5\nother{x=\"y\"} 7\n\
                    cairn_b_total{k=\"x \\\"1\\\"\\\\\\n,}=\",l=\"0\"} 3\ncairn_b_total{k=\"y\",l=\"0\"} 4 1700000000\n\
                    cairn_c{le=\"+Inf\"} +Inf\n";
        let metrics = Metrics::parse(text).unwrap();
        assert_eq!(metrics.get("a", &[]), Some(1.5));
        assert_eq!(metrics.get("b_total", &[]), Some(7.0));
        assert_eq!(metrics.get("b_total", &[("k", "x \"1\"\\\n,}=")]), Some(3.0));
        assert_eq!(metrics.get("b_total", &[("k", "y"), ("l", "1")]), None);
        assert_eq!(metrics.get("c", &[]), Some(f64::INFINITY));
        assert_eq!(metrics.get("d", &[]), None);
        let spaced = Metrics::parse("cairn_a\t1\ncairn_b { k = \"x\" , l=\"y\", }\t2\n").unwrap();
        assert_eq!(spaced.get("a", &[]), Some(1.0));
        assert_eq!(spaced.get("b", &[("k", "x"), ("l", "y")]), Some(2.0));
        assert_eq!(metrics.values("b_total", "k"), ["x \"1\"\\\n,}=", "y"]);
        assert_eq!(metrics.values("b_total", "l"), ["0"]);
    }

    #[test]
    fn a_text_that_is_cut_off_or_has_nothing_of_cairn_is_refused() {
        let good = "cairn_a{k=\"x\",l=\"\\\"\"} 1";
        assert!(Metrics::parse(good).is_ok());
        for len in 0..good.len() {
            assert!(Metrics::parse(&good[..len]).is_err(), "{}", &good[..len]);
        }
        let error = Metrics::parse("<html>\n").unwrap_err().to_string();
        assert!(error.contains("no metric of Cairn"), "{error}");
        let error = Metrics::parse("\ncairn_x y\n").unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
