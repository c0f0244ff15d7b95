//! A thread of a set of shards. It leads a shard, runs handlers, or stands by: it is idle until it is needed.
//!
//! There is a thread for each shard, and a thread for each worker. At first, thread `n` leads shard `n`, and the
//! threads without a shard stand by. The roles change when a handler holds a leader up. One more thread, the sentry,
//! keeps its role: it waits for the alarms of the shards ([`watch`](crate::lockfree::watch)).
//!
//! ```text
//!            turn, sleep                 the handlers return
//!          ┌──────────────┐          ┌────────────────────────┐
//!          ▼              │          ▼                        │
//!        lead a shard ────┴──► due: let go of it, run the handlers ── the shard was taken over ──► stand by
//!          ▲                                                                                          │
//!          └── its leader is held up by a handler ──────── sleep, or run jobs from the queue ◄────────┘
//! ```

use super::home::Home;
use super::leader_sleep::LeaderSleep;
use super::output::Output;
use super::set::{SetSettings, ShardSet};
use super::sleep::Next;
use super::{Leading, Shard, here};
use crate::base::trace;
use crate::dispatch::{BatchJob, Workers, survives};
use crate::lockfree::parker;
use crate::system::affinity::{self, AllowedCores, Pin};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Waits for the alarms of the set's shards until the set is closed. The calling thread is the set's sentry.
pub(crate) fn stand_guard(set: &ShardSet) {
    here::enter_set(set.id());
    set.settings().scheduling.apply_here(set.scheduling_refusals());
    set.own_workers().into_iter().for_each(Workers::stand_guard);
}

/// A thread of a set of shards. `me` is its number on the roster, the list of the set's threads.
#[derive(Debug)]
pub(crate) struct ShardThread<'s> {
    set: &'s ShardSet,
    me: usize,
}

impl<'s> ShardThread<'s> {
    pub(crate) fn new(set: &'s ShardSet, me: usize) -> Self {
        Self { set, me }
    }

    /// Runs the thread until the set of shards is closed.
    pub(crate) fn serve(&self) {
        let Self { set, me } = *self;
        let settings = set.settings();
        here::enter_set(set.id());
        settings.roster.enter_current_thread(me);
        settings.scheduling.apply_here(set.scheduling_refusals());
        affinity::tighten_timer_slack();
        let allowed = AllowedCores::of_current_thread();
        if let Some(leading) = set.shards().get(me).and_then(Shard::try_lead) {
            self.lead(me, leading, &allowed);
        }
        let Some(workers) = set.own_workers() else { return };
        let was_pinned = |shard: usize| set.shards().get(shard).is_some_and(|shard| shard.core.is_some());
        if was_pinned(me) {
            allowed.restore();
        }
        while let Some((shard, leading)) = self.stand_by(workers) {
            self.lead(shard, leading, &allowed);
            if was_pinned(shard) {
                allowed.restore();
            }
        }
        workers.drop_jobs();
    }

    /// Leads the shard `index` until another thread leads it, or the set is closed.
    fn lead(&self, index: usize, leading: Leading<'s>, allowed: &AllowedCores) {
        // A leader unwinds only if the user's clock panics.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.turn_and_sleep(index, leading, allowed)));
        if let Err(panic) = outcome {
            self.set.shards()[index].bury_if_its_leader_panicked();
            resume_unwind(panic);
        }
    }

    fn turn_and_sleep(&self, index: usize, mut leading: Leading<'s>, allowed: &AllowedCores) {
        let shard = &self.set.shards()[index];
        let SetSettings { tick, clock, .. } = self.set.settings();
        let mut home = shard.core.and_then(|core| self.enter_home(index, core, allowed));
        while !shard.parker.is_closed() {
            shard.admit_and_dismiss(&mut leading);
            let now = clock.true_now();
            leading.stalls.begin_turn(now);
            leading.rouse_due(now);
            let mut out = Output::default();
            let next = leading.turn(now, &mut out);
            let due = leading.due();
            leading.stalls.end_turn(now, due);
            if let Some(job) = out.into_own() {
                let Some(still) = self.run_own(index, leading, job) else { return };
                leading = still;
                continue;
            }
            let Next::Sleep(wake) = next else { continue };
            if !shard.lay_to_rest(&mut leading, now) {
                continue;
            }
            let until = wake.map(|wake| wake.not_before);
            let is_nap = wake.is_some_and(|wake| wake.ends_a_nap(*tick, now, clock.as_dyn()));
            if !is_nap {
                self.set.own_workers().inspect(|workers| workers.watch().calm(index));
            }
            let mut sleep = LeaderSleep { shard, led: &mut leading, wake, is_nap, clock };
            let fall_asleep = if is_nap { parker::nap } else { parker::sleep };
            if fall_asleep(&mut sleep, self.me, until) {
                shard.counters.wakes.add(1);
                if home.as_mut().is_some_and(Home::count_wake) {
                    shard.counters.departures.add(1);
                }
            }
        }
        drop(shard.take_all(&mut leading));
        leading.stalls.end();
    }

    /// Pins the calling thread to the core of the shard that it leads. Returns `None` if it stays unpinned.
    fn enter_home<'a>(&self, shard: usize, core: usize, allowed: &'a AllowedCores) -> Option<Home<'a>> {
        match Home::enter(core, allowed) {
            Ok(home) => Some(home).filter(|_| self.set.settings().may_leave_cores),
            Err(Pin::Refused) => {
                self.set.shards()[shard].counters.pin_refused.set(1);
                trace::pin_refused(self.set.id(), shard, core);
                None
            }
            Err(_) => None,
        }
    }

    /// Runs a batch of due timers of the shard that the calling thread leads. Unlocks the shard during the run. Returns
    /// `None` if another thread leads the shard afterwards.
    fn run_own(&self, shard: usize, mut leading: Leading<'s>, job: BatchJob) -> Option<Leading<'s>> {
        let workers = self.set.own_workers().filter(|_| leading.trust.ask());
        let Some((workers, permit)) =
            workers.and_then(|workers| Some((workers, workers.permit_to_leader()?)))
        else {
            job.send();
            return Some(leading);
        };
        workers.watch().begin(shard);
        drop(leading);
        workers.watch().set_alarm(shard);
        // The job unwinds only if the user's clock panics. Then only this batch is lost.
        let _survived = survives(|| job.run());
        drop(permit);
        self.take_shard(shard, workers)
    }

    fn take_shard(&self, shard: usize, workers: &Workers) -> Option<Leading<'s>> {
        let leading = self.set.shards()[shard].try_lead()?;
        workers.watch().end(shard);
        Some(leading)
    }

    /// Stands by until a shard needs a leader (the thread that runs the shard). Returns that shard, or `None` if the
    /// set was closed.
    fn stand_by(&self, workers: &Workers) -> Option<(usize, Leading<'s>)> {
        while !workers.is_closed() {
            if let Some(taken_over) = self.take_over(workers) {
                return Some(taken_over);
            }
            if workers.has_job() {
                workers.run_jobs();
            } else {
                workers.stand_by(self.me);
            }
        }
        None
    }

    /// Takes over a shard whose leader (the thread that runs the shard) is held up by a handler, if there is one.
    fn take_over(&self, workers: &Workers) -> Option<(usize, Leading<'s>)> {
        while let Some(shard) = workers.watch().take_held_up() {
            if let Some(mut leading) = self.take_shard(shard, workers) {
                leading.trust.lose();
                self.set.shards()[shard].counters.takeovers.add(1);
                return Some((shard, leading));
            }
        }
        None
    }
}
