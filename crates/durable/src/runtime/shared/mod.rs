//! Holds the state that the threads of a runtime share. These are the thread of the delivery loop, the workers, the
//! engine's thread, and the callers of [`Timers`](crate::Timers).

mod clocks;
mod deliveries;
mod delivery;
mod handlers;
mod occupants;
mod plans;
mod put_off;
mod removing;
mod settle;
mod signals;
mod state;

pub(super) use self::delivery::{DeliveryEnd, Observed, Removal, UnderWay};
pub(super) use self::put_off::{MOST_PUT_OFF, Until};
pub(super) use self::removing::RemovalAnswer;
pub(super) use self::signals::Signals;
pub(super) use self::state::{
    Activity, AskedRemoval, Backlog, Fetch, RenewalAlarm, RuntimeState, Stage, Unanswered, Wakes,
};

use self::state::Requests;
use super::alarm::{Alarms, HandlerTime};
use super::report::Reporter;
use super::settings::Settings;
use super::steps::Steps;
use crate::handler::Handler;
use crate::panics::survive;
use crate::store::{Claimant, StoreError, TimerStore};
use crate::verdict::Verdict;
use core::time::Duration;
use futures_channel::oneshot;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use tourbillon::{Clock, Timestamp};
use tourbillon_words::UtcMillis;

/// The limit for one call of [`TimerStore::reap`], which ends expired leases. This is also the limit for one call at
/// the start of the runtime that makes parked timers pending again.
pub(super) const REAP: u32 = 1_000;
/// The longest time for which a stop of the runtime waits for handlers.
const LONGEST_STOP: Duration = Duration::from_secs(86_400 * 365);

/// The clocks of a runtime. The store has a clock of its own.
pub(super) struct Clocks {
    /// The clock of the runtime's engine, which measures the time until alarms and the timeouts of handlers.
    pub(super) alarms: Arc<dyn Clock>,
    /// A clock that cannot be set, so it never steps (jumps to another time). By a comparison with this clock, the
    /// runtime finds a step of the store's clock.
    pub(super) steady: Arc<dyn Clock>,
}

pub(crate) struct Runtime {
    pub(crate) store: Arc<dyn TimerStore>,
    pub(crate) settings: Settings,
    pub(crate) reporter: Reporter,
    pub(super) claimant: Claimant,
    handlers: HashMap<&'static str, Arc<dyn Handler>>,
    clocks: Clocks,
    steps: Mutex<Steps>,
    alarms: OnceLock<Alarms>,
    pub(super) signals: Arc<Signals>,
}

/// The present load of a runtime.
pub(crate) struct Load {
    /// The number of handlers that have not returned.
    pub(crate) running: usize,
    /// The number of handlers that still run although their deliveries have ended, for example because the handler's
    /// timeout has passed.
    pub(crate) overrun: usize,
    /// The number of timers that the store has removed, and whose deliveries did not go on.
    pub(crate) lost: u64,
    /// The due moment of the first timer that is put off, or pending, as the last claim found it. `None` if there is no
    /// such timer.
    pub(crate) next_due: Option<UtcMillis>,
    /// The time for which the delivery loop has waited for the answer to its oldest call at the store. `None` if the
    /// loop waits for no answer.
    pub(crate) stuck_for: Option<Duration>,
}

impl Runtime {
    pub(super) fn new(
        store: Arc<dyn TimerStore>,
        clocks: Clocks,
        settings: Settings,
        handlers: HashMap<&'static str, Arc<dyn Handler>>,
        incarnation: u64,
    ) -> Self {
        let claimant = Claimant { incarnation, lease: settings.lease };
        // The renewal alarm has already rung, so the loop begins with a renewal. The reap after the renewal ends the
        // leases of processes that have died.
        let requests = Requests { look: true, renewal: RenewalAlarm::Rung, ..Requests::default() };
        Self {
            store,
            reporter: Reporter::new(settings.on_incident.clone(), settings.observe.clone()),
            settings,
            claimant,
            handlers,
            clocks,
            steps: Mutex::default(),
            alarms: OnceLock::new(),
            signals: Arc::new(Signals::new(RuntimeState { requests, ..RuntimeState::default() })),
        }
    }

    /// Stores the engine, with its alarms, in the runtime. This method is called once, before the delivery loop begins.
    pub(super) fn set_alarms(&self, alarms: Alarms) {
        let _only_once = self.alarms.set(alarms);
    }

    pub(super) fn alarms(&self) -> Option<&Alarms> {
        self.alarms.get()
    }

    pub(crate) fn has_handler(&self, kind: &str) -> bool {
        self.handlers.contains_key(kind)
    }

    pub(super) fn handler(&self, kind: &str) -> Option<&Arc<dyn Handler>> {
        self.handlers.get(kind)
    }

