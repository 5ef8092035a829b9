//! Open files and locks of a simulated disk.

use super::disk::Inode;
use super::fault::{Fault, OpKind};
use super::handles::Handle;
use super::state::Shared;
use crate::checks::{check_file_len, check_truncate, ends_early, poisoned};
use crate::traits::{FileLock, FrontSync, LOG_END, ReadFile, WriteFile};
use base::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Syncs a file, or only its first `front` bytes.
pub(super) fn sync_inode(inode: &Inode, front: Option<u64>, fault: Option<Fault>, path: &Path) -> Result<()> {
    let mut file = inode.lock();
    match fault {
        None => match front {
            None => file.sync(),
            Some(front) => file.sync_front(front as usize),
        },
        Some(fault) if fault.hits_the_sync() => file.fail_sync(),
        Some(_) => {}
    }
    fault.map_or(Ok(()), |fault| Err(fault.error("sync", path)))
}

/// Syncs an open file like [`sync_inode`], and poisons it on an error.
fn sync_file(
    shared: &Shared,
    inode: &Inode,
    path: &Path,
    front: Option<u64>,
    poison: &OnceLock<Error>,
) -> Result<()> {
    check_poison(poison)?;
    let synced = shared.op(OpKind::Sync, path, |_, fault| sync_inode(inode, front, fault, path));
    synced.inspect_err(|error| _ = poison.set(error.clone()))
}

fn check_poison(poison: &OnceLock<Error>) -> Result<()> {
    poison.get().map_or(Ok(()), |e| Err(poisoned(e)))
}

pub(super) struct SimWriteFile {
    pub(super) shared: Arc<Shared>,
    pub(super) inode: Inode,
    pub(super) path: PathBuf,
    pub(super) len: u64,
    pub(super) poison: Arc<OnceLock<Error>>,
    /// Number of zeros to write behind the end when none are left: see [`Env::create_log`](crate::Env::create_log).
    pub(super) zeros: usize,
    /// Offset behind which the old content of a recycled log follows: see [`Env::reuse_log`](crate::Env::reuse_log).
    pub(super) over_from: Option<u64>,
    pub(super) _handle: Handle,
}

impl SimWriteFile {
    /// Before an append to a recycled log that will end at `end`: writes the zeros that must follow it. Returns the
    /// offset of the old content behind them.
    fn mark_end(&self, end: usize) -> Option<u64> {
        let from = self.over_from? as usize;
        if end + LOG_END <= from {
            return Some(from as u64);
        }
        let mut file = self.inode.lock();
        let total = file.content().len();
        let (from, to) = (from.max(end), (end + LOG_END + self.zeros).min(total));
        if from < to {
            file.write(from, &vec![0; to - from]);
        }
        (to < total).then_some(to as u64)
    }
}

