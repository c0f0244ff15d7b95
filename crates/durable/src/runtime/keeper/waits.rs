//! How the loop waits: for work, for the answer of a call, for the end of a pause.

use super::calls::{Called, Calls};
use super::pause::Pause;
use super::{Keeper, MOST_ENDS, State, Wanted, Wants};
use crate::delivery::Settlement;
use crate::store::{Op, StoreError};
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

impl State {
    /// Whether the loop has something to do for its calls: something to poll, and something to send if it takes ends
    /// now.
    fn has_calls(&self, calls: &Calls, takes_ends: bool) -> bool {
        !self.called.is_empty()
            || takes_ends && !self.ends.is_empty()
            || self.stop.is_some() && !calls.is_stopping()
            || calls.rest().is_some_and(|rest| rest <= Instant::now())
    }
}

impl Keeper {
    /// Waits until something is wanted. Returns `None` when the runtime is stopped and the store knows of all ends.
    pub(super) fn await_work(&self, calls: &mut Calls) -> Option<Wanted> {
        let mut state = self.lock();
        loop {
            if state.has_calls(calls, true) {
                drop(state);
                self.advance(calls, true);
                state = self.lock();
                continue;
            }
            // A delivery's events come before its end, which is emitted when the store has it.
            if !state.events.is_empty() {
                state.is_emitting = true;
                return Some(Wanted::Events(core::mem::take(&mut state.events)));
            }
            if calls.has_answers() {
                state.busy_since = Some(Instant::now());
                return Some(Wanted::Answers(calls.take_answers()));
            }
            if let Some(renewed) = calls.take_renewed() {
                state.busy_since = Some(Instant::now());
                return Some(Wanted::Reap(renewed));
            }
            let mut until = calls.rest();
            if let Some(stop) = state.stop {
                // A lease that is not renewed any more has ended after its length, whatever becomes of the end.
                let last = match state.under_way.is_empty() {
                    true => stop.until.checked_add(self.settings.lease),
                    false => Some(stop.until),
                };
                let is_over = last.is_some_and(|last| last <= Instant::now());
                match state.under_way.is_empty() {
                    true if calls.count() == 0 => return None,
                    true if is_over => {
                        drop(state);
                        calls.give_up();
                        state = self.lock();
                        continue;
                    }
                    false if is_over => {
                        let settled = give_all_back(&mut state);
                        drop(state);
                        settled.iter().for_each(|settlement| settlement.wake());
                        state = self.lock();
                        continue;
                    }
                    _ => until = until.into_iter().chain(last).min(),
                }
            }
            let is_stopping = state.stop.is_some();
            // (C4)
            let is_held_up = !calls.has_parts() && calls.count() > 0;
            let may_renew = state.stop.is_none_or(|stop| Instant::now() < stop.until);
            if state.renew && may_renew && !is_held_up && !calls.is_renewing() {
                (state.renew, state.is_renewing) = (false, true);
                state.busy_since = Some(Instant::now());
                return Some(Wanted::Renewal);
            }
            let is_held_up = is_held_up || !calls.has_parts() && calls.is_renewing();
            let room = self.settings.concurrency.saturating_sub(state.occupied + calls.kept());
            let may_claim = room > 0 && !is_stopping && !is_held_up && calls.count() < MOST_ENDS;
            // In turn with the claims of what is due: neither waits for all of the others.
            if may_claim
                && !(state.look && state.has_fetched)
                && let Some(fetch) = state.fetches.pop_front()
            {
                (state.has_fetched, state.busy_since) = (true, Some(Instant::now()));
                state.next_claim += 1;
                return Some(Wanted::Fetch { fetch, room, claim: state.next_claim });
            }
            if state.look && may_claim {
                (state.look, state.has_fetched) = (false, false);
                state.busy_since = Some(Instant::now());
                state.next_claim += 1;
                return Some(Wanted::Claim { room, claim: state.next_claim });
            }
            let wants = Wants { ends: calls.sends_at_once(), others: !is_held_up };
            state = self.sleep(state, wants, until);
        }
    }

    /// Waits for a signal that is wanted, or for the moment.
    fn sleep<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        wants: Wants,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        state.wants = wants;
        let mut state = match until {
            Some(until) => {
                let rest = until.saturating_duration_since(Instant::now());
                self.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        state.wants = Wants::default();
        state
    }

    /// Polls what is at the store, and sends what was noted if it takes ends now.
    fn advance(&self, calls: &mut Calls, takes_ends: bool) {
        let (called, ends, is_stopping) = {
            let mut state = self.lock();
            let ends = if takes_ends { core::mem::take(&mut state.ends) } else { Vec::new() };
            state.unanswered += ends.len();
            (core::mem::take(&mut state.called), ends, state.stop.is_some())
        };
        calls.advance(called);
        calls.take(ends);
        if is_stopping {
            calls.stop();
        }
        for error in calls.errors.drain(..) {
            self.reporter.store_failed(&error);
        }
        let mut state = self.lock();
        (state.unanswered, state.unanswered_since) = (calls.count(), calls.since());
    }

    /// Waits for the answer of a call, and drives the others meanwhile.
    pub(super) fn wait_for<F: Future>(&self, calls: &mut Calls, future: F) -> F::Output {
        let mut future = pin!(future);
        let waker = calls.waker(Called::Awaited);
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            let mut state = self.lock();
            while !core::mem::take(&mut state.is_answered) {
                state = self.rest(state, calls, None);
            }
        }
    }

    /// A step of a wait that no signal ends: drives calls, or sleeps.
    fn rest<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        calls: &mut Calls,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        // Ends of a store without parts make one batch for the time after the wait.
        let takes_ends = calls.has_parts();
        if state.has_calls(calls, takes_ends) {
            drop(state);
            self.advance(calls, takes_ends);
            return self.lock();
        }
        let wants = Wants { ends: takes_ends && calls.sends_at_once(), others: false };
        self.sleep(state, wants, until.into_iter().chain(calls.rest()).min())
    }

    /// Reports an error of the store and waits. Returns false, and does not wait, if the runtime is stopped.
    pub(super) fn bear(&self, error: &StoreError, calls: &mut Calls, pause: &mut Pause) -> bool {
        self.reporter.store_failed(error);
        let until = Instant::now() + pause.next();
        let mut state = self.lock();
        // Signals other than the stop do not end the pause: under load there are always some.
        while state.stop.is_none() {
            if until <= Instant::now() {
                return true;
            }
            state = self.rest(state, calls, Some(until));
        }
        false
    }
}

/// Gives back the timers of all deliveries that are under way. Returns the settlements that are to be woken.
fn give_all_back(state: &mut State) -> Vec<Arc<Settlement>> {
    let mut settled = Vec::new();
    for (_, under_way) in core::mem::take(&mut state.under_way) {
        if under_way.unstored.is_none() && under_way.settlement.settle() {
            settled.push(Arc::clone(&under_way.settlement));
            let op = Op::Release(under_way.id, under_way.token);
            state.ends.push((under_way, op));
        }
    }
    settled
}
