//! Notes each delivery.

use crate::tools::{check, now};
use crate::{Failure, Payload};
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
    /// Begins to note the jobs 0 to `count`.
    pub(crate) fn begin(&self, count: usize) {
        *self.lock() = Noted { fired: vec![0; count], ..Noted::default() };
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, payload: &Payload) {
        let at = now();
        let noted = &mut *self.lock();
        let Some(fired) = noted.fired.get_mut(payload.n) else { return };
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

    /// Waits until all jobs have been delivered. Fails after `patience`.
    pub(crate) async fn end(&self, patience: Duration) -> Result<Noted, Failure> {
        let _timely = tokio::time::timeout(patience, self.all.notified()).await;
        let noted = std::mem::take(&mut *self.lock());
        check(noted.early == 0, || format!("{} timers fired early", noted.early))?;
        let missing = noted.fired.len() - noted.distinct;
        check(missing == 0, || format!("{missing} of {} timers did not fire", noted.fired.len()))?;
        check(noted.doubled == 0, || format!("{} doubled deliveries", noted.doubled))?;
        Ok(noted)
    }
}
