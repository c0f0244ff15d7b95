//! The loop of a runtime. It claims due timers, hands them to handlers, and reports the ends of deliveries to the
//! store.
//!
//! One thread does all of this. It chooses a step, makes the step, and chooses again. If there is no step to make, the
//! thread sleeps until a signal comes. There is *room* for a delivery while fewer handlers run than the
//! [`concurrency`](crate::Builder::concurrency) permits. To *drive* the calls at the store means to send the waiting
//! ends and to poll all calls. Once a stop waits no longer, the deliveries under way are given back before that.
//!
//! | signal | from | the loop |
//! |---|---|---|
//! | `fetch` | a caller that wants parked timers ([`Timers::fetch`](crate::Timers::fetch)) | claims parked timers, in turn with claims of due timers |
//! | `look` | the alarm at the next due moment; the store, if a timer may be due earlier; a handler that has returned, if the last claim left due timers | claims due timers |
//! | `events` | a handler that is called, if there is an observer | passes the events to the observer |
//! | `ends` | a delivery that is settled | sends the waiting ends to the store, in one batch for each part of the store |
//! | `removals` | a delivery at most once that wants to begin | has the store remove its timer, or puts the delivery off |
//! | `poll` | the waker of a call at the store | polls the calls; reports ends as stored, reaps (ends expired leases), claims timers that were unparked |
//! | `renewal` | an alarm at each third of a lease, while deliveries are under way | gives back timers that the executor has not called for the length of a lease; renews leases |
//! | `stage` | `shutdown` | gives back the deliveries under way, waits for the answers to ends, and ends |
//!
//! # States
//! The shared state ([`RuntimeState`](super::shared::RuntimeState)) has the stage of the runtime (`stage`), the present
//! work of the thread (`activity`), and the alarm of the next renewal (`requests.renewal`). Ends, removals, renewals
//! and unparks have states of their own ([`ends`], [`removals`], [`renewals`], [`unparks`]).
//!
//! | `stage` | claims | renewals | ends with |
//! |---|---|---|---|
//! | `Running` | yes | yes | `shutdown`, or the drop of the runtime |
//! | `Stopping` | no | before `until` | no delivery is left, and all ends are answered. At `until` the deliveries under way are given back. When the length of a lease has passed since then, the unanswered ends are given up |
//! | `Ended` | no | no | |
//!
//! | `activity` | step | calls that are driven | ends with |
//! |---|---|---|---|
//! | `Choosing` | none; the thread drives calls, or sleeps | all | a step |
//! | `Emitting` | [`Step::Emit`] | none | the observer returns |
//! | `AtStore` | any other | while the step waits, all calls; a store without parts gets no new ends | the step's call is answered. After an error or a panic, the thread pauses first. The stop ends this pause |
//!
//! | renewal alarm | begins with | ends with |
//! |---|---|---|
//! | `Unset` | a renewal is sent | a delivery begins, an end is answered, or a claim or a reap has found a lease: `Set` |
//! | `Set` | the alarm is armed | the alarm rings: `Rung`. A reap that ends as many leases as one call may end also leads to `Rung` |
//! | `Rung` | the start, or the alarm | the renewal is sent: `Unset`. The loop first sends all waiting ends. With a store without parts, it also waits for the answers to these ends (C4) |
//!
//! # Choice of a step
//! The loop takes the first line that applies ([`DeliveryLoop::choose`](wait)):
//!
//! | condition | choice |
//! |---|---|
//! | the waker of a call was called, a pause is over, ends or removals wait to be sent, or the stop has just been requested | drive the calls |
//! | there are events | `Emit` |
//! | ends were answered | `Report` |
//! | a renewal was answered | `Reap` |
//! | the runtime stops, no delivery is left, and all ends are answered | end |
//! | the stop's moment `until` has passed, and deliveries are under way | drive the calls, which gives them back |
//! | the length of a lease has passed since `until`, and no delivery is under way | give up the ends and removals |
//! | the renewal alarm has rung, and a renewal may be sent | `Renew` |
//! | a `fetch` waits, and there is room. If `look` is requested, too, the last claim must not have been a fetch | `Fetch` |
//! | a `look` is requested, and there is room | `Claim` |
//! | otherwise | sleep |
//!
//! # Wake-ups
//! All calls at the store share one waker. The waker sets `poll` under the lock and notifies the thread. The thread
//! clears `poll` under the lock. Then it polls five kinds of calls: the call that it waits for, the removals, the ends,
//! the renewal, and the unparks. A waker that is called after a poll sets `poll` again. The thread sees the new value
//! before it sleeps, since it reads `poll` and begins to sleep under one lock. A call that is polled without need
//! returns `Pending` again. Each new call is polled once after it was made, so that it gets the waker.
//!
//! # Why no timers are loaded ahead
//! The store's index by due moment is the queue, and each claim returns the moment at which the next timer is due. So
//! the engine's wheel needs a single timer for all stored timers: the alarm. Creating, moving or cancelling a timer
//! changes this index in the same transaction. So there is no second index in memory that could be out of date.
//!
//! # Invariants
//! R1. A delivery is settled (its end is decided) only once: by its handler's answer, its timeout, the loss of its
//!     lease, the stop, a removal that does not take effect, or an executor that drops its work or does not call it for
//!     the length of a lease.
//! R2. If the store has a claimable timer and there is room for a delivery, a claim is requested or an alarm is set.
//!     The alarm rings at the timer's due moment or earlier.
//! R3. No error of the store ends the loop. It tries again after a pause.
//! R4. While the store has leases that the loop has made or found, the alarm of a renewal is set. The renewal extends
//!     the leases of deliveries under way. The reap after the renewal ends leases whose holders are gone.
//! R5. No waker, handler, executor, observer or future of the store is called under the lock. Such code may wait for a
//!     thread that needs the lock, or may need the lock itself.
//! R6. Only the loop's thread emits events. The events of a timer are emitted in their order. Events of other threads
//!     are kept under the lock until the loop emits them. The loop emits these events before the event of an end that
//!     is kept later.
//! R7. Nothing is claimed while [`MOST_ENDS`](wait) ends have no answer, or while
//!     [`MOST_PUT_OFF`](super::shared::MOST_PUT_OFF) deliveries are put off. This limits the memory use if a store
//!     answers claims but does not answer ends, or does not remove timers.

