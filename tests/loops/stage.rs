//! The engine, and the records of its timers, as the players use them. Players are the threads on which no loop runs.

use crate::foreign::FAR;
use crate::ledger::{Ledger, add_one, count};
use crate::support::{HOUR, PATIENCE, wait_until};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Cancel, Handle, Refusal, RescheduleError, TimerId};

/// A one-shot that was pending when it was added to the players' shared list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneShot {
    pub(crate) id: TimerId,
    pub(crate) payload: u64,
}

/// The engine, the records of its timers, and the one-shots that the players share.
pub(crate) struct Stage {
    pub(crate) timers: Handle<u64>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) remembered: Mutex<Vec<OneShot>>,
    /// The number of one-shots that the players may have scheduled by now. The main thread raises the number.
    pub(crate) allowed: AtomicU64,
}

impl Stage {
    /// Schedules a one-shot on `shard`, or on the thread's own shard if `shard` is `None`. Returns `None` after a
    /// shutdown.
    pub(crate) fn schedule(&self, shard: Option<usize>, delay: Duration, payload: u64) -> Option<OneShot> {
        let (timers, ledger) = (&self.timers, &self.ledger);
        if payload & FAR == 0 {
            add_one(&ledger.near);
        }
        let deadline = timers.now() + delay;
        let attempt = || match shard {
            Some(shard) => timers.on(shard).schedule_at(deadline, payload),
            None => timers.schedule_at(deadline, payload),
        };
        let start = Instant::now();
        loop {
            match attempt() {
                Ok(id) => {
                    add_one(&ledger.scheduled);
                    return Some(OneShot { id, payload });
                }
                // The shard has no loop, and another thread drains the lane.
                Err(error) if error.kind == Refusal::LaneFull && start.elapsed() < PATIENCE => {
                    thread::yield_now();
                }
                Err(error) => {
                    assert_eq!((error.kind, error.payload), (Refusal::ShutDown, payload));
                    ledger.note_end(payload);
                    return None;
                }
            }
        }
    }

    /// Schedules one of the main thread's one-shots on a shard.
    pub(crate) fn schedule_extra(&self, shard: usize, delay: Duration) -> OneShot {
        let far = if delay >= HOUR { FAR } else { 0 };
        self.schedule(Some(shard), delay, add_one(&self.ledger.extra) | far)
            .expect("the shutdown comes later")
    }

    /// Cancels a one-shot. Returns whether this call ended the one-shot.
    pub(crate) fn cancel(&self, OneShot { id, payload }: OneShot, waits: bool) -> bool {
        let outcome = if waits { self.timers.cancel_and_wait(id) } else { self.timers.cancel(id) };
        match outcome {
            Cancel::Cancelled(own) => {
                assert_eq!(own, payload);
                self.ledger.note_cancelled(payload);
                return true;
            }
            Cancel::Running => assert!(payload & FAR == 0 && !waits, "one-shot {payload:#x} runs"),
            _ => assert!(payload & FAR == 0 || self.timers.is_shut_down(), "one-shot {payload:#x} has gone"),
        }
        false
    }

    /// Moves a one-shot to a shard. Returns `None` if the one-shot has ended.
    pub(crate) fn reschedule(&self, one: OneShot, shard: usize, delay: Duration) -> Option<OneShot> {
        let is_far = one.payload & FAR != 0;
        match self.timers.on(shard).reschedule_at(one.id, self.timers.now() + delay) {
            Ok(id) => {
                add_one(&self.ledger.moved);
                return Some(OneShot { id, ..one });
            }
            // The shard has no loop at the moment, and the one-shot is unchanged.
            Err(RescheduleError::LaneFull) => return Some(one),
            Err(RescheduleError::ShutDown(payload)) => self.ledger.note_cancelled(payload),
            Err(RescheduleError::Running) => assert!(!is_far, "{one:?} runs"),
            Err(RescheduleError::Gone) => assert!(!is_far || self.timers.is_shut_down(), "{one:?} has gone"),
            Err(error) => panic!("{error}"),
        }
        None
    }

    pub(crate) fn allow(&self, one_shots: u64) {
        self.allowed.store(one_shots, Ordering::SeqCst);
    }

    pub(crate) fn is_allowed(&self) -> bool {
        count(&self.ledger.submitted) < count(&self.allowed)
    }

    /// Waits until the players have begun to schedule `enough` one-shots.
    pub(crate) fn await_submitted(&self, enough: u64) {
        while count(&self.ledger.submitted) < enough {
            let before = count(&self.ledger.submitted);
            wait_until("the players go on", || count(&self.ledger.submitted) != before);
        }
    }
}
