//! The list of table files that no version names and no reader holds any more.

use parking_lot::Mutex;

/// Numbers of table files that no version uses any more. The library deletes the files.
#[derive(Debug, Default)]
pub struct ObsoleteFiles(Mutex<Vec<u64>>);

impl ObsoleteFiles {
    /// Removes and returns all numbers.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock())
    }

    /// Adds a number.
    pub fn add(&self, number: u64) {
        self.0.lock().push(number);
    }
}
