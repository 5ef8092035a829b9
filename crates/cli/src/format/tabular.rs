//! TSV and CSV: records of columns.

use super::lines::{self, Lines, Read, content_len};
use super::record::{Mapping, Record, Step};
use crate::text::{escape_short, unescape, unhex};
use crate::times::{TimeUnit, parse_expiry_of_record, parse_time_of_record};
use cairn::Time;
use std::io::{self, BufRead};

/// The columns of a history.
pub const VERSION_COLUMNS: [&str; 4] = ["key", "time", "operation", "value"];

/// The operation of a put that expires: this, and the time.
pub const UNTIL: &str = "until ";

/// The columns of a dump with expiries.
pub const EXPIRY_COLUMNS: [&str; 3] = ["key", "expiry", "value"];

/// How columns are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Tabs, with escapes.
    Tsv,
    /// Commas and quotes.
    Csv,
}

/// Reads records of columns.
pub struct Tabular {
    dialect: Dialect,
    mapping: Mapping,
    header: bool,
    plan: Option<Plan>,
    raw: Vec<u8>,
    fields: Vec<Field>,
}

/// Which columns form the key and the value. Decided on the first line.
struct Plan {
    columns: usize,
    line: u64,
    key: Vec<usize>,
    value: Value,
    time: Option<usize>,
    expiry: Option<usize>,
    /// The column with `put` or `delete`.
    operation: Option<usize>,
}

enum Value {
    Column(usize),
    /// The only column is the key, so the value is empty.
    Nothing,
    WholeRecord,
}

/// The position of a field in the raw record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    start: usize,
    end: usize,
    quoted: bool,
}

/// The name of a column: its number, or its name in the header.
enum Column<'a> {
    Number(usize),
    Name(&'a str),
}

fn column(text: &str) -> Result<Column<'_>, String> {
    match text.parse::<usize>() {
        Ok(0) => Err("columns count from 1".into()),
        Ok(number) => Ok(Column::Number(number - 1)),
        Err(_) => Ok(Column::Name(text)),
    }
}

impl Tabular {
    /// A reader of records. The first line is a header if the mapping says so, otherwise in CSV, and in TSV if the
    /// mapping names a column.
    pub fn new(dialect: Dialect, mut mapping: Mapping) -> Result<Tabular, String> {
        if mapping.versions {
            let column = |n: usize| (n + 1).to_string();
            mapping.key = vec![column(0)];
            (mapping.time, mapping.value) = (Some(column(1)), Some(column(3)));
        }
        let mut named = false;
        let times = mapping.time.iter().chain(&mapping.expiry);
        for text in mapping.key.iter().chain(&mapping.value).chain(times) {
            named |= matches!(column(text)?, Column::Name(_));
        }
        if named && mapping.header == Some(false) {
            return Err(
                "columns can only be named where the first line is a header; give their numbers".into()
            );
        }
        let header = mapping.header.unwrap_or(named || dialect == Dialect::Csv);
        Ok(Tabular { dialect, mapping, header, plan: None, raw: Vec::new(), fields: Vec::new() })
    }

    /// Fills `record` with the next record.
    pub fn next<R: BufRead>(&mut self, lines: &mut Lines<R>, record: &mut Record) -> io::Result<Step> {
        loop {
            let step = self.read_raw(lines, record)?;
            if step != Step::Record {
                return Ok(step);
            }
            if self.raw.is_empty() {
                continue; // an empty line
            }
            if self.plan.is_none() {
                match self.make_plan(record.line) {
                    Ok(plan) => self.plan = Some(plan),
                    Err(why) => return Ok(Step::Unfit(why)),
                }
                if self.header {
                    continue;
                }
            }
            return Ok(match self.fill(record) {
                Ok(()) => Step::Record,
                Err(why) => Step::Bad(why),
            });
        }
    }

