//! Wakes the runtime of this process when a timer is due earlier than the runtime expects.
//!
//! The answer of a claim has the due moment of the first timer that is left, and the runtime sleeps until this moment.
//! A commit that makes a timer due earlier wakes the subscribers (functions that wake the runtime). Any event after
//! which the answer may be wrong wakes the subscribers, too. The answer of a claim that is at the server during a
//! commit may not include the commit. So when the claim ends, the due moment of the committed timer is compared with
//! the answer.
//!
//! A timer in a shard of another node does not wake the subscribers, because a claim of this node would not find the
//! timer. The answer of the last claim says which shards belong to other nodes. While a claim is under way, this node
//! may get more shards. So the claim's answer is compared with the commits of timers in all shards.

use core::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use tourbillon_words::UtcMillis;

/// Wakes the runtime when a timer is due earlier than the runtime expects. After a claim, the runtime sleeps until the
/// due moment of the first timer that the claim has left in the store. For authors of stores on a database server.
#[derive(Default)]
pub struct Alarm {
    wakers: RwLock<Vec<Box<dyn Fn() + Send + Sync>>>,
    first_due: Mutex<FirstDue>,
}

#[derive(Debug, Default)]
struct FirstDue {
    /// The due moment of the first timer that the last claim has left in the store, from the claim's answer.
    /// [`UtcMillis::MAX`] if the claim has left no timer. `None` before the first answer.
    known: Option<UtcMillis>,
    /// The shards (parts of the store's timers) that other processes own. Bit `n` stands for shard `n`.
    others: u32,
    /// The claims that were sent to the server and have not ended.
    claims: Vec<ClaimUnderWay>,
    /// The number of the newest claim. Claims are numbered from 1, in the order in which they begin.
    last: u64,
}

#[derive(Debug)]
struct ClaimUnderWay {
    number: u64,
    /// The earliest due moment of a timer that was committed since the claim was sent. The claim's answer may not
    /// include that timer.
    committed: UtcMillis,
}

/// A claim (a call that leases due timers) that is under way. Dropping this value ends the claim without an answer. So
/// the claim also ends when the caller drops the claim's future.
#[derive(Debug)]
pub struct Claiming<'a> {
    alarm: &'a Alarm,
    number: u64,
    answer: Option<UtcMillis>,
}

impl Claiming<'_> {
    /// Ends the claim with its answer: the due moment of the first timer that the claim has left in the store, or
    /// `None` if no timer is left. The caller ignores due timers that the claim has left because their namespaces have
    /// used up their shares of the handlers.
    pub fn end(mut self, first_due: Option<UtcMillis>) {
        self.answer = Some(first_due.unwrap_or(UtcMillis::MAX));
    }
}

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        self.alarm.end_claim(self.number, self.answer);
    }
}

