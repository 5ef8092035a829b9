//! The progress of a workload on standard error, for people: nothing is shown, and no thread started, where it is not a
//! terminal.

use crate::text::human_count;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::Duration;

/// The bar of one workload.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar of `ops` operations.
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

    /// Shows what `done` says until the value that this returns is dropped.
    pub fn follow<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        done: impl Fn() -> u64 + Send + 'scope,
    ) -> Option<Sender<()>> {
        if self.0.is_hidden() {
            return None;
        }
        let bar = self.0.clone();
        let (end, ended) = channel();
        scope.spawn(move || {
            while ended.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
                bar.set_position(done());
            }
        });
        Some(end)
    }

    /// All operations are done; compaction is not.
    pub fn settling(&self) {
        self.0.set_position(self.0.length().unwrap_or_default());
        self.0.set_message("waiting for compaction");
    }
}

/// The bar goes away: what is left on the terminal is the result.
impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
