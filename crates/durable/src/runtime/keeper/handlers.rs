//! The runtime as handlers see it, on their threads.

use super::Keeper;
use super::ends::ended_unstored;
use crate::handler::Verdict;
use crate::runtime::event::{Ending, Event};
use crate::store::Op;
use crate::supervise::Supervisor;
use core::time::Duration;
use std::sync::Arc;

/// The pause after an executor has dropped a handler's work.
const DROPPED: Duration = Duration::from_secs(1);

impl Supervisor for Keeper {
    fn may_begin(&self, number: u64) -> bool {
        let (now, at) = (self.clock.now(), self.store.now());
        let mut state = self.lock();
        let Some(under_way) = state.under_way.get_mut(&number) else { return false };
        if under_way.until > at {
            under_way.begun = Some(now);
            let lateness = at - under_way.due;
            self.reporter.called(lateness);
            if let Some(of) = under_way.observed.as_ref().map(|observed| Arc::clone(&observed.of)) {
                state.events.push(Event::Began { of, at, lateness });
                self.notify(&state, |wants| wants.others);
            }
            return true;
        }
        if let Some(under_way) = state.under_way.remove(&number)
            && under_way.settlement.settle()
        {
            let op = Op::Release(under_way.id, under_way.token);
            state.ends.push((under_way, op));
            self.notify(&state, |wants| wants.ends);
        }
        false
    }

    fn answered(&self, number: u64, verdict: Verdict) {
        let timeout = self.settle(number, verdict);
        if let Some(alarms) = self.alarms.get() {
            alarms.cancel(timeout);
        }
    }

    fn returned(&self, number: u64, has_begun: bool) {
        let at = self.store.now();
        let mut state = self.lock();
        state.occupied -= 1;
        state.occupants.leave(number);
        state.look |= state.has_withheld;
        let dropped = state.under_way.remove(&number);
        let settlement = dropped.as_ref().map(|under_way| Arc::clone(&under_way.settlement));
        if let Some(under_way) = dropped
            && under_way.settlement.settle()
        {
            let op = match &under_way.unstored {
                Some(_) if has_begun => {
                    let observed = under_way.observed.as_ref().map(|observed| Arc::clone(&observed.of));
                    let event = observed.map(|of| ended_unstored(of, at, Ending::GivenBack, None));
                    state.events.extend(event);
                    None
                }
                Some(timer) => Some(Op::Return(timer.clone(), under_way.token)),
                None if state.stop.is_some() => Some(Op::Release(under_way.id, under_way.token)),
                None => Some(Op::Snooze(under_way.id, under_way.token, at + DROPPED)),
            };
            state.ends.extend(op.map(|op| (under_way, op)));
            self.notify(&state, |wants| wants.ends);
        }
        self.notify(&state, |wants| wants.others);
        drop(state);
        if let Some(settlement) = settlement {
            settlement.wake();
        }
    }
}
