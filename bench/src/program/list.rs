//! `list`: prints the engines, groups and workloads.

use super::args::ListArgs;
use super::failure::Failure;
use super::text::{human_bytes, human_count};
use bench::engine::Kind;
use bench::suite::{Adjust, Group, groups};
use bench::workload::Workload;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// Prints the lists on standard output.
pub fn list(args: &ListArgs) -> Result<ExitCode, Failure> {
    let groups = groups(args.scale, &Adjust::default());
    let mut text = String::from("Engines\n");
    for kind in bench::engines::all() {
        let _ = writeln!(text, "  {:<16} {} {}", kind.name, kind.title, (kind.version)());
        if args.settings {
            settings(args, &kind, &groups[0], &mut text)?;
        }
    }
    let _ = writeln!(text, "\nGroups, at scale {}", args.scale);
    groups.iter().for_each(|group| describe(group, &mut text));
    text.push_str("\nWorkloads\n");
    for workload in Workload::ALL {
        let _ = writeln!(text, "  {:<16} {}", workload.name(), workload.about());
    }
    // Ignore errors: the reader may have closed the pipe.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn describe(group: &Group, text: &mut String) {
    let _ = writeln!(text, "  {:<21} {}", group.name, group.about);
    let size = human_bytes(group.data_bytes_max());
    let _ = writeln!(text, "  {:21} {} keys, up to {size}:", "", human_count(group.num as f64));
    for step in &group.steps {
        let mut threads =
            if step.threads > 1 { format!(", {} threads", step.threads) } else { String::new() };
        if step.writers > 0 {
            threads += &format!(", beside {} that put", step.writers);
        }
        let length = match step.timed {
            true => format!("{:.0} s", group.seconds_max.unwrap_or(f64::INFINITY)),
            false => format!("{} operations", human_count(step.ops as f64)),
        };
        let _ = writeln!(text, "  {:23} {} ({length}{threads})", "", step.name());
    }
}

/// The settings of an open engine.
fn settings(args: &ListArgs, kind: &Kind, group: &Group, text: &mut String) -> Result<(), Failure> {
    let dir = std::env::temp_dir().join(format!("cairn-bench-list-{}", std::process::id()));
    let failed =
        |e: &dyn std::fmt::Display| Failure::System(format!("open {} in {}: {e}", kind.name, dir.display()));
    std::fs::create_dir(&dir).map_err(|e| failed(&e))?;
    let opened = (kind.open)(&dir, &args.requested.of(group)).and_then(|engine| {
        let settings = engine.settings();
        engine.close().map(|()| settings)
    });
    let _ = std::fs::remove_dir_all(&dir);
    for (name, value) in opened.map_err(|e| failed(&e))? {
        let _ = writeln!(text, "  {:16}   {name} = {value}", "");
    }
    Ok(())
}
