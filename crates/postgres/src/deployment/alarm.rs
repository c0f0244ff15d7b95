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

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::timer::Timer;

/// After a claim, the runtime sleeps until the due moment of the first timer that the claim has left in the store. An
/// `Alarm` wakes the runtime when a timer is due before this moment. It keeps this moment, and the functions that wake
/// the runtime.
#[derive(Default)]
pub(crate) struct Alarm {
    wakers: RwLock<Vec<Box<dyn Fn() + Send + Sync>>>,
    first_due: Mutex<FirstDue>,
}

#[derive(Default)]
struct FirstDue {
    /// The due moment of the first timer that the last claim has left in the store, from the claim's answer. A timer
    /// that is committed later and due before this moment wakes the subscribers (functions that wake the runtime).
    /// `None` before the first claim.
    known: Option<UtcMillis>,
    /// The shards that belong to other nodes, from the last claim's answer. Bit `n` stands for shard `n`. Timers in
    /// these shards do not wake the subscribers, because only the other nodes claim them. Zero before the first claim.
    others: u32,
    /// The claims that were sent to the server and have not ended.
    claims: Vec<ClaimUnderWay>,
    /// The number of the newest claim. Claims are numbered from 1, in the order in which they begin.
    last: u64,
}

/// A summary of the timers that a transaction has made pending.
#[derive(Clone, Copy, Default)]
pub(crate) struct Made {
    /// The earliest due moment of these timers. `None` if no timer was made pending.
    pub(crate) due: Option<UtcMillis>,
    /// The shards in which these timers are. Bit `n` stands for shard `n`.
    shards: u32,
}

impl Made {
    pub(crate) fn add(&mut self, timer: &Timer) {
        self.due = self.due.into_iter().chain([timer.due]).min();
        // As `shard_of` in the schema.
        self.shards |= 1 << (timer.id.as_u128() & 15);
    }
}

struct ClaimUnderWay {
    number: u64,
    /// The earliest due moment of a timer that was committed since the claim was sent. The claim's answer may not
    /// include that timer.
    committed: UtcMillis,
}

/// A claim that is under way. Dropping this value ends the claim. So the claim also ends when the caller drops the
/// claim's future.
pub(crate) struct Claiming<'a> {
    alarm: &'a Alarm,
    number: u64,
    /// The due moment of the first timer that the claim has left in the store, from the claim's answer. Due timers do
    /// not count if the claim has left them because their namespaces have used up their shares of the handlers. The
    /// outer `None` means that the claim has no answer. The inner `None` means that the claim has left no timer.
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

    /// Records which shards belong to other nodes: bit `n` of `others` stands for shard `n`. From now on, a timer that
    /// is committed in one of these shards does not wake the subscribers. Each successful claim of this node calls this
    /// method with the shards in the claim's answer, before the claim ends. When this process has stopped being a node,
    /// the owners of the shards are unknown. The node then sets zero, so that a timer of any shard wakes the
    /// subscribers.
    pub(crate) fn set_others(&self, others: u32) {
        self.first_due().others = others;
    }

    /// Wakes the subscribers if `due` is earlier than the due moment of the first timer that the last claim has left in
    /// the store. `due` is the due moment of a timer in a shard of this node.
    pub(crate) fn wake_for(&self, due: UtcMillis) {
        self.wake_for_shards(due, u32::MAX);
    }

    /// Wakes the subscribers if one of the timers of `made` may be due earlier than the first timer that the last claim
    /// has left in the store. Ignores timers that are surely in shards of other nodes.
    pub(crate) fn wake_for_made(&self, made: &Made) {
        if let Some(due) = made.due {
            self.wake_for_shards(due, made.shards);
        }
    }

    fn wake_for_shards(&self, due: UtcMillis, shards: u32) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tourbillon_durable::timer::TimerId;

    fn made(shard: u128, due: u64) -> Made {
        let mut made = Made::default();
        made.add(&Timer::new(TimerId::from_u128(0x70 + shard), "mail", UtcMillis::from_millis(due)));
        made
    }

    /// Returns an alarm, and the number of times that it has woken its subscriber.
    fn counted() -> (Alarm, Arc<AtomicUsize>) {
        let (alarm, calls) = (Alarm::default(), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&calls);
        alarm.subscribe(Box::new(move || _ = count.fetch_add(1, Ordering::Relaxed)));
        (alarm, calls)
    }

    #[test]
    fn timers_of_other_nodes_wake_nobody() {
        let (alarm, calls) = counted();
        let calls = || calls.load(Ordering::Relaxed);
        alarm.wake_for_made(&made(3, 5));
        assert_eq!(calls(), 1, "no claim has told whose the shard is");
        let mut claim = alarm.begin_claim();
        alarm.set_others(1 << 3);
        claim.answer = Some(None);
        drop(claim);
        alarm.wake_for_made(&made(3, 5));
        assert_eq!(calls(), 1);
        alarm.wake_for_made(&made(4, 5));
        assert_eq!(calls(), 2);
        alarm.wake_for_made(&Made::default());
        assert_eq!(calls(), 2, "no timer was made pending");
        let mut both = made(3, 5);
        both.add(&Timer::new(TimerId::from_u128(4), "mail", UtcMillis::from_millis(9)));
        alarm.wake_for_made(&both);
        assert_eq!(calls(), 3);
        alarm.wake_for(UtcMillis::from_millis(5));
        assert_eq!(calls(), 4, "a look has found a timer of this node");
    }

    /// A timer is committed in a shard of another node while a claim of this node is under way. The claim's answer then
    /// gives the shard to this node.
    #[test]
    fn a_claim_that_brings_a_shard_is_compared_with_the_commits_during_it() {
        let (alarm, calls) = counted();
        alarm.set_others(1 << 3);
        let mut claim = alarm.begin_claim();
        alarm.wake_for_made(&made(3, 5));
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        alarm.set_others(0);
        claim.answer = Some(None);
        drop(claim);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
