//! Capacity of memtables, and when one is due to be flushed because cursors skip its deleted entries.
//!
//! Very many keyspaces may each have a little in memory, so a memtable starts small; when it is full it is copied into one of sixteen
//! times the capacity. The last step is larger: all copies made before a memtable reaches its full size add up to less than a seventh of
//! that size.

use crate::sync::Ordering;
use base::Result;
use memtable::{MIN_CAPACITY, Memtable, Order, SpareMemory};
use std::sync::Arc;

/// Factor from one capacity to the next.
const STEP: usize = 16;

/// A memtable larger than the full size divided by this gets the full size.
const PART: usize = 8;

/// The capacity of a memtable that must hold `need` bytes now and has `full` at its full size.
pub(crate) fn capacity_for(full: usize, need: usize) -> usize {
    let mut capacity = MIN_CAPACITY;
    while capacity < need && capacity <= full / PART {
        capacity *= STEP;
    }
    if capacity > full / PART { full.max(need) } else { capacity }
}

/// Allocates a memtable of `capacity` bytes; when memory is short a smaller one, of at least `need` bytes. In the order of keys if the
/// keyspace has one.
pub(crate) fn allocate(
    mut capacity: usize,
    need: usize,
    has_order: bool,
    spare: &Arc<SpareMemory>,
) -> Result<Arc<Memtable>> {
    let order = if has_order { Order::Key } else { Order::Hash };
    loop {
        let mut made = Memtable::try_new_in(capacity, order, spare);
        if made.is_err() && spare.bytes() > 0 {
            spare.clear();
            made = Memtable::try_new_in(capacity, order, spare);
        }
        match smaller(capacity, need) {
            Some(less) if made.is_err() => capacity = less,
            _ => return made,
        }
    }
}

/// The next smaller capacity that holds `need` bytes, if there is one.
fn smaller(capacity: usize, need: usize) -> Option<usize> {
    let less = (capacity / STEP).max(need).max(MIN_CAPACITY);
    (less < capacity).then_some(less)
}

/// The read charges at which a memtable is sealed and flushed.
pub(crate) fn price(memtable: &Memtable) -> u64 {
    tree::flush_price(memtable.used_bytes() as u64)
}

/// Whether reads have charged the memtable its price.
pub(crate) fn is_due(memtable: &Memtable) -> bool {
    !memtable.is_empty() && memtable.charges().load(Ordering::Relaxed) >= price(memtable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memtables_grow_in_steps_up_to_the_full_size_and_beyond_for_a_large_batch() {
        let full = 64 << 20;
        for (need, capacity) in [
            (1, 4 << 10),
            (4 << 10, 4 << 10),
            ((4 << 10) + 1, 64 << 10),
            (1 << 20, 1 << 20),
            ((1 << 20) + 1, full),
            (full, full),
            (full + 1, full + 1),
        ] {
            assert_eq!(capacity_for(full, need), capacity, "{need}");
        }
        assert_eq!((capacity_for(4 << 10, 1), capacity_for(16 << 10, 1)), (4 << 10, 16 << 10));
        assert_eq!((capacity_for(32 << 10, 1), capacity_for(32 << 10, 5000)), (4 << 10, 32 << 10));
    }

    #[test]
    fn where_memory_is_short_smaller_ones_are_tried_that_hold_what_is_needed() {
        let mut capacities = vec![64 << 20];
        while let Some(less) = smaller(capacities[capacities.len() - 1], 100) {
            capacities.push(less);
        }
        assert_eq!(capacities, [64 << 20, 4 << 20, 256 << 10, 16 << 10, 4 << 10]);
        assert_eq!((smaller(64 << 20, 5 << 20), smaller(5 << 20, 5 << 20)), (Some(5 << 20), None));
    }
}
