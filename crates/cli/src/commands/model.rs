//! `model`: predicts what a store reads and writes, by where it puts values.

use crate::failure::{Failure, Result};
use crate::output::{print_json, stdout};
use bench::model::{Class, Merge, Place, Shape, Sizes, Traffic, hybrid, traffic, waiting_share};
use serde_json::{Value, json};
use std::io::Write;

const EXAMPLES: &str = "\
Examples:
  cairn model --sizes 24:9 24:104 24:1004
  cairn model --sizes '24:9*60' '24:104*20' '24:1004*20' --levels 4 --growth 10 --log
  cairn model --sizes 16:4KiB --guard-tables 4 --json

It computes the equations of the thesis of Parallax, without a database: bytes written (W), and read and written (I/O), for
each byte of records, until all of them have reached the last level. `leveled` merges a level with the whole of the next;
`fragmented` attaches tables to the guards of the next level, and merges only guards of the last one (PebblesDB).
Hybrid placement has values of small records in place, of medium ones in transient segments until the last levels, and of
large ones in a log. What the collection of garbage adds is not in the model. p is exact here: the thesis rounds it to two
digits, so its threshold of 0.02 for large records, which have 24 and 1,004 bytes (p = 0.0233), is 0.025 here.";

/// Arguments of `model`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ModelArgs {
    /// Bytes of key and value, and how many of 100 (or any sum of) records have these sizes; sizes may have units
    #[arg(long, value_name = "KEY:VALUE[*COUNT]", required = true, num_args = 1.., value_parser = parse_sizes)]
    sizes: Vec<(Sizes, u32)>,
    /// Levels on the disk
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=16))]
    levels: u32,
    /// Size of a level as a multiple of the one before
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(2..=1000))]
    growth: u32,
    /// Tables of a guard of the last level that are merged (fragmented)
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(2..=1000))]
    guard_tables: u32,
    /// Records with a greater share of the key have their values in place
    #[arg(long, value_name = "P", default_value = "0.2", value_parser = parse_share)]
    small_above: f64,
    /// Records with at most this share of the key have their values in a log
    #[arg(long, value_name = "P", default_value = "0.025", value_parser = parse_share)]
    large_up_to: f64,
    /// From which level on medium values are in place: the last, or the last but one
    #[arg(long, value_enum, default_value = "last")]
    transient_merge: Last,
    /// Bytes of a reference to a value; the thesis has 0
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u32).range(..=1024))]
    reference: u32,
    /// Count the recovery log of values that are not in the value log; the thesis does not
    #[arg(long)]
    log: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum Last {
    Last,
    LastButOne,
}

fn parse_share(text: &str) -> std::result::Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is not a share: write a number from 0 to 1"))
}

fn parse_sizes(text: &str) -> std::result::Result<(Sizes, u32), String> {
    let size = |text: &str| {
        let bytes = crate::text::parse_size(text)?;
        u32::try_from(bytes).map_err(|_| format!("{text:?} is more than 4 GiB"))
    };
    let (sizes, count) = text.split_once('*').unwrap_or((text, "1"));
    let (key, value) = sizes
        .split_once(':')
        .ok_or_else(|| format!("{text:?} has no colon: write KEY:VALUE, such as 24:1004"))?;
    let count = count.parse().ok().filter(|count| (1..=1_000_000).contains(count));
    let count =
        count.ok_or_else(|| format!("{text:?}: the count after * is a number from 1 to 1,000,000"))?;
    let sizes = Sizes { key: size(key)?, value: size(value)? };
    if sizes.record() == 0.0 {
        return Err(format!("{text:?} is an empty record"));
    }
    Ok((sizes, count))
}

/// The columns: a merge, and a placement.
const COLUMNS: [(Merge, &str, &str); 6] = [
    (Merge::Leveled, "leveled", "in place"),
    (Merge::Leveled, "leveled", "separated"),
    (Merge::Leveled, "leveled", "hybrid"),
    (Merge::Fragmented, "fragmented", "in place"),
    (Merge::Fragmented, "fragmented", "separated"),
    (Merge::Fragmented, "fragmented", "hybrid"),
];

/// A row of the table: records of one size, or all.
struct Row {
    name: String,
    /// p and the class, of one size.
    class: Option<(f64, Class)>,
    columns: [Traffic; COLUMNS.len()],
}

