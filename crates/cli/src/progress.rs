//! Progress on standard error. Shows nothing if that is not a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// A bar of bytes, or a count of bytes if the total is unknown.
pub struct Progress(ProgressBar);

impl Progress {
    /// Starts to show progress towards `total` bytes.
    pub fn bytes(total: Option<u64>) -> Progress {
        let template = match total {
            Some(_) => "{bar:32} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left  {msg}",
            None => "{spinner} {bytes}, {bytes_per_sec}  {msg}",
        };
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10));
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    /// Reports the number of bytes done.
    pub fn at(&self, done: u64, message: impl FnOnce() -> String) {
        if !self.0.is_hidden() {
            self.0.set_position(done);
            self.0.set_message(message());
        }
    }

    /// Sets the total.
    pub fn total(&self, total: u64) {
        self.0.set_length(total);
    }
}

/// Removes the bar, so that only results remain on the terminal.
impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
