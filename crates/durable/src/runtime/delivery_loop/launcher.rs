//! Begins deliveries: hands the work of handlers to the threads that run it, and sets the alarm for the next renewal of
//! leases.

use crate::delivery::{Begin, Delivery, Settlement};
use crate::executor::{Executor, Workers};
use crate::handler::Place;
use crate::panics::survive;
use crate::policy::{Guarantee, Misfire};
use crate::runtime::alarm::Alarms;
use crate::runtime::shared::{DeliveryEnd, Observed, Removal, RenewalAlarm, Runtime, UnderWay, Until};
use crate::state::{State as TimerState, Token};
use crate::store::{Leased, Op, StoreError, StoreErrorKind};
use crate::supervise::{Assignment, Kept, Supervisor, supervise};
use crate::timer::Timer;
use crate::verdict::Verdict;
use core::time::Duration;
use std::sync::{Arc, Weak};
use tourbillon_words::UtcMillis;

/// The shortest time from now to the alarm of the next renewal, if the alarm is set to the end of a lease. Without this
/// minimum, the alarm would ring at once for a lease whose end has passed.
const LEAST_REST: Duration = Duration::from_millis(50);

/// Begins deliveries, and sets the alarm for the next renewal of leases.
#[derive(Clone, Copy)]
pub(super) struct Launcher<'a> {
    runtime: &'a Arc<Runtime>,
    pub(super) alarms: &'a Alarms,
    workers: &'a Workers,
}

impl<'a> Launcher<'a> {
    /// Makes a launcher of deliveries. Returns `None` if the runtime's engine ([`Alarms`]) has not been started yet.
    /// The engine has the timers that wake the delivery loop and end the deliveries whose timeouts have passed.
    pub(super) fn new(runtime: &'a Arc<Runtime>, workers: &'a Workers) -> Option<Self> {
        Some(Self { runtime, alarms: runtime.alarms()?, workers })
    }

    /// Begins the delivery of a claimed timer. In three cases, the delivery ends at once, and no handler is called: the
    /// runtime has no handler for the timer's kind, the delivery is later than the timer's policy permits, or the
    /// runtime stops. In a fourth case, the delivery is put off: `shut` is the lane of removals that cannot remove the
    /// timer at present.
    pub(super) fn begin(&self, leased: Leased, now: UtcMillis, shut: Option<u32>) {
        let Leased { timer, token } = leased;
        let runtime = self.runtime;
        // Both calls must stay outside the lock. The first call copies the timer and may read the program's clock, and
        // the second call may call the program's function for incidents.
        let mut delivery = self.under_way(&timer, token);
        let obstacle = self.obstacle(&timer, token, now);
        let mut state = runtime.lock();
        let number = state.deliveries.number();
        delivery.number = number;
        // The last claim may have left due timers in the store, because their namespaces had used up their shares of
        // the handlers. Normally the return of a handler makes the loop claim again. This delivery calls no handler, so
        // the claim is requested here.
        state.requests.look |= state.backlog.is_withheld && (obstacle.is_some() || shut.is_some());
        if let Some(op) = obstacle {
            return state.settled.ends.push(DeliveryEnd { delivery, op });
        }
        // A timer without a handler has an obstacle, so this method never returns here.
        let Some(handler) = runtime.handler(&timer.kind) else { return };
        // The stop was requested during the claim.
        if state.is_stopping() {
            let op = Op::Release(delivery.id, token);
            return state.settled.ends.push(DeliveryEnd { delivery, op });
        }
        if let Some(lane) = shut {
            let _the_first = delivery.settlement.settle();
            state.put_off(delivery, Until::Lane(lane));
            drop(state);
            return self.set_renewal();
        }
        let settlement = Arc::clone(&delivery.settlement);
        state.deliveries.insert(delivery);
        state.deliveries.enter(number, runtime.settings.in_turn.then_some(&*timer.namespace));
        drop(state);
        self.set_renewal();
        // The handler may keep its `Delivery`, which must not keep the runtime alive.
        let weak: Weak<dyn Begin> = Arc::<Runtime>::downgrade(runtime);
        let delivery = Delivery::new(&timer, token, now, settlement, weak, number);
        self.spawn(Kept { handler: Arc::clone(handler), payload: timer.payload.0, delivery });
    }

