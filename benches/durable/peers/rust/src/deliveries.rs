//! Notes each delivery.

use crate::peer::Payload;
use crate::task::Failure;
use crate::tools::{check, now};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Deliveries {
    noted: Mutex<Noted>,
    all: Notify,
}

#[derive(Default)]
pub(crate) struct Noted {
    from: usize,
    fired: Vec<u8>,
    distinct: usize,
    pub(crate) doubled: usize,
    early: usize,
    pub(crate) first: f64,
    pub(crate) last: f64,
    /// The lateness of each job in milliseconds, in the order of the deliveries.
    pub(crate) late: Vec<f64>,
}

impl Deliveries {
    /// Begins to note `count` jobs, the first of which has the number `from`.
    pub(crate) fn begin(&self, from: usize, count: usize) {
        *self.lock() = Noted { from, fired: vec![0; count], ..Noted::default() };
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, payload: &Payload) {
        let at = now();
        let noted = &mut *self.lock();
        let index = payload.n.checked_sub(noted.from);
        let Some(fired) = index.and_then(|index| noted.fired.get_mut(index)) else { return };
        *fired = fired.saturating_add(1);
        if *fired > 1 {
            noted.doubled += 1;
            return;
        }
        if noted.distinct == 0 {
            noted.first = at;
        }
        noted.last = at;
        let late = at - payload.due as f64;
        noted.early += usize::from(late < 0.0);
        noted.late.push(late);
        noted.distinct += 1;
        if noted.distinct == noted.fired.len() {
            self.all.notify_one();
        }
    }

    /// Waits until all jobs have been delivered. Fails after `patience`, and if a job was delivered twice.
    pub(crate) async fn end(&self, patience: Duration) -> Result<Noted, Failure> {
        self.wait(patience).await?;
        let noted = self.take();
        check(noted.doubled == 0, || format!("{} doubled deliveries", noted.doubled))?;
        Ok(noted)
    }

    /// Waits until all jobs have been delivered, and notes further deliveries. Fails after `patience`.
    pub(crate) async fn wait(&self, patience: Duration) -> Result<(), Failure> {
        let _timely = tokio::time::timeout(patience, self.all.notified()).await;
        let noted = self.lock();
        check(noted.early == 0, || format!("{} timers fired early", noted.early))?;
        let missing = noted.fired.len() - noted.distinct;
        check(missing == 0, || format!("{missing} of {} timers did not fire", noted.fired.len()))
    }

    pub(crate) fn take(&self) -> Noted {
        std::mem::take(&mut *self.lock())
    }
}
