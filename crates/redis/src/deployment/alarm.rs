//! Wakes the runtime of this process when a timer is due earlier than the runtime knows.
//!
//! The answer of a claim names the due moment of the first timer that is left. A commit that makes a timer due earlier
//! wakes the subscribers. So does any event after which the named moment may be wrong. If a commit happens while a
//! claim is at the server, the claim's answer might not include the commit. So the alarm compares the due moment of the
//! commit with the answer when the claim ends.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use tourbillon_durable::UtcMillis;

/// A function that is called after a process has parked timers (set them aside for a reason). The argument is the
/// reason, or `None` if messages about parked timers may have been missed.
pub(crate) type OnParked = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// Wakes the runtime when a timer may be due before the next due moment that the runtime knows. The runtime knows this
/// moment from the answer to its last claim. Also calls the [`OnParked`] functions.
#[derive(Default)]
pub(crate) struct Alarm {
    wakers: RwLock<Vec<Box<dyn Fn() + Send + Sync>>>,
    on_parked: RwLock<Vec<OnParked>>,
    first_due: Mutex<FirstDue>,
}

#[derive(Default)]
struct FirstDue {
    /// The due moment of the first timer that is left for the next claim, according to the answer to the last claim.
    /// [`UtcMillis::MAX`] if no timer is left, and `None` before the first answer.
    known: Option<UtcMillis>,
    /// The claims that were sent to the server and have not ended.
    claims: Vec<ClaimUnderWay>,
    /// The number of the claim that began last.
    last: u64,
}

struct ClaimUnderWay {
    number: u64,
    /// The earliest due moment of the timers that were committed after the claim was sent. The claim's answer might not
    /// include these timers.
    committed: UtcMillis,
}

/// A claim that is under way. Dropping this value ends the claim, so a claim whose future is dropped ends as well.
pub(crate) struct Claiming<'a> {
    alarm: &'a Alarm,
    number: u64,
    /// The due moment of the first timer that is left for the next claim, according to the answer to this claim. The
    /// outer option is `None` if the claim has no answer, and the inner option is `None` if no timer is left.
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

    /// Calls all functions that were subscribed with [`subscribe`](Self::subscribe), to wake the runtime.
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

    pub(crate) fn subscribe_to_parked(&self, on_parked: OnParked) {
        self.on_parked.write().unwrap_or_else(PoisonError::into_inner).push(on_parked);
    }

    /// Calls the functions that were subscribed with [`subscribe_to_parked`](Self::subscribe_to_parked), after a
    /// process has parked timers (set them aside) for the reason `reason`. `reason` is `None` if messages about parked
    /// timers may have been missed.
    pub(crate) fn tell_parked(&self, reason: Option<&str>) {
        for tell in &*self.on_parked.read().unwrap_or_else(PoisonError::into_inner) {
            tell(reason);
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

    /// Ends the claim with this number. Wakes the subscribers if the claim has no answer, or if a timer that was
    /// committed during the claim is due before the first timer in the answer.
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

    /// Forgets the first due moment in the last claim's answer, because it belongs to another deployment.
    pub(crate) fn clear(&self) {
        self.first_due().known = None;
    }

    fn first_due(&self) -> MutexGuard<'_, FirstDue> {
        self.first_due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
