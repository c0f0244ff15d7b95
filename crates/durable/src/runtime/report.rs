//! Counts the work of a runtime, passes incidents and events on, and reports the runtime's health.

use super::event::{Event, Incident};
use super::shared::UnderWay;
use super::steps::Step;
use super::times::Times;
use crate::panics::survive;
use crate::state::Phase;
use crate::store::{Claimed, LeftOut, Op, Outcome, Reaped, StoreError};
use crate::timer::{Timer, TimerId};
use crate::verdict::Verdict;
use core::fmt;
use core::time::Duration;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tourbillon_words::UtcMillis;

/// The function of the program that is called for each incident.
pub(crate) type OnIncident = Arc<dyn Fn(&Incident) + Send + Sync>;
/// The function of the program that is called for each event.
pub(crate) type Observe = Arc<dyn Fn(&Event) + Send + Sync>;

/// The metrics of a runtime: counters since its start, and present values.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of deliveries that have begun: their handlers were called. The delivery of a timer at most once has
    /// begun once the store has removed the timer.
    pub delivered: u64,
    /// The number of deliveries that succeeded.
    pub done: u64,
    /// The number of deliveries that failed and are tried again.
    pub retried: u64,
    /// The number of timers that have died. A dead timer is not delivered again unless the program replays it.
    pub dead: u64,
    /// The number of deliveries whose handlers put the timer off ([`Verdict::Snooze`]).
    pub snoozed: u64,
    /// The number of deliveries whose handlers parked the timer ([`Verdict::Park`]).
    pub parked: u64,
    /// The number of timers that were given back to the store before their handlers had answered, for example when the
    /// runtime stops, or when the executor drops a handler's work.
    pub released: u64,
    /// The number of deliveries that were skipped because they were too late.
    pub skipped: u64,
    /// The number of occurrences of series that were left out, because the moments for which they were scheduled had
    /// already passed when the previous occurrence ended.
    pub instants_skipped: u64,
    /// The number of timers that were due while the runtime had no handler for their kind.
    pub unknown_kind: u64,
    /// The number of deliveries that lost their lease, or whose handler answered after the lease had ended.
    pub leases_lost: u64,
    /// The number of deliveries whose result could not be reported to the store. Normally the timers of these
    /// deliveries are delivered again. Timers that are delivered at most once may be lost.
    pub ends_lost: u64,
    /// The number of timers that are delivered at most once, and that the store has removed for deliveries which did
    /// not go on: nobody waited for the removal any more, the executor dropped the handler's work, or the runtime
    /// stopped. A timer whose removal has no known outcome does not count here: it counts in `leases_lost` or
    /// `ends_lost`.
    pub lost: u64,
    /// The number of stored records that could not be read.
    pub quarantined: u64,
    /// The number of errors that calls at the store returned.
    pub store_errors: u64,
    /// The number of successful claims. A claim is a call to the store that takes timers for delivery.
    pub claims: u64,
    /// The number of steps by which the store's clock went ahead, and the total length of these steps.
    pub clock_steps_ahead: (u64, Duration),
    /// The number of steps by which the store's clock went back, and the total length of these steps.
    pub clock_steps_back: (u64, Duration),
    /// The times from the due moments of deliveries to the calls of their handlers, by the store's clock. After a
    /// snooze, a retry, or a call of [`Timers::move_to`](crate::Timers::move_to), the new due moment counts. A parked
    /// timer, which is set aside for a reason ([`Verdict::Park`]), keeps its due moment. So the time in which it was
    /// parked counts.
    pub lateness: Times,
    /// The times from the calls of handlers to their answers or timeouts, by the runtime's clock. Two kinds of
    /// deliveries do not count: those that lost their lease, and those that the runtime gave back when it stopped.
    pub handler_time: Times,
    /// The number of handlers that run now. Handlers that wait for a thread or for an executor count, too.
    pub running: usize,
    /// The number of these handlers whose deliveries have ended, for example because the handler's timeout has passed.
    pub overrun: usize,
    /// The due moment of the first timer that is pending, as the last claim found it, or that the runtime has put off.
    /// `None` if there was no such timer.
    pub next_due: Option<UtcMillis>,
}