    /// Reads one record into `raw`, without its line end, and splits it into fields.
    fn read_raw<R: BufRead>(&mut self, lines: &mut Lines<R>, record: &mut Record) -> io::Result<Step> {
        self.raw.clear();
        self.fields.clear();
        let mut scanner = CsvScanner::default();
        record.line = lines.number() + 1;
        loop {
            let start = self.raw.len();
            match lines.append_line(&mut self.raw)? {
                Read::Line => {}
                Read::TooLong => return Ok(Step::Bad(lines::too_long())),
                Read::End if start == 0 => return Ok(Step::End),
                Read::End => return Ok(Step::Bad("a quote is opened here and never closed".into())),
            }
            if start == 0 {
                self.raw.drain(..lines::mark_len(&self.raw, lines.number()));
            }
            let end = start + content_len(&self.raw[start..]);
            match self.dialect {
                Dialect::Tsv => split_tsv(&self.raw[..end], &mut self.fields),
                Dialect::Csv => {
                    if let Err(why) = scanner.scan(&self.raw, start, end, &mut self.fields) {
                        self.raw.truncate(end);
                        return Ok(Step::Bad(why));
                    }
                    if scanner.is_open() {
                        continue;
                    }
                }
            }
            self.raw.truncate(end);
            return Ok(Step::Record);
        }
    }

    fn make_plan(&self, line: u64) -> Result<Plan, String> {
        let columns = self.fields.len();
        if self.mapping.versions && columns != VERSION_COLUMNS.len() {
            let listed = VERSION_COLUMNS.join(", ");
            return Err(format!("a history has the columns {listed}; line {line} has {columns}"));
        }
        let names = match self.header {
            true => self.fields.iter().map(|f| self.decoded(*f)).collect::<Result<Vec<_>, _>>()?,
            false => Vec::new(),
        };
        let place = |text: &String| match column(text)? {
            Column::Number(at) if at < columns => Ok(at),
            Column::Number(at) => Err(format!("there is no column {}: line {line} has {columns}", at + 1)),
            Column::Name(name) => names.iter().position(|n| n == name.as_bytes()).ok_or_else(|| {
                let known: Vec<String> = names.iter().map(|n| escape_short(n, 40)).collect();
                format!("there is no column {name:?}: the header names {}", known.join(", "))
            }),
        };
        let key = match self.mapping.key.is_empty() {
            true => vec![0],
            false => self.mapping.key.iter().map(place).collect::<Result<Vec<_>, _>>()?,
        };
        let time = self.mapping.time.as_ref().map(place).transpose()?;
        let expiry = self.mapping.expiry.as_ref().map(place).transpose()?;
        let is_time = |at| [time, expiry].contains(&Some(at));
        let mut others = (0..columns).filter(|at| !key.contains(at) && !is_time(*at));
        let value = match (&self.mapping.value, key.len(), others.next(), others.next()) {
            (Some(name), ..) => Value::Column(place(name)?),
            (None, 1, Some(only), None) => Value::Column(only),
            (None, 1, None, _) => Value::Nothing,
            _ => Value::WholeRecord,
        };
        let operation = self.mapping.versions.then_some(2);
        Ok(Plan { columns, line, key, value, time, expiry, operation })
    }

    fn fill(&self, record: &mut Record) -> Result<(), String> {
        let plan = self.plan.as_ref().expect("the first line made a plan");
        if self.fields.len() != plan.columns {
            let s = if self.fields.len() == 1 { "" } else { "s" };
            return Err(format!(
                "has {} column{s}, where line {} has {}",
                self.fields.len(),
                plan.line,
                plan.columns
            ));
        }
        record.key.clear();
        for (i, at) in plan.key.iter().enumerate() {
            if i > 0 {
                record.key.extend_from_slice(self.mapping.separator.as_bytes());
            }
            self.decode_into(&mut record.key, *at)?;
        }
        record.time = self.time(plan.time, parse_time_of_record)?;
        record.expiry = self.time(plan.expiry, parse_expiry_of_record)?;
        record.is_delete = false;
        if let Some(at) = plan.operation {
            let operation = self.decoded(self.fields[at])?;
            match std::str::from_utf8(&operation) {
                Ok("put") => {}
                Ok("delete") => record.is_delete = true,
                Ok(text) if text.starts_with(UNTIL) => {
                    let expiry = parse_time_of_record(&text[UNTIL.len()..], self.mapping.time_unit);
                    record.expiry = Some(expiry.map_err(|why| format!("column {}: {why}", at + 1))?);
                }
                _ => {
                    let other = escape_short(&operation, 40);
                    return Err(format!("column {}: put, delete or until TIME, not \"{other}\"", at + 1));
                }
            }
        }
        record.value.clear();
        match plan.value {
            Value::Column(at) => self.decode_into(&mut record.value, at),
            Value::Nothing => Ok(()),
            Value::WholeRecord => {
                record.value.extend_from_slice(&self.raw);
                Ok(())
            }
        }
    }