impl WriteFile for SimWriteFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        check_poison(&self.poison)?;
        let (path, len) = (&self.path, self.len as usize);
        let max_len = self.shared.max_file_len.load(Ordering::SeqCst);
        check_file_len("append to", path, self.len + data.len() as u64, max_len)?;
        let over_from = self.shared.op(OpKind::Append, path, |state, mut fault| {
            let over_from = match fault {
                None | Some(Fault::ShortWrite(_)) => self.mark_end(len + data.len()),
                Some(_) => self.over_from,
            };
            let mut taken = match fault {
                None => data.len(),
                Some(Fault::ShortWrite(taken)) => taken.min(data.len()),
                Some(_) => 0,
            };
            let present = self.inode.lock().content().len().saturating_sub(len);
            let fit = present.saturating_add(state.fit(taken.saturating_sub(present)));
            if fit < taken {
                taken = fit;
                fault = Some(Fault::ENOSPC);
            }
            let mut file = self.inode.lock();
            file.write(len, &data[..taken]);
            let end = file.content().len();
            drop(file);
            // The zeros must not fill the disk: without space for all of them, none are written.
            let fits = state.fit(self.zeros) == self.zeros && (end + self.zeros) as u64 <= max_len;
            if self.zeros > 0 && end == len + data.len() && fault.is_none() && fits {
                self.inode.lock().write(end, &vec![0; self.zeros]);
            }
            fault.map_or(Ok(over_from), |fault| Err(fault.error("append to", path)))
        })?;
        self.over_from = over_from;
        self.len += data.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        sync_file(&self.shared, &self.inode, &self.path, self.over_from, &self.poison)
    }

    /// An operation of the kind of a sync, which fails like one and makes nothing durable.
    fn write_back(&mut self) -> Result<()> {
        check_poison(&self.poison)?;
        let begun = self.shared.op(OpKind::Sync, &self.path, |_, fault| {
            fault.map_or(Ok(()), |fault| Err(fault.error("sync", &self.path).sync_failed()))
        });
        begun.inspect_err(|error| _ = self.poison.set(error.clone()))
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        check_poison(&self.poison)?;
        check_truncate(&self.path, self.len, len)?;
        self.shared.simple(OpKind::Truncate, "truncate", &self.path, |_| {
            self.inode.lock().truncate(len as usize);
            Ok(())
        })?;
        (self.len, self.over_from) = (len, None);
        Ok(())
    }

    fn trim(&mut self) {
        // Not counted as an operation: no caller sees its failure, and a crash may undo it or not.
        let len = self.len as usize;
        let _state = self.shared.state.lock();
        let mut file = self.inode.lock();
        // The remains of a failed append stay.
        let zeros = file.content().len() > len && file.content()[len..].iter().all(|&b| b == 0);
        if self.poison.get().is_none() && (self.zeros > 0 && zeros || self.over_from.is_some()) {
            file.truncate(len);
            self.over_from = None;
        }
    }

    fn front(&self, len: u64) -> FrontSync {
        let (shared, inode) = (self.shared.clone(), self.inode.clone());
        let (path, poison) = (self.path.clone(), self.poison.clone());
        Arc::new(move || sync_file(&shared, &inode, &path, Some(len), &poison))
    }
}

pub(super) struct SimReadFile {
    pub(super) shared: Arc<Shared>,
    pub(super) inode: Inode,
    pub(super) path: PathBuf,
    pub(super) _handle: Handle,
}

impl ReadFile for SimReadFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.shared.op(OpKind::Read, &self.path, |_, fault| {
            if let Some(fault) = fault {
                let operation = format!("read {} bytes at offset {offset} of", buf.len());
                return Err(fault.error(&operation, &self.path));
            }
            let content = self.inode.lock().content().clone();
            let rest = usize::try_from(offset).ok().and_then(|offset| content.get(offset..));
            match rest.and_then(|rest| rest.get(..buf.len())) {
                Some(bytes) => buf.copy_from_slice(bytes),
                None => return Err(ends_early(&self.path, offset, buf.len())),
            }
            Ok(())
        })
    }

    fn try_read_cached(&self, buf: &mut [u8], offset: u64) -> Result<bool> {
        if !self.shared.memory.draw_cached() {
            // Partial content, as an interrupted read leaves it in the buffer.
            let half = buf.len() / 2;
            buf[..half].fill(0xa5);
            return Ok(false);
        }
        self.read_exact_at(buf, offset).map(|()| true)
    }

    fn len(&self) -> Result<u64> {
        self.shared.simple(OpKind::Stat, "stat", &self.path, |_| Ok(self.inode.lock().content().len() as u64))
    }

    fn will_need(&self, _offset: u64, len: u64) {
        self.shared.memory.will_need_calls.fetch_add(1, Ordering::SeqCst);
        self.shared.memory.will_need_bytes.fetch_add(len, Ordering::SeqCst);
    }

    fn wont_need(&self, _offset: u64, _len: u64) {}

    fn path(&self) -> &PathBuf {
        &self.path
    }
}

pub(super) struct SimLock {
    pub(super) shared: Arc<Shared>,
    pub(super) key: PathBuf,
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.shared.state.lock().locks.remove(&self.key);
    }
}

pub(super) struct SimSharedLock {
    pub(super) shared: Arc<Shared>,
    pub(super) key: (u64, u64),
}

impl FileLock for SimSharedLock {}

impl Drop for SimSharedLock {
    fn drop(&mut self) {
        let locks = &mut self.shared.state.lock().shared_locks;
        if let Some(holders) = locks.get_mut(&self.key) {
            *holders -= 1;
            if *holders == 0 {
                locks.remove(&self.key);
            }
        }
    }
}
