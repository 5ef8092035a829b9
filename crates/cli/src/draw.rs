//! Draws a tree as text: a bar for each level, a histogram of guard sizes, tables of counters.

use crate::db_files::Files;
use crate::text::{escape_short, human_bytes, human_count};
use cairn::{GuardInfo, IoStats, KeyspaceOptions, KeyspaceStats, LevelStats, Preset, Stats};
use std::io::{self, Write};

/// Maximum width of a bar, in characters.
const WIDTH: usize = 32;

/// A bar for `part` of `whole`, in eighths of a character. Any part above zero is visible.
fn bar(part: u64, whole: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if part == 0 || whole == 0 {
        return String::new();
    }
    let eighths = ((part as f64 / whole as f64) * (WIDTH * 8) as f64).round().max(1.0) as usize;
    let eighths = eighths.min(WIDTH * 8);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Prints name, options and memory of a keyspace.
pub fn keyspace(out: &mut impl Write, stats: &KeyspaceStats, options: &KeyspaceOptions) -> io::Result<()> {
    let preset = Preset::ALL
        .into_iter()
        .find(|p| KeyspaceOptions::preset(*p) == *options)
        .map_or_else(|| "own options".into(), |p| p.to_string());
    writeln!(
        out,
        "keyspace {:?} ({preset}, {}, {} tables per guard): {} in tables, {} in the memtable{}",
        stats.name,
        options.compression,
        options.max_tables_per_guard,
        human_bytes(stats.table_bytes),
        human_bytes(stats.memtable_bytes),
        match stats.immutable_memtables {
            0 => String::new(),
            n => format!(", {n} immutable memtables"),
        }
    )
}

/// Prints the levels, each with a bar of its bytes.
pub fn tree(out: &mut impl Write, levels: &[LevelStats]) -> io::Result<()> {
    let deepest = levels.iter().rposition(|l| l.tables > 0 || l.guards > 1).map_or(0, |at| at + 1);
    if deepest == 0 {
        return writeln!(out, "  no tables yet");
    }
    let largest = levels.iter().map(|l| l.bytes).max().unwrap_or(0);
    writeln!(
        out,
        "  {:<7} {:>8} {:>7} {:>8} {:>10} {:>12} {:>10}",
        "level", "guards", "empty", "tables", "bytes", "entries", "tombstones"
    )?;
    for level in &levels[..deepest] {
        let (guards, empty) = match level.level {
            0 => ("-".to_string(), "-".to_string()),
            _ => (human_count(level.guards as u64), human_count(level.empty_guards as u64)),
        };
        writeln!(
            out,
            "  level {:<1} {guards:>8} {empty:>7} {:>8} {:>10} {:>12} {:>10}  {}",
            level.level,
            human_count(level.tables as u64),
            human_bytes(level.bytes),
            human_count(level.entries),
            human_count(level.tombstones),
            bar(level.bytes, largest)
        )?;
    }
    Ok(())
}

/// Prints, for each level of guards, a histogram of guard sizes.
pub fn guard_sizes(out: &mut impl Write, guards: &[GuardInfo]) -> io::Result<()> {
    let levels = guards.iter().map(|g| g.level).max().unwrap_or(0);
    for level in 1..=levels {
        let sizes: Vec<u64> = guards
            .iter()
            .filter(|g| g.level == level && !g.tables.is_empty())
            .map(|g| g.tables.iter().map(|t| t.bytes).sum())
            .collect();
        if sizes.len() < 2 {
            continue;
        }
        writeln!(out, "  guards of level {level} by size")?;
        histogram(out, &sizes)?;
        tables_per_guard(out, level, guards)?;
    }
    Ok(())
}

/// Prints one row for each power of two between the smallest and the largest size.
fn histogram(out: &mut impl Write, sizes: &[u64]) -> io::Result<()> {
    let bucket = |size: u64| size.max(1).ilog2();
    let first = sizes.iter().copied().map(bucket).min().unwrap_or(0);
    let last = sizes.iter().copied().map(bucket).max().unwrap_or(0);
    let mut counts = vec![0u64; (last - first + 1) as usize];
    sizes.iter().for_each(|size| counts[(bucket(*size) - first) as usize] += 1);
    let most = counts.iter().copied().max().unwrap_or(0);
    for (i, count) in counts.iter().enumerate() {
        let from = human_bytes(1u64 << (first + i as u32));
        writeln!(out, "    from {from:>10} {:>8}  {}", human_count(*count), bar(*count, most))?;
    }
    Ok(())
}

fn tables_per_guard(out: &mut impl Write, level: usize, guards: &[GuardInfo]) -> io::Result<()> {
    let mut counts = std::collections::BTreeMap::<usize, u64>::new();
    guards.iter().filter(|g| g.level == level).for_each(|g| *counts.entry(g.tables.len()).or_default() += 1);
    let list: Vec<String> =
        counts.iter().map(|(n, guards)| format!("{n}: {}", human_count(*guards))).collect();
    writeln!(out, "    guards by number of tables   {}", list.join("  "))
}

/// Prints all guards with their tables.
pub fn guard_list(out: &mut impl Write, guards: &[GuardInfo]) -> io::Result<()> {
    for guard in guards {
        let name = match (guard.level, guard.key.is_empty()) {
            (0, _) => "the newest tables".to_string(),
            (_, true) => "from the first key".to_string(),
            _ => format!("from \"{}\"", escape_short(&guard.key, 48)),
        };
        let bytes: u64 = guard.tables.iter().map(|t| t.bytes).sum();
        writeln!(
            out,
            "  level {} {name}: {} tables, {}",
            guard.level,
            guard.tables.len(),
            human_bytes(bytes)
        )?;
        for table in &guard.tables {
            writeln!(
                out,
                "    table {:>6} {:>10} {:>10} entries {:>8} tombstones  \"{}\" to \"{}\"",
                table.number,
                human_bytes(table.bytes),
                human_count(table.entries),
                human_count(table.tombstones),
                escape_short(&table.smallest, 32),
                escape_short(&table.largest, 32)
            )?;
        }
    }
    Ok(())
}

/// Prints the files on disk by kind.
pub fn files(out: &mut impl Write, files: &Files) -> io::Result<()> {
    let total: u64 = files.values().map(|(bytes, _)| bytes).sum();
    writeln!(out, "files on disk: {}", human_bytes(total))?;
    for (kind, (bytes, count)) in files {
        let s = if *count == 1 { " " } else { "s" };
        writeln!(
            out,
            "  {kind:<12} {:>8} file{s} {:>10}  {}",
            human_count(*count),
            human_bytes(*bytes),
            bar(*bytes, total)
        )?;
    }
    Ok(())
}

/// Prints the counters of the database since it was opened.
pub fn counters(out: &mut impl Write, stats: &Stats) -> io::Result<()> {
    writeln!(
        out,
        "{} writes of {}, newest sequence number {}, {} snapshots held",
        human_count(stats.user_writes),
        human_bytes(stats.user_bytes),
        human_count(stats.last_seq),
        stats.snapshots
    )?;
    written(out, stats)?;
    let (cache, filter, memory, stalls) = (&stats.cache, &stats.filter, &stats.memory, &stats.stalls);
    writeln!(
        out,
        "  cache    {} of {}; hits: data {}, index {}, filters {}; {} read",
        human_bytes(cache.used_bytes),
        human_bytes(cache.capacity),
        share(cache.data_hits, cache.data_misses),
        share(cache.index_hits, cache.index_misses),
        share(cache.filter_hits, cache.filter_misses),
        human_bytes(cache.bytes_read)
    )?;
    writeln!(
        out,
        "  filters  {} probes, {} tables skipped, {} false positives",
        human_count(filter.probes),
        human_count(filter.useful),
        human_count(filter.false_positives)
    )?;
    writeln!(
        out,
        "  memory   {} memtables + {} cache + {} metadata; budget {}",
        human_bytes(memory.memtables),
        human_bytes(memory.cache),
        human_bytes(memory.metadata),
        human_bytes(memory.budget)
    )?;
    if memory.pinned > 0 {
        writeln!(
            out,
            "           {} of flushed memtables that {} cursors hold; the oldest reader is {:.1} s old",
            human_bytes(memory.pinned),
            human_count(stats.cursors as u64),
            stats.oldest_reader_seconds
        )?;
    }
    writeln!(
        out,
        "  stalls   {} slowdowns ({:.2} s), {} waits for a memtable ({:.2} s), longest {:.3} s{}",
        human_count(stalls.slowdowns),
        stalls.slowdown_seconds,
        human_count(stalls.memtable_waits),
        stalls.memtable_wait_seconds,
        stalls.longest_seconds,
        stalls.last_reason.as_ref().map_or(String::new(), |why| format!("; the last one: {why}"))
    )?;
    if let Some(error) = &stats.background_error {
        writeln!(out, "  WRITES ARE DISABLED: {error}")?;
    }
    for problem in &stats.damage {
        writeln!(out, "  DAMAGED  {problem}")?;
    }
    Ok(())
}

/// Prints the bytes written: log, flush, compaction into each level, manifest.
fn written(out: &mut impl Write, stats: &Stats) -> io::Result<()> {
    let total = stats.bytes_written();
    let jobs = |io: &IoStats| format!("{} jobs, {:.2} s", human_count(io.jobs), io.seconds);
    writeln!(
        out,
        "  written  {} (write amplification {:.2})",
        human_bytes(total),
        stats.write_amplification
    )?;
    let mut row = |name: &str, bytes: u64, note: String| {
        writeln!(
            out,
            "    {name:<20} {:>10}  {:<w$} {note}",
            human_bytes(bytes),
            bar(bytes, total),
            w = WIDTH
        )
    };
    row("log", stats.log.bytes_written, format!("{} syncs", human_count(stats.log.syncs)))?;
    row("flush", stats.flush.bytes_written, jobs(&stats.flush))?;
    let levels = stats.keyspaces.iter().map(|k| k.levels.len()).max().unwrap_or(0);
    for level in 0..levels {
        let mut io = IoStats::default();
        stats.keyspaces.iter().filter_map(|k| k.levels.get(level)).for_each(|l| io += l.compactions);
        if io.jobs > 0 {
            let note = format!("{}, {} read", jobs(&io), human_bytes(io.bytes_read));
            row(&format!("compaction, level {level}"), io.bytes_written, note)?;
        }
    }
    row("manifest", stats.manifest_bytes, String::new())
}

fn share(hits: u64, misses: u64) -> String {
    match hits + misses {
        0 => "-".into(),
        all => format!("{:.1}% of {}", hits as f64 * 100.0 / all as f64, human_count(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn::TableInfo;

    fn text(draw: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        draw(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn bars() {
        assert_eq!((bar(0, 9).as_str(), bar(1, 1_000_000).as_str(), bar(5, 0).as_str()), ("", "▏", ""));
        assert_eq!((bar(9, 9).chars().count(), bar(20, 9).chars().count()), (WIDTH, WIDTH));
        assert_eq!(bar(1, 2), "█".repeat(WIDTH / 2));
    }

    #[test]
    fn levels_are_shown_down_to_the_deepest() {
        let level = |level, guards, bytes| {
            let mut stats = LevelStats::default();
            (stats.level, stats.guards, stats.tables, stats.bytes) = (level, guards, guards, bytes);
            stats
        };
        let levels = [level(0, 1, 100), level(1, 1, 0), level(2, 1500, 1 << 20), level(3, 0, 0)];
        let drawing = text(|out| tree(out, &levels));
        assert_eq!(drawing.lines().count(), 4, "{drawing}");
        let last = drawing.lines().last().unwrap();
        assert!(
            last.contains("1,500") && last.contains("1.0 MiB") && last.ends_with(&"█".repeat(WIDTH)),
            "{last}"
        );
        assert!(text(|out| tree(out, &[])).contains("no tables"));
    }

    #[test]
    fn guards_fall_into_buckets() {
        let table = |bytes: &u64| {
            let mut table = TableInfo::default();
            (table.number, table.bytes, table.entries) = (1, *bytes, 2);
            (table.smallest, table.largest) = ("a\n".into(), "b".into());
            table
        };
        let guard = |key: &str, bytes: &[u64]| {
            let mut guard = GuardInfo::default();
            (guard.level, guard.key) = (1, key.into());
            guard.tables = bytes.iter().map(table).collect();
            guard
        };
        let guards = [guard("", &[1000]), guard("b", &[600, 424]), guard("c", &[3000]), guard("d", &[])];
        let drawing = text(|out| guard_sizes(out, &guards));
        let rows: Vec<&str> = drawing.lines().filter(|l| l.contains("from ")).collect();
        assert_eq!(rows.len(), 3, "{drawing}"); // from 512, 1024 and 2048 bytes
        assert!(drawing.contains("0: 1  1: 2  2: 1"), "{drawing}");
        let list = text(|out| guard_list(out, &guards));
        assert!(list.contains("from the first key") && list.contains("\"a\\n\" to \"b\""), "{list}");
    }
}
