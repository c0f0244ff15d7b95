//! Models of every race. They are run by
//! `RUSTFLAGS="--cfg tourbillon_loom" cargo test --all-features --profile loom --lib loom_tests`.
//!
//! Each file names its races. Races rest on orderings of the code. For each ordering, the file names the model that
//! goes red without it.

use crate::base::sync::AtomicU64;
use crate::base::tick::{TickLength, Timestamp};
use crate::dispatch::Dispatcher;
use crate::lockfree::parker::{self as shipped, Parker, Parkers, Sleep};
use crate::lockfree::roster::Roster;
use crate::shard::{Leaders, SetSettings};
use crate::system::clock::EngineClock;
use crate::system::scheduling::Scheduling;
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

mod after_run;
mod alone;
mod barrier;
mod batch;
mod calls;
mod canary;
mod counters;
mod inbox;
#[cfg(feature = "async")]
mod last_run;
mod looped;
mod owned;
mod parker;
mod sessions;
mod shard;
mod shutdown;
mod slab;
mod sleepers;
mod state;
mod upper;
#[cfg(feature = "async")]
mod waker;
mod watch;

#[cfg(not(debug_assertions))]
compile_error!("models run with debug assertions on: use `--profile loom`");

/// Fails to compile unless the atomic of `base::sync` is loom's.
const _THE_SHIM_IS_LOOM: fn(AtomicU64) -> loom::sync::atomic::AtomicU64 = |atomic| atomic;

/// Returns the settings for a set of one shard. The set has room for the shard's thread and one more thread.
fn set_of_one_shard(clock: EngineClock, dispatcher: Dispatcher) -> SetSettings {
    SetSettings {
        tick: TickLength::from_nanos(10),
        shards: 1,
        cores: Box::new([]),
        may_leave_cores: false,
        clock,
        dispatcher,
        roster: Roster::new(2),
        stall_after: Duration::from_secs(1),
        scheduling: Scheduling { slice: None, ..Scheduling::default() },
        leaders: Leaders::Threads,
    }
}

/// Makes a thread sleep on one parker, by the functions by which shards sleep. A parker is what a thread sleeps on.
struct OneSleep<'a, M, P> {
    parker: &'a Parker,
    may_sleep: M,
    park: P,
}

impl<M, P> Parkers for OneSleep<'_, M, P> {
    fn visit(&self, mut visit: impl FnMut(&Parker)) {
        visit(self.parker);
    }
}

impl<M: FnMut() -> bool, P: FnMut() -> bool> Sleep for OneSleep<'_, M, P> {
    fn may_sleep(&mut self) -> bool {
        (self.may_sleep)()
    }

    fn park(&mut self) -> bool {
        (self.park)()
    }
}

/// Makes thread 0 of the roster (the list of sleepers) sleep on the word `parker` until another thread wakes it. Does
/// not sleep if `may_sleep` returns false. Returns whether the thread has slept.
fn sleep(parker: &Parker, until: Option<Timestamp>, may_sleep: impl FnMut() -> bool) -> bool {
    let park = || {
        shipped::park(&OneSleep { parker, may_sleep: || true, park: || true }, None);
        true
    };
    sleep_by(parker, until, may_sleep, park)
}

/// Works as [`sleep`], with the function `park` in place of the park without a time limit.
fn sleep_by(
    parker: &Parker,
    until: Option<Timestamp>,
    may_sleep: impl FnMut() -> bool,
    park: impl FnMut() -> bool,
) -> bool {
    shipped::sleep(&mut OneSleep { parker, may_sleep, park }, 0, until)
}

/// Makes thread 0 of the roster (the list of sleepers) take a nap on the word `parker`, a sleep with a short time
/// limit. A model has no time, so the nap ends by itself. The nap does not yield. In a model, a thread that yields goes
/// on only when no other thread can. Then the end of the nap would race with nothing.
fn nap(parker: &Parker, until: Timestamp) -> bool {
    shipped::nap(&mut OneSleep { parker, may_sleep: || true, park: || true }, 0, Some(until))
}

/// Explores all executions of `f`, and prints their number. Fails if there is only one execution, because nothing was
/// interleaved then.
fn model(name: &str, f: impl Fn() + Sync + Send + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.max_branches = builder.max_branches.max(10_000);
    builder.preemption_bound = builder.preemption_bound.or(Some(4));
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        f();
    });
    let executions = executions.load(Ordering::Relaxed);
    println!("{name}: {executions} executions");
    assert!(executions > 1, "{name} explored a single interleaving");
}

/// The possible endings of a model, each with the number of executions that came to that ending. Loom does not track
/// these numbers, and they order nothing: the threads of a model take turns.
struct Endings {
    names: &'static [&'static str],
    counts: Box<[AtomicUsize]>,
}

impl Endings {
    /// Notes that the present execution of the model comes to this ending.
    fn note(&self, ending: &str) {
        let n = self.names.iter().position(|name| *name == ending).expect("an ending of the model");
        self.counts[n].fetch_add(1, Ordering::Relaxed);
    }
}

/// Explores `f` as [`model`] does. Fails if an ending never came, because the race in the model's name may not have
/// taken place.
fn model_with_endings(
    name: &str,
    names: &'static [&'static str],
    f: impl Fn(&Arc<Endings>) + Sync + Send + 'static,
) {
    let counts = names.iter().map(|_| AtomicUsize::new(0)).collect();
    let endings = Arc::new(Endings { names, counts });
    let noted = Arc::clone(&endings);
    model(name, move || f(&noted));
    for (ending, count) in names.iter().zip(&endings.counts) {
        println!("    {ending}: {}", count.load(Ordering::Relaxed));
    }
    for (ending, count) in names.iter().zip(&endings.counts) {
        assert!(count.load(Ordering::Relaxed) > 0, "{name}: no execution came to this ending: {ending}");
    }
}
