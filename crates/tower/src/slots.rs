//! Counts the slots (permissions for calls) of a rate, and manages the queue of the services that wait for a slot.

use std::collections::BTreeMap;
use std::mem;
use std::task::Waker;
use std::time::Duration;
use tourbillon::Timestamp;

/// A rate: at most `calls` calls in each period of length `period`. Both fields are above zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) calls: u64,
    pub(crate) period: Duration,
}

/// The slots of a rate. A slot is the permission for one call: each call uses up a slot of the period in which it is
/// made. A period begins with the first call after the end of the period before it.
///
/// A service *reserves* a slot before its call. If all slots are taken, the service waits in a queue. The first waiting
/// services have the *promise* of a slot in the next period, so each of them sets a timer for the end of the present
/// period. The services behind them set no timer. When a slot becomes free, the first waiting service gets it, even if
/// that service is not polled at the moment.
///
/// After each change:
///
/// - `used + reserved` is at most `rate.calls`, and equal to it while the queue is not empty;
/// - `promised + reserved` is at most `rate.calls`, and equal to it while a waiting service has no promise.
#[derive(Debug)]
pub(crate) struct Slots {
    rate: Rate,
    /// The end of the latest period, or zero before the first call. The end may have passed, because the next period
    /// begins only with a call.
    end: Timestamp,
    /// The number of calls made in the latest period, or zero once the period was found to be over.
    used: u64,
    /// The number of slots that services have reserved and not used up.
    reserved: u64,
    /// The number of waiting services that will get a slot when the present period ends. [`Slots`] explains this
    /// *promise* of a slot.
    promised: u64,
    /// The waiting services in the order of their arrival, each by its number. A waker is `None` after it was woken,
    /// until the service polls again.
    queue: BTreeMap<u64, Option<Waker>>,
    /// The number that the next service to wait will get.
    next_number: u64,
    /// Divides the queue: each waiting service whose number is less than `promised_below` has the promise of a slot in
    /// the next period. The services behind them have no promise.
    promised_below: u64,
}

/// The number of a waiting service, which is its place in the queue. When the service gets a slot, its number leaves
/// the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(u64);

/// The result of a service's attempt to reserve a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The service has a slot.
    Now,
    /// The service waits at this place in the queue. It will get a slot at the end of the present period, which is the
    /// moment in the second field.
    At(Number, Timestamp),
    /// The service waits at this place in the queue. It is woken when it gets a slot, or when a slot of the next period
    /// is promised to it.
    Later(Number),
}

/// The wakers that a method of [`Slots`] has taken out of the queue. [`apply`](Self::apply) wakes or drops them. The
/// caller must release the lock of the [`Slots`] before, because wakers run code of other crates.
#[must_use = "the wakers are called when no lock is held"]
#[derive(Debug, Default)]
pub(crate) struct Changes {
    woken: Vec<Waker>,
    dropped: BTreeMap<u64, Option<Waker>>,
    replaced: Option<Waker>,
}

impl Changes {
    /// Wakes the tasks of the services that have got a slot, or the promise of a slot in the next period. Drops the
    /// other wakers.
    pub(crate) fn apply(self) {
        self.woken.into_iter().for_each(Waker::wake);
        drop((self.dropped, self.replaced));
    }
}

