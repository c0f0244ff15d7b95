//! A thread that leads a shard may run handlers itself. An alarm rings if it does not come back. Then another thread,
//! the sentry, wakes a waiting thread, which takes the shard over. A permit allows a thread to run handlers. The models
//! show that the shard of every leader that is held up is taken over, and that every job is run. In a model, an alarm
//! that is set may ring at once.
//!
//! Each row was tried: the named fence or step was left out of `src`.
//!
//! | left out | model that goes red |
//! |----------|---------------------|
//! | Y2: the fence of `set_alarm` | `a_leader_begins_while_its_alarm_rings` |
//! | Y2: the fence of `ring` | `a_leader_begins_while_its_alarm_rings` |
//! | Y2: `ring` does not reset `rings_at` | `a_leader_begins_while_its_alarm_rings` |
//! | Y2: the alarm is set before the shard is unlocked | none: loom's `try_lock` may wait for the lock |
//! | Y3: `calm` resets `rings_at` before it clears the alarm | `an_alarm_is_set_while_it_is_cleared` |
//! | R1: the leader does not let go of its shard | all models in which a shard is taken over |
//! | R1: the leader sets no alarm, or the sentry wakes no thread | `a_shard_is_taken_over_from_a_leader_that_is_held_up`, `a_handler_returns_while_its_shard_is_taken_over`, `a_shutdown_races_with_a_takeover` |
//! | R1: a thread that goes to sleep does not look whether a shard is held up | `a_shard_is_taken_over_from_a_leader_that_is_held_up` |
//! | R1: no thread takes a shard over | all models in which a shard is taken over |
//! | R1: a leader names itself once only, not before each sleep | `a_handler_returns_while_its_shard_is_taken_over`, `an_earlier_leader_leads_its_shard_again` |
//! | R1: a leader announces the number of its shard instead of its own | all models in which a shard is taken over, but `two_earlier_leaders_come_back` |
//! | R1: a leader whose handlers have returned does not try to lead again | `a_handler_returns_while_its_shard_is_taken_over`, `a_shutdown_races_with_a_takeover`, `two_earlier_leaders_come_back`, `an_earlier_leader_leads_its_shard_again` |
//! | R1: a leader that comes back expects its shard to be free | all models in which a shard is taken over |
//! | R1: a leader that comes back waits for its shard, or does not stand by if the shard was taken over | `an_earlier_leader_leads_its_shard_again` |
//! | R4: a leader drops no station when the set has ended | all models in which a shard is taken over |
//! | H1: a chunk's cursor moves by a load and a store | `the_second_timer_of_a_batch_is_fired_once` |
//! | H2: a station does not check its batches, or a check sends no job | `the_second_timer_of_a_batch_is_fired_once` |
//! | Y4: `ring` or `take_held_up` is relaxed | `an_earlier_leader_leads_its_shard_again` |
//! | P3: a push's fence | `a_permit_comes_back_while_a_job_is_pushed` |
//! | P3: the fence of a permit's drop | `a_permit_comes_back_while_a_job_is_pushed` |
//! | P3: a permit's drop wakes no thread | `a_permit_comes_back_while_a_job_is_pushed` |
//! | P3: a push wakes no thread | `a_permit_comes_back_while_a_job_is_pushed` |
//! | Y1: `alarm_rings` marks no shard, or wakes no thread | `an_alarm_rings_while_a_thread_goes_to_sleep` |
//! | a leader that takes its shard back does not end the run of its handlers | none: a thread takes over no shard that is led, so this costs vain wake-ups |
//! | a thread that goes to sleep does not look whether the engine is closed | none here: `sleepers::closing_races_with_sleep` |

use super::{Endings, model, model_with_endings, set_of_one_shard};
use crate::base::sync::{
    AtomicU64, ModelledMutex, Mutex, OnceLock, Ordering, StdArc, ThreadKey, Weak, this_thread, thread,
};
use crate::base::tick::{Tick, Timestamp};
use crate::base::ticket::{Insertion, Ticket};
use crate::dispatch::{Batch, Dispatcher, DueChunk, Fire, Workers, dispatch};
use crate::lockfree::parker::Notified;
use crate::lockfree::roster::Roster;
use crate::lockfree::slab::{Magazines, Slots};
use crate::lockfree::watch::Watch;
use crate::shard::{Presence, ShardSet, ShardThread, Station, StationShared};
use crate::system::clock::{Clock, EngineClock};
use core::time::Duration;
use std::sync::atomic::{AtomicBool, AtomicUsize};

