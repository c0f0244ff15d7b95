//! The payload of a timer, and the deliveries of a turn.

use super::Failure;
use super::tools::{check, now};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tourbillon_durable::Kind;

/// The JSON payload of a timer, 64 bytes long.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Payload {
    pub(crate) due: u64,
    pub(crate) n: usize,
    pad: String,
}

impl Kind for Payload {
    const NAME: &'static str = "t";
}

impl Payload {
    pub(crate) fn new(n: usize, due: u64) -> Self {
        let bare = format!("{{\"due\":{due},\"n\":{n},\"pad\":\"\"}}").len();
        Self { due, n, pad: "x".repeat(64 - bare) }
    }
}

/// Counts the deliveries of a measurement, and notes their times.
#[derive(Default)]
pub(crate) struct Deliveries {
    from: usize,
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
    pub(crate) late_ms: Vec<f64>,
}

impl Deliveries {
    pub(crate) fn new(from: usize, count: usize) -> Arc<Self> {
        let noted = Noted { fired: vec![0; count], ..Noted::default() };
        Arc::new(Self { from, noted: Mutex::new(noted), all: Notify::new() })
    }

    #[expect(clippy::cast_precision_loss, reason = "a moment of this century")]
    pub(crate) fn note(&self, payload: &Payload) {
        let at = now();
        let mut noted = self.lock();
        let noted = &mut *noted;
        let Some(fired) = payload.n.checked_sub(self.from).and_then(|index| noted.fired.get_mut(index))
        else {
            return;
        };
        *fired = fired.saturating_add(1);
        if *fired > 1 {
            noted.doubled += 1;
            return;
        }
        if noted.distinct == 0 {
            noted.first = at;
        }
        noted.last = at;
        let late_ms = at * 1_000.0 - payload.due as f64;
        noted.early += usize::from(late_ms < 0.0);
        noted.late_ms.push(late_ms);
        noted.distinct += 1;
        if noted.distinct == noted.fired.len() {
            self.all.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all timers have been delivered. Fails after `patience`.
    pub(crate) async fn end(&self, patience: Duration) -> Result<(), Failure> {
        let _timely = tokio::time::timeout(patience, self.all.notified()).await;
        let noted = self.lock();
        check(noted.early == 0, || format!("{} timers fired early", noted.early))?;
        let missing = noted.fired.len() - noted.distinct;
        check(missing == 0, || format!("{missing} timers did not fire"))
    }

    /// Returns the number of timers that have not been delivered, of those for which `is_due` holds.
    pub(super) fn missing(&self, is_due: impl Fn(usize) -> bool) -> usize {
        let noted = self.lock();
        noted.fired.iter().enumerate().filter(|(index, fired)| **fired == 0 && is_due(*index)).count()
    }

    pub(crate) fn take(&self) -> Noted {
        core::mem::take(&mut *self.lock())
    }
}
