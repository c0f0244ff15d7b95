//! Begins deliveries.

use crate::delivery::{Delivery, Settlement};
use crate::executor::{Executor, Threads};
use crate::handler::Verdict;
use crate::policy::{Guarantee, Misfire};
use crate::runtime::alarm::Alarms;
use crate::runtime::event::Ending;
use crate::runtime::shared::{DeliveryEnd, Observed, RenewalAlarm, Runtime, UnderWay, ended_unstored};
use crate::state::{State as TimerState, Token};
use crate::store::{Leased, Op, StoreError, StoreErrorKind};
use crate::supervise::{Assignment, Supervisor, supervise};
use crate::timer::Timer;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tourbillon_words::UtcMillis;

/// The shortest pause before a renewal that is set for the end of a lease.
const LEAST_REST: Duration = Duration::from_millis(50);

/// Begins deliveries, and sets their timeouts and the alarm of the next renewal.
#[derive(Clone, Copy)]
pub(super) struct Launcher<'a> {
    runtime: &'a Arc<Runtime>,
    pub(super) alarms: &'a Alarms,
    threads: &'a Threads,
}

/// The reason why a delivery must not begin.
enum Obstacle {
    /// The delivery ends at once with this operation.
    End(Op),
    /// The store has removed the timer, so there is no delivery to end.
    Forgotten,
}

impl<'a> Launcher<'a> {
    /// Makes a launcher; `None` before the runtime has its alarms.
    pub(super) fn new(runtime: &'a Arc<Runtime>, threads: &'a Threads) -> Option<Self> {
        Some(Self { runtime, alarms: runtime.alarms()?, threads })
    }

    /// Begins a delivery of a claimed timer, or ends it at once if it must not begin.
    pub(super) fn begin(&self, leased: Leased, now: UtcMillis) {
        let Leased { timer, token } = leased;
        let runtime = self.runtime;
        // Not under the lock: the first call copies the timer, and the second calls the function for incidents.
        let mut delivery = self.under_way(&timer, token);
        let obstacle = self.obstacle(&timer, token, now);
        let mut state = runtime.lock();
        let number = state.deliveries.number();
        delivery.number = number;
        // When a handler returns, the loop claims the timers that were left because of shares. No handler is called
        // here, so that claim is requested here.
        state.requests.look |= state.backlog.is_withheld && obstacle.is_some();
        match obstacle {
            None => {}
            Some(Obstacle::End(op)) => return state.settled.ends.push(DeliveryEnd { delivery, op }),
            Some(Obstacle::Forgotten) => {
                drop(state);
                if let Some(observed) = delivery.observed {
                    let skipped = ended_unstored(observed.attempt, now, Ending::Skipped, None);
                    runtime.reporter.emit(&skipped);
                }
                return;
            }
        }
        let Some(handler) = runtime.handler(&timer.kind) else { return };
        // The stop came during the claim.
        if state.is_stopping() {
            let op = match &delivery.unstored {
                Some(timer) => Op::Return(timer.clone(), token),
                None => Op::Release(delivery.id, token),
            };
            return state.settled.ends.push(DeliveryEnd { delivery, op });
        }
        let settlement = Arc::clone(&delivery.settlement);
        state.deliveries.insert(delivery);
        drop(state);
        self.set_renewal();
        let timeout = self.alarms.timeout_in(number, timer.policy.timeout);
        {
            // The handler counts as running only once its timeout is set.
            let mut state = runtime.lock();
            state.deliveries.enter(number, runtime.settings.in_turn.then_some(&*timer.namespace));
            if let Some(delivery) = state.deliveries.get_mut(number) {
                delivery.timeout = timeout;
            }
        }
        runtime.reporter.delivered();
        let work = supervise(Assignment {
            supervisor: Arc::<Runtime>::clone(runtime) as Arc<dyn Supervisor>,
            number,
            handler: Arc::clone(handler),
            delivery: Delivery::new(&timer, now, Arc::clone(&settlement)),
            payload: timer.payload.0,
            settlement,
        });
        let spawn = || match &runtime.settings.executor {
            Some(executor) if !handler.blocks() => executor.spawn(work),
            _ => self.threads.spawn(work),
        };
        // Work that is dropped gives its timer back. The other timers of the claim begin none the less: those that are
        // delivered at most once are nowhere else.
        if catch_unwind(AssertUnwindSafe(spawn)).is_err() {
            let error = StoreError::new(StoreErrorKind::Unknown, "the executor panicked");
            runtime.reporter.store_failed(&error);
        }
    }

    /// Makes the runtime's record of a delivery, without its number.
    fn under_way(&self, timer: &Timer, token: Token) -> UnderWay {
        let is_stored = timer.policy.guarantee == Guarantee::AtLeastOnce;
        let unclaimed = || Timer { deliveries: timer.deliveries.saturating_sub(1), ..timer.clone() };
        UnderWay {
            id: timer.id,
            token,
            settlement: Arc::new(Settlement::default()),
            unstored: (!is_stored).then(|| Box::new(unclaimed())),
            number: 0,
            timeout: None,
            due: timer.due,
            until: match timer.state {
                TimerState::Leased(lease) => lease.until,
                _ => UtcMillis::MAX,
            },
            key: timer.key.clone(),
            begun: None,
            is_snoozed: false,
            observed: self.runtime.reporter.is_observed().then(|| Observed::new(timer)),
        }
    }

    fn obstacle(&self, timer: &Timer, token: Token, now: UtcMillis) -> Option<Obstacle> {
        let reporter = &self.runtime.reporter;
        let is_stored = timer.policy.guarantee == Guarantee::AtLeastOnce;
        if !self.runtime.has_handler(&timer.kind) {
            reporter.unknown_kind(timer);
            let reason = Verdict::reason_for_unknown(&timer.kind);
            return Some(Obstacle::End(if is_stored {
                Op::Park(timer.id, token, reason)
            } else {
                let deliveries = timer.deliveries.saturating_sub(1);
                let parked = Timer { state: TimerState::Parked(reason), deliveries, ..timer.clone() };
                Op::Return(Box::new(parked), token)
            }));
        }
        let lateness = now - timer.due;
        match timer.policy.misfire {
            Misfire::Within(grace) if timer.failures == 0 && lateness > grace => {
                reporter.skipped(timer, lateness);
                Some(if is_stored { Obstacle::End(Op::Skip(timer.id, token)) } else { Obstacle::Forgotten })
            }
            _ => None,
        }
    }

    /// Sets the alarm of the next renewal, a third of a lease from now, unless it is set (R4).
    pub(super) fn set_renewal(&self) {
        self.set_renewal_in(self.runtime.settings.lease / 3);
    }

    /// Sets the alarm of the next renewal for the end of a lease, or for a third of a lease from now if that is
    /// earlier. The holder of the lease may be gone.
    pub(super) fn set_renewal_by(&self, end: UtcMillis, now: UtcMillis) {
        self.set_renewal_in((end - now).clamp(LEAST_REST, self.runtime.settings.lease / 3));
    }

    pub(super) fn set_renewal_in(&self, rest: Duration) {
        let is_unset = {
            let mut state = self.runtime.lock();
            let is_unset = state.requests.renewal == RenewalAlarm::Unset;
            if is_unset {
                state.requests.renewal = RenewalAlarm::Set;
            }
            is_unset
        };
        if is_unset {
            // This must not be under the lock, for which the engine's thread may wait.
            self.alarms.renew_in(rest);
        }
    }
}