    /// Hands the work of a handler to an executor again, because the store has removed the timer. The work has left its
    /// place during the removal. So for once, more handlers may run than the runtime has places.
    pub(super) fn begin_again(&self, work: Kept) {
        let namespace = self.runtime.settings.in_turn.then_some(&*work.delivery.namespace);
        self.runtime.lock().deliveries.enter(work.delivery.number(), namespace);
        self.spawn(work);
    }

    /// Hands the work of a handler to an executor.
    fn spawn(&self, Kept { handler, payload, delivery }: Kept) {
        let runtime = self.runtime;
        let executor: &dyn Executor = match (handler.place(), &runtime.settings.executor) {
            (Place::Executor, Some(executor)) => &**executor,
            (Place::Executor | Place::Workers, _) => self.workers.for_handlers(),
            (Place::Decisions, _) => self.workers.for_decisions(),
        };
        let work = supervise(Assignment {
            supervisor: Arc::<Runtime>::clone(runtime) as Arc<dyn Supervisor>,
            number: delivery.number(),
            settlement: delivery.settlement(),
            handler,
            payload,
            delivery,
        });
        // If the executor has panicked, the dropped work gives its timer back. The deliveries of the claim's other
        // timers must begin all the same.
        if survive(|| executor.spawn(work)).is_none() {
            let error = StoreError::new(StoreErrorKind::Unknown, "the executor panicked");
            runtime.reporter.store_failed(&error);
        }
    }

    /// Makes the runtime's record of a delivery under way. The caller sets the number of the delivery later.
    fn under_way(&self, timer: &Timer, token: Token) -> UnderWay {
        let handler = self.runtime.handler(&timer.kind).filter(|handler| handler.place() == Place::Executor);
        let is_spawned = handler.is_some() && self.runtime.settings.executor.is_some();
        UnderWay {
            id: timer.id,
            token,
            settlement: Arc::new(Settlement::default()),
            removal: match timer.policy.guarantee {
                Guarantee::AtLeastOnce => Removal::Never,
                Guarantee::AtMostOnce if self.runtime.begins_itself(&timer.kind) => Removal::ByTheHandler,
                Guarantee::AtMostOnce => Removal::BeforeTheCall,
            },
            number: 0,
            timeout: timer.policy.timeout,
            renewed_times: 0,
            alarm: None,
            spawned: is_spawned.then(|| self.runtime.moment()),
            due: timer.due,
            until: match timer.state {
                TimerState::Leased(lease) => lease.until,
                // A store that returns a claimed timer without a lease is at fault. The store refuses the end.
                _ => UtcMillis::MAX,
            },
            key: timer.key.clone(),
            begun: None,
            kept: None,
            may_be_removed: false,
            is_snoozed: false,
            observed: self.runtime.reporter.is_observed().then(|| Observed::new(timer)),
        }
    }

    /// Returns the operation that ends the delivery, if its handler must not be called. A timer of a kind without a
    /// handler is parked (set aside). A delivery that is later than the timer's policy permits is skipped.
    fn obstacle(&self, timer: &Timer, token: Token, now: UtcMillis) -> Option<Op> {
        let reporter = &self.runtime.reporter;
        if !self.runtime.has_handler(&timer.kind) {
            reporter.unknown_kind(timer);
            return Some(Op::Park(timer.id, token, Verdict::reason_for_unknown(&timer.kind)));
        }
        let lateness = now - timer.due;
        match timer.policy.misfire {
            Misfire::Within(grace) if timer.failures == 0 && lateness > grace => {
                reporter.skipped(timer, lateness);
                Some(Op::Skip(timer.id, token))
            }
            _ => None,
        }
    }

    /// Sets the alarm for the next renewal of leases. The alarm rings after a third of the length of a lease. Does
    /// nothing if the alarm is already set (invariant R4 of [`delivery_loop`](super)).
    pub(super) fn set_renewal(&self) {
        self.set_renewal_in(self.runtime.settings.lease / 3);
    }

    /// Sets the alarm for the next renewal of leases to the moment `end`, at which a lease in the store expires. The
    /// process that holds this lease may be gone. After each renewal, the delivery loop makes the store end the expired
    /// leases, so that their timers can be delivered again. The alarm rings after [`LEAST_REST`] at the earliest, and
    /// after a third of the length of a lease at the latest. Does nothing if the alarm is already set.
    pub(super) fn set_renewal_by(&self, end: UtcMillis, now: UtcMillis) {
        // A lease has at least a second, so the bounds are in order. Otherwise `clamp` would panic.
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
            // This must stay outside the lock, since the engine's thread may wait for the lock.
            self.alarms.renew_in(rest);
        }
    }
}