    fn decode_into(&self, out: &mut Vec<u8>, at: usize) -> Result<(), String> {
        let named = |why: String| format!("column {}: {why}", at + 1);
        let field = self.fields[at];
        let text = &self.raw[field.start..field.end];
        if self.mapping.hex {
            out.extend_from_slice(&unhex(text).map_err(named)?);
        } else if field.quoted {
            unquote_into(out, text);
        } else if self.dialect == Dialect::Tsv && !self.mapping.no_escapes {
            let named = |why: String| {
                format!("column {}: {why} (--no-escapes takes backslashes as they are)", at + 1)
            };
            out.extend_from_slice(&unescape(text).map_err(named)?);
        } else {
            out.extend_from_slice(text);
        }
        Ok(())
    }

    /// The time in a column, if there is such a column.
    fn time(
        &self,
        column: Option<usize>,
        parse: fn(&str, TimeUnit) -> Result<Time, String>,
    ) -> Result<Option<Time>, String> {
        let Some(at) = column else { return Ok(None) };
        let text = self.decoded(self.fields[at])?;
        let time = parse(&String::from_utf8_lossy(&text), self.mapping.time_unit);
        time.map(Some).map_err(|why| format!("column {}: {why}", at + 1))
    }

    /// The text of a field without escapes, as in the header.
    fn decoded(&self, field: Field) -> Result<Vec<u8>, String> {
        let text = &self.raw[field.start..field.end];
        let mut out = Vec::new();
        match field.quoted {
            true => unquote_into(&mut out, text),
            false => out.extend_from_slice(text),
        }
        Ok(out)
    }
}

fn split_tsv(line: &[u8], fields: &mut Vec<Field>) {
    let mut start = 0;
    for (at, byte) in line.iter().enumerate() {
        if *byte == b'\t' {
            fields.push(Field { start, end: at, quoted: false });
            start = at + 1;
        }
    }
    fields.push(Field { start, end: line.len(), quoted: false });
}

fn unquote_into(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|b| *b == b'"') {
        out.extend_from_slice(&rest[..=at]);
        rest = &rest[(at + 2).min(rest.len())..]; // the scanner saw that quotes inside come in pairs
    }
    out.extend_from_slice(rest);
}

/// Splits one CSV record, which may span several lines, into fields.
#[derive(Default)]
struct CsvScanner {
    state: State,
    start: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Before the first byte of a field.
    #[default]
    Start,
    Plain,
    Quoted,
    /// After a quote inside quotes: the end of the field, or the first quote of a pair.
    Quote,
}

impl CsvScanner {
    /// Whether a quote is open, so that the record continues on the next line.
    fn is_open(&self) -> bool {
        self.state == State::Quoted
    }

    /// Scans one more line of the record, `raw[from..end]`. Inside quotes, the line end belongs to the field.
    fn scan(&mut self, raw: &[u8], from: usize, end: usize, fields: &mut Vec<Field>) -> Result<(), String> {
        for (at, byte) in raw.iter().enumerate().take(end).skip(from) {
            self.state = match (self.state, *byte) {
                (State::Start, b'"') => {
                    self.start = at + 1;
                    State::Quoted
                }
                (State::Start | State::Plain, b',') => {
                    fields.push(Field { start: self.start, end: at, quoted: false });
                    self.start = at + 1;
                    State::Start
                }
                (State::Start | State::Plain, _) => State::Plain,
                (State::Quoted, b'"') => State::Quote,
                (State::Quoted, _) => State::Quoted,
                (State::Quote, b'"') => State::Quoted,
                (State::Quote, b',') => {
                    fields.push(Field { start: self.start, end: at - 1, quoted: true });
                    self.start = at + 1;
                    State::Start
                }
                (State::Quote, _) => {
                    return Err(format!("column {}: text after the closing quote", fields.len() + 1));
                }
            };
        }
        match self.state {
            State::Quoted => {}
            State::Quote => fields.push(Field { start: self.start, end: end - 1, quoted: true }),
            State::Start | State::Plain => fields.push(Field { start: self.start, end, quoted: false }),
        }
        Ok(())
    }
}
