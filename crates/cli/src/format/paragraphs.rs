//! Paragraphs: records of `Field: value` lines separated by empty lines, as in mail headers, Debian package indexes
//! and other control files. Lines that start with a space or a tab continue the line above. Lines that start with `#`
//! are comments. Field names are case-insensitive.

use super::lines::{self, Lines, Read, content_len};
use super::record::{Mapping, Record, Step};
use std::io::{self, BufRead};

/// Reads paragraphs.
pub struct Paragraphs {
    mapping: Mapping,
}

impl Paragraphs {
    /// A reader of paragraphs.
    pub fn new(mapping: Mapping) -> Paragraphs {
        Paragraphs { mapping }
    }

    /// Reads the next paragraph into `record`. The value is the whole paragraph without its last line end, unless the
    /// mapping names a field.
    pub fn next<R: BufRead>(&mut self, lines: &mut Lines<R>, record: &mut Record) -> io::Result<Step> {
        let text = &mut record.value;
        text.clear();
        loop {
            let start = text.len();
            let read = lines.append_line(text)?;
            if start == 0 {
                record.line = lines.number();
            }
            match read {
                Read::End if start == 0 => return Ok(Step::End),
                Read::End => break,
                Read::TooLong => {
                    // Without this line the rest of the paragraph is useless.
                    skip_paragraph(lines)?;
                    return Ok(Step::Bad(lines::too_long()));
                }
                Read::Line if content_len(&text[start..]) > 0 => {}
                Read::Line => {
                    text.truncate(start);
                    if start > 0 {
                        break;
                    }
                }
            }
        }
        let end = content_len(text);
        text.truncate(end);
        record.key.clear();
        Ok(match key_into(&mut record.key, &record.value, &self.mapping) {
            Ok(()) => self.pick_value(record),
            Err(why) => Step::Bad(why),
        })
    }

    fn pick_value(&self, record: &mut Record) -> Step {
        let Some(name) = &self.mapping.value else { return Step::Record };
        match find(&record.value, name) {
            Ok(value) => {
                record.value = value.to_vec();
                Step::Record
            }
            Err(why) => Step::Bad(why),
        }
    }
}

fn skip_paragraph<R: BufRead>(lines: &mut Lines<R>) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.append_line(&mut line)? {
            Read::End => return Ok(()),
            Read::Line if content_len(&line) == 0 => return Ok(()),
            _ => {}
        }
    }
}

/// Appends the key of a paragraph: the named fields, or the first one.
pub fn key_into(key: &mut Vec<u8>, paragraph: &[u8], mapping: &Mapping) -> Result<(), String> {
    if mapping.key.is_empty() {
        let (_, value) = fields(paragraph).next().ok_or("the paragraph has no field")??;
        key.extend_from_slice(value);
    }
    for (i, name) in mapping.key.iter().enumerate() {
        if i > 0 {
            key.extend_from_slice(mapping.separator.as_bytes());
        }
        key.extend_from_slice(find(paragraph, name)?);
    }
    Ok(())
}

fn find<'a>(paragraph: &'a [u8], name: &str) -> Result<&'a [u8], String> {
    for field in fields(paragraph) {
        let (field_name, value) = field?;
        if field_name.eq_ignore_ascii_case(name.as_bytes()) {
            return Ok(value);
        }
    }
    Err(format!("there is no field {name:?}"))
}

/// The names and values of fields. A value is the text on the first line, trimmed.
fn fields(paragraph: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), String>> {
    paragraph
        .split(|b| *b == b'\n')
        .filter(|line| !matches!(line.first(), None | Some(b' ' | b'\t' | b'#')))
        .map(|line| match line.iter().position(|b| *b == b':') {
            Some(at) if at > 0 => Ok((line[..at].trim_ascii(), line[at + 1..].trim_ascii())),
            _ => Err(format!(
                "{:?} is neither a field nor a continuation of the line above",
                crate::text::escape_short(line, 40)
            )),
        })
}
