//! The allocator of the fuzz targets: the operating system's, with a count of what is held, so that a length which was believed
//! before it was checked shows at once and not only on a small machine.

use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Runs `body`, which must never hold more than `most` bytes beyond what is held now. One thread at a time.
pub(crate) fn within<T>(name: &str, most: usize, body: impl FnOnce() -> T) -> T {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let result = body();
    let held = MEMORY.peak_usage().saturating_sub(before);
    assert!(held <= most, "{name}: {held} bytes were held at once, where {most} are enough");
    result
}