impl Alarm {
    /// Adds a subscriber: a function that wakes the runtime.
    pub fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.wakers.write().unwrap_or_else(PoisonError::into_inner).push(wake);
    }

    /// Wakes all subscribers.
    pub fn wake(&self) {
        for wake in &*self.wakers.read().unwrap_or_else(PoisonError::into_inner) {
            wake();
        }
    }

    /// Records which shards belong to other nodes: bit `n` of `others` stands for shard `n`. From now on, a timer that
    /// is committed in one of these shards does not wake the subscribers. After each successful claim of this node, and
    /// before [`Claiming::end`], the store calls this method with the shards from the claim's answer. When this process
    /// is no longer a node, it does not know the owners of the shards. The store then sets zero, as in a new `Alarm`,
    /// so that a timer of any shard wakes the subscribers.
    pub fn set_others(&self, others: u32) {
        self.first_due().others = others;
    }

    /// Wakes the subscribers if `due` is earlier than the due moment of the first timer that the last claim has left in
    /// the store. `due` is the due moment of a timer that this node may have to deliver.
    pub fn wake_for(&self, due: UtcMillis) {
        self.wake_for_shards(due, u32::MAX);
    }

    /// Works as [`wake_for`](Self::wake_for) for several timers. `due` is the earliest of their due moments. Bit `n` of
    /// `shards` is set if one of the timers is in shard `n`. Wakes nobody if all these shards belong to other nodes.
    pub fn wake_for_shards(&self, due: UtcMillis, shards: u32) {
        let is_earlier = {
            let mut first = self.first_due();
            first.claims.iter_mut().for_each(|claim| claim.committed = due.min(claim.committed));
            shards & !first.others != 0 && first.known.is_none_or(|known| due < known)
        };
        if is_earlier {
            self.wake();
        }
    }

    /// Records that a claim begins. Dropping the returned value ends the claim.
    #[must_use]
    pub fn begin_claim(&self) -> Claiming<'_> {
        let mut first = self.first_due();
        first.last += 1;
        let number = first.last;
        first.claims.push(ClaimUnderWay { number, committed: UtcMillis::MAX });
        Claiming { alarm: self, number, answer: None }
    }

    /// Ends the claim with this number. Wakes the subscribers if the claim has no answer. Also wakes the subscribers if
    /// a timer that was committed during the claim is due before the first timer in the answer.
    fn end_claim(&self, number: u64, answer: Option<UtcMillis>) {
        let is_earlier = {
            let mut first = self.first_due();
            let place = first.claims.iter().position(|claim| claim.number == number);
            let committed = place.map_or(UtcMillis::MAX, |place| first.claims.swap_remove(place).committed);
            first.known = answer.or(first.known);
            answer.is_none_or(|due| committed < due)
        };
        if is_earlier {
            self.wake();
        }
    }

    /// Forgets the answer of the last claim. The store calls this method when another deployment has taken the place of
    /// the deployment to which the answer belongs.
    pub fn clear(&self) {
        self.first_due().known = None;
    }

    fn first_due(&self) -> MutexGuard<'_, FirstDue> {
        self.first_due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Alarm").field(&*self.first_due()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The due moment of a timer.
    const DUE: UtcMillis = UtcMillis::from_millis(5);

    /// Returns an alarm, and the number of times that it has woken its subscriber.
    fn counted() -> (Alarm, Arc<AtomicUsize>) {
        let (alarm, calls) = (Alarm::default(), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&calls);
        alarm.subscribe(Box::new(move || _ = count.fetch_add(1, Ordering::Relaxed)));
        (alarm, calls)
    }

    #[test]
    fn only_an_earlier_timer_wakes_the_subscribers() {
        let (alarm, calls) = counted();
        let calls = || calls.load(Ordering::Relaxed);
        alarm.wake_for(DUE);
        assert_eq!(calls(), 1, "no claim has been answered");
        alarm.begin_claim().end(Some(DUE));
        alarm.wake_for(DUE);
        assert_eq!(calls(), 1);
        alarm.wake_for(UtcMillis::from_millis(4));
        assert_eq!(calls(), 2);
        alarm.clear();
        alarm.wake_for(DUE);
        assert_eq!(calls(), 3, "the answer is forgotten");
    }

    #[test]
    fn a_commit_during_a_claim_is_compared_with_the_claims_answer() {
        let (alarm, calls) = counted();
        let calls = || calls.load(Ordering::Relaxed);
        alarm.begin_claim().end(Some(UtcMillis::ZERO));
        let (early, late) = (alarm.begin_claim(), alarm.begin_claim());
        alarm.wake_for(DUE);
        assert_eq!(calls(), 0);
        early.end(Some(DUE));
        assert_eq!(calls(), 0, "the answer has a timer that is due as early");
        late.end(None);
        assert_eq!(calls(), 1);
        alarm.begin_claim().end(None);
        assert_eq!(calls(), 1, "the commit was before this claim");
    }

    #[test]
    fn a_claim_without_an_answer_wakes_the_subscribers_and_changes_no_answer() {
        let (alarm, calls) = counted();
        alarm.begin_claim().end(Some(DUE));
        drop(alarm.begin_claim());
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        alarm.wake_for(DUE);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn timers_of_other_nodes_wake_nobody() {
        let (alarm, calls) = counted();
        let calls = || calls.load(Ordering::Relaxed);
        alarm.wake_for_shards(DUE, 1 << 3);
        assert_eq!(calls(), 1, "no claim has told whose the shard is");
        let claim = alarm.begin_claim();
        alarm.set_others(1 << 3);
        claim.end(None);
        alarm.wake_for_shards(DUE, 1 << 3);
        assert_eq!(calls(), 1);
        alarm.wake_for_shards(DUE, 1 << 4);
        assert_eq!(calls(), 2);
        alarm.wake_for_shards(DUE, (1 << 3) | (1 << 4));
        assert_eq!(calls(), 3);
        alarm.wake_for(DUE);
        assert_eq!(calls(), 4, "a look has found a timer of this node");
    }

    /// A timer is committed in a shard of another node while a claim of this node is under way. The claim's answer then
    /// gives the shard to this node.
    #[test]
    fn a_claim_that_brings_a_shard_is_compared_with_the_commits_during_it() {
        let (alarm, calls) = counted();
        alarm.set_others(1 << 3);
        let claim = alarm.begin_claim();
        alarm.wake_for_shards(DUE, 1 << 3);
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        alarm.set_others(0);
        claim.end(None);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
