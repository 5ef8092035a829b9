//! All options at their bounds, and one step beyond.

use super::case::Bounds;
use crate::finding::{Finding, Outcome, ensure};
use crate::machine::load::Load;
use crate::random::{Draw, Rng};
use crate::sets::PLACEMENTS;
use cairn::{Database, Durability, ErrorKind, KeyspaceOptions, Options, Retention, TableFormat, Ttl};
use std::path::Path;

/// A numeric option: its bounds as text, and values beyond them, if any.
type Row = (&'static str, [&'static str; 2], &'static [&'static str]);

const DATABASE: &[Row] = &[
    ("memory_budget", ["1048576", "1099511627776"], &["1048575", "1099511627777", "0"]),
    ("background_threads", ["0", "64"], &["65", "-1"]),
    ("log_cap", ["65536", "1099511627776"], &["65535", "1099511627777"]),
    ("manifest_cap", ["1024", "1073741824"], &["1023", "1073741825"]),
    ("compaction_rate", ["0", "18446744073709551615"], &["18446744073709551616"]),
    ("value_garbage_percent", ["1", "90"], &["0", "91"]),
    ("scrub_rate", ["0", "18446744073709551615"], &["-1"]),
    ("disk_reserve", ["0", "1099511627776"], &["1099511627777"]),
    ("max_open_files", ["16", "18446744073709551615"], &["1", "15"]),
    ("dead_range_entries", ["0", "1000000"], &["1000001", "-1"]),
];

const KEYSPACE: &[Row] = &[
    ("block_size", ["128", "1048576"], &["127", "1048577"]),
    ("filter_bits_per_key", ["0", "32"], &["33"]),
    ("memtable_bytes", ["4096", "2147483648"], &["4095", "2147483649"]),
    ("level0_tables", ["1", "64"], &["0", "65"]),
    ("levels", ["1", "15"], &["0", "16"]),
    ("max_tables_per_guard", ["1", "64"], &["0", "65"]),
    ("top_level_bits", ["1", "60"], &["0", "61"]),
    ("bit_decrement", ["0", "16"], &["17"]),
    ("level_size_percent", ["0", "1000"], &["1001"]),
    ("seek_cost", ["0", "4294967295"], &["4294967296"]),
    ("last_level_merge_factor", ["1", "1000"], &["0", "1001"]),
    ("tombstone_percent", ["0", "100"], &["101"]),
    ("space_target", ["1.05", "10"], &["1.04", "10.1", "NaN"]),
    ("history", ["none", "all"], &["versions(0)", "age(0s)", "old"]),
    ("ttl", ["none", "200000000d"], &["0s", "213503983d", "soon"]),
    ("merge", ["none", "append"], &["", "a b", "u64 add"]),
    ("large_up_to", ["0", "1"], &["-0.1", "1.1", "NaN"]),
];

/// Number of records written.
const RECORDS: usize = 400;

fn bound(row: &Row, bounds: Bounds, rng: &mut Rng) -> &'static str {
    match bounds {
        Bounds::Lower => row.1[0],
        Bounds::Upper => row.1[1],
        Bounds::Mixed => row.1[usize::from(rng.chance(1, 2))],
    }
}

/// Sets each option to its bound, and tries values beyond it. Returns the number of rejected values.
fn at_bounds(
    rows: &[Row],
    bounds: Bounds,
    rng: &mut Rng,
    mut set: impl FnMut(&str, &str) -> cairn::Result<()>,
) -> Outcome<u64> {
    let mut refused = 0;
    for row in rows {
        set(row.0, bound(row, bounds, rng))?;
        for beyond in row.2 {
            let Err(error) = set(row.0, beyond) else {
                return Err(Finding::new(format!("option {} takes {beyond}", row.0)));
            };
            let named = error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(row.0);
            ensure!(named, "option {}, set to {beyond}: {error:?}", row.0);
            refused += 1;
        }
    }
    Ok(refused)
}

/// Runs a workload with all options at their bounds. Returns the number of rejected values.
pub fn run(dir: &Path, seed: u64, bounds: Bounds) -> Outcome<u64> {
    let mut rng = Rng::new(seed);
    let (mut options, mut keyspace) = (Options::default(), KeyspaceOptions::default());
    let mut refused = at_bounds(DATABASE, bounds, &mut rng, |name, value| options.set(name, value))?;
    refused += at_bounds(KEYSPACE, bounds, &mut rng, |name, value| keyspace.set(name, value))?;
    if keyspace.history != Retention::None {
        // Not both.
        keyspace.ttl = Ttl::None;
    }
    keyspace.placement = *rng.pick(&PLACEMENTS);
    keyspace.table_format = *rng.pick(&[TableFormat::BTree, TableFormat::SizeClass]);
    let mut load = Load::new(seed, 0, Durability::Os, (0, 4000));
    for reopened in [false, true] {
        let place = |f: Finding| f.context(format_args!("{options:?}, {keyspace:?}"));
        live(dir, &options, &keyspace, &mut load, reopened).map_err(place)?;
    }
    Ok(refused)
}

fn live(
    dir: &Path,
    options: &Options,
    keyspace: &KeyspaceOptions,
    load: &mut Load,
    reopened: bool,
) -> Outcome {
    let db = Database::open_with(dir, options.clone()).map_err(|e| Finding::from(e).context("open"))?;
    let space = db.keyspace("k", keyspace.clone()).map_err(|e| Finding::from(e).context("keyspace"))?;
    if reopened {
        load.verify(&space)?;
    }
    for record in 0..RECORDS {
        load.put(&space)?;
        if record % 100 == 99 {
            db.flush()?;
        }
    }
    load.numbers().into_iter().step_by(7).try_for_each(|number| load.delete(&space, number))?;
    load.verify(&space)?;
    space.compact()?;
    db.wait_idle()?;
    load.verify(&space)?;
    let mut backward = space.iter().rev().collect::<cairn::Result<Vec<_>>>()?;
    backward.reverse();
    ensure!(backward == space.iter().collect::<cairn::Result<Vec<_>>>()?, "P3: scans differ");
    let report = db.check(&mut |_| {})?;
    ensure!(report.problems.is_empty(), "P3: check finds {:?}", report.problems);
    drop(space);
    Ok(db.close()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options that are not numeric.
    const CHOICES: [&str; 9] = [
        "engine",
        "durability",
        "create_if_missing",
        "compression",
        "guard_policy",
        "guards_by_size",
        "skip_levels",
        "placement",
        "table_format",
    ];

    /// A new option needs bounds here.
    #[test]
    fn every_option_is_tried() {
        let specs = Options::specs().into_iter().chain(KeyspaceOptions::specs());
        for name in specs.map(|spec| spec.name) {
            let tried = DATABASE.iter().chain(KEYSPACE).any(|row| row.0 == name) || CHOICES.contains(&name);
            assert!(tried, "option {name} has no bounds here");
        }
    }
}