fn rows(args: &ModelArgs, shape: &Shape, last: u32) -> Vec<Row> {
    let mut all = Row { name: "all".into(), class: None, columns: Default::default() };
    let mut rows = Vec::new();
    let bytes = |(sizes, count): &(Sizes, u32)| sizes.record() * f64::from(*count);
    let total: f64 = args.sizes.iter().map(bytes).sum();
    for one in &args.sizes {
        let (sizes, share) = (one.0, bytes(one) / total);
        let class = sizes.class(args.small_above, args.large_up_to);
        let columns = COLUMNS.map(|(merge, _, placement)| {
            let place = match placement {
                "in place" => Place::Tree,
                "separated" => Place::Log,
                _ => hybrid(class, last),
            };
            traffic(shape, merge, place, sizes)
        });
        for (sum, one) in all.columns.iter_mut().zip(&columns) {
            sum.read += one.read * share;
            sum.written += one.written * share;
        }
        let name = format!("{}:{}*{}", sizes.key, sizes.value, one.1);
        rows.push(Row { name, class: Some((sizes.ratio(), class)), columns });
    }
    rows.push(all);
    rows
}

/// Prints the predictions.
pub fn model(args: ModelArgs) -> Result<()> {
    if args.large_up_to > args.small_above {
        return Err(Failure::usage("--large-up-to must not exceed --small-above"));
    }
    let shape = Shape {
        levels: args.levels,
        growth: args.growth,
        guard_tables: args.guard_tables,
        reference: args.reference,
        log: args.log,
    };
    let last = match args.transient_merge {
        Last::Last => 1,
        Last::LastButOne => 2,
    };
    let rows = rows(&args, &shape, last);
    let waiting = waiting_share(&shape, last);
    let mut out = stdout();
    match args.json {
        true => print_json(&mut out, &as_json(&rows, waiting))?,
        false => print(&mut out, &rows, waiting, last)?,
    }
    Ok(out.flush()?)
}

fn name_of(class: Class) -> &'static str {
    match class {
        Class::Small => "small",
        Class::Medium => "medium",
        Class::Large => "large",
    }
}

fn print(out: &mut impl Write, rows: &[Row], waiting: f64, last: u32) -> std::io::Result<()> {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(9);
    write!(out, "{:width$}  {:>6}  {:6}", "", "", "")?;
    COLUMNS.iter().try_for_each(|(_, merge, _)| write!(out, "  {merge:>13}"))?;
    write!(out, "\n{:width$}  {:>6}  {:6}", "key:value", "p", "class")?;
    COLUMNS.iter().try_for_each(|(_, _, placement)| write!(out, "  {placement:>13}"))?;
    write!(out, "\n{:width$}  {:>6}  {:6}", "", "", "")?;
    COLUMNS.iter().try_for_each(|_| write!(out, "  {:>6} {:>6}", "W", "I/O"))?;
    writeln!(out)?;
    for row in rows {
        match row.class {
            Some((p, class)) => write!(out, "{:width$}  {p:>6.4}  {:6}", row.name, name_of(class))?,
            None => write!(out, "{:width$}  {:>6}  {:6}", row.name, "", "")?,
        }
        row.columns.iter().try_for_each(|t| write!(out, "  {:>6.1} {:>6.1}", t.written, t.io()))?;
        writeln!(out)?;
    }
    let level = if last == 1 { "the last level" } else { "the last level but one" };
    writeln!(
        out,
        "\nMedium values are merged in place at {level}: up to {:.1} % of them wait in transient segments.",
        waiting * 100.0
    )
}

fn as_json(rows: &[Row], waiting: f64) -> Value {
    let row = |row: &Row| {
        let mut object = json!({ "sizes": row.name });
        if let Some((p, class)) = row.class {
            object["p"] = p.into();
            object["class"] = name_of(class).into();
        }
        for ((_, merge, placement), t) in COLUMNS.iter().zip(&row.columns) {
            object[*merge][placement.replace(' ', "_")] =
                json!({ "read": t.read, "written": t.written, "io": t.io() });
        }
        object
    };
    json!({ "rows": rows.iter().map(row).collect::<Vec<_>>(), "waiting_share": waiting })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_or_refused() {
        assert_eq!(parse_sizes("24:1004*20"), Ok((Sizes { key: 24, value: 1004 }, 20)));
        assert_eq!(parse_sizes("16:4KiB"), Ok((Sizes { key: 16, value: 4096 }, 1)));
        for wrong in ["24", "24:", ":9", "0:0", "1:1*0", "1:1*x", "1:5G", "a:b", "1:2:3", ""] {
            assert!(parse_sizes(wrong).is_err(), "{wrong}");
        }
        assert!(["0", "1", "0.02"].map(parse_share).iter().all(|share| share.is_ok()));
        assert!(["-1", "1.1", "NaN", "x"].map(parse_share).iter().all(|share| share.is_err()));
    }
}
