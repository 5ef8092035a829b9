//! The progress of a workload on standard error. Shows nothing if that is not a terminal.

use crate::text::human_count;
use ::bench::session::Event;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;

/// The progress bar of one workload.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar for `ops` operations.
    pub fn new(name: &str, ops: u64) -> Bar {
        let bar = ProgressBar::with_draw_target(Some(ops), ProgressDrawTarget::stderr_with_hz(10));
        let template = "{prefix:<16} {bar:32} {human_pos} of {human_len}, {rate}, {eta} left  {msg}";
        let style = ProgressStyle::with_template(template).expect("the template is well formed");
        bar.set_style(style.with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{}/s", human_count(state.per_sec() as u64));
        }));
        bar.set_prefix(name.to_string());
        Bar(bar)
    }

    /// Shows the progress of the workload.
    pub fn show(&self, event: &Event) {
        let Event::Progress { done, settling, .. } = event else { return };
        self.0.set_position(*done);
        if *settling {
            self.0.set_message("waiting for compaction");
        }
    }
}

/// Removes the bar, so that only results remain on the terminal.
impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
