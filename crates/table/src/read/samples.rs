//! Keys that divide a table into parts of about equal size, found without reading data.

use crate::format::frame::Handle;
use crate::read::block::Node;
use crate::read::entry_cursor::EntryCursor;
use crate::read::row_merge::{Loaded, lower_bound};
use crate::read::table::{Index, Table};
use base::{MAX_SEQ, Result, Trailer};

/// A key between entries of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The key. The first one of a table may be smaller than all its keys.
    pub key: Vec<u8>,
    /// Approximate bytes of the table from it to the next sample.
    pub bytes: f64,
}

/// A part of the index.
struct Part {
    sample: Sample,
    child: Handle,
}

impl Table {
    /// Keys in ascending order that divide the part of the table in `[from, to)` (`None`: to the end) into at least `wanted` pieces, if its index has so many.
    /// The first and the last piece may reach beyond the range.
    ///
    /// Cost: reads of index nodes, or of pages of rows, as many as have `wanted` entries.
    pub fn samples(&self, from: &[u8], to: Option<&[u8]>, wanted: usize) -> Result<Vec<Sample>> {
        let root = self.root()?;
        let data = root.footer.data_size as f64;
        let Index::Tree(node) = &root.index else { return self.samples_of_rows(from, to, wanted, data) };
        let is_inside = |parts: &[Part], i: usize| {
            let ends_before = parts.get(i + 1).is_some_and(|next| &next.sample.key[..] <= from);
            !ends_before && to.is_none_or(|to| &parts[i].sample.key[..] < to)
        };
        let mut parts = self.parts_of(node, data, root.footer.levels == 1)?;
        for level in 1..=root.footer.levels {
            let inside: Vec<usize> = (0..parts.len()).filter(|&i| is_inside(&parts, i)).collect();
            parts = inside.iter().map(|&i| std::mem::replace(&mut parts[i], Part::empty())).collect();
            if parts.len() >= wanted || level == root.footer.levels {
                break;
            }
            let mut below = Vec::new();
            for part in parts {
                let node = self.node(part.child)?;
                below.extend(self.parts_of(&node, part.sample.bytes, level + 1 == root.footer.levels)?);
            }
            parts = below;
        }
        Ok(parts.into_iter().map(|part| part.sample).collect())
    }

    /// The entries of an index node, which has so many bytes of data below it. `is_lowest`: its children are data blocks.
    fn parts_of(&self, node: &Node, bytes: f64, is_lowest: bool) -> Result<Vec<Part>> {
        let fault = |f| self.fault(f, node.offset);
        let mut at = EntryCursor::new();
        at.enter(&node.bytes, &node.layout);
        let count = node.layout.count();
        let part = |i| {
            at.move_to(&node.bytes, &node.layout, i).map_err(fault)?;
            let child = node.handle(i).map_err(fault)?;
            let bytes = if is_lowest { f64::from(child.size) } else { bytes / count as f64 };
            Ok(Part { sample: Sample { key: at.key().to_vec(), bytes }, child })
        };
        (0..count).map(part).collect()
    }

    /// The same in a size-class table: rows at equal distances in each class. The values are in the order of the keys.
    fn samples_of_rows(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        wanted: usize,
        data: f64,
    ) -> Result<Vec<Sample>> {
        let (mut inside, mut pages) = (Vec::new(), self);
        for (class, rows) in self.root()?.classes().iter().enumerate() {
            let mut row_at = |key| Ok(lower_bound(&mut pages, class, rows, key, Trailer::seek(MAX_SEQ))?.0);
            let begin = row_at(from)?;
            inside.push((class, rows, begin..to.map_or(Ok(rows.rows), row_at)?.max(begin)));
        }
        let all: u64 = inside.iter().map(|(_, _, numbers)| numbers.end - numbers.start).sum();
        let step = (all / wanted.max(1) as u64).max(1);
        let mut found = Vec::new();
        for (class, rows, numbers) in inside {
            let mut page: Option<Loaded> = None;
            for number in numbers.clone().step_by(step as usize) {
                let (at, i) = rows.place(number);
                let loaded = match page.take().filter(|page| page.number == at) {
                    Some(page) => page,
                    None => Loaded::load(&mut pages, class, rows, at)?,
                };
                let row = loaded.row(&pages, rows, i)?;
                let key = row.key().map_err(|f| self.fault(f, rows.handle(at).offset))?.to_vec();
                let value = row.value();
                let begin = (value.len > 0).then_some(value.block.offset as f64);
                let of_rows = (step.min(numbers.end - number) * rows.class.row_len() as u64) as f64;
                found.push((key, begin, of_rows));
                page = Some(loaded);
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        // Where a value ends, from the last one on: an empty value has no place, and a damaged row may name any. The last sample has as much as one
        // before it, because the values go on behind the range.
        let mut end = found.last().and_then(|last| last.1).unwrap_or(data);
        let mut samples: Vec<Sample> = Vec::with_capacity(found.len());
        for (key, begin, of_rows) in found.into_iter().rev() {
            let begin = begin.map_or(end, |begin| begin.min(end));
            samples.push(Sample { key, bytes: end - begin + of_rows });
            end = begin;
        }
        samples.reverse();
        if let [.., before, last] = &mut samples[..] {
            last.bytes = before.bytes;
        }
        Ok(samples)
    }
}

impl Part {
    fn empty() -> Part {
        Part { sample: Sample { key: Vec::new(), bytes: 0.0 }, child: Handle { offset: 0, size: 0 } }
    }
}
