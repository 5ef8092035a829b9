//! `shell`: runs statements on a database, interactively or from a script.
//!
//! On a terminal it has a prompt with history and completion. From a pipe it reads statements line by line, prints
//! only their results, and ends at the first error with a message that names the line.

mod complete;
mod interrupt;
pub(crate) mod parse;
mod session;

use crate::args::{CreateArgs, DbArgs, FormArgs, KeyspaceArgs};
use crate::failure::{Failure, Result};
use crate::output::{Form, stdout};
use crate::store::{Create, NewKeyspace, Store, holds_database};
use crate::text::counted;
use parse::Unreadable;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use session::{Session, Then};
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cairn shell --db /tmp/d                              a prompt; .help lists the statements
  cairn shell --db /tmp/d 'put a 1' 'scan limit 3'     statements as arguments
  echo 'count prefix FR/' | cairn shell --db /tmp/d
  cairn shell --db /tmp/d --json < script
  cairn shell --db /tmp/new --create                   create the database
  cairn shell --db /tmp/d -k users --create            create the keyspace

At the prompt, Ctrl-C ends the running statement if it iterates over records (get, scan, count), but not the shell. A second
Ctrl-C during the statement ends the shell.

Statements from arguments or a pipe end at the first wrong one with exit code 6. The exit code is 1 if a requested key
does not exist. The history is kept in $XDG_STATE_HOME/cairn/history, or ~/.local/state/cairn/history.";

/// Arguments of `shell`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ShellArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    create: CreateArgs,
    #[command(flatten)]
    form: FormArgs,
    /// Create the database and the keyspace if they do not exist; in an existing database, only the keyspace `default` is
    /// created without this
    #[arg(long = "create")]
    may_create: bool,
    /// Statements to run instead of those on standard input
    #[arg(value_name = "STATEMENT")]
    statements: Vec<String>,
}

/// Runs the shell.
pub fn shell(args: ShellArgs) -> Result<ExitCode> {
    let create = Create { database: args.may_create, keyspace: NewKeyspace::by_flag(args.may_create) };
    if !args.may_create && !matches!(holds_database(&args.db.db), Ok(true)) {
        let dir = args.db.db.display();
        return Err(Failure::usage(format!("{dir}: there is no database; --create creates one")));
    }
    let store = Store::open_with(&args.db, &args.keyspace, &args.create, create)?;
    let mut session = Session::new(store, Form::from(args.form));
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let ran = if !args.statements.is_empty() {
        let lines = args.statements.iter().map(|s| Ok(s.clone().into_bytes()));
        run_script(&mut session, lines, "statement")
    } else if terminal {
        interact(&mut session).map(|()| ExitCode::SUCCESS)
    } else {
        run_script(&mut session, io::stdin().lock().split(b'\n'), "line")
    };
    let forgotten = session.close();
    let code = ran?;
    match forgotten? {
        0 => Ok(code),
        n => Err(Failure::bad_input(format!(
            "begin without commit; rolled back: {}",
            counted(n as u64, "write")
        ))),
    }
}

/// Runs lines until one of them fails.
fn run_script(
    session: &mut Session,
    lines: impl Iterator<Item = io::Result<Vec<u8>>>,
    unit: &str,
) -> Result<ExitCode> {
    let mut out = stdout();
    let mut missing = false;
    for (number, line) in (1..).zip(lines) {
        let line = line.map_err(|e| Failure::file("read", Path::new("standard input"), &e))?;
        let here = || format!("{unit} {number}");
        let line = String::from_utf8(line).map_err(|_| {
            Failure::bad_input("not UTF-8; write such bytes as \\xHH or x'HH'").context(here())
        })?;
        match run_line(session, &mut out, &line) {
            Ok(Then::GoOn) => {}
            Ok(Then::Missing) => missing = true,
            Ok(Then::Quit) => break,
            Err(failure) => return Err(failure.context(here())),
        }
    }
    out.flush()?;
    Ok(ExitCode::from(u8::from(missing)))
}

/// Runs the statements of one line.
fn run_line(session: &mut Session, out: &mut impl Write, line: &str) -> Result<Then> {
    let statements = parse::split(line).map_err(|e| match e {
        Unreadable::OpenQuote => Failure::bad_input("a quote is not closed"),
        Unreadable::Wrong(why) => Failure::bad_input(why),
    })?;
    let mut worst = Then::GoOn;
    for words in &statements {
        match session.run(out, parse::parse(words).map_err(Failure::bad_input)?)? {
            Then::GoOn => {}
            Then::Missing => worst = Then::Missing,
            Then::Quit => return Ok(Then::Quit),
        }
    }
    Ok(worst)
}

fn interact(session: &mut Session) -> Result<()> {
    let wrong = |e: ReadlineError| Failure::usage(format!("the prompt: {e}"));
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .history_ignore_space(true)
        .auto_add_history(true);
    let mut editor: Editor<complete::Prompt, FileHistory> =
        Editor::with_config(config.build()).map_err(wrong)?;
    let history = history_file();
    if let Some(path) = &history {
        let _ = editor.load_history(path); // the first time there is none
    }
    interrupt::watch()?;
    println!("Cairn {}: .help lists the statements, .quit ends the shell.", env!("CARGO_PKG_VERSION"));
    loop {
        let (db, keyspace) = (session.database().clone(), session.keyspace().clone());
        let mark = if session.in_transaction() { "*" } else { "" };
        let prompt = format!("{}{mark}> ", keyspace.name());
        editor.set_helper(Some(complete::Prompt { db, keyspace }));
        match editor.readline(&prompt) {
            Ok(line) => {
                // Save the line before it runs, because the shell may be killed at any time.
                keep_history(&mut editor, history.as_deref());
                match interrupt::during(|| run_line(session, &mut stdout(), &line)) {
                    Ok(Then::Quit) => break,
                    Ok(_) => {}
                    Err(failure) => eprintln!("{failure}"),
                }
            }
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(e) => return Err(wrong(e)),
        }
    }
    // The prompt holds handles of the database, which is closed next.
    editor.set_helper(None);
    keep_history(&mut editor, history.as_deref());
    Ok(())
}

/// Appends the new lines to the history file.
fn keep_history(editor: &mut Editor<complete::Prompt, FileHistory>, path: Option<&Path>) {
    let Some(path) = path else { return };
    let saved = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    if let Err(e) = saved.map_err(ReadlineError::from).and_then(|()| editor.append_history(path)) {
        eprintln!("cairn: the history was not kept: {}: {e}", path.display());
    }
}

/// The history file, in the state directory of the XDG specification; never in a database.
fn history_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("cairn").join("history"))
}
