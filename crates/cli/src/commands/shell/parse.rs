//! Parses the language of the shell: statements of words.
//!
//! ```text
//!   put fruit/apple "deep red\n"; get fruit/apple      words, "quoted" with escapes, 'quoted' without
//!   get x'00ff'                                        bytes in hexadecimal
//!   scan prefix FR/ limit 5 reverse                    unquoted words can be keywords
//!   .mode json                                         words that start with a dot are commands of the shell itself
//!   # the rest of the line is a comment
//! ```

use crate::args::Bounds;
use crate::commands::history::Window;
use crate::text::{unescape, unhex};
use crate::times::{parse_time, parse_ttl};
use cairn::Time;
use std::time::Duration;

/// A word of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Its bytes, without quotes and escapes.
    pub bytes: Vec<u8>,
    /// Whether it was quoted: then it is never a keyword.
    pub quoted: bool,
}

impl Word {
    fn is(&self, keyword: &str) -> bool {
        !self.quoted && self.bytes.eq_ignore_ascii_case(keyword.as_bytes())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Why a line cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// A quote is open; the next line may close it.
    OpenQuote,
    /// The line is wrong, for this reason.
    Wrong(String),
}

/// Splits a line into statements, each a list of words.
pub fn split(line: &str) -> Result<Vec<Vec<Word>>, Unreadable> {
    let mut statements = vec![Vec::new()];
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        if first == '#' {
            rest = rest.split_once('\n').map_or("", |(_, next)| next);
        } else if first == ';' {
            statements.push(Vec::new());
            rest = &rest[1..];
        } else {
            let (word, left) = word(rest)?;
            statements.last_mut().expect("there is one").push(word);
            rest = left;
        }
        rest = rest.trim_start();
    }
    statements.retain(|words| !words.is_empty());
    Ok(statements)
}

/// The word at the start of `text`, and the rest.
fn word(text: &str) -> Result<(Word, &str), Unreadable> {
    let wrong = |why: String| Unreadable::Wrong(why);
    let quoted = |bytes: Vec<u8>| Word { bytes, quoted: true };
    if let Some(body) = text.strip_prefix('"') {
        let end = closing_quote(body).ok_or(Unreadable::OpenQuote)?;
        // \" is the only escape that is limited to quoted words.
        let bytes = unescape(body[..end].replace("\\\"", "\\x22").as_bytes()).map_err(wrong)?.into_owned();
        return Ok((quoted(bytes), after_quote(&body[end + 1..])?));
    }
    if let Some(body) = text.strip_prefix("x'").or_else(|| text.strip_prefix("X'")) {
        let end = body.find('\'').ok_or(Unreadable::OpenQuote)?;
        let bytes = unhex(&body.as_bytes()[..end]).map_err(wrong)?;
        return Ok((quoted(bytes), after_quote(&body[end + 1..])?));
    }
    if let Some(body) = text.strip_prefix('\'') {
        let end = body.find('\'').ok_or(Unreadable::OpenQuote)?;
        return Ok((quoted(body.as_bytes()[..end].to_vec()), after_quote(&body[end + 1..])?));
    }
    let end = text.find(|c: char| c.is_whitespace() || c == ';').unwrap_or(text.len());
    Ok((Word { bytes: text.as_bytes()[..end].to_vec(), quoted: false }, &text[end..]))
}

