//! The queue of jobs for the thread that writes.

use crate::act::Act;
use crate::error::Result;
use futures_channel::oneshot;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tourbillon_durable::store::{Durability, StoreError};

/// A request of a caller. The thread that writes runs the jobs that wait at the same time in one transaction.
pub(crate) trait Job: Send {
    /// Returns the durability that the job's changes must have before the caller gets the result of the job.
    fn durability(&self) -> Durability;
    /// Makes the changes of the job. After an error, the changes are rolled back.
    fn run(&mut self, act: &Act<'_>) -> Result<()>;
    /// Sends the answer to the caller: the error in `committed` if there is one, and otherwise the result of the job.
    fn answer(self: Box<Self>, committed: Result<()>);
}

/// A job that calls a function once.
pub(crate) struct Call<T, F> {
    pub(crate) durability: Durability,
    pub(crate) function: Option<F>,
    pub(crate) result: Option<T>,
    pub(crate) reply: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnOnce(&Act<'_>) -> Result<T> + Send> Job for Call<T, F> {
    fn durability(&self) -> Durability {
        self.durability
    }

    fn run(&mut self, act: &Act<'_>) -> Result<()> {
        if let Some(function) = self.function.take() {
            self.result = Some(function(act)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<()>) {
        let result = match (committed, self.result) {
            (Ok(()), Some(result)) => Ok(result),
            (Ok(()), None) => Err(closed()),
            (Err(error), _) => Err(error),
        };
        // The caller may no longer wait.
        let _no_longer_waited_for = self.reply.send(result);
    }
}

pub(crate) fn closed() -> StoreError {
    StoreError::new(tourbillon_durable::store::StoreErrorKind::Closed, "the store was closed")
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Box<dyn Job>>,
    /// True if the thread that writes must look for changes of other connections.
    must_look: bool,
    is_closed: bool,
}

/// The queue of jobs between the callers and the thread that writes.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

/// The work that the thread that writes finds in the queue.
pub(crate) struct Work {
    pub(crate) jobs: Vec<Box<dyn Job>>,
    pub(crate) must_look: bool,
    /// True if the queue is closed and empty.
    pub(crate) is_over: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job. If the queue is closed, answers the job with an error instead.
    pub(crate) fn send(&self, job: Box<dyn Job>) {
        let mut state = self.lock();
        if state.is_closed {
            drop(state);
            return job.answer(Err(closed()));
        }
        state.jobs.push_back(job);
        drop(state);
        self.changed.notify_one();
    }

    /// Makes the thread that writes look for changes of other connections at once.
    pub(crate) fn look(&self) {
        self.lock().must_look = true;
        self.changed.notify_one();
    }

    /// Closes the queue to new jobs. The thread that writes runs the remaining jobs, and then ends.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Waits for work until the moment `until`. If `until` is `None`, the wait has no limit. Takes at most `most` jobs.
    pub(crate) fn wait(&self, until: Option<Instant>, most: usize) -> Work {
        let mut state = self.lock();
        loop {
            let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
            let is_time = rest.is_some_and(|rest| rest.is_zero());
            if state.must_look || state.is_closed || is_time || !state.jobs.is_empty() {
                let count = state.jobs.len().min(most);
                let jobs: Vec<_> = state.jobs.drain(..count).collect();
                let is_over = state.is_closed && jobs.is_empty();
                let must_look = core::mem::take(&mut state.must_look);
                return Work { jobs, must_look, is_over };
            }
            state = match rest {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(rest) => {
                    self.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Fails all jobs that wait, and all later jobs.
    pub(crate) fn fail(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let jobs = core::mem::take(&mut state.jobs);
        drop(state);
        for job in jobs {
            job.answer(Err(closed()));
        }
    }
}
