//! A seeded simulation: random calls schedule, cancel and move timers on several shards and let time pass. Handlers
//! make random calls, too. The simulation also makes, arms, disarms and drops owned timers, whose tickets go to the
//! first shard.
//!
//! `TOURBILLON_SEED=<n> cargo test --test simulation` runs one seed. A failure prints its seed.

mod support;

use std::collections::BTreeMap;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use support::{Rng, assert_settled, lock};
use tourbillon::{
    ArmError, Armed, Builder, Cancel, Disarm, Fired, Handle, Refusal, RescheduleError, Timer, TimerId,
    TimerRef, Timestamp,
};

const STEPS: usize = 3_000;
/// The smallest payload of an owned timer. Other timers have smaller payloads.
const OWNED: u64 = 1 << 32;

/// The way in which a timer ended and its payload came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Fired,
    Cancelled,
    Returned,
}

/// An owned timer, and the deadline for which it is armed. `None` while it is disarmed.
struct Owned {
    timer: Timer<u64>,
    deadline: Option<Timestamp>,
    /// The moment at which the timer was last armed. At that moment, the timer's deadline may have passed already.
    since: Timestamp,
}

impl Owned {
    /// Returns the moment at which the timer is due. `None` if it is not armed.
    fn due(&self) -> Option<Timestamp> {
        self.deadline.map(|deadline| deadline.max(self.since))
    }
}

/// The state of the simulation, which handlers share.
struct World {
    rng: Rng,
    tick: Duration,
    /// The id and the deadline of each one-shot that has not ended. The key is the payload.
    live: BTreeMap<u64, (TimerId, Timestamp)>,
    /// All ids so far, each with its timer's payload.
    ids: Vec<(TimerId, u64)>,
    ends: Vec<(u64, End, Timestamp)>,
    payloads: u64,
    owned: BTreeMap<u64, Owned>,
    /// The number of owned timers made so far.
    made: u64,
    shots: Vec<(u64, Timestamp, Timestamp)>,
    /// The owned timer whose handler is running. `None` if no such handler runs.
    running: Option<u64>,
    running_was_dropped: bool,
    in_handler: bool,
    /// Whether time passes at present without turns of the engine.
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
            owned: BTreeMap::new(),
            made: 0,
            shots: Vec::new(),
            running: None,
            running_was_dropped: false,
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
        let way = self.rng.below(4);
        if way < 2 {
            engine.use_shard(shard);
        }
        let scheduled = match way {
            0 | 2 => engine.schedule_at(deadline, payload),
            _ => engine.schedule(delay, payload),
        };
        match scheduled {
            Ok(id) => {
                self.live.insert(payload, (id, deadline));
                self.ids.push((id, payload));
            }
            Err(error) => {
                assert_eq!((error.kind, error.payload), (Refusal::EngineFull, payload));
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
            // Only a handler can find its own timer running.
            assert!(outcome == Cancel::Gone || (outcome == Cancel::Running && self.in_handler));
        }
    }