const NOW: Timestamp = Timestamp::from_nanos(1_000);
const DUE: Timestamp = Timestamp::from_nanos(500);
const AHEAD: Timestamp = Timestamp::from_nanos(5_000);

/// A shard's leader, the thread that runs the shard, begins handlers while the alarm of its former handlers rings.
/// Legal endings: (a) the sentry finds the handlers, and the shard is unlocked; (b) the leader sets the alarm again.
#[test]
fn a_leader_begins_while_its_alarm_rings() {
    const ENDINGS: &[&str] = &["the shard is held up", "the alarm is set again"];
    model_with_endings("a_leader_begins_while_its_alarm_rings", ENDINGS, |endings| {
        let shard = StdArc::new((Watch::new(1), ModelledMutex::new(())));
        let (watch, led) = &*shard;
        watch.begin(0);
        watch.set_alarm(0);
        watch.end(0);
        let leader = StdArc::clone(&shard);
        let leading = led.lock().unwrap();
        let sentry = thread::spawn(move || {
            let (watch, led) = &*leader;
            let mut rung = Vec::new();
            assert!(watch.await_alarms(&mut rung));
            watch.ring(0) && watch.take_held_up().is_some() && led.try_lock().is_ok()
        });
        watch.begin(0);
        drop(leading);
        watch.set_alarm(0);
        let is_taken_over = sentry.join().unwrap();
        if !is_taken_over {
            assert!(watch.await_alarms(&mut Vec::new()));
        }
        endings.note(ENDINGS[usize::from(!is_taken_over)]);
    });
}

/// The leader of a shard, the thread that runs it, sets the alarm after another thread has come to lead the shard, and
/// clears the alarm. Then that leader runs handlers. Legal ending: its alarm rings.
#[test]
fn an_alarm_is_set_while_it_is_cleared() {
    model("an_alarm_is_set_while_it_is_cleared", || {
        let watch = StdArc::new(Watch::new(1));
        watch.begin(0);
        watch.set_alarm(0);
        let former = StdArc::clone(&watch);
        let former = thread::spawn(move || former.set_alarm(0));
        watch.end(0);
        watch.calm(0);
        watch.begin(0);
        watch.set_alarm(0);
        former.join().unwrap();
        assert!(watch.await_alarms(&mut Vec::new()) && watch.ring(0));
    });
}

/// The alarm of a shard rings while a thread goes to sleep. Legal endings: (a) before it sleeps, the thread finds the
/// shard, which is held up; (b) the thread is woken.
#[test]
fn an_alarm_rings_while_a_thread_goes_to_sleep() {
    model("an_alarm_rings_while_a_thread_goes_to_sleep", || {
        let roster = Roster::new(1);
        let workers = StdArc::new(Workers::new(1, 1, StdArc::clone(&roster)));
        workers.watch().begin(0);
        let next = StdArc::clone(&workers);
        let next = thread::spawn(move || {
            roster.enter_current_thread(0);
            while next.watch().take_held_up().is_none() {
                next.stand_by(0);
            }
        });
        workers.alarm_rings(0);
        next.join().unwrap();
    });
}

const TAKEN_OVER: [&str; 3] = [
    "the shard is taken over before the handler has begun",
    "the shard is taken over while the handler runs",
    "the shard is taken over after the handler has returned",
];
const LEADS_ON: &str = "the handler returns, and its thread leads on";

/// The stage of the model before the first handler has begun. A stage is also an index into `TAKEN_OVER`: the ending
/// for a takeover in this stage.
const IS_BEFORE: usize = 0;
const RUNS: usize = 1;
const HAS_RETURNED: usize = 2;
/// The stage in which a thread leads the shard again, after the first leading thread has let go of it.
const IS_LED: usize = 3;

/// The part of a takeover's model that differs from model to model: the handlers and the time. In a takeover, a waiting
/// thread takes a shard from a held-up leader, the thread that runs the shard.
struct Script {
    /// The handler of all timers. The number in its arguments counts the calls of the handler, from 1.
    handler: fn(&World, u64),
    /// A function that is called each time the shard's leader (the thread that runs it) reads the clock.
    look: fn(&World),
    /// The time that the clock shows after the first handler has begun.
    later: Timestamp,
}