/// The position of the first unescaped `"`. A backslash that is itself escaped does not escape it.
fn closing_quote(body: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in body.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return Some(at),
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

fn after_quote(rest: &str) -> Result<&str, Unreadable> {
    match rest.chars().next() {
        None | Some(';') => Ok(rest),
        Some(c) if c.is_whitespace() => Ok(rest),
        Some(_) => Err(Unreadable::Wrong("put a space after a closing quote".into())),
    }
}

/// A word that the shell reads back as these bytes: quoted if needed.
pub fn quote(bytes: &[u8]) -> String {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !"\"'\\;#".contains(c);
    let keyword = ["prefix", "limit", "reverse", "keys", "values", "from", "to"];
    match std::str::from_utf8(bytes) {
        Ok(word) if !word.is_empty() && word.chars().all(plain) && !keyword.contains(&word) => {
            return word.to_string();
        }
        _ => {}
    }
    format!("\"{}\"", crate::text::escape(bytes).replace('"', "\\\""))
}

/// A parsed statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// Store values.
    Put(Vec<(Vec<u8>, Vec<u8>)>, Lives),
    /// Join operands to values.
    Merge(Vec<(Vec<u8>, Vec<u8>)>),
    /// Set a key to a value, or delete it, if it has another value, or none.
    Swap(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>),
    /// Print when records expire.
    Expiry(Vec<Vec<u8>>),
    /// Print values.
    Get(Vec<Vec<u8>>),
    /// Delete keys.
    Delete(Vec<Vec<u8>>),
    /// Print records.
    Scan(Bounds, Show),
    /// Delete all keys within bounds.
    DeleteRange(Bounds),
    /// Start to collect writes.
    Begin,
    /// Write the collected writes, all or none.
    Commit,
    /// Drop the collected writes.
    Rollback,
    /// Take a snapshot and name it.
    Snapshot(String),
    /// Release a snapshot.
    Release(String),
    /// Print the versions of a key.
    History(Vec<u8>, Window),
    /// Read at a snapshot.
    AtSnapshot(String, Box<Statement>),
    /// Read or write as of a time.
    AtTime(Time, Box<Statement>),
    /// A command of the shell with its arguments.
    Dot(String, Vec<String>),
}

/// How long the records of a put live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lives {
    /// As the option `ttl` of the keyspace says.
    Usual,
    /// So long.
    For(Duration),
    /// Until this time.
    Until(Time),
}

/// What a scan prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Keys and values.
    Both,
    /// Keys.
    Keys,
    /// Values.
    Values,
    /// The number of records.
    Count,
}

/// The first words of statements, for completion.
pub const STATEMENTS: [&str; 18] = [
    "put", "merge", "cas", "get", "expiry", "del", "delrange", "scan", "count", "history", "begin", "commit",
    "rollback", "snapshot", "at", "ttl", "until", "release",
];

