//! Wakes the runtime of this process when a timer is due earlier than the runtime knows.
//!
//! The answer of a claim names the due moment of the first timer that is left. A commit that makes a timer due earlier
//! wakes the subscribers. So does any event after which the named moment may be wrong. A commit may come while a claim
//! is at the server, and the answer of that claim may not include the commit. So the due moment of the commit is
//! compared with the answer when the claim ends.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use tourbillon_durable::UtcMillis;

/// Wakes the runtime when a timer is due earlier than the last claim's answer says. Keeps the functions to call, and
/// the due moment in that answer.
#[derive(Default)]
pub(crate) struct Alarm {
    wakers: RwLock<Vec<Box<dyn Fn() + Send + Sync>>>,
    first_due: Mutex<FirstDue>,
}

#[derive(Default)]
struct FirstDue {
    /// The due moment of the first timer that the next claim could take. The last claim's answer has named the moment.
    /// `None` before the first claim.
    known: Option<UtcMillis>,
    /// The claims that were sent to the server and have not ended.
    claims: Vec<ClaimUnderWay>,
    /// The number of the claim that began last.
    last: u64,
}

struct ClaimUnderWay {
    number: u64,
    /// The earliest due moment of a timer that was committed since the claim was sent. The claim's answer may not
    /// include that timer.
    committed: UtcMillis,
}

/// A claim that is under way. Dropping this value ends the claim. So the claim also ends when its caller drops its
/// future.
pub(crate) struct Claiming<'a> {
    alarm: &'a Alarm,
    number: u64,
    /// The first due moment in the claim's answer. The outer `None` means that the claim has no answer. The inner
    /// `None` means that no timer is left.
    pub(crate) answer: Option<Option<UtcMillis>>,
}

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        self.alarm.end_claim(self.number, self.answer);
    }
}

impl Alarm {
    pub(crate) fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.wakers.write().unwrap_or_else(PoisonError::into_inner).push(wake);
    }

    /// Calls all subscribed functions, which wake the runtime.
    pub(crate) fn wake(&self) {
        for wake in &*self.wakers.read().unwrap_or_else(PoisonError::into_inner) {
            wake();
        }
    }

    /// Wakes the subscribers if `due` is earlier than the first due moment in the last claim's answer.
    pub(crate) fn wake_for(&self, due: UtcMillis) {
        let is_earlier = {
            let mut first = self.first_due();
            first.claims.iter_mut().for_each(|claim| claim.committed = due.min(claim.committed));
            first.known.is_none_or(|known| due < known)
        };
        if is_earlier {
            self.wake();
        }
    }

    /// Records that a claim begins. Dropping the returned value ends the claim.
    pub(crate) fn begin_claim(&self) -> Claiming<'_> {
        let mut first = self.first_due();
        first.last += 1;
        let number = first.last;
        first.claims.push(ClaimUnderWay { number, committed: UtcMillis::MAX });
        Claiming { alarm: self, number, answer: None }
    }

    /// Ends the claim with this number. Wakes the subscribers if the claim has no answer. Also wakes the subscribers if
    /// a timer that was committed during the claim is due before the first timer in the answer.
    fn end_claim(&self, number: u64, answer: Option<Option<UtcMillis>>) {
        let is_earlier = {
            let mut first = self.first_due();
            let place = first.claims.iter().position(|claim| claim.number == number);
            let committed = place.map_or(UtcMillis::MAX, |place| first.claims.swap_remove(place).committed);
            match answer {
                None => true,
                Some(answer) => {
                    let due = answer.unwrap_or(UtcMillis::MAX);
                    first.known = Some(due);
                    committed < due
                }
            }
        };
        if is_earlier {
            self.wake();
        }
    }

    fn first_due(&self) -> MutexGuard<'_, FirstDue> {
        self.first_due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
