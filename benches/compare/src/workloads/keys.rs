//! Timers by key. A caller replaces the timer of a key again and again.

use super::{LONG, below};
use crate::case::Case;
use crate::common::{Chance, Payload, payload};
use crate::results::Figures;
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload, columns_by_threads, threads_key};
use scc::HashMap;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio_util::time::{DelayQueue, delay_queue};
use tourbillon::{Engine, TimerId};
use tourbillon_book::figure::thousands;
use tourbillon_tasks::TaskEngine;
use tourbillon_tasks::keyed::Keyed;

pub(super) const WORKLOAD: Workload = Workload {
    name: "keys",
    operation: "a random key's timer replaced by one in 10 to 60 s (ns each)",
    family: Family::Tasks,
    about: "Rows beside `Keyed` have the parts that it is made of: the map alone, and the engine alone with \
        ids in a plain table. The queue behind a mutex is the usual way with tokio. Checked: counts after \
        each number of threads, and that no timer has fired.",
    reading: "With a million keys each step misses the cache: the bucket, the slots of the old and of the \
        new timer, and the allocation of the old timer. A pair that is cancelled at once has all of that \
        in the cache. The queue moves a timer in its wheel and keeps its entry, which is less work until \
        two threads want its lock.",
    cases,
    columns: columns_by_threads,
    rounds: |scale, _| scale.pick(5, 1, 1),
    entrants,
};

fn entrants() -> Vec<Entrant> {
    vec![
        Entrant::here("Keyed, schedule", true, keyed),
        Entrant::here("scc::HashMap alone: a value replaced", false, map_alone),
        Entrant::here("engine alone: a random timer replaced", true, |case| engine_alone(case, Ids::replace)),
        Entrant::here("engine alone: schedule and cancel at once", true, |case| {
            engine_alone(case, Ids::pair)
        }),
        Entrant::here("Mutex of HashMap and DelayQueue: reset", false, delay_queue),
    ]
}

fn cases(scale: Scale) -> Vec<Case> {
    let timers = scale.pick(1_000_000, 50_000, 100);
    let operations = scale.pick(1_000_000, 100_000, 200);
    let settle_ms = scale.pick(500, 100, 5);
    let name = format!("{} keys", thousands(timers));
    vec![Case { timers, operations, settle_ms, threads: vec![1, 2], ..Case::named(name) }]
}

/// A contestant that has a timer for each of many keys.
trait Keys: Sync {
    /// Gives the key a timer. The key must have no timer.
    fn insert(&mut self, key: u64, delay: Duration);
    fn replace(&self, key: u64, delay: Duration);
    fn count(&self) -> usize;
}

fn time(case: &Case, mut keys: impl Keys) -> Figures {
    let mut chance = Chance::new(1);
    for key in 0..case.timers as u64 {
        keys.insert(key, Duration::from_nanos(chance.within(&LONG)));
    }
    thread::sleep(case.settle());
    let mut figures = Figures::default();
    for &threads in &case.threads {
        let nanos = replace_by_threads(case, &keys, threads);
        figures = figures.number(threads_key(threads), nanos);
        assert_eq!(keys.count(), case.timers);
    }
    figures
}

/// Runs replacements on `threads` threads. Returns the slowest thread's nanoseconds for an operation.
fn replace_by_threads(case: &Case, keys: &impl Keys, threads: usize) -> f64 {
    let barrier = Barrier::new(threads);
    let run = |thread: usize| {
        let mut chance = Chance::new(thread as u64 + 2);
        let plan: Vec<(u64, Duration)> = (0..case.operations)
            .map(|_| (u64::from(below(&mut chance, case.timers)), Duration::from_nanos(chance.within(&LONG))))
            .collect();
        barrier.wait();
        let start = Instant::now();
        for (key, delay) in plan {
            keys.replace(key, delay);
        }
        start.elapsed()
    };
    let slowest = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("its checks hold")).max()
    });
    slowest.expect("some threads").as_secs_f64() * 1e9 / case.operations as f64
}

struct Ours {
    keyed: Keyed<u64, Payload>,
    tasks: TaskEngine,
}