    fn reschedule(&mut self, engine: &Handle<u64>) {
        let Some((id, payload, is_live)) = self.any_id() else { return };
        let deadline = engine.now() + self.delay();
        let shard = self.rng.index(engine.shards());
        if self.rng.chance(50) {
            engine.use_shard(shard);
        }
        let outcome = engine.reschedule_at(id, deadline);
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

    fn make(&mut self, engine: &Handle<u64>) {
        let payload = OWNED + self.made;
        match engine.timer(payload) {
            Ok(timer) => {
                self.made += 1;
                // The id of an owned timer. For scheduled timers it is as good as a stale id.
                self.ids.push((timer.id(), payload));
                self.owned.insert(payload, Owned { timer, deadline: None, since: Timestamp::ZERO });
            }
            Err(error) => {
                assert_eq!((error.kind, error.payload), (Refusal::EngineFull, payload));
            }
        }
    }

    /// Chooses an owned timer. Inside a handler, the choice is often the handler's own timer.
    fn any_owned(&mut self) -> Option<u64> {
        match self.running {
            Some(running) if !self.running_was_dropped && self.rng.chance(50) => Some(running),
            _ if self.owned.is_empty() => None,
            _ => {
                let at = self.rng.index(self.owned.len());
                self.owned.keys().nth(at).copied()
            }
        }
    }

    fn arm_owned(&mut self, engine: &Handle<u64>) {
        let Some(payload) = self.any_owned() else { return };
        let now = engine.now();
        let deadline = match self.rng.below(10) {
            // The moment has passed, or is the end of a unit in which the timer's word counts.
            0 => Timestamp::ZERO + (now - (Timestamp::ZERO + self.delay())),
            1 => Timestamp::from_nanos(((now.as_nanos() >> 20) + 1 + self.rng.below(3)) << 20),
            _ => now + self.delay(),
        };
        let is_running = self.running == Some(payload);
        let owned = self.owned.get_mut(&payload).expect("it was chosen");
        let expected = if is_running { Armed::Running } else { Armed::Pending };
        assert_eq!(owned.timer.arm_at(deadline), Ok(expected), "timer {payload}");
        (owned.deadline, owned.since) = (Some(deadline), now);
        assert!(owned.timer.is_armed());
    }

    fn disarm_owned(&mut self) {
        let Some(payload) = self.any_owned() else { return };
        let waits = self.rng.chance(30);
        let owned = self.owned.get_mut(&payload).expect("it was chosen");
        let outcome = if waits { owned.timer.disarm_and_wait() } else { owned.timer.disarm() };
        let expected = match owned.deadline.take() {
            _ if self.running == Some(payload) => Disarm::Running,
            Some(_) => Disarm::Disarmed,
            None => Disarm::Idle,
        };
        assert_eq!(outcome, expected, "timer {payload}");
        assert!(!owned.timer.is_armed());
    }

    fn drop_owned(&mut self) {
        let Some(payload) = self.any_owned() else { return };
        self.running_was_dropped |= self.running == Some(payload);
        drop(self.owned.remove(&payload));
    }

    fn act(&mut self, engine: &Handle<u64>) {
        match self.rng.below(20) {
            0..5 => self.schedule(engine),
            5..8 => self.cancel(engine),
            8..10 => self.reschedule(engine),
            10 => self.make(engine),
            11..17 => self.arm_owned(engine),
            17..19 => self.disarm_owned(),
            _ if self.rng.chance(40) => self.drop_owned(),
            _ => {}
        }
    }

    fn end(&mut self, payload: u64, end: End, at: Timestamp) {
        assert!(self.live.remove(&payload).is_some(), "timer {payload} ended twice");
        self.ends.push((payload, end, at));
    }

    /// Acts as a timer's handler: makes random calls. Returns false if the handler must panic.
    fn on_fire(&mut self, timer: &Fired<'_, u64>) -> bool {
        let engine = timer.engine();
        let now = engine.now();
        assert!(now >= timer.deadline, "timer {} is early", timer.payload);
        assert_eq!(timer.lateness(), now - timer.deadline);
        match timer.timer() {
            None => {
                let live = self.live.get(&timer.payload).expect("it fires once, and not when cancelled");
                assert_eq!((timer.id(), timer.deadline), *live);
                // A timer that a handler schedules without delay fires at the next tick.
                assert!(timer.lateness() <= self.tick || self.stalled, "timer {} is late", timer.payload);
                self.end(timer.payload, End::Fired, now);
            }
            Some(by_ref) => {
                let owned = self.owned.get_mut(&timer.payload).expect("it was not dropped");
                let due = owned.due().expect("it was not disarmed");
                assert!(now - due <= self.tick || self.stalled, "timer {} is late", timer.payload);
                let armed = owned.deadline.take().expect("it was not disarmed");
                assert_eq!((timer.id(), timer.deadline), (owned.timer.id(), armed));
                assert_eq!((by_ref.deadline(), owned.timer.deadline()), (None, None));
                self.shots.push((timer.payload, armed, now));
                self.running = Some(timer.payload);
            }
        }
        self.in_handler = true;
        for _ in 0..self.rng.below(3) {
            self.act(&engine);
        }
        if let Some(by_ref) = timer.timer() {
            self.last_word(timer.payload, by_ref, now);
        }
        self.in_handler = false;
        (self.running, self.running_was_dropped) = (None, false);
        let panics = self.rng.chance(3);
        self.panics += u64::from(panics);
        !panics
    }

    /// Makes random calls on an owned timer through the `TimerRef` that its handler gets.
    fn last_word(&mut self, payload: u64, timer: TimerRef<'_, u64>, now: Timestamp) {
        let dropped = self.running_was_dropped;
        if self.rng.chance(40) {
            let deadline = now + self.delay().min(Duration::from_secs(3_600));
            let outcome = timer.arm_at(deadline);
            if dropped {
                assert_eq!(outcome, Err(ArmError::Dropped));
            } else {
                assert_eq!(outcome, Ok(Armed::Running));
                let owned = self.owned.get_mut(&payload).expect("it was not dropped");
                (owned.deadline, owned.since) = (Some(deadline), now);
            }
        } else if self.rng.chance(10) {
            assert_eq!(timer.disarm(), Disarm::Running);
            if !dropped {
                self.owned.get_mut(&payload).expect("it was not dropped").deadline = None;
            }
        }
        if !dropped {
            let owned = &self.owned[&payload];
            assert_eq!((timer.deadline(), owned.timer.deadline()), (owned.deadline, owned.deadline));
        }
    }
}

/// The outcome of a seed: the ends of the one-shots in order, and the firings of the owned timers in order.
type Outcome = (Vec<(u64, End, Timestamp)>, Vec<(u64, Timestamp, Timestamp)>);

/// Runs the simulation with one seed. Returns its outcome.
fn simulate(seed: u64) -> Outcome {
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
        .driven(move |timer: Fired<'_, u64>| {
            let goes_on = lock(&handlers).on_fire(&timer);
            if !goes_on {
                resume_unwind(Box::new(Planned));
            }
        })
        .unwrap();
    for _ in 0..STEPS {
        match rng.below(10) {
            0..8 => lock(&world).act(engine.handle()),
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
        assert_eq!(engine.handle().len(), world.live.len());
        assert_eq!(engine.handle().stats().total.panics, world.panics, "a handler failed an assertion");
        let overdue = world.live.values().find(|&&(_, deadline)| deadline + tick <= engine.handle().now());
        assert_eq!(overdue, None);
        for (payload, owned) in &world.owned {
            let overdue = owned.due().filter(|&due| due + tick <= engine.handle().now());
            assert_eq!(overdue, None, "timer {payload}, armed for {:?}", owned.deadline);
            assert_eq!(owned.timer.deadline(), owned.deadline);
        }
        assert_eq!(engine.handle().stats().owned.alive, world.owned.len() as u64);
    }
    let now = engine.handle().now();
    for timer in engine.handle().shutdown() {
        let mut world = lock(&world);
        assert_eq!(world.live.get(&timer.payload), Some(&(timer.id, timer.deadline)));
        world.end(timer.payload, End::Returned, now);
    }
    // The owned timers are dropped here. The handler owns the world, and these timers own the handler.
    let owned = std::mem::take(&mut lock(&world).owned);
    for Owned { timer, .. } in owned.into_values() {
        assert_eq!((timer.arm(tick), timer.disarm()), (Err(ArmError::ShutDown), Disarm::Idle));
    }
    let world = lock(&world);
    assert_settled(&engine.handle().stats());
    assert_eq!(world.ends.len() as u64, world.payloads, "each timer ends once");
    let stats = engine.handle().stats();
    let count = |end| world.ends.iter().filter(|&&(_, this, _)| this == end).count() as u64;
    assert_eq!((stats.fired, stats.returned), (count(End::Fired), count(End::Returned)));
    assert_eq!((stats.owned.alive, stats.owned.fired), (0, world.shots.len() as u64));
    assert_eq!(stats.total.fired, stats.fired + stats.owned.fired);
    (world.ends.clone(), world.shots.clone())
}

/// The payload of a panic that a handler raises on purpose.
struct Planned;

#[test]
fn every_seed_accounts_for_every_timer_and_repeats_itself() {
    let seeds: Vec<u64> = match env::var("TOURBILLON_SEED") {
        Ok(seed) => vec![seed.parse().expect("TOURBILLON_SEED is a number")],
        Err(_) => (0..40).collect(),
    };
    // One thread would take half a minute for all seeds.
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for first in 0..threads {
            let share = seeds.iter().copied().skip(first).step_by(threads);
            scope.spawn(move || share.for_each(accounts_and_repeats));
        }
    });
}

/// Simulates a seed twice. Asserts that both runs account for every timer, and end in the same way.
fn accounts_and_repeats(seed: u64) {
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