mod answers;
mod backoff;
mod call;
mod claims;
mod due;
mod ends;
mod launcher;
mod removals;
mod renewals;
mod unparks;
mod wait;

use self::call::store_panicked;
use self::claims::Claims;
use self::ends::{Answered, Ends};
use self::launcher::Launcher;
use self::removals::Removals;
use self::renewals::{Renewals, Renewed};
use self::unparks::Unparks;
use super::event::Event;
use super::shared::{Fetch, Runtime, Signals, Stage};
use crate::executor::{Workers, block_on};
use crate::panics::survive;
use crate::store::Durability;
use core::task::Waker;
use std::sync::{Arc, Weak};
use std::task::Wake;

/// The state of the delivery loop. Only the loop's own thread uses the state.
pub(crate) struct DeliveryLoop<'a> {
    runtime: &'a Arc<Runtime>,
    launcher: Launcher<'a>,
    waker: Waker,
    claims: Claims,
    ends: Ends,
    removals: Removals,
    renewals: Renewals,
    unparks: Unparks,
}

/// A step of the delivery loop, with the data that the step needs.
enum Step {
    Emit(Vec<Event>),
    Report(Answered),
    Renew,
    Reap(Renewed),
    Claim { room: usize },
    Fetch { fetch: Fetch, room: usize },
}

/// The waker that the delivery loop passes to all its calls at the store. A wake makes the loop poll the calls.
struct Bell(Weak<Signals>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if let Some(signals) = self.0.upgrade() {
            signals.poll();
        }
    }
}

impl<'a> DeliveryLoop<'a> {
    /// Runs the delivery loop on the calling thread. Returns once the runtime is stopped.
    pub(crate) fn run(runtime: &'a Arc<Runtime>, workers: &'a Workers) {
        let Some(launcher) = Launcher::new(runtime, workers) else { return };
        let (store, settings) = (&runtime.store, &runtime.settings);
        // A store that the program has written may panic.
        let every = survive(|| store.is_shared()).unwrap_or(true).then_some(unparks::AGAIN);
        let mut this = Self {
            runtime,
            launcher,
            // A store may keep this waker after the end of the loop. The waker must not keep the runtime alive.
            waker: Waker::from(Arc::new(Bell(Arc::downgrade(&runtime.signals)))),
            claims: Claims::new(settings),
            ends: Ends::new(Arc::clone(store), settings.end_durability, settings.lease),
            removals: Removals::new(Arc::clone(store), settings.lease),
            renewals: Renewals::new(Arc::clone(store), runtime.claimant),
            unparks: Unparks::new(Arc::clone(store), runtime.kinds(), settings.lease, every),
        };
        // The opening of a store in a file ends the leases of a process that has died. A receiver may have had these
        // timers, so they are reported as if their leases had expired.
        let _goes_on = survive(|| runtime.reporter.reaped(&store.ended_at_opening(), store.now()));
        // This begins the calls that unpark timers, before the first claim. The claim does not wait for their answers.
        this.drive(false);
        // The store's clock may have stepped back while no process ran, so the plans are recomputed.
        runtime.follow_clock(workers.for_decisions());
        while let Some(step) = this.next() {
            // A store that the program has written may panic. The timers of the failed step are delivered again.
            let made = survive(|| {
                runtime.note_step(workers.for_decisions());
                this.make(step);
            });
            if made.is_none() {
                let _goes_on = this.bear(&store_panicked());
                runtime.look();
                // A reap that has panicked has not set the alarm of the next renewal, so the alarm is set here (R4).
                this.launcher.set_renewal();
            }
            this.finish_step();
        }
        drop(this);
        let _after_a_panic_leases_end = survive(|| leave(runtime));
        runtime.lock().stage = Stage::Ended;
        runtime.signals.changed.notify_all();
    }

    fn make(&mut self, step: Step) {
        match step {
            Step::Emit(events) => events.iter().for_each(|event| self.runtime.reporter.emit(event)),
            Step::Report(answered) => self.report(answered),
            Step::Renew => self.renew(),
            Step::Reap(renewed) => self.reap(renewed),
            Step::Claim { room } => self.claim(room),
            Step::Fetch { fetch, room } => self.take_parked(fetch, room),
        }
    }
}

/// Waits until the reported results of deliveries are on the disk, because the process may exit right after this call.
/// Then tells the store that this process is leaving ([`TimerStore::leave`](crate::store::TimerStore::leave)), so that
/// other processes with the same store can take over its work at once.
fn leave(runtime: &Runtime) {
    // A call without operations makes all earlier changes durable.
    if runtime.settings.end_durability < Durability::PowerLoss
        && let Err(error) = block_on(runtime.store.apply(Vec::new(), Durability::PowerLoss))
    {
        runtime.reporter.store_failed(&error);
    }
    if let Err(error) = block_on(runtime.store.leave()) {
        runtime.reporter.store_failed(&error);
    }
}
