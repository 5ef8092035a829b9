//! The command line.

use super::text::{Limit, parse_limit, parse_size};
use bench::engine::RequestedSettings;
use bench::papers::{self, Paper};
use bench::suite::{Group, Scale, family_of};
use clap::{Parser, Subcommand};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cairn-bench run --quick                                       all groups at small sizes: a functional test
  cairn-bench run --engines cairn,rocksdb --groups ycsb         at full size; takes hours
  cairn-bench run --workloads readrandom,seekrandom --rounds 1
  cairn-bench report bench-results/*/results.jsonl --out page   several runs in one report
  cairn-bench list

Exit codes:
  0    done
  1    engines disagree about the contents, or one of them failed
  2    wrong usage
  5    the system failed: an I/O error, a full disk
  130  interrupted";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "cairn-bench",
    version,
    about = "Runs the same workloads on Cairn and its peers, side by side"
)]
#[command(after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run workloads and write a report
    Run(Box<RunArgs>),
    /// Write a report of existing results
    Report(ReportArgs),
    /// List engines, groups and workloads
    List(ListArgs),
    /// Run one group on one engine; started by `run`
    #[command(hide = true)]
    Child,
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Engines, by name [default: all that are built in, of Cairn only the preset balanced; for histories, those that keep versions or have the time
    /// in the key]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub engines: Vec<String>,
    /// Groups of workloads, or families of groups [default: all but those that run only when they are named]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub groups: Vec<String>,
    /// In each group, run only the fill and these workloads [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub workloads: Vec<String>,
    /// Sizes: quick (minutes, in memory) or full (hours, larger than the memory limit)
    #[arg(long, default_value_t)]
    pub scale: Scale,
    /// The same as --scale quick
    #[arg(long, conflicts_with = "scale")]
    pub quick: bool,
    /// Factor for the numbers of keys and operations
    #[arg(long, value_name = "F")]
    pub factor: Option<f64>,
    /// How many times to run everything; reports show medians [default: 1 for quick, 3 for full]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Memory limit of each engine including its page cache, or none [default: none for quick, 2GiB for full]
    #[arg(long, value_name = "SIZE", value_parser = parse_limit)]
    pub memory_limit: Option<Limit>,
    /// Directory for the databases; one exists at a time and is removed after its use [default: `db` in --out]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Directory for results and report [default: bench-results/DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Append to the results in --out
    #[arg(long, requires = "out")]
    pub append: bool,
    /// Number of the first round: with --append, a further round of the same workloads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub first_round: u32,
    /// Write only results, no report
    #[arg(long)]
    pub no_report: bool,
    /// Also write a short report in Markdown to this directory, in place of an earlier one: README.md, tables.md, a
    /// few pictures; with `--groups papers`, or the groups of one paper, the page of the papers' experiments
    #[arg(long, value_name = "DIR")]
    pub page: Option<PathBuf>,
    #[command(flatten)]
    pub requested: SettingsArgs,
    /// The same seed gives the same operations
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// Time limit of a workload in seconds, without settling; the workload is cut short after it [default: 3 for
    /// quick, 240 for full]
    #[arg(long, value_name = "S")]
    pub seconds_max: Option<f64>,
    /// Time limit of a group on an engine in seconds; the engine has failed after it [default: depends on the
    /// workloads]
    #[arg(long, alias = "turn-seconds-max", value_name = "S")]
    pub group_seconds_max: Option<f64>,
    /// Read and compare the contents of the databases after writing workloads
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub verify: bool,
    /// How long to wait, at most, until other processes leave the processors idle, in seconds
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    pub wait_seconds: f64,
}

/// Settings requested of every engine.
#[derive(Debug, clap::Args)]
pub struct SettingsArgs {
    /// Size of a memtable
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    pub memtable_bytes: u64,
    /// Size of the block cache
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size)]
    pub cache_bytes: u64,
    /// Number of threads that flush and compact
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub background_threads: u16,
    /// Filter bits per key
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub filter_bits: u32,
}

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Results files
    #[arg(required = true, value_name = "RESULTS.jsonl")]
    pub results: Vec<PathBuf>,
    /// Directory for the report
    #[arg(long, value_name = "DIR", required_unless_present = "page")]
    pub out: Option<PathBuf>,
    /// Write a short report in Markdown to this directory, in place of an earlier one: README.md, tables.md, a few
    /// pictures
    #[arg(long, value_name = "DIR")]
    pub page: Option<PathBuf>,
    /// With --page: write the page of the papers' experiments
    #[arg(long, requires = "page")]
    pub papers: bool,
}

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Show the sizes of this scale
    #[arg(long, default_value_t)]
    pub scale: Scale,
    /// Also show the settings of each engine
    #[arg(long)]
    pub settings: bool,
    #[command(flatten)]
    pub requested: SettingsArgs,
}

impl RunArgs {
    /// The scale.
    pub fn scale(&self) -> Scale {
        if self.quick { Scale::Quick } else { self.scale }
    }

    /// The papers whose experiments it repeats, each on the engines that the experiment is about; none if other groups are named.
    pub fn papers(&self) -> &'static [Paper] {
        match &self.groups[..] {
            [name] => papers::named(name),
            _ => &[],
        }
    }

    /// Whether groups are named, all of one family.
    pub fn is_of_family(&self, family: &str) -> bool {
        !self.groups.is_empty() && self.groups.iter().all(|name| family_of(name) == family)
    }

    /// Number of rounds.
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(match self.scale() {
            Scale::Quick => 1,
            Scale::Full => 3,
        })
    }

    /// Memory limit of an engine including its page cache.
    pub fn memory_limit_bytes(&self) -> Option<u64> {
        match (self.memory_limit, self.scale()) {
            (Some(Limit(limit)), _) => limit,
            (None, Scale::Quick) => None,
            (None, Scale::Full) => Some(2 << 30),
        }
    }
}

impl SettingsArgs {
    /// The settings for a group.
    pub fn of(&self, group: &Group) -> RequestedSettings {
        RequestedSettings {
            memtable_bytes: group.memtable_bytes.unwrap_or(self.memtable_bytes),
            cache_bytes: self.cache_bytes,
            background_threads: usize::from(self.background_threads),
            filter_bits_per_key: self.filter_bits,
            data_bytes_max: group.data_bytes_max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::suite::{Adjust, groups};
    use bench::workload::Workload;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// The names of groups state the ratio of their data to the default memory limit.
    #[test]
    fn data_are_as_large_beside_memory_as_groups_say() {
        let Command::Run(args) = Cli::parse_from(["cairn-bench", "run"]).command else { panic!() };
        let limit = args.memory_limit_bytes().unwrap() as f64;
        let groups = groups(args.scale(), &Adjust::default());
        for (name, times) in [
            ("dbbench-128", 1.5..1.55),
            ("dbbench-128-memory", 0.2..0.4),
            ("dbbench-128-4x", 4.0..4.1),
            ("dbbench-1024", 2.0..3.0),
            ("readwhilewriting-1024", 2.7..2.9),
        ] {
            let group = groups.iter().find(|group| group.name == name).unwrap();
            let ratio = group.num as f64 * (group.key_size as f64 + group.sizes.mean()) / limit;
            assert!(times.contains(&ratio), "{name}: {ratio:.2} times the limit");
            let fill = &group.steps[0];
            assert_eq!(
                (fill.workload, fill.ops, fill.num),
                (Workload::FillRandom, group.num, group.num),
                "{name}"
            );
        }
    }

    /// The defaults of the command line are those of the library.
    #[test]
    fn defaults_are_the_librarys() {
        let group = &groups(Scale::Quick, &Adjust::default())[0];
        let Command::Run(args) = Cli::parse_from(["cairn-bench", "run", "--quick"]).command else { panic!() };
        assert_eq!(args.requested.of(group), RequestedSettings::new(group));
        assert_eq!((args.scale(), args.rounds(), args.memory_limit_bytes()), (Scale::Quick, 1, None));
        let Command::Run(args) = Cli::parse_from(["cairn-bench", "run", "--memory-limit", "1GiB"]).command
        else {
            panic!()
        };
        assert_eq!((args.scale(), args.rounds(), args.memory_limit_bytes()), (Scale::Full, 3, Some(1 << 30)));
    }
}
