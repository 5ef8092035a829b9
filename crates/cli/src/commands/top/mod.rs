//! `top`: shows what a database does, live.
//!
//! A [`Source`](source::Source) gives texts of metrics, [`Metrics`](metrics::Metrics) reads one, and [`Screen`](view::Screen) shows the last two of
//! them: what is, and what has changed in between.

pub(crate) mod metrics;
mod source;
pub(crate) mod view;

use crate::args::DbArgs;
use crate::failure::{Failure, Result};
use crate::output::stdout;
use crate::text::parse_size;
use metrics::Metrics;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use source::Source;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};
use view::Screen;

const EXAMPLES: &str = "\
Examples:
  cairn top http://127.0.0.1:9000/metrics     a program that gives what `Database::metrics` returns at this address
  cairn top --db /tmp/d                       the tree of a database that another process may write to
  cairn top --db /tmp/d --once > screen.txt   one screen as text

Rates of reads, latencies, stalls and the cache are known to the process that has the database open: it has to give its
metrics, as for Prometheus. From the directory alone come the tree, the files and the rate of writes.

Keys: q quits, space stops and goes on, the arrows and page keys move the tree.";

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// Where a program gives its metrics over HTTP; without it the database is read
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Directory of the database
    #[arg(long, value_name = "DIR", env = "CAIRN_DB", hide_env_values = true)]
    db: Option<PathBuf>,
    /// Memory for the block cache of this process, such as 64MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory_budget: Option<u64>,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// Print one screen after one interval, and end
    #[arg(long)]
    once: bool,
}

fn parse_interval(text: &str) -> std::result::Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match (0.1..=3600.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("between 0.1 and 3600".to_owned()),
    }
}

/// Shows a database until the user quits.
pub fn top(args: TopArgs) -> Result<()> {
    if !args.once && !std::io::stdout().is_terminal() {
        return Err(Failure::usage("standard output is no terminal; --once prints one screen as text"));
    }
    let interval = Duration::from_secs_f64(args.interval);
    let mut source = match (args.url, args.db) {
        (Some(url), _) => Source::of_url(url)?,
        (None, Some(db)) => Source::of_database(&DbArgs { db, memory_budget: args.memory_budget })?,
        (None, None) => {
            return Err(Failure::usage(
                "nothing to show: name a URL, or a database as --db DIR or in CAIRN_DB",
            ));
        }
    };
    let mut screen = Screen::new(source.name(), source.is_database());
    let begun = Instant::now();
    screen.add(begun.elapsed(), Metrics::parse(&source.text()?)?);
    match args.once {
        true => {
            std::thread::sleep(interval);
            screen.add(begun.elapsed(), Metrics::parse(&source.text()?)?);
            print(&screen)
        }
        false => show(screen, source, begun, interval),
    }
}

/// Prints the screen as text.
fn print(screen: &Screen) -> Result<()> {
    let size = (100, screen.height());
    let mut terminal = match Terminal::new(TestBackend::new(size.0, size.1)) {
        Ok(terminal) => terminal,
        Err(never) => match never {},
    };
    let Ok(_) = terminal.draw(|frame| screen.draw(frame));
    let buffer = terminal.backend().buffer();
    let mut out = stdout();
    for row in buffer.content().chunks(usize::from(size.0)) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(out.flush()?)
}

/// How often signals, and answers, are looked for.
const TICK: Duration = Duration::from_millis(100);

/// Gives the terminal back, also when the program fails.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn show(mut screen: Screen, source: Source, begun: Instant, interval: Duration) -> Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    // Signals must not leave the terminal as it is; Ctrl-C is a key here.
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, ended.clone())?;
    }
    let looks = Looks::start(source)?;
    let _restore = Restore;
    let mut terminal = ratatui::try_init()?;
    let mut next = begun.elapsed() + interval;
    let mut is_looking = false;
    while !ended.load(Ordering::Relaxed) {
        terminal.draw(|frame| screen.draw(frame))?;
        let mut wait = if is_looking { TICK } else { next.saturating_sub(begun.elapsed()).min(TICK) };
        while event::poll(wait)? {
            match event::read()? {
                Event::Key(key) if key.is_press() && !press(&mut screen, key) => return Ok(()),
                _ => wait = Duration::ZERO,
            }
        }
        if let Some(look) = looks.take() {
            (is_looking, next) = (false, begun.elapsed() + interval);
            match look {
                Ok(metrics) => screen.add(begun.elapsed(), metrics),
                // The program may come back.
                Err(failure) => screen.error = Some(failure.to_string()),
            }
        }
        if !is_looking && !screen.is_stopped && begun.elapsed() >= next {
            looks.ask();
            is_looking = true;
        }
    }
    Ok(())
}

/// A thread that looks when it is asked to: a program may take seconds for an answer, or give none.
struct Looks {
    ask: Sender<()>,
    told: Receiver<Result<Metrics>>,
}

impl Looks {
    fn start(mut source: Source) -> Result<Looks> {
        let ((ask, asked), (tell, told)) = (mpsc::channel(), mpsc::channel());
        let body = move || {
            while asked.recv().is_ok() {
                if tell.send(source.text().and_then(|text| Metrics::parse(&text))).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().spawn(body)?;
        Ok(Looks { ask, told })
    }

    fn ask(&self) {
        // The thread ends after this does.
        let _ = self.ask.send(());
    }

    fn take(&self) -> Option<Result<Metrics>> {
        match self.told.try_recv() {
            Ok(look) => Some(look),
            Err(TryRecvError::Empty) => None,
            // After a panic, which only a bug can cause.
            Err(TryRecvError::Disconnected) => {
                Some(Err(Failure::bad_input("the thread that looks has ended")))
            }
        }
    }
}

/// What a key does. Returns whether to go on.
fn press(screen: &mut Screen, key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char(' ') => screen.is_stopped = !screen.is_stopped,
        KeyCode::Down | KeyCode::Char('j') => screen.scroll(1),
        KeyCode::Up | KeyCode::Char('k') => screen.scroll(-1),
        KeyCode::PageDown => screen.scroll(10),
        KeyCode::PageUp => screen.scroll(-10),
        KeyCode::Home => screen.scroll(isize::MIN),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let mut screen = Screen::new("here".to_owned(), false);
        let code = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert!(press(&mut screen, code(KeyCode::Char(' '))) && screen.is_stopped);
        assert!(press(&mut screen, code(KeyCode::Char(' '))) && !screen.is_stopped);
        assert!(press(&mut screen, code(KeyCode::Char('c'))));
        assert!(!press(&mut screen, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!press(&mut screen, code(KeyCode::Esc)) && !press(&mut screen, code(KeyCode::Char('q'))));
    }

    #[test]
    fn intervals() {
        assert_eq!(parse_interval("0.5"), Ok(0.5));
        for bad in ["0", "-1", "NaN", "inf", "4000", "1s"] {
            assert!(parse_interval(bad).is_err(), "{bad}");
        }
    }
}
