//! Chooses the loop's next step. Waits for work, for the answer of a call, or for the end of a pause.

use super::{DeliveryLoop, Step};
use crate::runtime::shared::{
    Activity, MOST_PUT_OFF, RenewalAlarm, Runtime, RuntimeState, Stage, Unanswered, Wakes,
};
use crate::store::StoreError;
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll};
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

/// The limit for results of deliveries without an answer from the store. If this number of results or more have no
/// answer, the delivery loop claims no timers (invariant R7 of [`delivery_loop`](super)).
const MOST_ENDS: usize = 4_096;

enum Choice {
    Step(Step),
    /// The delivery loop must poll the futures of its calls to the store.
    Drive,
    /// The runtime stops, and all leases have expired. The delivery loop must give up the results of deliveries that
    /// the store has not answered.
    GiveUp,
    Sleep {
        wakes: Wakes,
        until: Option<Instant>,
    },
    Ended,
}

impl DeliveryLoop<'_> {
    /// Waits until the delivery loop has a step to make, and returns the step. Returns `None` when the stop of the
    /// runtime is complete: no delivery is under way, and no result of a delivery waits for the store's answer. The
    /// delivery loop gives up results without an answer once all leases have expired.
    pub(super) fn next(&mut self) -> Option<Step> {
        let runtime = self.runtime;
        loop {
            let mut state = runtime.lock();
            match self.choose(&mut state) {
                Choice::Step(step) => return Some(step),
                Choice::Drive => {
                    drop(state);
                    self.drive(true);
                }
                Choice::GiveUp => {
                    drop(state);
                    self.ends.give_up();
                    self.removals.give_up(self.runtime);
                }
                Choice::Sleep { wakes, until } => sleep(runtime, state, wakes, until),
                Choice::Ended => return None,
            }
        }
    }

    /// Chooses the next step of the delivery loop. The table "Choice of a step" in the parent module shows the order.
    fn choose(&mut self, state: &mut RuntimeState) -> Choice {
        if self.has_calls(state, true) {
            return Choice::Drive;
        }
        // The observer must get the events of a delivery before its end. The end is emitted when the store has
        // confirmed it.
        if !state.settled.events.is_empty() {
            state.activity = Activity::Emitting;
            return Choice::Step(Step::Emit(core::mem::take(&mut state.settled.events)));
        }
        if self.ends.has_answers() {
            return at_store(state, Step::Report(self.ends.take_answered()));
        }
        if let Some(renewed) = self.renewals.take_answered() {
            return at_store(state, Step::Reap(renewed));
        }
        let (now, mut until) = (Instant::now(), self.first_rest(state));
        if let Stage::Stopping { until: patience } = state.stage {
            let is_settled = state.deliveries.are_settled();
            if state.deliveries.is_empty() && self.ends.count() == 0 {
                return Choice::Ended;
            }
            // No lease is renewed after the moment `patience`. All leases have expired when the length of a lease has
            // passed since this moment. Then the ends are given up.
            let last = match is_settled {
                true => patience.checked_add(self.runtime.settings.lease),
                false => Some(patience),
            };
            if last.is_some_and(|last| last <= now) {
                // The drive gives the deliveries back.
                return if is_settled { Choice::GiveUp } else { Choice::Drive };
            }
            until = until.into_iter().chain(last).min();
        }
        // A store without parts gets no claim before it has answered all ends (C4).
        let is_held_up = self.ends.holds_up_claims();
        let is_renewing = self.renewals.is_in_progress();
        let may_renew = match state.stage {
            Stage::Running => true,
            Stage::Stopping { until } => now < until,
            Stage::Ended => false,
        };
        if state.requests.renewal == RenewalAlarm::Rung && may_renew && !is_held_up && !is_renewing {
            state.requests.renewal = RenewalAlarm::Unset;
            return at_store(state, Step::Renew);
        }
        let is_held_up = is_held_up || !self.ends.has_parts() && is_renewing;
        // The deliveries of kept timers begin later without another look at the room, so their places are reserved.
        let occupied = state.deliveries.running() + self.ends.kept();
        let room = self.runtime.settings.concurrency.saturating_sub(occupied);
        let has_memory = self.ends.count() < MOST_ENDS && state.deliveries.put_off.len() < MOST_PUT_OFF;
        let may_claim = room > 0 && !state.is_stopping() && !is_held_up && has_memory;
        // Claims of parked timers alternate with claims of due timers. So parked timers do not wait for all due timers,
        // and due timers do not wait for all parked timers.
        if may_claim
            && !(state.requests.look && self.claims.was_fetch)
            && let Some(fetch) = state.requests.fetches.pop_front()
        {
            self.claims.was_fetch = true;
            return at_store(state, Step::Fetch { fetch, room });
        }
        if may_claim && state.requests.look {
            // The request is cleared before the claim. So a request that comes during the claim leads to another claim.
            (state.requests.look, self.claims.was_fetch) = (false, false);
            return at_store(state, Step::Claim { room });
        }
        let on_removals = self.removals.wants_requests();
        let wakes = Wakes { on_ends: self.ends.sends_at_once(), on_requests: !is_held_up, on_removals };
        Choice::Sleep { wakes, until }
    }

    /// Records that the delivery loop has made its step. Wakes the threads that wait for the step's result.
    pub(super) fn finish_step(&self) {
        let mut state = self.runtime.lock();
        state.activity = Activity::Choosing;
        state.unanswered = self.unanswered();
        drop(state);
        self.runtime.signals.changed.notify_all();
    }

    fn unanswered(&self) -> Unanswered {
        Unanswered {
            ends: self.ends.count(),
            is_renewing: self.renewals.is_in_progress(),
            is_unparking: self.unparks.is_in_progress(),
            since: [self.ends.since(), self.removals.since(), self.renewals.since()]
                .into_iter()
                .flatten()
                .min(),
        }
    }

    /// Gives back all deliveries under way, if the runtime stops and the time for which the stop waits for handlers has
    /// passed. This comes before the removals are sent. Otherwise a removal that waits to be sent would take effect
    /// although its delivery cannot begin, and the timer would be lost.
    fn give_back(&self) {
        let runtime = self.runtime;
        let is_over = |state: &RuntimeState| match state.stage {
            Stage::Stopping { until } => until <= Instant::now() && !state.deliveries.are_settled(),
            Stage::Running | Stage::Ended => false,
        };
        if is_over(&runtime.lock()) {
            let at = runtime.store_now();
            let settled = runtime.lock().give_all_back(at);
            // The wakers are foreign code, so they are called without the lock (R5).
            settled.iter().for_each(|settlement| settlement.wake());
        }
    }

    /// Sends the removals that wait to be sent, polls those that are at the store, and gives back the timers whose
    /// pauses are over.
    fn drive_removals(&mut self, context: &mut Context<'_>) {
        let asked = {
            let mut state = self.runtime.lock();
            // The flag is cleared before all polls. So a waker that is called during or after the polls sets it again.
            state.requests.poll = false;
            match state.is_stopping() {
                true => state.release_all(),
                false => state.release_over(Instant::now()),
            }
            core::mem::take(&mut state.requests.removals)
        };
        self.removals.take(self.runtime, asked);
        self.removals.poll(self.runtime, context);
        self.removals.take_begun().into_iter().for_each(|work| self.launcher.begin_again(work));
    }

    /// Polls the futures of the delivery loop's calls to the store. If `takes_ends` is true, first sends the results of
    /// deliveries that wait to be sent.
    pub(super) fn drive(&mut self, takes_ends: bool) {
        self.give_back();
        let waker = self.waker.clone();
        let mut context = Context::from_waker(&waker);
        self.drive_removals(&mut context);
        let (ends, stop) = {
            let mut state = self.runtime.lock();
            let ends = if takes_ends { core::mem::take(&mut state.settled.ends) } else { Vec::new() };
            // The ends are counted under the lock under which they are taken. Otherwise the runtime would look idle in
            // between.
            state.unanswered.ends += ends.len();
            let stop = match state.stage {
                Stage::Stopping { until } => Some(until),
                Stage::Running | Stage::Ended => None,
            };
            (ends, stop)
        };
        self.ends.take(ends);
        self.ends.poll(&mut context);
        if let Some(until) = stop {
            // The stop comes after the poll, so a batch that failed in this poll is sent again at once.
            self.ends.stop(until);
            self.ends.poll(&mut context);
            self.unparks.stop();
        }
        self.renewals.poll(&mut context);
        self.unparks.poll(&mut context);
        for error in self.ends.take_errors().into_iter().chain(self.removals.take_errors()) {
            self.runtime.reporter.store_failed(&error);
        }
        let unparked = self.unparks.take_unparked();
        unparked.errors.iter().for_each(|error| self.runtime.reporter.unpark_failed(error));
        let mut state = self.runtime.lock();
        state.unanswered = self.unanswered();
        state.requests.look |= unparked.has_timers;
    }

    /// Waits for the store's answer to `call`. Until the answer comes, polls the other calls of the delivery loop.
    pub(super) fn wait_for<F: Future>(&mut self, call: F) -> F::Output {
        let mut call = pin!(call);
        let waker = self.waker.clone();
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(output) = call.as_mut().poll(&mut context) {
                return output;
            }
            self.drive_or_sleep(None);
        }
    }

    /// Reports an error of the store, and pauses the delivery loop. Returns true after the pause, or false as soon as
    /// the runtime is stopped.
    pub(super) fn bear(&mut self, error: &StoreError) -> bool {
        self.runtime.reporter.store_failed(error);
        let until = Instant::now() + self.claims.backoff.next();
        // Only the stop of the runtime ends the pause early. Under load, other signals come all the time, and would
        // make the pause too short.
        while !self.runtime.is_stopping() {
            if until <= Instant::now() {
                return true;
            }
            self.drive_or_sleep(Some(until));
        }
        false
    }

    /// Polls the futures of the calls to the store if they need a poll. Otherwise sleeps until a wake, or until the
    /// moment `until`. A caller that waits for a condition calls this method again until the condition holds.
    fn drive_or_sleep(&mut self, until: Option<Instant>) {
        // A store without parts gets no ends during the wait. After the wait, the ends are sent in one batch.
        let takes_ends = self.ends.has_parts();
        let runtime = self.runtime;
        let state = runtime.lock();
        if self.has_calls(&state, takes_ends) {
            drop(state);
            return self.drive(takes_ends);
        }
        let wakes = Wakes {
            on_ends: takes_ends && self.ends.sends_at_once(),
            on_requests: false,
            on_removals: self.removals.wants_requests(),
        };
        let until = until.into_iter().chain(self.first_rest(&state)).min();
        sleep(runtime, state, wakes, until);
    }

    /// Returns the end of the pause that ends first. After each error, the delivery loop pauses before it repeats the
    /// call. Deliveries that are put off have pauses, too. Returns `None` if there is no pause.
    fn first_rest(&self, state: &RuntimeState) -> Option<Instant> {
        let of_calls = [self.ends.first_rest(), self.removals.first_rest(), self.unparks.first_rest()];
        of_calls.into_iter().flatten().chain(state.deliveries.put_off.first_moment()).min()
    }

    /// Returns true if the delivery loop must poll the futures of its calls to the store: a call has made progress, a
    /// pause is over, a removal waits to be sent, or the stop of the runtime has just been requested. If `takes_ends`
    /// is true, also returns true if results of deliveries wait to be sent.
    fn has_calls(&self, state: &RuntimeState, takes_ends: bool) -> bool {
        state.requests.poll
            || takes_ends && !state.settled.ends.is_empty()
            || !state.requests.removals.is_empty() && self.removals.wants_requests()
            || state.is_stopping() && !self.ends.is_stopping()
            || self.first_rest(state).is_some_and(|rest| rest <= Instant::now())
    }
}

fn at_store(state: &mut RuntimeState, step: Step) -> Choice {
    state.activity = Activity::AtStore { since: Instant::now() };
    Choice::Step(step)
}

/// Sleeps until the thread is woken, or until the moment `until`. Three things wake the thread: a signal that `wakes`
/// permits, the waker of a call at the store, and a stop of the runtime.
fn sleep(runtime: &Runtime, mut state: MutexGuard<'_, RuntimeState>, wakes: Wakes, until: Option<Instant>) {
    state.wakes = wakes;
    let mut state = match until {
        Some(until) => {
            let rest = until.saturating_duration_since(Instant::now());
            runtime.signals.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0
        }
        None => runtime.signals.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
    };
    state.wakes = Wakes::default();
}