    /// Returns whether the handler of a kind begins the deliveries of timers that are delivered at most once by itself.
    pub(super) fn begins_itself(&self, kind: &str) -> bool {
        self.settings.begin_themselves.contains(kind)
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = &'static str> {
        self.handlers.keys().copied()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RuntimeState> {
        self.signals.lock()
    }

    /// Returns the present moment by the runtime's clock, which cannot be set.
    pub(super) fn moment(&self) -> Timestamp {
        self.clocks.alarms.now()
    }

    /// Returns the present moment by the store's clock. A store that the program has written may panic. Then the moment
    /// is the first of all moments, so the work of the caller goes on.
    pub(super) fn store_now(&self) -> UtcMillis {
        survive(|| self.store.now()).unwrap_or_default()
    }

    /// Wakes the delivery loop as [`Signals::notify`] does.
    fn notify(&self, state: &RuntimeState, is_wanted: impl Fn(Wakes) -> bool) {
        self.signals.notify(state, is_wanted);
    }

    /// Makes the delivery loop claim timers that are due.
    pub(crate) fn look(&self) {
        self.signals.look();
    }

    /// Makes the delivery loop claim due timers that are parked for `reason` ([`Verdict::Park`](crate::Verdict::Park)).
    /// The loop claims `wanted` of these timers, or half of all such timers if this is more, but at most `most`. The
    /// receiver gets the number of claimed timers, or `None` if the store cannot claim parked timers. If the runtime
    /// stops first, the receiver gets no value.
    pub(super) fn fetch(
        &self,
        reason: Box<str>,
        wanted: u32,
        most: u32,
    ) -> oneshot::Receiver<Result<Option<u32>, StoreError>> {
        let (reply, answer) = oneshot::channel();
        let mut state = self.lock();
        // The stop empties this queue under the same lock. So no request stays in the queue after the stop.
        if !state.is_stopping() {
            state.requests.fetches.push_back(Fetch { reason, wanted, most, reply });
            self.notify(&state, |wakes| wakes.on_requests);
        }
        answer
    }

    /// Ends a delivery whose handler has not answered in this time.
    pub(super) fn time_out(&self, time: HandlerTime) {
        let error = "the handler did not answer in time".into();
        let _fired = self.settle(time.delivery, Verdict::Retry { error, after: None }, Some(time));
    }

    /// Stops the delivery loop. Before it ends, the loop waits for deliveries under way, for at most `patience`.
    pub(super) fn stop(&self, patience: Duration) {
        let mut state = self.lock();
        // The sum of an `Instant` and any patience might overflow, and the addition would panic.
        let until = Instant::now() + patience.min(LONGEST_STOP);
        let is_earlier = match state.stage {
            Stage::Running => true,
            Stage::Stopping { until: other } => until < other,
            Stage::Ended => false,
        };
        if is_earlier {
            state.stage = Stage::Stopping { until };
        }
        let unanswered = core::mem::take(&mut state.requests.fetches);
        drop(state);
        self.signals.changed.notify_all();
        // The drop calls wakers, so it must not happen under the lock.
        drop(unanswered);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.lock().is_stopping()
    }

    pub(super) fn await_end(&self) {
        let mut state = self.lock();
        while state.stage != Stage::Ended {
            state = self.signals.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until no timer is due, no handler runs, and the store has confirmed all ends of deliveries. Waits for at
    /// most `patience`. Returns true if the runtime became idle in this time.
    pub(super) fn await_idle(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience.min(LONGEST_STOP);
        let mut state = self.lock();
        loop {
            if state.is_idle(self.store.now()) {
                return true;
            }
            let Some(rest) = until.checked_duration_since(Instant::now()) else { return false };
            // A manual clock may advance without a signal to this thread, so the thread looks again after a short wait.
            let step = rest.min(Duration::from_millis(5));
            state = self.signals.changed.wait_timeout(state, step).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns true if a thread of the runtime runs a handler, or recomputes the next instants of schedules. Such a
    /// thread might never finish, so the caller must not wait for this thread.
    pub(super) fn is_occupied(&self) -> bool {
        let state = self.lock();
        state.deliveries.running() > 0 || state.plans.is_following()
    }

    pub(super) fn load(&self) -> Load {
        let state = self.lock();
        let busy_since = match state.activity {
            Activity::AtStore { since } => Some(since),
            // An observer that does not return is not a fault of the store, so the time in `Emitting` does not count.
            Activity::Choosing | Activity::Emitting => None,
        };
        let stuck_since = busy_since.into_iter().chain(state.unanswered.since).min();
        Load {
            running: state.deliveries.running(),
            overrun: state.deliveries.overrun(),
            lost: state.deliveries.lost,
            next_due: state.backlog.next_due.into_iter().chain(state.deliveries.put_off.first_due()).min(),
            stuck_for: stuck_since.map(|since| since.elapsed()),
        }
    }
}