impl Stats {
    /// Returns these metrics in the text format of Prometheus.
    ///
    /// ```
    /// use tourbillon_durable::Stats;
    ///
    /// let page = Stats::default().prometheus();
    /// assert!(page.contains("\ntourbillon_durable_done_total 0\n"));
    /// ```
    #[must_use]
    pub fn prometheus(&self) -> String {
        use fmt::Write as _;
        let mut page = String::new();
        let mut series = |name: &str, kind: &str, help: &str, value: &dyn fmt::Display| {
            let _infallible = write!(
                page,
                "# HELP tourbillon_durable_{name} {help}\n# TYPE tourbillon_durable_{name} {kind}\n\
                 tourbillon_durable_{name} {value}\n"
            );
        };
        series("deliveries_total", "counter", "Deliveries that were begun.", &self.delivered);
        series("done_total", "counter", "Deliveries that succeeded.", &self.done);
        series("retries_total", "counter", "Deliveries that failed and are tried again.", &self.retried);
        series("dead_total", "counter", "Timers whose deliveries were given up.", &self.dead);
        series("snoozed_total", "counter", "Deliveries that handlers put off.", &self.snoozed);
        series("parked_total", "counter", "Timers that handlers put aside for a reason.", &self.parked);
        series("released_total", "counter", "Timers that were given back.", &self.released);
        series("skipped_total", "counter", "Deliveries that came too late and were left out.", &self.skipped);
        series(
            "instants_skipped_total",
            "counter",
            "Instants of series that were left out.",
            &self.instants_skipped,
        );
        series("unknown_kind_total", "counter", "Due timers without a handler.", &self.unknown_kind);
        series("leases_lost_total", "counter", "Deliveries whose lease was lost.", &self.leases_lost);
        series("ends_lost_total", "counter", "Ends that could not be reported.", &self.ends_lost);
        series("lost_total", "counter", "Removed timers whose deliveries did not go on.", &self.lost);
        series("quarantined_total", "counter", "Records that could not be read.", &self.quarantined);
        series("store_errors_total", "counter", "Errors of the store.", &self.store_errors);
        series("claims_total", "counter", "Claims.", &self.claims);
        for (word, (count, size)) in [("ahead", self.clock_steps_ahead), ("back", self.clock_steps_back)] {
            let name = format!("clock_steps_{word}_total");
            series(&name, "counter", &format!("Steps of the store's clock {word}."), &count);
            let name = format!("clock_stepped_{word}_seconds_total");
            series(&name, "counter", &format!("Time by which these steps went {word}."), &size.as_secs_f64());
        }
        series("lateness_seconds_max", "gauge", "Greatest lateness.", &self.lateness.max.as_secs_f64());
        series("handler_seconds_max", "gauge", "Longest handler.", &self.handler_time.max.as_secs_f64());
        series("running", "gauge", "Handlers that run.", &self.running);
        series("overrun", "gauge", "Handlers that run although their time is over.", &self.overrun);
        let mut histogram = |name: &str, help: &str, times: &Times| {
            let name = format!("tourbillon_durable_{name}");
            let _infallible = write!(page, "# HELP {name} {help}\n# TYPE {name} histogram\n");
            let _infallible = times.write_samples(&mut page, &name);
        };
        histogram("lateness_seconds", "From due moments to the calls of handlers.", &self.lateness);
        histogram("handler_seconds", "From the calls of handlers to their ends.", &self.handler_time);
        page
    }
}

/// The present fault of a runtime. If a runtime has several faults, the variant that is listed first counts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Health {
    /// The last call of the runtime at the store failed, or the store refuses all changes, for example because its file
    /// was removed.
    StoreFails {
        /// The time since calls of the runtime at the store began to fail. Zero if none has failed yet.
        since: Duration,
        /// The last error that the store returned.
        error: StoreError,
    },
    /// The store has not yet answered a call of the runtime. The value is the time since the call began.
    StoreHangs(Duration),
    /// A stored timer is due, and its delivery has not begun. The value is the time since the timer's due moment.
    Overdue(Duration),
    /// Handlers still run although their deliveries have ended. The value is the number of these handlers.
    Overrun(usize),
    /// The runtime has no known fault.
    Healthy,
}

