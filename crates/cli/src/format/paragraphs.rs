//! Paragraphs: records of `Field: value` lines separated by empty lines, as mail headers, Debian package indexes and many
//! other control files have them. Lines that start with a space or a tab go on from the line above; lines that start with `#`
//! say nothing. Field names are the same in capitals and small letters.

use super::lines::{self, Lines, Read, content_len};
use super::{Mapping, Record, Step};
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

    /// Fills `record` with the next paragraph: as value the whole of it without the end of its last line, unless the mapping
    /// names a field.
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
                    // The rest of the paragraph is of no use without this line.
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

/// Appends the key that the mapping makes of a paragraph: the named fields, or the first one.
pub fn key_into(key: &mut Vec<u8>, paragraph: &[u8], mapping: &Mapping) -> Result<(), String> {
    if mapping.key.is_empty() {
        let (_, value) = fields(paragraph).next().ok_or("there is no field in it")??;
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

/// Names and values, each value as on its first line, without the white space around it.
fn fields(paragraph: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), String>> {
    paragraph
        .split(|b| *b == b'\n')
        .filter(|line| !matches!(line.first(), None | Some(b' ' | b'\t' | b'#')))
        .map(|line| match line.iter().position(|b| *b == b':') {
            Some(at) if at > 0 => Ok((line[..at].trim_ascii(), line[at + 1..].trim_ascii())),
            _ => Err(format!(
                "{:?} is neither a field nor goes on from the line above",
                crate::text::escape_short(line, 40)
            )),
        })
}
