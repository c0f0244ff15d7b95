//! Handles the calls that the handlers' threads make to the runtime.

use super::delivery::{DeliveryEnd, Removal, UnderWay};
use super::put_off::{PUT_OFF, Until};
use super::state::AskedRemoval;
use super::{Runtime, RuntimeState, Wakes};
use crate::delivery::{Begin, Permission, Settlement};
use crate::panics::survive;
use crate::runtime::alarm::HandlerTime;
use crate::runtime::event::Event;
use crate::store::Op;
use crate::supervise::{Kept, Supervisor};
use crate::verdict::Verdict;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;
use tourbillon::Timestamp;
use tourbillon_words::UtcMillis;

impl Begin for Runtime {
    fn begin(&self, number: u64) -> Permission {
        let mut state = self.lock();
        let permission = state.begin(number);
        if permission == Permission::Awaited {
            self.notify(&state, |wakes| wakes.on_removals);
        }
        permission
    }
}

impl Supervisor for Runtime {
    fn may_call(&self, number: u64) -> Permission {
        // Without the store's time, nobody knows whether the lease is valid. So the handler is not called.
        let Some(at) = survive(|| self.store.now()) else { return Permission::Refused };
        let now = self.moment();
        let mut state = self.lock();
        let Some(delivery) = state.deliveries.get_mut(number) else { return Permission::Refused };
        match delivery.removal {
            Removal::Asked | Removal::AtStore => return Permission::Awaited,
            Removal::AtStoreForLong => return Permission::Later,
            _ => {}
        }
        // The lease of a removed timer has ended with its removal.
        if delivery.until > at || delivery.removal == Removal::Done {
            if delivery.removal == Removal::BeforeTheCall {
                drop(state);
                return self.begin(number);
            }
            delivery.begun = Some(now);
            let (time, timeout) = (delivery.time(), delivery.timeout);
            let lateness = at - delivery.due;
            // The delivery of a handler that begins it itself begins later.
            if delivery.removal != Removal::ByTheHandler {
                self.reporter.delivered();
            }
            self.reporter.called(lateness);
            if let Some(attempt) = delivery.observed.as_ref().map(|observed| Arc::clone(&observed.attempt)) {
                // The event is kept under the lock in which the delivery was found, so it precedes the event of the
                // delivery's end (R6).
                state.settled.events.push(Event::Began { attempt, at, lateness });
                self.notify(&state, |wakes| wakes.on_requests);
            }
            drop(state);
            self.set_timeout(time, timeout);
            return Permission::Granted;
        }
        // The handler has not got its `Delivery`, so nobody waits for the settlement, and no waker needs a call.
        if let Some(delivery) = state.deliveries.remove(number)
            && delivery.settlement.settle()
        {
            let op = Op::Release(delivery.id, delivery.token);
            state.settled.ends.push(DeliveryEnd { delivery, op });
            self.notify(&state, |wakes| wakes.on_ends);
        }
        Permission::Refused
    }

    fn keep(&self, number: u64, work: Kept) -> Option<Kept> {
        let mut state = self.lock();
        match state.deliveries.get_mut(number) {
            Some(delivery) if delivery.removal == Removal::AtStoreForLong => {
                delivery.kept = Some(Box::new(work));
                state.leave(number);
                self.notify(&state, |wakes| wakes.on_requests);
                None
            }
            _ => Some(work),
        }
    }

    fn answered(&self, number: u64, verdict: Verdict) {
        let alarm = self.settle(number, verdict, None);
        self.cancel_timeout(alarm);
    }

    fn returned(&self, number: u64) {
        let at = self.store_now();
        let mut state = self.lock();
        state.leave(number);
        // A handler that has answered has already settled its delivery. So a delivery that is found here was dropped by
        // the executor.
        let dropped = state.deliveries.remove(number);
        let settlement = dropped.as_ref().map(|delivery| Arc::clone(&delivery.settlement));
        if let Some(delivery) = dropped
            && delivery.settlement.settle()
        {
            state.give_back(delivery, at);
            self.notify(&state, Wakes::any);
        }
        // The return of a handler makes room, for which a claim may already wait.
        self.notify(&state, |wakes| wakes.on_requests);
        drop(state);
        if let Some(settlement) = settlement {
            settlement.wake();
        }
    }
}