/// Parses one statement.
pub fn parse(words: &[Word]) -> Result<Statement, String> {
    let (first, rest) = words.split_first().expect("a statement has words");
    let keys = || rest.iter().map(|w| w.bytes.clone()).collect::<Vec<_>>();
    let none = |statement: Statement| match rest.is_empty() {
        true => Ok(statement),
        false => Err(format!("{} takes no arguments", first.text())),
    };
    let some = |usage: &str| if rest.is_empty() { Err(usage.to_string()) } else { Ok(()) };
    let name = match first.quoted {
        true => return Err("a statement starts with a command; .help lists them".into()),
        false => first.text().to_lowercase(),
    };
    match name.as_str() {
        "put" => {
            if rest.is_empty() || !rest.len().is_multiple_of(2) {
                return Err("put KEY VALUE [KEY VALUE]...".into());
            }
            let pairs = rest.chunks_exact(2).map(|p| (p[0].bytes.clone(), p[1].bytes.clone()));
            Ok(Statement::Put(pairs.collect(), Lives::Usual))
        }
        "merge" => {
            if rest.is_empty() || !rest.len().is_multiple_of(2) {
                return Err("merge KEY OPERAND [KEY OPERAND]...".into());
            }
            let pairs = rest.chunks_exact(2).map(|p| (p[0].bytes.clone(), p[1].bytes.clone()));
            Ok(Statement::Merge(pairs.collect()))
        }
        "ttl" | "until" => {
            let usage =
                format!("{name} {} put KEY VALUE ...", if name == "ttl" { "DURATION" } else { "TIME" });
            let (when, put) = rest.split_first().filter(|(_, put)| !put.is_empty()).ok_or(&usage[..])?;
            let lives = match &name[..] {
                "ttl" => Lives::For(parse_ttl(&when.text())?),
                _ => Lives::Until(parse_time(&when.text())?),
            };
            match parse(put)? {
                Statement::Put(pairs, Lives::Usual) => Ok(Statement::Put(pairs, lives)),
                _ => Err(usage),
            }
        }
        "cas" => match rest {
            [key, current, new] => {
                let value = |word: &Word| (!word.is("none")).then(|| word.bytes.clone());
                Ok(Statement::Swap(key.bytes.clone(), value(current), value(new)))
            }
            _ => Err("cas KEY CURRENT|none NEW|none".into()),
        },
        "expiry" => some("expiry KEY...").map(|()| Statement::Expiry(keys())),
        "get" => some("get KEY...").map(|()| Statement::Get(keys())),
        "del" | "delete" => some("del KEY...").map(|()| Statement::Delete(keys())),
        "delrange" => match scan(rest)? {
            (bounds, Show::Both) if bounds.limit == u64::MAX && !bounds.reverse && !rest.is_empty() => {
                Ok(Statement::DeleteRange(bounds))
            }
            _ => Err("delrange FROM [TO], or from K, to K, prefix P".into()),
        },
        "scan" => scan(rest).map(|(bounds, show)| Statement::Scan(bounds, show)),
        "count" => scan(rest).map(|(bounds, _)| Statement::Scan(bounds, Show::Count)),
        "begin" => none(Statement::Begin),
        "commit" => none(Statement::Commit),
        "rollback" => none(Statement::Rollback),
        "history" => history(rest),
        "snapshot" => match one(rest, "snapshot NAME")? {
            name if parse_time(&name).is_ok() => {
                Err(format!("{name:?} reads as a time, and `at {name}` reads as of it: give another name"))
            }
            name => Ok(Statement::Snapshot(name)),
        },
        "release" => one(rest, "release NAME").map(Statement::Release),
        "at" if rest.len() >= 2 => {
            let (when, statement) = (rest[0].text(), parse(&rest[1..])?);
            let is_read = matches!(statement, Statement::Get(_) | Statement::Scan(..));
            match (parse_time(&when), &statement) {
                (Ok(time), Statement::Put(_, Lives::Usual) | Statement::Delete(_)) => {
                    Ok(Statement::AtTime(time, Box::new(statement)))
                }
                (Ok(time), _) if is_read => Ok(Statement::AtTime(time, Box::new(statement))),
                (Ok(_), _) => Err("only get, scan, count, put and del can be as of a time".into()),
                (Err(_), Statement::History(..)) => Ok(Statement::AtSnapshot(when, Box::new(statement))),
                (Err(_), _) if is_read => Ok(Statement::AtSnapshot(when, Box::new(statement))),
                (Err(_), _) => Err("only get, scan, count and history can read at a snapshot".into()),
            }
        }
        "at" => Err("at SNAPSHOT get|scan|count|history ..., at TIME get|scan|count|put|del ...".into()),
        dot if dot.starts_with('.') => Ok(Statement::Dot(dot.into(), rest.iter().map(Word::text).collect())),
        _ => Err(format!("there is no command {name:?}; .help lists them")),
    }
}

fn one(rest: &[Word], usage: &str) -> Result<String, String> {
    match rest {
        [word] => Ok(word.text()),
        _ => Err(usage.into()),
    }
}

/// `KEY [from TIME] [to TIME] [limit N] [reverse]`
fn history(words: &[Word]) -> Result<Statement, String> {
    const USAGE: &str = "history KEY [from TIME] [to TIME] [limit N] [reverse]";
    let (key, words) = words.split_first().ok_or(USAGE)?;
    let mut window = Window::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut argument =
            || words.next().map(Word::text).ok_or_else(|| format!("{} needs an argument", word.text()));
        if word.is("from") {
            window.from = Some(parse_time(&argument()?)?);
        } else if word.is("to") {
            window.to = Some(parse_time(&argument()?)?);
        } else if word.is("limit") {
            let text = argument()?;
            window.limit = Some(text.parse().map_err(|_| format!("limit {text:?} is not a number"))?);
        } else if word.is("reverse") {
            window.reverse = true;
        } else {
            return Err(format!("{:?} is one word too many: {USAGE}", word.text()));
        }
    }
    Ok(Statement::History(key.bytes.clone(), window))
}