/// An engine on one shard with workers. A script gives the engine's handlers. At first, thread 0 leads the shard.
struct World {
    set: StdArc<ShardSet>,
    shared: StdArc<StationShared>,
    slots: StdArc<Slots>,
    presence: StdArc<Presence>,
    clock: StdArc<Looks>,
    called: AtomicU64,
    script: Script,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    /// The endings that the model notes. Loom does not track this field and the fields below, and these fields order
    /// nothing.
    endings: StdArc<Endings>,
    first: ThreadKey,
    stage: AtomicUsize,
    running: AtomicUsize,
}

impl World {
    /// Makes an engine on one shard, with `threads` threads for the shard and the workers. The same number of handlers
    /// may run at a time, because in a model a job in the queue publishes nothing.
    fn new(threads: usize, endings: &StdArc<Endings>, script: Script) -> StdArc<Self> {
        let clock = StdArc::new(Looks { world: OnceLock::new(), has_begun: AtomicBool::new(false) });
        let custom = EngineClock::Custom(StdArc::<Looks>::clone(&clock));
        let mut settings = set_of_one_shard(custom, Dispatcher::Inline);
        settings.roster = Roster::new(threads);
        let workers = Workers::new(threads, 1, StdArc::clone(&settings.roster));
        settings.dispatcher = Dispatcher::Own(StdArc::new(workers));
        let world = StdArc::new(Self {
            shared: StdArc::new(StationShared::new(64, &settings.roster)),
            set: ShardSet::new(settings),
            slots: StdArc::new(Slots::new(4, Timestamp::ZERO)),
            presence: Presence::of(1),
            clock,
            called: AtomicU64::new(0),
            script,
            threads: Mutex::new(Vec::new()),
            endings: StdArc::clone(endings),
            first: this_thread(),
            stage: AtomicUsize::new(IS_BEFORE),
            running: AtomicUsize::new(0),
        });
        world.clock.world.get_or_init(|| StdArc::downgrade(&world));
        let engine: StdArc<dyn Fire> = StdArc::<Self>::clone(&world);
        let time = (world.set.settings().tick, Timestamp::ZERO);
        let (shared, slots) = (StdArc::clone(&world.shared), StdArc::clone(&world.slots));
        world.set.join(vec![Station::new(0, (engine, &world.presence), shared, slots, time)]);
        world
    }

    /// Schedules timers for these deadlines from the calling thread.
    fn schedule(&self, deadlines: &[Timestamp]) {
        let (mut lane, mut magazines) = (self.shared.inbox.register(), Magazines::new());
        for &deadline in deadlines {
            let index = magazines.take(&self.slots).unwrap();
            let (_, stamp) = self.slots.control(index).arm(index, deadline);
            let _ = lane.push(Insertion { deadline, index, stamp });
            let _: Notified = self.shared.parker.notify(deadline);
        }
    }

    /// Starts thread `n` of the set of shards.
    fn start(&self, n: usize) {
        let set = StdArc::clone(&self.set);
        self.threads.lock().unwrap().push(thread::spawn(move || ShardThread::new(&set, n).serve()));
    }

    /// Starts thread `n` of the set of shards. It first waits for one alarm, in place of the sentry. So the model has a
    /// thread less.
    fn start_on_guard(&self, n: usize) {
        let set = StdArc::clone(&self.set);
        self.threads.lock().unwrap().push(thread::spawn(move || {
            handle_alarms(&set, |watch, rung| {
                watch.await_alarms(rung);
            });
            ShardThread::new(&set, n).serve();
        }));
    }

