//! The screen: what the last metrics say, and what has changed since those before.

use super::metrics::{Labels, Metrics};
use crate::text::{human_bytes, human_count};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{self, Block, Paragraph, Row, Sparkline, Table};
use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

/// Rates of writes that are remembered, for the curve.
const REMEMBERED: usize = 400;
/// Lines of the upper parts, with their borders.
const PART_LINES: u16 = 8;
const CURVE_LINES: u16 = 5;
/// Lines of the tree that are printed.
const MOST_LINES: usize = 10_000;

/// What is shown, and how.
pub struct Screen {
    name: String,
    /// Only the directory is read: what a process counts is not known.
    is_directory: bool,
    now: Metrics,
    before: Metrics,
    /// When `now` was taken, and how long after `before`.
    at: Duration,
    between: Option<Duration>,
    write_rates: VecDeque<u64>,
    /// The first line of the tree that is shown, and how many there was room for.
    first: usize,
    visible: Cell<usize>,
    pub is_stopped: bool,
    pub error: Option<String>,
}

impl Screen {
    pub fn new(name: String, is_directory: bool) -> Screen {
        Screen {
            name,
            is_directory,
            now: Metrics::default(),
            before: Metrics::default(),
            at: Duration::ZERO,
            between: None,
            write_rates: VecDeque::new(),
            first: 0,
            visible: Cell::new(1),
            is_stopped: false,
            error: None,
        }
    }

    /// New metrics, taken at a time since the beginning.
    pub fn add(&mut self, at: Duration, metrics: Metrics) {
        let is_first = self.now.all("keyspaces").is_empty();
        self.before = std::mem::replace(&mut self.now, metrics);
        self.between = (!is_first).then(|| at.saturating_sub(self.at));
        self.at = at;
        self.error = None;
        let name = if self.is_directory { "last_sequence_number" } else { "user_writes_total" };
        if let Some(rate) = self.rate(name, &[]) {
            self.write_rates.push_back(rate as u64);
            if self.write_rates.len() > REMEMBERED {
                self.write_rates.pop_front();
            }
        }
        self.scroll(0);
    }

    /// Moves the tree by some lines.
    pub fn scroll(&mut self, lines: isize) {
        let last = self.levels().len().saturating_sub(self.visible.get());
        self.first = self.first.saturating_add_signed(lines).min(last);
    }