impl Runtime {
    /// Sets the timeout of a delivery whose handler is about to be called, or which has just begun.
    pub(super) fn set_timeout(&self, time: HandlerTime, timeout: Duration) {
        let Some(alarms) = self.alarms.get() else { return };
        // This must stay outside the lock, since the engine's thread may wait for the lock.
        let alarm = alarms.timeout_in(time, timeout);
        let is_under_way = match self.lock().deliveries.get_mut(time.delivery) {
            Some(delivery) => {
                delivery.alarm = alarm;
                true
            }
            // The timeout has passed already, or the delivery has lost its lease.
            None => false,
        };
        if !is_under_way {
            alarms.cancel(alarm);
        }
    }

    pub(super) fn cancel_timeout(&self, alarm: Option<tourbillon::TimerId>) {
        if let Some(alarms) = self.alarms.get() {
            alarms.cancel(alarm);
        }
    }
}

impl RuntimeState {
    /// Frees the place of a handler.
    fn leave(&mut self, number: u64) {
        self.deliveries.leave(number);
        // A claim may have left due timers in the store, because their namespace had used up its share of the
        // handlers. Now that this handler has left its place, the loop can claim such a timer.
        self.requests.look |= self.backlog.is_withheld;
    }

    /// Begins a delivery. If the timer is delivered at most once, the store must remove it first. The delivery loop
    /// then gets a request for this removal.
    fn begin(&mut self, number: u64) -> Permission {
        let Some(delivery) = self.deliveries.get_mut(number) else { return Permission::Refused };
        match delivery.removal {
            Removal::Never | Removal::Done => Permission::Granted,
            Removal::Asked | Removal::AtStore | Removal::AtStoreForLong => Permission::Awaited,
            Removal::BeforeTheCall | Removal::ByTheHandler => {
                delivery.removal = Removal::Asked;
                self.requests.removals.push(AskedRemoval { number, id: delivery.id });
                Permission::Awaited
            }
        }
    }

    /// Gives back the timers whose work the program's executor has had for at least the time `longest`, by the
    /// runtime's clock, and whose handlers it has not called. Such an executor may have forgotten the work. The place
    /// of the handler stays occupied until the executor drops the work, since the executor may still call it.
    pub(crate) fn give_uncalled_back(&mut self, now: Timestamp, longest: Duration, at: UtcMillis) {
        let waits = |delivery: &&UnderWay| {
            // The executor has polled the work of a delivery that has asked for its removal.
            let has_asked = delivery.removal == Removal::Asked || delivery.removal.is_sent();
            let is_late = delivery.spawned.is_some_and(|spawned| now - spawned >= longest);
            delivery.begun.is_none() && !has_asked && is_late
        };
        let numbers: Vec<u64> =
            self.deliveries.iter().filter(waits).map(|delivery| delivery.number).collect();
        for number in numbers {
            // Only a called handler waits for the settlement, so no waker needs a call.
            if let Some(delivery) = self.deliveries.remove(number)
                && delivery.settlement.settle()
            {
                self.give_back(delivery, at);
            }
        }
    }

    /// Ends all deliveries under way, because the stop of the runtime waits no longer for their handlers. A delivery
    /// whose timer the store was asked to remove does not begin any more. Returns the [`Settlement`] of each. The
    /// caller must call [`Settlement::wake`] without the lock.
    pub(crate) fn give_all_back(&mut self, at: UtcMillis) -> Vec<Arc<Settlement>> {
        let mut settled = Vec::new();
        for delivery in self.deliveries.take_all() {
            if delivery.settlement.settle() {
                settled.push(Arc::clone(&delivery.settlement));
                self.give_back(delivery, at);
            }
        }
        settled
    }

    /// Ends a delivery without an answer of its handler: the executor has dropped the handler's future, its time has
    /// passed before it has begun, or the runtime stops. The timer stays stored, and is delivered again after a pause.
    /// The exception is a timer that is delivered at most once and whose delivery has begun: the store has removed it.
    pub(super) fn give_back(&mut self, delivery: UnderWay, at: UtcMillis) {
        match delivery.removal {
            Removal::Done => self.lose(delivery, at),
            _ if delivery.removal.is_at_store() => self.deliveries.leave_at_store(delivery, None),
            // Without a pause, an executor that drops all its work would get the timer again at once.
            _ => self.put_off(delivery, Until::Moment(Instant::now() + PUT_OFF)),
        }
    }
}
