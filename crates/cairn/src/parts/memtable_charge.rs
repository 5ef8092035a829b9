//! Read charges of a memtable: when it is due to be flushed because cursors skip its deleted entries.

use crate::sync::Ordering;
use memtable::Memtable;

/// The read charges at which a memtable is sealed and flushed.
pub(crate) fn price(memtable: &Memtable) -> u64 {
    tree::flush_price(memtable.used_bytes() as u64)
}

/// Whether reads have charged the memtable its price.
pub(crate) fn is_due(memtable: &Memtable) -> bool {
    !memtable.is_empty() && memtable.charges().load(Ordering::Relaxed) >= price(memtable)
}

/// Charges of a memtable beyond its price: they pass to its table.
pub(crate) fn surplus(memtable: &Memtable) -> u64 {
    memtable.charges().load(Ordering::Relaxed).saturating_sub(price(memtable))
}
