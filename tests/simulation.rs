//! A seeded simulation: chance schedules, cancels, moves and lets time pass over several shards, and so do the handlers.
//!
//! `TOURBILLON_SEED=<n> cargo test --test simulation` runs one seed, which a failure prints, or any other.

mod support;

use std::collections::BTreeMap;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Rng, assert_settled, lock};
use tourbillon::{Builder, Cancel, Fired, Handle, RescheduleError, ScheduleErrorKind, TimerId, Timestamp};

const STEPS: usize = 3_000;

/// How a timer's payload came back to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Fired,
    Cancelled,
    Returned,
}

/// What the simulation knows; handlers know it too.
struct World {
    rng: Rng,
    tick: Duration,
    /// The current id and deadline of each timer that has not ended.
    live: BTreeMap<u64, (TimerId, Timestamp)>,
    /// Every id there ever was.
    ids: Vec<(TimerId, u64)>,
    ends: Vec<(u64, End, Timestamp)>,
    payloads: u64,
    in_handler: bool,
    /// Whether time passes without a turn.
    stalled: bool,
    panics: u64,
}

impl World {
    fn new(seed: u64, tick: Duration) -> Self {
        Self {
            rng: Rng::new(seed),
            tick,
            live: BTreeMap::new(),
            ids: Vec::new(),
            ends: Vec::new(),
            payloads: 0,
            in_handler: false,
            stalled: false,
            panics: 0,
        }
    }

    fn delay(&mut self) -> Duration {
        match self.rng.below(10) {
            0 => Duration::ZERO,
            1 => Duration::MAX,
            2..5 => self.rng.nanos_below(3 * self.tick),
            5..9 => self.rng.nanos_below(1_000 * self.tick),
            _ => self.rng.nanos_below(200_000 * self.tick),
        }
    }

    fn schedule(&mut self, engine: &Handle<u64>) {
        let (delay, payload) = (self.delay(), self.payloads);
        self.payloads += 1;
        let deadline = engine.now() + delay;
        let shard = self.rng.index(engine.shards());
        let scheduled = match self.rng.below(4) {
            0 => engine.producer_on(shard).schedule_at(deadline, payload),
            1 => engine.producer_on(shard).schedule(delay, payload),
            2 => engine.schedule_at(deadline, payload),
            _ => engine.schedule(delay, payload),
        };
        match scheduled {
            Ok(id) => {
                self.live.insert(payload, (id, deadline));
                self.ids.push((id, payload));
            }
            Err(error) => {
                assert_eq!((error.kind, error.payload), (ScheduleErrorKind::EngineFull, payload));
                self.payloads -= 1;
            }
        }
    }

    fn any_id(&mut self) -> Option<(TimerId, u64, bool)> {
        if self.ids.is_empty() {
            return None;
        }
        let young = self.ids.len().min(50);
        let at = if self.rng.chance(70) {
            self.ids.len() - 1 - self.rng.index(young)
        } else {
            self.rng.index(self.ids.len())
        };
        let (id, payload) = self.ids[at];
        Some((id, payload, self.live.get(&payload).is_some_and(|&(current, _)| current == id)))
    }

    fn cancel(&mut self, engine: &Handle<u64>) {
        let Some((id, payload, is_live)) = self.any_id() else { return };
        let outcome = if self.rng.chance(50) { engine.cancel(id) } else { engine.cancel_and_wait(id) };
        if is_live {
            assert_eq!(outcome, Cancel::Cancelled(payload));
            self.end(payload, End::Cancelled, engine.now());
        } else {
            // Only a handler finds a timer running: itself.
            assert!(outcome == Cancel::Gone || (outcome == Cancel::Running && self.in_handler));
        }
    }

    fn reschedule(&mut self, engine: &Handle<u64>) {
        let Some((id, payload, is_live)) = self.any_id() else { return };
        let deadline = engine.now() + self.delay();
        let shard = self.rng.index(engine.shards());
        let outcome = if self.rng.chance(50) {
            engine.reschedule_at(id, deadline)
        } else {
            engine.producer_on(shard).reschedule_at(id, deadline)
        };
        match outcome {
            Ok(new) => {
                assert!(is_live);
                self.live.insert(payload, (new, deadline));
                self.ids.push((new, payload));
            }
            Err(RescheduleError::Gone) => assert!(!is_live),
            Err(RescheduleError::Running) => assert!(!is_live && self.in_handler),
            Err(error) => panic!("{error:?}"),
        }
    }