fn keyed(case: &Case) -> Figures {
    let tasks = TaskEngine::new().expect("the system gives us threads");
    let keyed = tasks.handle().keyed(|_| {});
    time(case, Ours { keyed, tasks })
}

impl Keys for Ours {
    fn insert(&mut self, key: u64, delay: Duration) {
        assert!(self.keyed.schedule(key, delay, payload(key)).expect("there is room").is_none());
    }

    fn replace(&self, key: u64, delay: Duration) {
        let old = self.keyed.schedule(key, delay, payload(key)).expect("there is room");
        assert_eq!(old, Some(payload(key)));
    }

    fn count(&self) -> usize {
        let stats = self.tasks.handle().stats();
        assert_eq!((stats.fired, stats.pending), (0, self.keyed.len() as u64));
        self.keyed.len()
    }
}

fn map_alone(case: &Case) -> Figures {
    time(case, HashMap::default())
}

impl Keys for HashMap<u64, [u64; 4]> {
    fn insert(&mut self, key: u64, delay: Duration) {
        self.replace(key, delay);
    }

    fn replace(&self, key: u64, delay: Duration) {
        let nanos = u64::try_from(delay.as_nanos()).expect("a minute");
        self.upsert_sync(key, [key, !key, nanos, 0]);
    }

    fn count(&self) -> usize {
        self.len()
    }
}

/// The ids of the engine's timers in a plain table. The table shows the engine's cost without a map.
struct Ids {
    engine: Engine<Payload>,
    ids: Vec<Mutex<TimerId>>,
    operation: fn(&Self, u64, Duration),
}

fn engine_alone(case: &Case, operation: fn(&Ids, u64, Duration)) -> Figures {
    let engine = Engine::new(|_| {}).expect("the system gives us threads");
    time(case, Ids { engine, ids: Vec::new(), operation })
}

impl Ids {
    fn replace(&self, key: u64, delay: Duration) {
        let new = self.engine.handle().schedule(delay, payload(key)).expect("there is room");
        let mut id = self.ids[usize::try_from(key).expect("an index")].lock().expect("nobody panics");
        let old = std::mem::replace(&mut *id, new);
        drop(id);
        assert_eq!(self.engine.handle().cancel(old).payload(), Some(payload(key)));
    }

    fn pair(&self, key: u64, delay: Duration) {
        let id = self.engine.handle().schedule(delay, payload(key)).expect("there is room");
        assert_eq!(self.engine.handle().cancel(id).payload(), Some(payload(key)));
    }
}

impl Keys for Ids {
    fn insert(&mut self, key: u64, delay: Duration) {
        self.ids.push(Mutex::new(self.engine.handle().schedule(delay, payload(key)).expect("there is room")));
    }

    fn replace(&self, key: u64, delay: Duration) {
        (self.operation)(self, key, delay);
    }

    fn count(&self) -> usize {
        assert_eq!(self.engine.handle().stats().fired, 0);
        usize::try_from(self.engine.handle().stats().pending).expect("they are in memory")
    }
}

/// The usual structure with tokio: a queue of delays, and a map from each key to its item in the queue.
#[derive(Default)]
struct Queue(Mutex<(std::collections::HashMap<u64, delay_queue::Key>, DelayQueue<u64>)>);

fn delay_queue(case: &Case) -> Figures {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().build().expect("the system gives us a timer");
    // A thread that waits for the queue reads the clock of a runtime. Here no thread waits, since no timer is due.
    let _guard = runtime.enter();
    time(case, Queue::default())
}

impl Keys for Queue {
    fn insert(&mut self, key: u64, delay: Duration) {
        let (map, queue) = self.0.get_mut().expect("nobody panics");
        map.insert(key, queue.insert(key, delay));
    }

    fn replace(&self, key: u64, delay: Duration) {
        let mut locked = self.0.lock().expect("nobody panics");
        let (map, queue) = &mut *locked;
        queue.reset(&map[&key], delay);
    }

    fn count(&self) -> usize {
        self.0.lock().expect("nobody panics").1.len()
    }
}
