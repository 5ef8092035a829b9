//! Buffers that a thread reuses, for data blocks that are read for one reader and not cached. A cursor that walks many blocks
//! then does not allocate and zero a buffer for each of them.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Maximum number of free buffers per thread, and the maximum capacity of each, in bytes.
const KEPT: usize = 8;
const MAX_KEPT: usize = 32 << 10;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer with one owner. Dropping it returns its memory to the pool of the dropping thread.
#[derive(Default)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    /// A buffer of `len` bytes with unspecified content.
    pub(crate) fn of(len: usize) -> Buffer {
        let smallest = |free: &RefCell<Vec<Vec<u8>>>| {
            let mut free = free.try_borrow_mut().ok()?;
            let fits = free.iter().enumerate().filter(|(_, bytes)| bytes.capacity() >= len);
            let (at, _) = fits.min_by_key(|(_, bytes)| bytes.capacity())?;
            Some(free.swap_remove(at))
        };
        // The pool may be gone when a destructor of another thread-local calls.
        let kept = FREE.try_with(smallest).ok().flatten();
        let mut bytes = kept.unwrap_or_else(|| Vec::with_capacity(len.next_multiple_of(1 << 10)));
        bytes.resize(len, 0);
        Buffer(bytes)
    }

    /// Like [`Buffer::of`], in place of a buffer that is no longer needed.
    pub(crate) fn renew(mut self, len: usize) -> Buffer {
        if self.0.capacity() < len {
            drop(self);
            return Buffer::of(len);
        }
        self.0.resize(len, 0);
        self
    }

    /// A zeroed buffer of exactly `len` bytes that does not come from the pool: for blocks that are shared.
    pub(crate) fn new(len: usize) -> Buffer {
        Buffer(vec![0; len])
    }

    /// The bytes; the pool does not get them back.
    pub(crate) fn into_vec(mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let capacity = self.0.capacity();
        if capacity == 0 || capacity > MAX_KEPT {
            return;
        }
        let bytes = std::mem::take(&mut self.0);
        let _ = FREE.try_with(|free| {
            if let Ok(mut free) = free.try_borrow_mut()
                && free.len() < KEPT
            {
                free.push(bytes);
            }
        });
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;
    #[inline]
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> (usize, usize) {
        FREE.with(|free| {
            let free = free.borrow();
            (free.len(), free.iter().map(Vec::capacity).max().unwrap_or(0))
        })
    }

    #[test]
    fn a_few_are_used_again_and_large_ones_are_not_kept() {
        let run = || {
            assert_eq!(kept(), (0, 0));
            let mut buffer = Buffer::of(4000);
            buffer.fill(7);
            let at = buffer.as_ptr();
            drop(buffer);
            let again = Buffer::of(3000);
            assert_eq!((again.len(), again.as_ptr()), (3000, at));
            let (other, large) = (Buffer::of(5000), Buffer::of(MAX_KEPT + 1));
            assert_eq!((other.len(), large.len()), (5000, MAX_KEPT + 1));
            assert_ne!(other.as_ptr(), at);
            drop((again, other, large));
            assert!(kept().0 == 2 && kept().1 <= MAX_KEPT);
            assert_eq!(Buffer::of(10).into_vec().len(), 10);
            assert_eq!(kept().0, 1);
            drop((0..3 * KEPT).map(|_| Buffer::of(100)).collect::<Vec<_>>());
            assert_eq!(kept().0, KEPT);
        };
        std::thread::spawn(run).join().unwrap();
    }
}
