//! Starts the threads of a set of shards, and ends them.

use super::Shard;
use super::set::{Leaders, SetSettings, ShardSet};
use super::shard_thread::{self, ShardThread};
use crate::base::sync::{StdArc, thread};
use crate::lockfree::barrier;
use crate::system::forks;
use crate::system::signals::Blocked;
use std::io;

/// The owner of the threads of a set of shards. Dropping the owner ends the threads.
#[derive(Debug)]
pub(crate) struct Owner {
    set: StdArc<ShardSet>,
}

impl Owner {
    /// Makes a set of shards. If threads lead the shards, starts a thread for each shard and for each worker.
    pub(crate) fn start(settings: SetSettings) -> io::Result<StdArc<Self>> {
        let owner = Self { set: ShardSet::new(settings) };
        match owner.set.settings().leaders {
            Leaders::Threads => owner.start_threads()?,
            Leaders::Loops => owner.expect_loops(),
            Leaders::Driver => {}
        }
        Ok(StdArc::new(owner))
    }

    /// Prepares the process for the shards. Registers the action for the child of a fork, and registers the process for
    /// the system's barrier.
    fn prepare(&self) {
        let set = StdArc::downgrade(&self.set);
        let action = move || drop(set.upgrade().inspect(|set| set.enter_child()));
        self.set.forks.get_or_init(|| forks::watch(Box::new(action)));
        if barrier::wants_registration() {
            // Without the registration, the light sides of the barrier keep fencing, which is slower but as correct.
            let _no_signals = Blocked::new();
            let _refused = thread::Builder::new().name("tb-barrier".to_owned()).spawn(barrier::register);
        }
    }

    /// Prepares the shards for loops of the program. From now on, a loop that does not turn counts as late.
    fn expect_loops(&self) {
        self.prepare();
        let now = self.set.settings().clock.true_now();
        for mut leading in self.set.shards().iter().filter_map(Shard::lead) {
            leading.stalls.expect_turn(now);
        }
        self.be_woken_by_steps();
    }

    /// Makes a clock that moves in steps wake the shards after each step.
    fn be_woken_by_steps(&self) {
        let set = StdArc::downgrade(&self.set);
        self.set.settings().clock.as_dyn().subscribe(Box::new(move || {
            let wake_all =
                |set: &StdArc<ShardSet>| set.shards().iter().for_each(|shard| shard.parker.wake_if_asleep());
            set.upgrade().inspect(wake_all).is_some()
        }));
    }

    fn start_threads(&self) -> io::Result<()> {
        // The first reading in a process sets the clock's origin. It is taken here, so that it does not happen on
        // several threads at once.
        let _origin = self.set.settings().clock.true_now();
        self.prepare();
        let _no_signals = Blocked::new();
        for me in 0..self.set.threads() {
            let name = match me.checked_sub(self.set.shards().len()) {
                None => format!("tb-shard-{me}"),
                Some(worker) => format!("tb-worker-{worker}"),
            };
            let set = StdArc::clone(&self.set);
            let thread =
                thread::Builder::new().name(name).spawn(move || ShardThread::new(&set, me).serve())?;
            self.set.lock_threads().push(thread);
        }
        if self.set.own_workers().is_some() {
            let set = StdArc::clone(&self.set);
            let sentry = thread::Builder::new().name("tb-sentry".to_owned());
            self.set.lock_threads().push(sentry.spawn(move || shard_thread::stand_guard(&set))?);
        }
        self.be_woken_by_steps();
        Ok(())
    }

    pub(crate) fn set(&self) -> &StdArc<ShardSet> {
        &self.set
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.set.is_forked() {
            return;
        }
        self.set.close();
        if self.set.settings().leaders != Leaders::Threads {
            // All engines have ended, and no thread runs the shards any more. So the last stations are dropped here.
            self.set.dismiss(Shard::lead);
        }
        self.set.await_end();
    }
}