/// `[FROM [TO]] [prefix P] [from K] [to K] [limit N] [reverse] [keys|values]`
fn scan(words: &[Word]) -> Result<(Bounds, Show), String> {
    let mut bounds = Bounds::default();
    let mut show = Show::Both;
    let mut places = 0;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut argument = || words.next().ok_or_else(|| format!("{} needs an argument", word.text()));
        if word.is("prefix") {
            bounds.prefix(argument()?.bytes.clone());
        } else if word.is("from") {
            bounds.from(argument()?.bytes.clone());
        } else if word.is("to") {
            bounds.to(argument()?.bytes.clone());
        } else if word.is("limit") {
            let text = argument()?.text();
            bounds.limit = text.parse().map_err(|_| format!("limit {text:?} is not a number"))?;
        } else if word.is("reverse") {
            bounds.reverse = true;
        } else if word.is("keys") {
            show = Show::Keys;
        } else if word.is("values") {
            show = Show::Values;
        } else {
            match places {
                0 => bounds.from(word.bytes.clone()),
                1 => bounds.to(word.bytes.clone()),
                _ => return Err(format!("{:?} is one word too many: scan [FROM [TO]] ...", word.text())),
            }
            places += 1;
        }
    }
    Ok((bounds, show))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Bound;

    fn statements(line: &str) -> Vec<Result<Statement, String>> {
        split(line).unwrap().iter().map(|words| parse(words)).collect()
    }

    #[test]
    fn words_and_quotes() {
        let words = split(r#"put "a b\t\"\\" x'00FF' 'c\d' e#f # comment"#).unwrap();
        let bytes: Vec<&[u8]> = words[0].iter().map(|w| &w.bytes[..]).collect();
        assert_eq!(bytes, [&b"put"[..], b"a b\t\"\\", b"\x00\xff", b"c\\d", b"e#f"]);
        assert_eq!(split("get a;;get b;").unwrap().len(), 2);
        assert_eq!(split("put a \"b\nc\"").unwrap()[0][2].bytes, b"b\nc");
        assert_eq!(split("# only\n").unwrap().len(), 0);
    }

    #[test]
    fn unreadable_lines() {
        assert_eq!(split("put a \"b"), Err(Unreadable::OpenQuote));
        assert_eq!(split("put a \"b\\\""), Err(Unreadable::OpenQuote));
        for line in ["get \"a\"b", "get \"\\q\"", "get x'0'"] {
            assert!(matches!(split(line), Err(Unreadable::Wrong(_))), "{line}");
        }
    }

    #[test]
    fn quoting_is_read_back() {
        for bytes in [
            &b"plain/key"[..],
            b"",
            b"a b",
            b"\"",
            b"\\",
            b"\\\"",
            b"\xff\n",
            b"limit",
            b"it's",
            "é".as_bytes(),
        ] {
            let text = quote(bytes);
            assert_eq!(split(&format!("get {text}")).unwrap()[0][1].bytes, bytes, "{text}");
        }
    }

    #[test]
    fn scans() {
        let Ok(Statement::Scan(bounds, show)) = &statements("scan a m limit 3 reverse keys")[0] else {
            panic!()
        };
        assert_eq!(
            (bounds.lower.clone(), bounds.upper.clone()),
            (Bound::Included(b"a".to_vec()), Bound::Excluded(b"m".to_vec()))
        );
        assert_eq!((bounds.limit, bounds.reverse, *show), (3, true, Show::Keys));
        assert!(
            matches!(&statements("COUNT prefix \"limit\"")[0], Ok(Statement::Scan(b, Show::Count)) if b.lower == Bound::Included(b"limit".to_vec()))
        );
        assert!(
            matches!(&statements("delrange a b")[0], Ok(Statement::DeleteRange(b)) if b.limit == u64::MAX)
        );
        for line in [
            "delrange",
            "delrange a b limit 3",
            "delrange a b reverse",
            "delrange a b keys",
            "scan a b c",
            "scan limit x",
            "scan prefix",
        ] {
            assert!(statements(line)[0].is_err(), "{line}");
        }
    }

    #[test]
    fn times() {
        let at = |micros| Time::from_micros(micros);
        let window = Window { from: Some(at(5)), to: Some(at(7)), reverse: true, limit: Some(2) };
        assert_eq!(
            statements("history a from 5 to 7 limit 2 reverse")[0],
            Ok(Statement::History(b"a".to_vec(), window))
        );
        for read in ["get a", "scan", "count a b", "put a 1", "del a"] {
            assert!(
                matches!(statements(&format!("at 7 {read}"))[0], Ok(Statement::AtTime(time, _)) if time == at(7))
            );
        }
        assert!(matches!(statements("at s history a")[0], Ok(Statement::AtSnapshot(..))));
        assert!(matches!(statements("at -2h get a")[0], Ok(Statement::AtTime(..))));
        for line in [
            "history",
            "history a b",
            "history a from",
            "history a from yesterday",
            "history a limit x",
            "at 7 history a",
            "at 7 delrange a b",
            "at s at 7 get a",
            "snapshot 7",
            "snapshot now",
        ] {
            assert!(statements(line)[0].is_err(), "{line}");
        }
    }

    #[test]
    fn expiries() {
        let pairs = vec![(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())];
        let put = |lives| Ok(Statement::Put(pairs.clone(), lives));
        assert_eq!(statements("put a 1 b 2")[0], put(Lives::Usual));
        assert_eq!(statements("ttl 30min put a 1 b 2")[0], put(Lives::For(Duration::from_secs(1800))));
        assert_eq!(statements("until 7 put a 1 b 2")[0], put(Lives::Until(Time::from_micros(7))));
        assert_eq!(statements("expiry a")[0], Ok(Statement::Expiry(vec![b"a".to_vec()])));
        for line in [
            "ttl",
            "ttl 7d",
            "ttl soon put a 1",
            "ttl -7d put a 1",
            "ttl 0s put a 1",
            "until yesterday put a 1",
            "until 7 del a",
            "until 7 put a",
            "ttl 7d until 7 put a 1",
            "at 7 ttl 7d put a 1",
            "expiry",
        ] {
            assert!(statements(line)[0].is_err(), "{line}");
        }
    }

    #[test]
    fn swaps() {
        let swap = |current: Option<&str>, new: Option<&str>| {
            let bytes = |value: Option<&str>| value.map(|value| value.as_bytes().to_vec());
            Ok(Statement::Swap(b"a".to_vec(), bytes(current), bytes(new)))
        };
        assert_eq!(statements("cas a 1 2")[0], swap(Some("1"), Some("2")));
        assert_eq!(statements("cas a none 2")[0], swap(None, Some("2")));
        assert_eq!(statements("cas a 'none' NONE")[0], swap(Some("none"), None));
        assert!(statements("cas a 1")[0].is_err() && statements("at 7 cas a 1 2")[0].is_err());
    }

    #[test]
    fn wrong_statements_say_how() {
        for line in ["put a", "get", "begin now", "snapshot", "at s put a b", "at s", "fetch a", "\"get\" a"]
        {
            assert!(statements(line)[0].is_err(), "{line}");
        }
        assert!(matches!(statements("at s1 get a")[0], Ok(Statement::AtSnapshot(..))));
        assert_eq!(statements(".USE x")[0], Ok(Statement::Dot(".use".into(), vec!["x".into()])));
    }
}
