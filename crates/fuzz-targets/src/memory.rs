//! The allocator of the fuzz targets: the system allocator with a count of held bytes. It reveals a length that was
//! trusted before it was checked, independent of the memory of the machine.

use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Runs `body`, which must not hold more than `most` bytes beyond those held now. For one thread at a time.
pub(crate) fn within<T>(name: &str, most: usize, body: impl FnOnce() -> T) -> T {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let result = body();
    let held = MEMORY.peak_usage().saturating_sub(before);
    assert!(held <= most, "{name}: {held} bytes were held at once; the limit is {most}");
    result
}