impl Slots {
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            rate,
            end: Timestamp::ZERO,
            used: 0,
            reserved: 0,
            promised: 0,
            queue: BTreeMap::new(),
            next_number: 0,
            promised_below: 0,
        }
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the end of the latest period, which may have passed, or zero before the first call.
    pub(crate) fn end(&self) -> Timestamp {
        self.end
    }

    /// Reserves a slot for a service. Returns whether the service has a slot now. A service without a `number` gets a
    /// slot if a slot is free. A service with a `number` has waited in the queue. It has a slot if its number has left
    /// the queue.
    pub(crate) fn try_reserve(&mut self, number: Option<Number>) -> bool {
        if let Some(Number(number)) = number {
            return !self.queue.contains_key(&number);
        }
        let is_free = self.used + self.reserved < self.rate.calls;
        self.reserved += u64::from(is_free);
        is_free
    }

    /// Reserves a slot as [`try_reserve`](Self::try_reserve) does, or puts the service into the queue. If the caller
    /// has found that the present period is over, `ended` is the period's end. Otherwise `ended` is `None`.
    pub(crate) fn reserve_or_wait(
        &mut self,
        number: Option<Number>,
        waker: Waker,
        ended: Option<Timestamp>,
    ) -> (Turn, Changes) {
        let mut changes = Changes::default();
        if ended == Some(self.end) {
            self.end_period(&mut changes);
        }
        self.give(&mut changes);
        if self.try_reserve(number) {
            return (Turn::Now, changes);
        }
        let number = number.unwrap_or_else(|| {
            self.next_number += 1;
            Number(self.next_number - 1)
        });
        changes.replaced = self.queue.insert(number.0, Some(waker)).flatten();
        if number.0 >= self.promised_below && self.promised + self.reserved < self.rate.calls {
            // All services in front of this one have a promise already.
            self.promise(number.0);
        }
        let turn =
            if number.0 < self.promised_below { Turn::At(number, self.end) } else { Turn::Later(number) };
        (turn, changes)
    }

    /// Records that a service is called at `now`: the slot that the service has reserved counts as used in the present
    /// period. If the present period is over, a new period begins first. `now` may be a little later than the true
    /// time, but is never earlier. `has_come` returns whether a moment has come by the true time.
    pub(crate) fn use_up(&mut self, now: Timestamp, has_come: impl FnOnce(Timestamp) -> bool) -> Changes {
        let mut changes = Changes::default();
        if now >= self.end && has_come(self.end) {
            self.end_period(&mut changes);
            self.end = now + self.rate.period;
        }
        self.reserved -= 1;
        self.used += 1;
        self.give(&mut changes);
        changes
    }

    /// Takes back the slot of a service that will not be called.
    pub(crate) fn give_back(&mut self) -> Changes {
        let mut changes = Changes::default();
        self.reserved -= 1;
        self.give(&mut changes);
        changes
    }

    /// Removes a service from the queue, or takes back the slot that the service has got.
    pub(crate) fn leave(&mut self, number: Number) -> Changes {
        let Some(waker) = self.queue.remove(&number.0) else { return self.give_back() };
        let mut changes = Changes { replaced: waker, ..Changes::default() };
        self.promised -= u64::from(number.0 < self.promised_below);
        self.give(&mut changes);
        changes
    }

    /// Ends the period. Each service with a promise gets a slot, and leaves the queue. Its waker is dropped and not
    /// woken, because the service has set a timer for the end of the period, which wakes it.
    fn end_period(&mut self, changes: &mut Changes) {
        self.used = 0;
        self.reserved += mem::take(&mut self.promised);
        let waiting = self.queue.split_off(&self.promised_below);
        changes.dropped = mem::replace(&mut self.queue, waiting);
    }

    /// Gives the free slots to the services at the front of the queue, and removes these services from the queue. Then
    /// promises the remaining slots of the next period to the services behind them, which stay in the queue. Adds the
    /// wakers of both groups to `changes`: a service with a promise must wake up to set its timer.
    fn give(&mut self, changes: &mut Changes) {
        while self.used + self.reserved < self.rate.calls
            && let Some((number, waker)) = self.queue.pop_first()
        {
            self.reserved += 1;
            self.promised -= u64::from(number < self.promised_below);
            changes.woken.extend(waker);
        }
        while self.promised + self.reserved < self.rate.calls
            && let Some((&number, waker)) = self.queue.range_mut(self.promised_below..).next()
        {
            changes.woken.extend(waker.take());
            self.promise(number);
        }
    }

    fn promise(&mut self, number: u64) {
        self.promised += 1;
        self.promised_below = number + 1;
    }
}
