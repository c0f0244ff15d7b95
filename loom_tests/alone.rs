//! A batch (group of due timers) whose handlers run inline, on the thread that turns the shard. No other thread takes
//! tickets (requests to check timers) of such a batch, so the cursors of its chunks move by plain stores (H1). The
//! models `shard` and `looped` take tickets in the same way.
//!
//! Each row was tried: the named step was changed in `src`.
//!
//! | changed | model that goes red |
//! |---------|---------------------|
//! | H1: the leader keeps an inline batch and runs it after the turn, and the batch is in flight | `an_inline_batch_is_fired_on_the_thread_of_its_turn` |
//! | H1: the leader keeps it, but it is not in flight | none: the thread that takes the shard over does not find it |
//! | H1: it is in flight, but the turn fires it | none: the shard is locked until all its tickets are taken |
//! | H1: the first of these, and `fire_chunk` takes by `take` | none: `take` is for several threads |

use super::{model, set_of_one_shard};
use crate::base::sync::{Mutex, StdArc, thread};
use crate::base::tick::Timestamp;
use crate::dispatch::{Dispatcher, Fire, Guarded, Workers};
use crate::engine::{Core, Handler, Local, Settings};
use crate::lockfree::roster::Roster;
use crate::shard::{Presence, ShardSet, ShardThread, Station};
use crate::system::clock::{Clock, EngineClock};
use core::time::Duration;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const NOW: Timestamp = Timestamp::from_nanos(1_000);
const DUE: Timestamp = Timestamp::from_nanos(500);

/// A clock that stands still until the first handler begins. Then it shows a moment at which the shard checks its
/// batches, to send help for a slow handler.
struct Step {
    has_begun: StdArc<AtomicBool>,
}

impl Clock for Step {
    fn now(&self) -> Timestamp {
        NOW + Duration::from_millis(if self.has_begun.load(Ordering::Relaxed) { 2 } else { 0 })
    }

    fn sleep_for(&self, _now: Timestamp, _deadline: Timestamp) -> Option<Duration> {
        None
    }
}

/// Makes a set of one shard, with a thread for the shard and a thread for a worker.
fn set_with_a_worker(clock: Step) -> StdArc<ShardSet> {
    let mut settings = set_of_one_shard(EngineClock::Custom(StdArc::new(clock)), Dispatcher::Inline);
    settings.roster = Roster::new(2);
    let workers = Workers::new(1, 1, StdArc::clone(&settings.roster));
    settings.dispatcher = Dispatcher::Own(StdArc::new(workers));
    ShardSet::new(settings)
}

/// Looks for work in each way in which another thread can come to the shard of a slow handler: an alarm rings late, a
/// lane is drained, and a worker takes the shard over or runs jobs.
fn look_for_work(set: &ShardSet) {
    if let Dispatcher::Own(workers) = &set.settings().dispatcher {
        workers.alarm_rings(0);
    }
    set.drain_loops();
    ShardThread::new(set, 1).serve();
}

/// Two timers of an inline engine are due at once, and the first handler is slow. Another thread looks for work in
/// every way, on a set of shards that has workers. Legal ending: the thread of the turn takes both tickets.
#[test]
fn an_inline_batch_is_fired_on_the_thread_of_its_turn() {
    model("an_inline_batch_is_fired_on_the_thread_of_its_turn", || {
        let (has_begun, called) = (StdArc::new(AtomicBool::new(false)), StdArc::new(AtomicU64::new(0)));
        let set = set_with_a_worker(Step { has_begun: StdArc::clone(&has_begun) });
        let (worker, calls) = (StdArc::new(Mutex::new(None)), StdArc::clone(&called));
        let (workers_set, started) = (StdArc::clone(&set), StdArc::clone(&worker));
        let handler: Handler<u32> = Box::new(move |_, core| {
            if calls.fetch_add(1, Ordering::Relaxed) == 0 {
                has_begun.store(true, Ordering::Relaxed);
                core.admission().stations().all()[0].want_check();
                let set = StdArc::clone(&workers_set);
                *started.lock().unwrap() = Some(thread::spawn(move || look_for_work(&set)));
            } else {
                loom::skip_branch();
                let _right = core.stop();
                core.set().close();
            }
        });
        let settings = Settings {
            capacity: 2,
            lane_capacity: 64,
            dispatcher: Dispatcher::Inline,
            guarded: Guarded::new(None),
        };
        let core = StdArc::new(Core::new(StdArc::clone(&set), settings, handler));
        let station = &core.admission().stations().all()[0];
        let engine: StdArc<dyn Fire> = StdArc::<Core<u32>>::clone(&core);
        let slots = StdArc::clone(core.admission().slots());
        let time = (set.settings().tick, Timestamp::ZERO);
        set.join(vec![Station::new(0, (engine, &Presence::of(1)), StdArc::clone(station), slots, time)]);
        let mut local = Local::new(core.admission(), 0);
        for payload in 0..2 {
            let slot = local.reserve(core.admission()).unwrap();
            assert!(core.timers().schedule(&mut local, slot, DUE, payload).is_ok());
        }
        ShardThread::new(&set, 0).serve();
        if let Some(worker) = worker.lock().unwrap().take() {
            worker.join().unwrap();
        }
        assert_eq!(called.load(Ordering::Relaxed), 2, "a timer was not fired once");
        assert_eq!(station.counters.stale_at_worker.get(), 0, "two threads have taken one ticket");
    });
}
