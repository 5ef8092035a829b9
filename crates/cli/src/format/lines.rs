//! Reads lines of bytes, counts them, and limits their length.

use std::io::{self, BufRead};

/// Maximum length of a line or record: the longest key and value with every byte escaped as `\xHH`.
const MAX_RECORD_LEN: usize = 4 * (cairn::limits::MAX_KEY_LEN + cairn::limits::MAX_VALUE_LEN) + 4096;

/// The result of [`Lines::append_line`].
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// A line, including its line end if it has one.
    Line,
    /// A line that makes the buffer longer than the longest possible record. It was skipped; the buffer has a part of
    /// it.
    TooLong,
    /// The end of the input.
    End,
}

/// Reads lines and counts them.
pub struct Lines<R> {
    input: R,
    number: u64,
    bytes_read: u64,
    limit: usize,
}

impl<R: BufRead> Lines<R> {
    /// Reads lines of `input`.
    pub fn new(input: R) -> Lines<R> {
        Lines { input, number: 0, bytes_read: 0, limit: MAX_RECORD_LEN }
    }

    /// Appends the next line, including its line end, to `out`. Memory is bounded by the input that was read.
    pub fn append_line(&mut self, out: &mut Vec<u8>) -> io::Result<Read> {
        let mut read = Read::End;
        loop {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            if available.is_empty() {
                break;
            }
            if read == Read::End {
                read = Read::Line;
                self.number += 1;
            }
            let newline = find_newline(available);
            let used = newline.map_or(available.len(), |at| at + 1);
            if out.len() + used > self.limit {
                read = Read::TooLong;
            }
            if read == Read::Line {
                out.extend_from_slice(&available[..used]);
            }
            self.input.consume(used);
            self.bytes_read += used as u64;
            if newline.is_some() {
                break;
            }
        }
        Ok(read)
    }

    /// The number of the last line read; the first line is 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }
}

fn find_newline(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|b| *b == b'\n')
}

/// Length of a line without its line end, `\n` or `\r\n`.
pub fn content_len(line: &[u8]) -> usize {
    match line {
        [.., b'\r', b'\n'] => line.len() - 2,
        [.., b'\n'] => line.len() - 1,
        _ => line.len(),
    }
}

/// The error for a line that is too long.
pub fn too_long() -> String {
    format!("longer than any record can be ({MAX_RECORD_LEN} bytes)")
}

/// Length of a byte order mark at the start of the first line.
pub fn mark_len(line: &[u8], number: u64) -> usize {
    if number == 1 && line.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_bytes_and_are_counted() {
        let mut lines = Lines::new(io::BufReader::with_capacity(3, &b"a\r\n\nlast \xff"[..]));
        for expect in [&b"a\r\n"[..], b"\n", b"last \xff"] {
            let mut line = Vec::new();
            assert_eq!(lines.append_line(&mut line).unwrap(), Read::Line);
            assert_eq!(line, expect);
        }
        assert_eq!(lines.append_line(&mut Vec::new()).unwrap(), Read::End);
        assert_eq!((lines.number(), lines.bytes_read()), (3, 10));
    }

    #[test]
    fn a_huge_line_is_passed_over() {
        let text = [&b"x".repeat(1000)[..], b"\nnext\n"].concat();
        let mut lines = Lines::new(io::BufReader::with_capacity(64, &text[..]));
        lines.limit = 100;
        let mut line = Vec::new();
        assert_eq!(lines.append_line(&mut line).unwrap(), Read::TooLong);
        assert!(line.len() <= 100);
        line.clear();
        assert_eq!(lines.append_line(&mut line).unwrap(), Read::Line);
        assert_eq!((line.as_slice(), lines.number()), (&b"next\n"[..], 2));
    }

    #[test]
    fn ends_of_lines() {
        for (line, len) in [("a\r\n", 1), ("a\n", 1), ("a\r", 2), ("a", 1), ("\n", 0), ("", 0)] {
            assert_eq!(content_len(line.as_bytes()), len, "{line:?}");
        }
    }
}