/// Counts the work of a runtime, and passes incidents and events to the program.
pub(crate) struct Reporter {
    figures: Mutex<Figures>,
    on_incident: Option<OnIncident>,
    observe: Option<Observe>,
}

#[derive(Default)]
struct Figures {
    stats: Stats,
    failing: Option<(Instant, StoreError)>,
}

impl Reporter {
    pub(crate) fn new(on_incident: Option<OnIncident>, observe: Option<Observe>) -> Self {
        Self { figures: Mutex::default(), on_incident, observe }
    }

    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.lock().stats.clone()
    }

    /// Returns the time for which the store has failed, with its last error, or `None` if the last call at the store
    /// succeeded.
    pub(crate) fn failing(&self) -> Option<(Duration, StoreError)> {
        self.lock().failing.as_ref().map(|(since, error)| (since.elapsed(), error.clone()))
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.observe.is_some()
    }

    // These functions call the program's functions, on the delivery loop's thread and without a lock. A panic of the
    // program's function must not end the loop.

    pub(crate) fn emit(&self, event: &Event) {
        if let Some(observe) = &self.observe {
            survive(|| observe(event));
        }
    }

    fn report(&self, incident: &Incident) {
        if let Some(on_incident) = &self.on_incident {
            survive(|| on_incident(incident));
        }
        if self.is_observed() {
            self.emit(&Event::Incident(incident.clone()));
        }
    }

    pub(crate) fn store_failed(&self, error: &StoreError) {
        {
            // The lock ends with this block, because the program's function may read the statistics during the report.
            let mut figures = self.lock();
            figures.stats.store_errors += 1;
            let since = figures.failing.as_ref().map_or_else(Instant::now, |(since, _)| *since);
            figures.failing = Some((since, error.clone()));
        }
        self.report(&Incident::StoreFailed(error.clone()));
    }

    /// Counts and reports an error of a call that makes parked timers pending again. These timers were set aside,
    /// because the runtime had no handler for their kind. Such an error does not stop claims and deliveries, so the
    /// runtime's health does not change.
    pub(crate) fn unpark_failed(&self, error: &StoreError) {
        self.lock().stats.store_errors += 1;
        self.report(&Incident::StoreFailed(error.clone()));
    }

    pub(crate) fn clock_stepped(&self, Step { from, to }: Step) {
        {
            let stats = &mut self.lock().stats;
            let (count, size) = match to < from {
                true => &mut stats.clock_steps_back,
                false => &mut stats.clock_steps_ahead,
            };
            *count += 1;
            // A difference of moments is never negative: one of the two differences is zero.
            *size = size.saturating_add((to - from).max(from - to));
        }
        self.report(&Incident::ClockStepped { from, to });
    }

    pub(crate) fn store_answered(&self) {
        self.lock().failing = None;
    }

    pub(crate) fn claimed(&self, claimed: &Claimed) {
        let quarantined = claimed.quarantined;
        {
            let mut figures = self.lock();
            figures.failing = None;
            figures.stats.claims += 1;
            figures.stats.quarantined += u64::from(quarantined);
        }
        if quarantined > 0 {
            self.report(&Incident::Quarantined { count: quarantined });
        }
    }

    /// Counts a delivery that has begun.
    pub(crate) fn delivered(&self) {
        self.lock().stats.delivered += 1;
    }

    /// Counts the call of a handler. `lateness` is the time from the due moment to the call.
    pub(crate) fn called(&self, lateness: Duration) {
        self.lock().stats.lateness.record(lateness);
    }

    /// Records `time`, the time from a handler's call to the end of its delivery.
    pub(crate) fn took(&self, time: Duration) {
        self.lock().stats.handler_time.record(time);
    }

    pub(crate) fn skipped(&self, timer: &Timer, lateness: Duration) {
        self.lock().stats.skipped += 1;
        let (key, payload) = (timer.key.clone(), timer.payload.clone());
        self.report(&Incident::Skipped { id: timer.id, key, payload, due: timer.due, lateness });
    }

    pub(crate) fn unknown_kind(&self, timer: &Timer) {
        self.lock().stats.unknown_kind += 1;
        self.report(&Incident::UnknownKind { id: timer.id, kind: timer.kind.clone() });
    }

    /// Counts what followed from the removal of a timer that is delivered at most once, at the beginning of its
    /// delivery.
    pub(crate) fn removed(&self, id: TimerId, key: Option<Box<str>>, outcome: &Outcome) {
        if let Outcome::Ended { skipped: count @ 1.., .. } = outcome {
            self.left_out(&[LeftOut { id, key, count: *count }]);
        }
    }

    /// Counts the end of a delivery of a timer that is delivered at most once and has begun. The store has removed such
    /// a timer, so this end is not reported to the store.
    pub(crate) fn ended_at_most_once(&self, verdict: &Verdict) {
        // A failure counts neither as retried nor as dead, because the store no longer has the timer.
        if *verdict == Verdict::Done {
            self.lock().stats.done += 1;
        }
    }

    pub(crate) fn lease_lost(&self) {
        self.lock().stats.leases_lost += 1;
    }

    pub(crate) fn ends_lost(&self, count: usize) {
        self.lock().stats.ends_lost += count as u64;
    }

    fn left_out(&self, left_out: &[LeftOut]) {
        for LeftOut { id, key, count } in left_out {
            self.lock().stats.instants_skipped += count;
            self.report(&Incident::InstantsSkipped { id: *id, key: key.clone(), count: *count });
        }
    }

    pub(crate) fn reaped(&self, reaped: &Reaped, at: UtcMillis) {
        self.left_out(&reaped.left_out);
        self.lock().stats.dead += reaped.dead.len() as u64;
        if self.is_observed() {
            // No receiver had a timer whose delivery had not begun, so an observer learns nothing from its lease.
            let not_begun: HashSet<_> = reaped.not_begun.iter().collect();
            let returned = reaped.returned.iter().filter(|id| !not_begun.contains(id));
            let returned = returned.map(|id| (*id, Phase::Pending));
            for (id, phase) in returned.chain(reaped.dead.iter().map(|id| (*id, Phase::Dead))) {
                self.emit(&Event::Expired { id, at, phase });
            }
        }
        for id in &reaped.dead {
            self.report(&Incident::Died { id: *id });
        }
    }

    /// Counts the end of a delivery by the outcome that the store has returned.
    pub(crate) fn ended(&self, under_way: &UnderWay, op: &Op, outcome: &Outcome) {
        let id = under_way.id;
        let Outcome::Ended { phase, skipped, .. } = outcome else {
            self.lock().stats.leases_lost += 1;
            return;
        };
        {
            let stats = &mut self.lock().stats;
            stats.instants_skipped += skipped;
            match (op, phase) {
                // This arm comes first, because several operations may make a timer dead.
                (_, Phase::Dead) => stats.dead += 1,
                (Op::Ack(..), _) => stats.done += 1,
                (Op::Release(..), _) => stats.released += 1,
                // Without an answer of the handler, the snooze gives the timer back after a pause.
                (Op::Snooze(..), _) if !under_way.is_snoozed => stats.released += 1,
                // An occurrence of a series that was paused during the delivery is parked, and pending after the pause.
                (Op::Fail(..), Phase::Pending | Phase::Parked) => stats.retried += 1,
                (Op::Snooze(..), Phase::Pending | Phase::Parked) => stats.snoozed += 1,
                (Op::Park(_, _, reason), Phase::Parked) if !Verdict::is_for_no_handler(reason) => {
                    stats.parked += 1;
                }
                _ => {}
            }
        }
        if *phase == Phase::Dead {
            self.report(&Incident::Died { id });
        }
        if *skipped > 0 {
            self.report(&Incident::InstantsSkipped { id, key: under_way.key.clone(), count: *skipped });
        }
    }
}
