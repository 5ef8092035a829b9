//! [`WaitingReads`]: which reads wait for the disk, for jobs that leave it to them.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the reads of callers that wait for the disk, while a job runs that looks at the count. Reads of jobs and checks do not count.
///
/// To find out whether a read would wait costs a system call, so reads do it only while a job is announced.
#[derive(Default)]
pub struct WaitingReads {
    waiting: AtomicUsize,
    jobs: AtomicUsize,
}

/// Counts one until it is dropped: a read that waits for the disk, or a job.
pub struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(counter: &'a AtomicUsize) -> Counted<'a> {
        counter.fetch_add(1, Ordering::Relaxed);
        Counted(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WaitingReads {
    /// Announces a job that looks at [`WaitingReads::any`], until the value is dropped.
    pub fn begin_job(&self) -> Counted<'_> {
        Counted::new(&self.jobs)
    }

    /// Whether a job is announced.
    #[inline]
    pub fn has_jobs(&self) -> bool {
        self.jobs.load(Ordering::Relaxed) > 0
    }

    /// A read waits for the disk until the value is dropped.
    pub fn begin_wait(&self) -> Counted<'_> {
        Counted::new(&self.waiting)
    }

    /// Whether a get or a cursor waits for the disk now. A hint: the answer may be out of date, and reads count only if they begin while a
    /// job is announced.
    pub fn any(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}
