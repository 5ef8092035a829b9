//! Takes choices and pieces from the bytes of an input, for targets that generate their test case from it.

/// Reads an input from its front. Only zeros follow its end, so every input is valid.
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    /// A source with all bytes of an input.
    pub fn new(data: &'a [u8]) -> Source<'a> {
        Source(data)
    }

    /// Whether all bytes were read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from(self.u8()) | u16::from(self.u8()) << 8
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    /// A number below `end`, which must not be 0. Uses one byte if that is enough.
    pub fn below(&mut self, end: usize) -> usize {
        match end {
            0..=256 => usize::from(self.u8()) % end,
            257..=65536 => usize::from(self.u16()) % end,
            _ => self.u32() as usize % end,
        }
    }

    /// One of several values.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Up to `len` bytes: fewer at the end.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A length of one byte, then that many bytes.
    pub fn bytes(&mut self) -> &'a [u8] {
        let len = self.u8();
        self.take(len.into())
    }

    /// The bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
