//! `completions` and `options`: prints information about the program.

use crate::failure::Result;
use crate::output::{print_json, stdout};
use cairn::{KeyspaceOptions, OptionSpec, Options, Preset};
use serde_json::{Value, json};
use std::io::Write;

const COMPLETION_EXAMPLES: &str = "\
Examples:
  source <(cairn completions bash)
  cairn completions zsh > ~/.zfunc/_cairn
  cairn completions fish > ~/.config/fish/completions/cairn.fish";

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETION_EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Prints a completion script for the command line `cli`.
pub fn completions(args: CompletionsArgs, mut cli: clap::Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli, "cairn", &mut script);
    let mut out = stdout();
    out.write_all(&script)?;
    Ok(out.flush()?)
}

const OPTIONS_EXAMPLES: &str = "\
Examples:
  cairn options
  cairn options --json | jq -r '.keyspace[].name'
  cairn load --db /tmp/d --set compression=zstd --set block_size=16384 cities.tsv";

/// Arguments of `options`.
#[derive(Debug, clap::Args)]
#[command(after_help = OPTIONS_EXAMPLES)]
pub struct OptionsArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Lists all options.
pub fn options(args: OptionsArgs) -> Result<()> {
    let mut out = stdout();
    if args.json {
        let list = |specs: Vec<OptionSpec>| specs.iter().map(spec_json).collect::<Vec<_>>();
        let all = json!({ "database": list(Options::specs()), "keyspace": list(KeyspaceOptions::specs()) });
        print_json(&mut out, &all)?;
    } else {
        writeln!(out, "Options of a database (--set NAME=VALUE):\n")?;
        Options::specs().iter().try_for_each(|spec| print_spec(&mut out, spec, &[]))?;
        writeln!(
            out,
            "Options of a keyspace (--set NAME=VALUE, when it is created or with `alter`; --preset sets several):\n"
        )?;
        let presets = Preset::ALL.map(|p| (p.to_string(), KeyspaceOptions::preset(p).to_pairs()));
        for spec in KeyspaceOptions::specs() {
            let differ: Vec<String> = presets
                .iter()
                .filter_map(|(preset, pairs)| {
                    let (_, value) = pairs.iter().find(|(name, _)| *name == spec.name)?;
                    (*value != spec.default).then(|| format!("{preset} {value}"))
                })
                .collect();
            print_spec(&mut out, &spec, &differ)?;
        }
    }
    Ok(out.flush()?)
}

fn print_spec(out: &mut impl Write, spec: &OptionSpec, presets: &[String]) -> std::io::Result<()> {
    writeln!(out, "  {}", spec.name)?;
    let doc = spec.doc.split_whitespace().collect::<Vec<_>>();
    let mut line = String::from("     ");
    for word in doc {
        if line.len() + word.len() > 98 {
            writeln!(out, "{line}")?;
            line = String::from("     ");
        }
        line.push(' ');
        line.push_str(word);
    }
    writeln!(out, "{line}")?;
    write!(
        out,
        "      default {}; allowed: {}; a change holds from: {}",
        spec.default, spec.range, spec.changes
    )?;
    if !presets.is_empty() {
        write!(out, "; presets: {}", presets.join(", "))?;
    }
    writeln!(out, "\n")
}

fn spec_json(spec: &OptionSpec) -> Value {
    json!({ "name": spec.name, "default": spec.default, "allowed": spec.range, "changes": spec.changes, "doc": spec.doc.split_whitespace().collect::<Vec<_>>().join(" ") })
}