    /// The lines for everything.
    pub fn height(&self) -> u16 {
        let parts = if self.is_directory { PART_LINES } else { 2 * PART_LINES };
        // Of more lines, the rest is not printed.
        let tree = self.levels().len().min(MOST_LINES) as u16;
        1 + u16::from(self.alarm().is_some()) + parts + CURVE_LINES + tree + 3
    }

    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.now.get(name, labels).unwrap_or(0.0)
    }

    /// How much a metric grew since the metrics before; `None` for the first ones, and after a restart of the program.
    fn growth(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.between?;
        let before = self.before.get(name, labels).unwrap_or(0.0);
        self.now.get(name, labels).map(|now| now - before).filter(|growth| *growth >= 0.0)
    }

    /// The same for each second.
    fn rate(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let seconds = self.between?.as_secs_f64();
        self.growth(name, labels).filter(|_| seconds > 0.0).map(|growth| growth / seconds)
    }

    /// The quantile of an operation's calls since the metrics before. Within a bucket they are taken for even.
    fn quantile(&self, operation: &str, quantile: f64) -> Option<f64> {
        let name = "operation_seconds_bucket";
        let of_operation = [("operation", operation)];
        let mut buckets = Vec::new();
        for (labels, _) in self.now.all(name) {
            if labels.get("operation").is_none_or(|of| of != operation) {
                continue;
            }
            let bound = labels.get("le")?;
            let calls = self.growth(name, &[("le", bound), of_operation[0]])?;
            let bound: f64 = bound.parse().ok()?;
            buckets.push((bound, calls));
        }
        let rank = quantile * buckets.last().filter(|(_, all)| *all > 0.0)?.1;
        let (mut low, mut passed) = (0.0, 0.0);
        for (bound, calls) in buckets {
            if calls >= rank {
                let share = (rank - passed) / (calls - passed);
                return Some(if bound.is_finite() { low + share * (bound - low) } else { low });
            }
            (low, passed) = (bound, calls);
        }
        None
    }

    /// What a person has to look at.
    fn alarm(&self) -> Option<String> {
        let is = |name| self.value(name, &[]) > 0.0;
        let mut alarms = Vec::new();
        alarms.extend(self.error.clone());
        if is("background_error") {
            alarms.push(
                "an error stops writing or background work: see the statistics of the program".to_owned(),
            );
        }
        if is("damaged_files") {
            alarms.push(format!(
                "{} damaged files: `cairn check` names them",
                self.value("damaged_files", &[])
            ));
        }
        if is("disk_full") {
            alarms.push("the disk is full: puts are refused".to_owned());
        }
        (!alarms.is_empty()).then(|| alarms.join("; "))
    }

    /// Level 0 of all trees, and the others that have tables: their labels.
    fn levels(&self) -> Vec<&Labels> {
        let all = self.now.all("level_tables").iter();
        let shown = all.filter(|(labels, tables)| *tables > 0.0 || of_level(labels)[2].1 == "0");
        shown.map(|(labels, _)| labels).collect()
    }

    /// Draws everything.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let alarm = self.alarm();
        let has_curve = frame.area().height >= self.height().min(32);
        let lower = if self.is_directory { 0 } else { PART_LINES };
        let [head, line, upper, lower, curve, tree] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(u16::from(alarm.is_some())),
            Constraint::Length(PART_LINES),
            Constraint::Length(lower),
            Constraint::Length(if has_curve { CURVE_LINES } else { 0 }),
            Constraint::Fill(1),
        ])
        .areas(frame.area());
        let state = match (self.is_stopped, self.between) {
            (true, _) => "stopped".to_owned(),
            (false, None) => "first look".to_owned(),
            (false, Some(between)) => format!("within {:.1} s", between.as_secs_f64()),
        };
        let head_line = format!(" Cairn  {}  {state}", self.name);
        frame.render_widget(Paragraph::new(head_line).bold(), head);
        if let Some(alarm) = alarm {
            frame.render_widget(
                Paragraph::new(format!(" {alarm}")).style(Style::new().fg(Color::Red).bold()),
                line,
            );
        }
        let halves = |area| -> [Rect; 2] { Layout::horizontal([Constraint::Fill(1); 2]).areas(area) };
        let [left, right] = halves(upper);
        match self.is_directory {
            true => {
                part(frame, left, "Database", self.database_lines());
                part(frame, right, "Not known from the directory", NOT_KNOWN.map(Line::from).to_vec());
            }
            false => {
                part(frame, left, "Calls", self.call_lines());
                part(frame, right, "Written", self.written_lines());
                let [left, right] = halves(lower);
                part(frame, left, "Writes that wait", self.stall_lines());
                part(frame, right, "Cache and memory", self.memory_lines());
            }
        }
        if has_curve {
            self.draw_curve(frame, curve);
        }
        self.draw_tree(frame, tree);
    }

    fn call_lines(&self) -> Vec<Line<'static>> {
        let mut lines = vec![Line::from("operation     calls/s       half        99 %").dim()];
        let name = "operation_seconds_count";
        for operation in self.now.values(name, "operation") {
            let rate = count(self.rate(name, &[("operation", operation)]));
            let [half, most] = [0.5, 0.99].map(|quantile| time(self.quantile(operation, quantile)));
            lines.push(format!("{operation:<10} {rate:>10} {half:>10} {most:>11}").into());
        }
        lines
    }

    fn written_lines(&self) -> Vec<Line<'static>> {
        let jobs = |job| self.rate("job_written_bytes_total", &[("job", job)]);
        let all = [
            ("keys, values", self.rate("user_bytes_total", &[])),
            ("log", self.rate("log_written_bytes_total", &[])),
            ("flush", jobs("flush")),
            ("compaction", jobs("compaction")),
            ("collection", jobs("collection")),
            ("bulk load", jobs("ingest")),
        ];
        all.map(|(name, rate)| format!("{name:<12} {:>14}", bytes_each_second(rate)).into()).to_vec()
    }

    fn stall_lines(&self) -> Vec<Line<'static>> {
        let mut lines = vec![Line::from("for           times/s     of the time").dim()];
        for reason in self.now.values("stalls_total", "reason") {
            let of = [("reason", reason)];
            let times = count(self.rate("stalls_total", &of));
            let share = self
                .rate("stall_seconds_total", &of)
                .map_or("-".to_owned(), |s| format!("{:.1} %", s * 100.0));
            lines.push(format!("{reason:<10} {times:>10} {share:>15}").into());
        }
        let longest = time(Some(self.value("stall_longest_seconds", &[])));
        lines.push(format!("longest since the opening {longest:>11}").into());
        lines
    }

    fn memory_lines(&self) -> Vec<Line<'static>> {
        let hits = |block| {
            let of = |result| self.growth("cache_lookups_total", &[("block", block), ("result", result)]);
            let (hits, misses) = (of("hit")?, of("miss")?);
            (hits + misses > 0.0).then(|| hits / (hits + misses))
        };
        let shown = |block| hits(block).map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0));
        let bytes = |name, labels: &[(&str, &str)]| human_bytes(self.value(name, labels) as u64);
        let part = |part| bytes("memory_bytes", &[("part", part)]);
        let (used, capacity) = (bytes("cache_used_bytes", &[]), bytes("cache_capacity_bytes", &[]));
        let (data, index, filter) = (shown("data"), shown("index"), shown("filter"));
        let read = bytes_each_second(self.rate("table_read_bytes_total", &[]));
        vec![
            format!("cache      {used} of {capacity}").into(),
            format!("hits       data {data}, index {index}, filter {filter}").into(),
            format!("read       {read}").into(),
            format!("memtables  {}, metadata {}", part("memtables"), part("metadata")).into(),
            format!("in all     {} of {}", bytes("memory_bytes", &[]), bytes("memory_budget_bytes", &[]))
                .into(),
            format!("readers    {}", self.readers()).into(),
        ]
    }

    fn readers(&self) -> String {
        let of = |name| self.value(name, &[]);
        let (snapshots, cursors, age) = (of("snapshots"), of("cursors"), of("oldest_reader_seconds"));
        match snapshots + cursors > 0.0 {
            true => format!("{snapshots} snapshots, {cursors} cursors, the oldest {age:.0} s"),
            false => "none".to_owned(),
        }
    }

    fn database_lines(&self) -> Vec<Line<'static>> {
        let bytes = |name| human_bytes(self.value(name, &[]) as u64);
        vec![
            format!("newest commit   {}", human_count(self.value("last_sequence_number", &[]) as u64)).into(),
            format!("keyspaces       {}", self.value("keyspaces", &[])).into(),
            format!("tables          {}", bytes("table_bytes")).into(),
            format!("in the log      {} not flushed yet", bytes("memtable_bytes")).into(),
            format!("other values    {}, {} dead", bytes("value_bytes"), bytes("value_dead_bytes")).into(),
        ]
    }

    fn draw_curve(&self, frame: &mut Frame<'_>, area: Rect) {
        let rate = self.write_rates.back().map(|rate| *rate as f64);
        let most = self.write_rates.iter().max().map(|rate| *rate as f64);
        let title = format!(" Writes: {} each second, at most {} ", count(rate), count(most));
        let width = usize::from(area.width.saturating_sub(2));
        let skipped = self.write_rates.len().saturating_sub(width);
        let rates: Vec<u64> = self.write_rates.iter().skip(skipped).copied().collect();
        let curve = Sparkline::default().block(Block::bordered().title(title)).data(rates);
        frame.render_widget(curve.style(Style::new().fg(Color::Cyan)), area);
    }

    fn draw_tree(&self, frame: &mut Frame<'_>, area: Rect) {
        let levels = self.levels();
        let visible = usize::from(area.height.saturating_sub(3));
        self.visible.set(visible.max(1));
        let first = self.first.min(levels.len().saturating_sub(visible));
        let mut shown: Option<(&str, &str)> = None;
        let rows = levels.iter().skip(first).take(visible).map(|labels| {
            let of = of_level(labels);
            let tree = tree_of(labels);
            let name = match (shown.replace(tree) == Some(tree), tree) {
                (true, _) => String::new(),
                (false, (name, "older")) => format!("{name}, older"),
                (false, (name, _)) => name.to_owned(),
            };
            let number = |name| human_count(self.value(name, &of) as u64);
            let cells = [
                name.escape_debug().to_string(),
                of[2].1.to_owned(),
                number("level_guards"),
                number("level_tables"),
                human_bytes(self.value("level_bytes", &of) as u64),
                number("level_entries"),
                number("level_tombstones"),
                bytes_each_second(self.rate("level_written_bytes_total", &of).filter(|_| !self.is_directory)),
            ];
            Row::new(cells.into_iter().enumerate().map(|(n, cell)| match n {
                0 => widgets::Cell::from(cell),
                _ => widgets::Cell::from(Line::from(cell).right_aligned()),
            }))
        });
        let rows: Vec<Row<'_>> = rows.collect();
        let widths = [
            Constraint::Fill(1),
            Constraint::Length(5),
            Constraint::Length(8),
            Constraint::Length(8),
            Constraint::Length(11),
            Constraint::Length(13),
            Constraint::Length(10),
            Constraint::Length(13),
        ];
        let names = ["keyspace", "level", "guards", "tables", "bytes", "entries", "deletes", "compacted"];
        let head = Row::new(names.iter().enumerate().map(|(n, name)| match n {
            0 => widgets::Cell::from(*name),
            _ => widgets::Cell::from(Line::from(*name).right_aligned()),
        }));
        let place = match levels.len() > visible {
            true => format!(
                " Tree, lines {} to {} of {} ",
                first + 1,
                first + visible.min(levels.len()),
                levels.len()
            ),
            false => " Tree ".to_owned(),
        };
        let table = Table::new(rows, widths).header(head.dim()).block(Block::bordered().title(place));
        frame.render_widget(table, area);
    }
}

