//! Completion at the prompt: commands, keyspaces, and keys that can be read quickly.

use super::parse::{STATEMENTS, Unreadable, quote, split};
use super::session::DOTS;
use cairn::{Database, Keyspace};
use rustyline::completion::{Completer, Pair};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper, Highlighter, Hinter};

/// Maximum number of keys offered: one short read.
const KEYS: usize = 24;

/// The part of the session that completion uses.
#[derive(Helper, Highlighter, Hinter)]
pub struct Prompt {
    /// The database.
    pub db: Database,
    /// The keyspace in use.
    pub keyspace: Keyspace,
}

impl Prompt {
    /// The start of the word under the cursor, and its possible completions.
    fn candidates(&self, line: &str) -> (usize, Vec<String>) {
        let start = word_start(line);
        let statement_start = line[..start].rfind(';').map_or(0, |at| at + 1);
        let before = split(&line[statement_start..start]).unwrap_or_default();
        let words: Vec<&[u8]> = before.iter().flatten().map(|w| &w.bytes[..]).collect();
        let word = &line[start..];
        let pick = |all: &mut dyn Iterator<Item = String>| all.filter(|c| c.starts_with(word)).collect();
        let found = match words.as_slice() {
            [] => pick(&mut STATEMENTS.iter().chain(&DOTS).map(|s| s.to_string())),
            [b".use" | b".drop" | b".rename" | b".clone"] => pick(&mut self.db.keyspaces().into_iter()),
            [b".mode"] => pick(&mut ["text", "hex", "json"].iter().map(|s| s.to_string())),
            [b".timer"] => pick(&mut ["on", "off"].iter().map(|s| s.to_string())),
            [b"at", _] => {
                pick(&mut ["get", "scan", "count", "history", "put", "del"].iter().map(|s| s.to_string()))
            }
            [b"ttl" | b"until", _] => pick(&mut std::iter::once("put".to_owned())),
            [
                b"put" | b"merge" | b"get" | b"expiry" | b"del" | b"delete" | b"delrange" | b"scan"
                | b"count" | b"history",
                ..,
            ] => self.keys(word),
            _ => Vec::new(),
        };
        (start, found)
    }

    fn keys(&self, word: &str) -> Vec<String> {
        let typed = match word.strip_prefix('"') {
            Some(_) => split(&format!("{word}\"")),
            None => split(word),
        };
        let prefix = typed.ok().and_then(|s| Some(s.first()?.first()?.bytes.clone())).unwrap_or_default();
        self.keyspace.prefix(&prefix).take(KEYS).map_while(|entry| Some(quote(&entry.ok()?.0))).collect()
    }
}

/// The start of the last word of an unfinished line: behind the last space or `;` outside quotes.
fn word_start(line: &str) -> usize {
    let (mut start, mut quote, mut escaped) = (0, None, false);
    for (at, c) in line.char_indices() {
        match quote {
            Some(q) if c == q && !escaped => quote = None,
            Some(_) => escaped = c == '\\' && !escaped,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c.is_whitespace() || c == ';' => start = at + c.len_utf8(),
            None => {}
        }
    }
    start
}

impl Completer for Prompt {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, found) = self.candidates(&line[..pos]);
        Ok((start, found.into_iter().map(|c| Pair { display: c.clone(), replacement: c }).collect()))
    }
}

/// A line with an open quote continues on the next line.
impl Validator for Prompt {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match split(context.input()) {
            Err(Unreadable::OpenQuote) => ValidationResult::Incomplete,
            _ => ValidationResult::Valid(None),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_under_the_cursor() {
        for (line, start) in [
            ("", 0),
            ("ge", 0),
            ("get a", 4),
            ("get \"a b", 4),
            ("get a;pu", 6),
            ("get ", 4),
            ("get \"a\\\" b", 4),
        ] {
            assert_eq!(word_start(line), start, "{line:?}");
        }
    }
}