    fn act(&mut self, engine: &Handle<u64>) {
        match self.rng.below(10) {
            0..5 => self.schedule(engine),
            5..8 => self.cancel(engine),
            _ => self.reschedule(engine),
        }
    }

    fn end(&mut self, payload: u64, end: End, at: Timestamp) {
        assert!(self.live.remove(&payload).is_some(), "timer {payload} ended twice");
        self.ends.push((payload, end, at));
    }

    /// The handler's part. False when it is to panic.
    fn on_fire(&mut self, timer: &Fired<'_, u64>) -> bool {
        let engine = timer.engine();
        let now = engine.now();
        let &(id, deadline) = self.live.get(&timer.payload).expect("it fires once, and not when cancelled");
        assert_eq!((timer.id, timer.deadline), (id, deadline));
        assert!(now >= deadline, "timer {} is early", timer.payload);
        assert_eq!(timer.lateness, now - deadline);
        // A handler's own zero delay takes until the next tick.
        assert!(timer.lateness <= self.tick || self.stalled, "timer {} is late", timer.payload);
        self.end(timer.payload, End::Fired, now);
        self.in_handler = true;
        for _ in 0..self.rng.below(3) {
            self.act(&engine);
        }
        self.in_handler = false;
        let panics = self.rng.chance(3);
        self.panics += u64::from(panics);
        !panics
    }
}

/// Runs one seed; the ends of its timers, in order.
fn simulate(seed: u64) -> Vec<(u64, End, Timestamp)> {
    let mut rng = Rng::new(!seed);
    let tick = Duration::from_nanos(1_000 + rng.below(3_000_000));
    let shards = 1 + rng.index(4);
    let capacity = if rng.chance(20) { 200 } else { 1 << 24 };
    let world = Arc::new(Mutex::new(World::new(seed, tick)));
    let handlers = Arc::clone(&world);
    let mut engine = Builder::new()
        .tick(tick)
        .shards(shards)
        .capacity(capacity)
        .build_driven(move |timer: Fired<'_, u64>| {
            let goes_on = lock(&handlers).on_fire(&timer);
            if !goes_on {
                resume_unwind(Box::new(Planned));
            }
        })
        .unwrap();
    for _ in 0..STEPS {
        match rng.below(10) {
            0..8 => lock(&world).act(&engine),
            8 => engine.advance(rng.nanos_below(20 * tick)),
            _ if rng.chance(10) => engine.advance(rng.nanos_below(2_000 * tick)),
            _ if rng.chance(10) => {
                lock(&world).stalled = true;
                engine.clock().advance(rng.nanos_below(700 * tick));
                engine.turn();
                lock(&world).stalled = false;
            }
            _ => engine.turn(),
        }
        let world = lock(&world);
        assert_eq!(engine.len(), world.live.len());
        assert_eq!(engine.stats().total.panics, world.panics, "a handler failed an assertion");
        let overdue = world.live.values().find(|&&(_, deadline)| deadline + tick <= engine.now());
        assert_eq!(overdue, None);
    }
    let now = engine.now();
    for timer in engine.shutdown() {
        let mut world = lock(&world);
        assert_eq!(world.live.get(&timer.payload), Some(&(timer.id, timer.deadline)));
        world.end(timer.payload, End::Returned, now);
    }
    let world = lock(&world);
    assert_settled(&engine.stats());
    assert_eq!(world.ends.len() as u64, world.payloads, "each timer ends once");
    let stats = engine.stats();
    let count = |end| world.ends.iter().filter(|&&(_, this, _)| this == end).count() as u64;
    assert_eq!((stats.fired, stats.returned), (count(End::Fired), count(End::Returned)));
    world.ends.clone()
}

/// What handlers panic with on purpose.
struct Planned;

#[test]
fn every_seed_accounts_for_every_timer_and_repeats_itself() {
    let seeds: Vec<u64> = match env::var("TOURBILLON_SEED") {
        Ok(seed) => vec![seed.parse().expect("TOURBILLON_SEED is a number")],
        Err(_) => (0..40).collect(),
    };
    for seed in seeds {
        let run = || catch_unwind(AssertUnwindSafe(|| simulate(seed)));
        match (run(), run()) {
            (Ok(first), Ok(second)) => {
                assert!(first == second, "TOURBILLON_SEED={seed} ends differently when it is run again");
            }
            (Err(panic), _) | (_, Err(panic)) => {
                eprintln!("TOURBILLON_SEED={seed} fails");
                resume_unwind(panic);
            }
        }
    }
}
