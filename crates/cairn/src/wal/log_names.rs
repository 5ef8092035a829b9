//! File names of logs.

/// File name of log `number`.
pub(crate) fn log_file_name(number: u64) -> String {
    format!("wal-{number:06}.log")
}

/// The number in a log's file name.
pub(crate) fn parse_log_file_name(name: &str) -> Option<u64> {
    let number = name.strip_prefix("wal-")?.strip_suffix(".log")?.parse().ok()?;
    (log_file_name(number) == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_numbers_only() {
        assert_eq!(parse_log_file_name(&log_file_name(12)), Some(12));
        assert_eq!(parse_log_file_name("wal-12.log"), None);
        assert_eq!(parse_log_file_name("wal-000012.log.tmp"), None);
        assert_eq!(parse_log_file_name(&log_file_name(12_345_678)), Some(12_345_678));
    }
}