    /// Runs thread 0 of the set of shards until all threads have ended. Then checks that `timers` timers have fired.
    fn run(&self, timers: u64) {
        ShardThread::new(&self.set, 0).serve();
        let threads = core::mem::take(&mut *self.threads.lock().unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(self.called(), timers, "a timer was not fired once");
        assert_eq!(self.presence.stations(), 0, "no leader has dropped the station");
    }

    /// Ends the engine and the set of shards.
    fn end(&self) {
        self.shared.parker.close();
        self.set.close();
    }

    fn called(&self) -> u64 {
        self.called.load(Ordering::Relaxed)
    }

    /// Returns how often a waiting thread has taken the shard over from its leader.
    fn takeovers(&self) -> u64 {
        self.set.shards()[0].counters.takeovers.get()
    }

    /// Waits until the shard has made a turn, a pass of its loop.
    fn await_turn(&self) {
        self.shared.want_sweep();
        while self.shared.is_sweep_wanted() {
            thread::yield_now();
        }
    }

    /// Waits until the shard has made a turn, and handles alarms in place of the sentry. So the model has a thread
    /// less.
    fn await_turn_on_guard(&self) {
        self.shared.want_sweep();
        while self.shared.is_sweep_wanted() {
            handle_alarms(&self.set, |watch, rung| watch.take_alarms(rung));
            thread::yield_now();
        }
    }

    fn is_first(&self) -> bool {
        this_thread() == self.first
    }

    fn step(&self, from: usize, to: usize) -> bool {
        self.stage.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Runs `f` as the first handler. Notes when the handler begins and returns.
    fn in_first_handler(&self, f: impl FnOnce()) {
        self.step(IS_BEFORE, RUNS);
        f();
        self.step(RUNS, HAS_RETURNED);
    }

    /// Notes how the shard has found its next leader. Does nothing before the first leader has let go of the shard.
    fn note_leader(&self) {
        let stage = self.stage.load(Ordering::Relaxed);
        let is_again = if self.is_first() { stage == HAS_RETURNED } else { stage < IS_LED };
        if is_again && self.step(stage, IS_LED) {
            self.endings.note(if self.is_first() { LEADS_ON } else { TAKEN_OVER[stage] });
        }
    }
}

/// Handles the alarms that `await_alarms` puts into the list, as the sentry does.
fn handle_alarms(set: &ShardSet, await_alarms: impl FnOnce(&Watch, &mut Vec<usize>)) {
    let Dispatcher::Own(workers) = &set.settings().dispatcher else { return };
    let mut rung = Vec::new();
    await_alarms(workers.watch(), &mut rung);
    rung.into_iter().for_each(|shard| workers.alarm_rings(shard));
}

/// A clock that stands still except for one step, when the first handler begins. Only the thread that leads the shard
/// reads the clock.
struct Looks {
    world: OnceLock<Weak<World>>,
    has_begun: AtomicBool,
}

impl Clock for Looks {
    fn now(&self) -> Timestamp {
        let Some(world) = self.world.get().and_then(Weak::upgrade) else { return NOW };
        (world.script.look)(&world);
        if self.has_begun.load(Ordering::Relaxed) { world.script.later } else { NOW }
    }

    fn sleep_for(&self, _now: Timestamp, _deadline: Timestamp) -> Option<Duration> {
        None
    }
}

impl Fire for World {
    fn dispatcher(&self) -> &Dispatcher {
        &self.set.settings().dispatcher
    }

    fn fire(self: StdArc<Self>, batch: &Batch, most: usize) -> usize {
        let mut called = 0;
        for chunk in batch.chunks() {
            while called < most && chunk.take().is_some() {
                called += 1;
                let n = self.called.fetch_add(1, Ordering::Relaxed) + 1;
                self.clock.has_begun.store(true, Ordering::Relaxed);
                (self.script.handler)(&self, n);
            }
        }
        called
    }

    fn job_dropped(&self, _: usize) {}

    fn batch_taken(&self, _: usize) {}
}

/// A handler holds up the thread that leads its shard, and the other thread takes the shard over. When the handler has
/// returned, the former leader stands by. If no thread takes the shard over, the handler waits for ever.
#[test]
fn a_shard_is_taken_over_from_a_leader_that_is_held_up() {
    const ENDINGS: &[&str] = &[TAKEN_OVER[0], TAKEN_OVER[1]];
    model_with_endings("a_shard_is_taken_over_from_a_leader_that_is_held_up", ENDINGS, |endings| {
        let handler = |world: &World, _| {
            world.in_first_handler(|| world.await_turn());
            world.end();
        };
        let world = World::new(2, endings, Script { handler, look: World::note_leader, later: NOW });
        world.schedule(&[DUE]);
        world.start_on_guard(1);
        world.run(1);
    });
}

/// A handler returns before, while or after the other thread takes the shard over. A second timer is due by then. The
/// thread that leads the shard fires the second timer, and ends the set of shards. The races of that end are in
/// `a_shutdown_races_with_a_takeover`.
#[test]
fn a_handler_returns_while_its_shard_is_taken_over() {
    const ENDINGS: &[&str] = &[TAKEN_OVER[0], TAKEN_OVER[1], TAKEN_OVER[2], LEADS_ON];
    model_with_endings("a_handler_returns_while_its_shard_is_taken_over", ENDINGS, |endings| {
        let handler = |world: &World, n| match n {
            // The next leader sees this request. Without it, loom does not separate the handler from its end.
            1 => world.in_first_handler(|| world.shared.want_sweep()),
            _ => {
                loom::skip_branch();
                world.end();
            }
        };
        let world = World::new(2, endings, Script { handler, look: World::note_leader, later: AHEAD });
        world.schedule(&[DUE, AHEAD]);
        world.start_on_guard(1);
        world.run(2);
    });
}

/// The leader of a shard (the thread that runs it) runs a handler. Another thread has taken the shard over, and runs a
/// handler, too. Both handlers return at once, or the handlers return one after the other. Either thread leads the
/// shard again and ends the set of shards. The other thread stands by.
#[test]
fn two_earlier_leaders_come_back() {
    const ENDINGS: &[&str] = &[
        "the first leader leads again, after both handlers",
        "the first leader leads again, while the second handler runs",
        "the second leader leads again, after both handlers",
        "the second leader leads again, while the first handler runs",
    ];
    const BOTH_HAVE_BEGUN: usize = 1;
    model_with_endings("two_earlier_leaders_come_back", ENDINGS, |endings| {
        let handler = |world: &World, n| {
            world.running.fetch_add(1, Ordering::Relaxed);
            if n == 1 {
                world.start_on_guard(1);
                while world.called() < 2 {
                    thread::yield_now();
                }
            } else {
                world.step(IS_BEFORE, BOTH_HAVE_BEGUN);
                world.shared.want_sweep();
            }
            world.running.fetch_sub(1, Ordering::Relaxed);
        };
        let look = |world: &World| {
            if world.step(BOTH_HAVE_BEGUN, IS_LED) {
                let former = if world.is_first() { 0 } else { 2 };
                world.endings.note(ENDINGS[former + world.running.load(Ordering::Relaxed)]);
                world.end();
            }
        };
        let world = World::new(2, endings, Script { handler, look, later: AHEAD });
        world.schedule(&[DUE, AHEAD]);
        world.run(2);
    });
}

/// The leader of a shard is the thread that runs it. A leader whose shard was taken over comes back. The present leader
/// is held up by its own handler. Legal endings: (a) the former leader finds the shard free, and leads it; (b) the
/// former leader stands by, and takes the shard over. If the former leader does neither, the handler waits for ever.
#[test]
fn an_earlier_leader_leads_its_shard_again() {
    const ENDINGS: &[&str] =
        &["the earlier leader finds the shard free", "the earlier leader takes the shard over"];
    model_with_endings("an_earlier_leader_leads_its_shard_again", ENDINGS, |endings| {
        let handler = |world: &World, n| {
            if n == 1 {
                // Other models show how the shard is taken over the first time.
                loom::stop_exploring();
                world.start_on_guard(1);
                world.await_turn();
                loom::explore();
                world.schedule(&[DUE]);
            } else {
                world.await_turn_on_guard();
                loom::skip_branch();
                world.end();
            }
        };
        let world = World::new(2, endings, Script { handler, look: |_| (), later: NOW });
        world.schedule(&[DUE]);
        world.run(2);
        endings.note(ENDINGS[usize::from(world.takeovers() == 2)]);
    });
}

/// A handler ends its engine and the set of shards, and returns, before, while or after the other thread takes the
/// shard over. A station is the engine's part of the shard, and the leader is the thread that runs the shard. Legal
/// endings: (a) the leader comes back and drops the station; (b) the other thread sees the end, in a turn, before its
/// sleep or in its sleep, and drops the station; (c) the other thread takes over a shard that is at its end.
#[test]
fn a_shutdown_races_with_a_takeover() {
    const ENDS: [&str; 2] = ["the shard is not taken over", "the shard is taken over"];
    const ENDINGS: &[&str] = &[TAKEN_OVER[0], TAKEN_OVER[1], TAKEN_OVER[2], ENDS[0], ENDS[1]];
    model_with_endings("a_shutdown_races_with_a_takeover", ENDINGS, |endings| {
        let handler = |world: &World, _| world.in_first_handler(|| world.end());
        let world = World::new(2, endings, Script { handler, look: World::note_leader, later: NOW });
        world.schedule(&[DUE]);
        world.start_on_guard(1);
        world.run(1);
        endings.note(ENDS[usize::from(world.takeovers() == 1)]);
    });
}

/// Two timers are due at once, and the handler of the first timer holds up the thread that leads the shard. The thread
/// that takes the shard over sends a worker for the second timer, while the handler returns. Either the leader or the
/// worker fires the second timer.
#[test]
fn the_second_timer_of_a_batch_is_fired_once() {
    const ENDINGS: &[&str] = &["the leader fires the second timer", "a worker fires the second timer"];
    const HAS_BEGUN: usize = 1;
    const IS_TAKEN_OVER: usize = 2;
    model_with_endings("the_second_timer_of_a_batch_is_fired_once", ENDINGS, |endings| {
        let handler = |world: &World, n| {
            if n == 1 {
                // Other models are about the takeover itself. The threads must start here to see the batch. A model has
                // no queue of jobs, so no job would start them.
                loom::stop_exploring();
                world.step(IS_BEFORE, HAS_BEGUN);
                world.start_on_guard(1);
                world.start(2);
                while world.stage.load(Ordering::Relaxed) != IS_TAKEN_OVER {
                    thread::yield_now();
                }
            } else {
                loom::skip_branch();
                world.endings.note(ENDINGS[usize::from(!world.is_first())]);
                world.end();
            }
        };
        let look = |world: &World| {
            if !world.is_first() && world.step(HAS_BEGUN, IS_TAKEN_OVER) {
                loom::explore();
            }
        };
        // The shard checks its batches in the turn after the takeover.
        let later = NOW + Duration::from_millis(2);
        let world = World::new(3, endings, Script { handler, look, later });
        world.schedule(&[DUE, DUE]);
        world.run(2);
    });
}

/// An engine that only counts the tickets (due timers) that it fires.
struct Count {
    dispatcher: Dispatcher,
    fired: AtomicU64,
}

impl Fire for Count {
    fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    fn fire(self: StdArc<Self>, batch: &Batch, most: usize) -> usize {
        let mut called = 0;
        for chunk in batch.chunks() {
            while called < most && chunk.take().is_some() {
                called += 1;
                self.fired.fetch_add(1, Ordering::Relaxed);
            }
        }
        called
    }

    fn job_dropped(&self, _: usize) {}

    fn batch_taken(&self, _: usize) {}
}

/// The only permit to run a job comes back while a job is pushed and a thread goes to sleep. Legal endings: (a) the
/// thread finds permit and job before it sleeps; (b) the push wakes the thread; (c) the drop of the permit wakes the
/// thread. The model does not have the queue itself: a pushed job is seen at once.
#[test]
fn a_permit_comes_back_while_a_job_is_pushed() {
    model("a_permit_comes_back_while_a_job_is_pushed", || {
        let roster = Roster::new(1);
        let workers = StdArc::new(Workers::new(1, 1, StdArc::clone(&roster)));
        let dispatcher = Dispatcher::Own(StdArc::clone(&workers));
        let count = StdArc::new(Count { dispatcher, fired: AtomicU64::new(0) });
        let permit = workers.permit().unwrap();
        let chunk = DueChunk::new(vec![Ticket::new(Tick(0), 0, 0)], Timestamp::ZERO);
        let batch = StdArc::new(Batch::new(0, vec![chunk]));
        let (standing_by, fired) = (StdArc::clone(&workers), StdArc::clone(&count));
        let worker = thread::spawn(move || {
            roster.enter_current_thread(0);
            while fired.fired.load(Ordering::Relaxed) == 0 {
                standing_by.run_jobs();
                if fired.fired.load(Ordering::Relaxed) == 0 {
                    standing_by.stand_by(0);
                }
            }
        });
        let engine: StdArc<dyn Fire> = StdArc::<Count>::clone(&count);
        let pusher = thread::spawn(move || assert!(dispatch(&engine, &batch), "the workers panicked"));
        drop(permit);
        pusher.join().unwrap();
        worker.join().unwrap();
        assert_eq!(count.fired.load(Ordering::Relaxed), 1, "the job was not run once");
    });
}
