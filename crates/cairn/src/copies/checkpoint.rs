//! Checkpoints: a second database with the content of one moment, which shares its immutable files by hard links.

use super::new_directory::{NewDirectory, of_copy, of_part};
use crate::events;
use crate::state::DbInner;
use crate::types::{CheckpointReport, CopyProgress};
use backup::copy_file;
use base::Result;
use std::path::Path;

impl DbInner {
    /// See `Database::checkpoint_with`.
    pub(crate) fn checkpoint(
        &self,
        dir: &Path,
        progress: &mut dyn FnMut(&CopyProgress),
    ) -> Result<CheckpointReport> {
        self.copying(|| self.make_checkpoint(dir, progress))
    }

    fn make_checkpoint(
        &self,
        dir: &Path,
        progress: &mut dyn FnMut(&CopyProgress),
    ) -> Result<CheckpointReport> {
        let new = NewDirectory::begin(&self.env, dir, &self.dir).map_err(of_copy)?;
        let moment = self.moment_to_copy()?;
        let parts = moment.parts();
        let mut report = CheckpointReport { seq: moment.seq(), ..CheckpointReport::default() };
        let bytes_total = parts.iter().map(|part| part.len).sum();
        for part in &parts {
            let mut step = |done: u64| {
                progress(&CopyProgress {
                    bytes_done: report.bytes + done,
                    bytes_total,
                    file: part.name.clone(),
                });
                self.status.check_not_closed()
            };
            step(0)?;
            let (from, to) = (self.dir.join(&part.name), new.path(&part.name));
            if !part.is_final || !self.env.link(&from, &to).map_err(|e| of_part(e, &from))? {
                copy_file(&self.env, &from, &to, part.len, &mut step).map_err(|e| of_part(e, &from))?;
                report.copied_bytes += part.len;
            }
            report.files += 1;
            report.bytes += part.len;
        }
        self.check_copied()?;
        let number = moment.manifest_number();
        new.finish(number, &moment.state())?;
        progress(&CopyProgress { bytes_done: bytes_total, bytes_total, file: String::new() });
        let CheckpointReport { seq, files, bytes, copied_bytes, .. } = report;
        events::info!(to = %dir.display(), seq, files, bytes, copied_bytes, "checkpoint");
        Ok(report)
    }
}
