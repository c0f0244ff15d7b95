//! The threads of an engine, which lead shards, run handlers, and stand by.
//!
//! There is a thread for each shard, and one for each worker. At first each thread `n` with a shard `n` leads that
//! shard, and the other threads stand by. The parts change hands as handlers hold leaders up (`seat`):
//!
//! ```text
//!            turn, sleep                 the handlers return
//!          ┌──────────────┐          ┌────────────────────────┐
//!          ▼              │          ▼                        │
//!        lead a shard ────┴──► due: let go of it, run the handlers ── the shard was taken over ──► stand by
//!          ▲                                                                                          │
//!          └── its leader is held up by a handler ──── watch, or run jobs from the queue ◄────────────┘
//! ```

use super::seat::{Leading, Seat};
use super::{Next, Outlet, Pulse, Wake};
use crate::affinity::{self, Freedom, Pin};
use crate::clock::EngineClock;
use crate::dispatch::{Dispatcher, Errand, Fire, Workers, survives};
use crate::parker::Parker;
use crate::sync::StdArc;
use crate::tick::Timestamp;
use crate::trace;
use crate::watch::Look;

/// The state that an engine's threads have in common.
pub(crate) struct Crew<'a, F: Fire> {
    pub(crate) seats: &'a [Seat],
    pub(crate) clock: &'a EngineClock,
    pub(crate) dispatcher: &'a Dispatcher,
    pub(crate) fire: &'a StdArc<F>,
}

impl<F: Fire> Crew<'_, F> {
    /// Serves as thread `me` until the engine is shut down.
    pub(crate) fn serve(&self, me: usize) {
        affinity::tighten_timer_slack();
        let freedom = Freedom::of_current_thread();
        let workers = self.dispatcher.own_workers().inspect(|workers| workers.enter_current_thread(me));
        if let Some(leading) = self.seats.get(me).and_then(Seat::try_lead) {
            self.lead(me, me, leading);
        }
        let Some(workers) = workers else { return };
        let was_pinned = |shard: usize| self.seats.get(shard).is_some_and(|seat| seat.core.is_some());
        if was_pinned(me) {
            freedom.give_back();
        }
        while let Some((shard, leading)) = self.stand_by(me, workers) {
            self.lead(me, shard, leading);
            if was_pinned(shard) {
                freedom.give_back();
            }
        }
        workers.drop_jobs();
    }

    /// Leads `shard` until another thread does, or the engine is shut down.
    fn lead<'s>(&'s self, me: usize, shard: usize, mut leading: Leading<'s>) {
        let seat = &self.seats[shard];
        let shared = leading.shared();
        let parker = &shared.parker;
        if let Some(core) = seat.core
            && affinity::pin_current_thread(core) == Pin::Refused
        {
            shared.counters.pin_refused.set(1);
            trace::pin_refused(leading.pulse.engine, shard, core);
        }
        while !parker.is_closed() {
            let now = self.clock.true_now();
            leading.pulse.begin_turn(now);
            let mut out = Outlet::new(self.dispatcher, self.fire);
            let next = leading.shard.turn(now, &mut out);
            let due = leading.shard.due();
            leading.pulse.end_turn(now, due);
            if let Some(errand) = out.own {
                let Some(still) = self.run_own(shard, leading, errand) else { return };
                leading = still;
                continue;
            }
            let Next::Sleep(wake) = next else { continue };
            // Another thread may have led since the last sleep, and slept here.
            parker.adopt_current_thread(me);
            let led = &mut *leading;
            let slept = parker.sleep(
                wake.map(|wake| wake.not_before),
                || led.shard.may_sleep(wake),
                || park(parker, &mut led.pulse, wake, self.clock),
            );
            if slept {
                shared.counters.wakes.add(1);
            }
        }
        leading.pulse.end();
    }

    /// Runs a handover of the shard that the calling thread leads, and lets go of the shard meanwhile. Returns `None`
    /// if another thread leads the shard afterwards.
    fn run_own<'s>(
        &'s self,
        shard: usize,
        mut leading: Leading<'s>,
        errand: Errand<F>,
    ) -> Option<Leading<'s>> {
        let workers = self.dispatcher.own_workers().filter(|_| leading.trust.ask());
        let Some((workers, permit)) =
            workers.and_then(|workers| Some((workers, workers.permit_to_leader()?)))
        else {
            self.dispatcher.send(errand);
            return Some(leading);
        };
        let wants_watcher = workers.watch().begin(shard);
        drop(leading);
        if wants_watcher {
            workers.wake_one();
        }
        // The errand unwinds only if the user's clock does: that costs the handover and nothing else.
        let _survived = survives(|| errand.run());
        drop(permit);
        self.take_seat(shard, workers)
    }

    fn take_seat(&self, shard: usize, workers: &Workers) -> Option<Leading<'_>> {
        let leading = self.seats[shard].try_lead()?;
        workers.watch().end(shard);
        Some(leading)
    }

    /// Stands by until there is a shard to lead. Returns that shard, or `None` if the engine was shut down.
    fn stand_by(&self, me: usize, workers: &Workers) -> Option<(usize, Leading<'_>)> {
        while !workers.is_closed() {
            if workers.has_job() {
                workers.run_jobs();
            } else if !workers.watch().take() {
                workers.stand_by(me);
            } else if let Some(shard) = self.watch(me, workers) {
                return Some(shard);
            }
        }
        None
    }

    /// Watches until a shard's leader is stuck, and takes that shard over. Returns the shard, or `None` if the watcher
    /// has something else to do or nothing is left to watch.
    fn watch(&self, me: usize, workers: &Workers) -> Option<(usize, Leading<'_>)> {
        let (watch, mut looks) = (workers.watch(), workers.looks());
        let taken_over = loop {
            let stuck = core::iter::from_fn(|| looks.next_stuck(watch));
            let free = stuck.filter_map(|shard| Some((shard, self.take_seat(shard, workers)?)));
            if let Some((shard, mut leading)) = { free }.next() {
                leading.trust.lose();
                leading.shared().counters.takeovers.add(1);
                break Some((shard, leading));
            }
            if workers.has_job() || workers.is_closed() {
                break None;
            }
            let rest = looks.rest();
            if !rest.is_zero() {
                workers.stand_watch(me, rest);
            } else if looks.look(watch) == Look::Quiet && watch.leave() {
                return None;
            }
        };
        // The next watcher finds what this one saw.
        drop(looks);
        watch.pass_on();
        workers.wake_one();
        taken_over
    }
}

/// Sleeps until `wake`, or until woken. Returns false if the moment of `wake` has come already.
fn park(parker: &Parker, pulse: &mut Pulse, wake: Option<Wake>, clock: &EngineClock) -> bool {
    let until = wake.map_or(Timestamp::MAX, |wake| wake.at);
    let now = clock.true_now();
    pulse.rest(now, until);
    // The last tick begins beyond the range of a clock.
    if until == Timestamp::MAX {
        parker.park(None);
        return true;
    }
    if now >= until {
        return false;
    }
    parker.park(clock.as_dyn().sleep_for(now, until));
    true
}