const NOT_KNOWN: [&str; 5] = [
    "rates and times of calls, stalls, the cache:",
    "these the program knows that has the database",
    "open. Have it give the text of its",
    "`Database::metrics` over HTTP, and name",
    "the address: cairn top http://HOST:PORT/metrics",
];

/// A block with lines.
fn part(frame: &mut Frame<'_>, area: Rect, title: &str, lines: Vec<Line<'static>>) {
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(format!(" {title} "))), area);
}

/// The labels of a level, to find its samples.
fn of_level(labels: &Labels) -> [(&str, &str); 3] {
    ["keyspace", "tree", "level"].map(|name| (name, labels.get(name).map_or("", String::as_str)))
}

/// The keyspace of a level, and which of its trees it belongs to.
fn tree_of(labels: &Labels) -> (&str, &str) {
    let [keyspace, tree, _] = of_level(labels);
    (keyspace.1, tree.1)
}

fn count(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value > 0.0 && value < 10.0 => format!("{value:.1}"),
        Some(value) => human_count(value.round() as u64),
    }
}

fn bytes_each_second(rate: Option<f64>) -> String {
    rate.map_or("-".to_owned(), |rate| format!("{}/s", human_bytes(rate as u64)))
}

/// A time with three digits or so.
fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(s) if s >= 1.0 => format!("{s:.2} s"),
        Some(s) if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        Some(s) if s >= 1e-6 => format!("{:.1} us", s * 1e6),
        Some(s) => format!("{:.0} ns", s * 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::{Metrics, Screen, count, time};
    use cairn::{Database, Durability, KeyspaceOptions, Retention};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Cell;
    use std::time::Duration;

    fn text(screen: &Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let symbols: Vec<&str> = terminal.backend().buffer().content().iter().map(Cell::symbol).collect();
        symbols.chunks(usize::from(width)).map(|row| row.concat() + "\n").collect()
    }

    fn line<'a>(text: &'a str, with: &str) -> &'a str {
        text.lines().find(|line| line.contains(with)).unwrap_or_else(|| panic!("no {with} in\n{text}"))
    }

    #[test]
    fn what_has_changed_between_two_looks_is_shown_for_each_second() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path().join("db")).unwrap();
        let with_past = KeyspaceOptions::default().history(Retention::All);
        let users = db.create_keyspace("users", with_past).unwrap();
        let mut screen = Screen::new("here".to_owned(), false);
        screen.add(Duration::from_secs(1), Metrics::parse(&db.metrics()).unwrap());
        let first = text(&screen, 100, screen.height());
        assert!(line(&first, "Cairn  here").contains("first look"), "{first}");
        assert!(line(&first, "keys, values").contains('-'), "{first}");
        for n in 0..20_000u32 {
            users.put_with((n % 1000).to_be_bytes(), [1; 96], Durability::Buffered).unwrap();
        }
        db.flush().unwrap();
        users.compact().unwrap();
        screen.add(Duration::from_secs(3), Metrics::parse(&db.metrics()).unwrap());
        let shown = text(&screen, 100, screen.height());
        // 2,000,000 bytes in two seconds.
        assert!(line(&shown, "keys, values").contains("976.6 KiB/s"), "{shown}");
        assert!(line(&shown, "Writes: ").contains("Writes: 10,000 each second, at most 10,000"), "{shown}");
        assert!(line(&shown, "Cairn  here").contains("within 2.0 s"), "{shown}");
        let writes = line(&shown, "│write ");
        assert!(!writes.contains(" - ") && (writes.contains(" us ") || writes.contains(" ns ")), "{shown}");
        assert!(line(&shown, "│get ").contains(" - "), "{shown}");
        assert!(line(&shown, "│users  ").contains(" 0 "), "{shown}");
        assert!(line(&shown, "│users, older").contains(" 0 "), "{shown}");
        // Both trees have a table in one level, and level 0 is always shown.
        let levels = shown.lines().skip_while(|line| !line.contains("│keyspace")).count() - 2;
        assert_eq!(levels, 4, "{shown}");
        // Every size has a place on the screen, or is cut.
        for (width, height) in [(80, 24), (40, 10), (1, 1), (300, 100), (100, 3)] {
            text(&screen, width, height);
        }
        // Another program, whose counters have begun again.
        screen.add(
            Duration::from_secs(4),
            Metrics::parse("cairn_keyspaces 0\ncairn_user_bytes_total 5\n").unwrap(),
        );
        let restarted = text(&screen, 100, screen.height());
        assert!(
            line(&restarted, "keys, values").contains(" - ")
                || line(&restarted, "keys, values").contains("-│")
        );
    }

    #[test]
    fn a_long_tree_is_moved_and_alarms_are_shown() {
        let level =
            |n: usize| format!("cairn_level_tables{{keyspace=\"k{n}\",tree=\"newest\",level=\"0\"}} 1\n");
        let all: String = (0..50).map(level).collect();
        let mut screen = Screen::new("here".to_owned(), true);
        screen
            .add(Duration::ZERO, Metrics::parse(&(all + "cairn_keyspaces 50\ncairn_disk_full 1\n")).unwrap());
        let shown = text(&screen, 80, 24);
        assert!(shown.contains("│k0 ") && shown.contains("lines 1 to 11 of 50"), "{shown}");
        assert!(shown.contains("the disk is full"), "{shown}");
        screen.scroll(10);
        assert!(text(&screen, 80, 24).contains("lines 11 to 21 of 50"));
        screen.scroll(1000);
        let shown = text(&screen, 80, 24);
        assert!(shown.contains("│k49 ") && shown.contains("lines 40 to 50 of 50"), "{shown}");
        screen.scroll(isize::MIN);
        assert!(text(&screen, 80, 24).contains("│k0 "));
        screen.error = Some("connection refused".to_owned());
        assert!(text(&screen, 80, 24).contains("connection refused; the disk is full"));
    }

    #[test]
    fn quantiles_are_within_their_bucket() {
        let at = |calls: [u32; 3]| {
            let [small, large, all] = calls;
            let line =
                |le, n| format!("cairn_operation_seconds_bucket{{operation=\"get\",le=\"{le}\"}} {n}\n");
            let text =
                line("0.001", small) + &line("0.002", large) + &line("+Inf", all) + "cairn_keyspaces 1\n";
            Metrics::parse(&text).unwrap()
        };
        let mut screen = Screen::new(String::new(), false);
        screen.add(Duration::ZERO, at([500, 500, 500]));
        assert_eq!(screen.quantile("get", 0.5), None);
        screen.add(Duration::from_secs(1), at([500, 600, 600]));
        assert_eq!(screen.quantile("get", 0.5), Some(0.0015));
        assert_eq!(screen.quantile("get", 1.0), Some(0.002));
        screen.add(Duration::from_secs(2), at([510, 610, 700]));
        assert_eq!(screen.quantile("get", 0.05), Some(0.0005));
        // Beyond the last bound.
        assert_eq!(screen.quantile("get", 0.9), Some(0.002));
        screen.add(Duration::from_secs(3), at([510, 610, 700]));
        assert_eq!(screen.quantile("get", 0.5), None);
    }

    #[test]
    fn samples_without_their_labels_are_passed_over() {
        let text = "cairn_keyspaces 1\ncairn_operation_seconds_count{operation=\"get\"} 1\n\
                    cairn_operation_seconds_bucket{le=\"1\"} 1\ncairn_operation_seconds_bucket{operation=\"get\"} 1\n\
                    cairn_level_tables{keyspace=\"x\"} 1\ncairn_level_tables NaN\ncairn_stalls_total{reason=\"x\"} -1e300\n\
                    cairn_operation_seconds_bucket{operation=\"get\",le=\"x\"} inf\ncairn_user_bytes_total inf\n";
        let mut screen = Screen::new(String::new(), false);
        for second in 0..3 {
            screen.add(Duration::from_secs(second), Metrics::parse(text).unwrap());
            super::tests::text(&screen, 100, screen.height());
        }
    }

    #[test]
    fn times_and_counts_are_short() {
        for (seconds, text) in
            [(0.0, "0 ns"), (2.5e-7, "250 ns"), (1.25e-5, "12.5 us"), (0.0025, "2.50 ms"), (61.0, "61.00 s")]
        {
            assert_eq!(time(Some(seconds)), text);
        }
        for (value, text) in [(0.0, "0"), (0.25, "0.2"), (9.96, "10.0"), (1234.6, "1,235")] {
            assert_eq!(count(Some(value)), text);
        }
    }
}
