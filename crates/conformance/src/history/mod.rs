//! Gives stores random operations. A checker compares the effects with a model.
//!
//! A *life* is a run of random operations. The checker knows which timers are stored: a timer appears or disappears
//! only by an outcome that says so. It knows which timers a claim must return, and in which order. It checks that no
//! timer is claimed after its withdrawal or its acknowledgement, and that no timer is claimed early. An instant of a
//! series must have a single id. At the end of a life, each timer is delivered, dead or withdrawn.

mod follow;
mod names;
mod random;

use crate::bench::{LEASE, Make, START, all, audit};
use crate::faults::{Faults, Faulty, SeededFaults};
use core::fmt::Debug;
use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tourbillon::{Clock, ManualClock, Timestamp};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Phase, Token};
use tourbillon_durable::store::{Filter, Limit, Op, PAUSED, StoreErrorKind, StoreFuture, TimerStore};
use tourbillon_durable::timer::{Timer, TimerId};

/// The length of a store's random life (a run of random operations), and the faults in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The number of steps. A step is a batch of operations, a claim, a reap, a renewal or a move of the clock.
    pub steps: u32,
    /// The faults that the store has; `None` means no faults. After a fault the caller repeats its operation. Only
    /// [`histories`] uses this field.
    pub faults: Option<Faults>,
}

impl Default for Life {
    fn default() -> Self {
        Self { steps: 120, faults: None }
    }
}

/// The number of times that each operation had each outcome. The keys are the names of the operation and the outcome.
pub type Tally = BTreeMap<(&'static str, &'static str), u64>;

/// Gives a store a random life (a run of random operations) for each seed, and checks all answers of the store. Returns
/// the number of times that each operation had each outcome.
///
/// # Panics
///
/// Panics if the store deviates from the model. The message has the seed.
pub fn histories(make: Make<'_>, seeds: Range<u64>, life: &Life) -> Tally {
    let mut tally = Tally::new();
    for seed in seeds {
        let mut player = Player::new(&[make], seed, life.faults);
        player.live(life.steps);
        player.end();
        for (event, count) in core::mem::take(&mut player.tally) {
            *tally.entry(event).or_default() += count;
        }
    }
    tally
}

/// Gives two stores the same random life (a run of random operations) for each seed. Compares all visible results:
/// outcomes, claims, lists, stored timers and counts.
///
/// # Panics
///
/// Panics if the stores differ. The message has the seed.
pub fn differential(one: Make<'_>, other: Make<'_>, seeds: Range<u64>, life: &Life) {
    for seed in seeds {
        let mut player = Player::new(&[one, other], seed, None);
        player.live(life.steps);
        player.end();
    }
}

/// The state of a random life (a run of random operations): the stores, the caller's knowledge, and the timers that the
/// checker expects.
struct Player {
    seed: u64,
    step: u32,
    rng: fastrand::Rng,
    clock: ManualClock,
    /// The stores that get the operations. If the life has faults, the first store adds the faults, and passes its
    /// calls on to [`raw`](Self::raw).
    stores: Vec<Arc<dyn TimerStore>>,
    faulty: Option<Arc<Faulty>>,
    /// The first store itself, without added faults.
    raw: Arc<dyn TimerStore>,
    claims: u64,
    ids: Vec<TimerId>,
    /// Those of `ids` that a caller has chosen.
    chosen: Vec<TimerId>,
    series: Vec<TimerId>,
    held: Vec<(TimerId, Token)>,
    /// The creations whose answers were lost. The caller repeats these creations later.
    unsure: Vec<Op>,
    /// Whether the clock was set back. A series may then go back to an earlier instant, whose occurrence has ended.
    was_set_back: bool,
    seen: Seen,
    tally: Tally,
}

/// The timers that the checker computes from the operations so far: the timers that the store must have now, and the
/// timers that the store must not deliver any more.
#[derive(Default)]
struct Seen {
    stored: BTreeMap<TimerId, Timer>,
    /// The timers that were withdrawn. No delivery of a withdrawn timer may begin.
    withdrawn: BTreeSet<TimerId>,
    /// The timers with a delivery that was acknowledged.
    done: BTreeSet<TimerId>,
}

/// Prints the seed and the step of the random life (a run of random operations), if the life fails.
impl Drop for Player {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the life with seed {} failed in step {}", self.seed, self.step);
        }
    }
}

const REASONS: [&str; 3] = ["limit", "lim", PAUSED];

impl Player {
    fn new(makes: &[Make<'_>], seed: u64, faults: Option<Faults>) -> Self {
        let clock = ManualClock::new();
        clock.set(Timestamp::from_nanos(START * 1_000_000));
        let mut stores: Vec<Arc<dyn TimerStore>> = makes.iter().map(|make| make(clock.clone())).collect();
        let raw = Arc::clone(&stores[0]);
        let faulty = faults.map(|faults| Arc::new(SeededFaults::new(seed, faults).on(Arc::clone(&raw))));
        if let Some(faulty) = &faulty {
            stores[0] = Arc::clone(faulty) as Arc<dyn TimerStore>;
        }
        Self {
            seed,
            step: 0,
            rng: fastrand::Rng::with_seed(seed),
            clock,
            stores,
            faulty,
            raw,
            claims: 0,
            ids: Vec::new(),
            chosen: Vec::new(),
            series: Vec::new(),
            held: Vec::new(),
            unsure: Vec::new(),
            was_set_back: false,
            seen: Seen::default(),
            tally: Tally::new(),
        }
    }

    fn now(&self) -> UtcMillis {
        UtcMillis::from_nanos(self.clock.now().as_nanos())
    }

    /// Makes the same call at all stores, and compares their answers. A call that fails by an added fault is repeated.
    /// Returns the answer, and true if an earlier answer was lost.
    #[track_caller]
    fn ask<T: PartialEq + Debug>(&self, ask: impl Fn(&dyn TimerStore) -> StoreFuture<'_, T>) -> (T, bool) {
        let mut answer: Option<T> = None;
        let mut was_lost = false;
        for store in &self.stores {
            let answered = loop {
                match pollster::block_on(ask(&**store)) {
                    Ok(answered) => break answered,
                    Err(error) if self.faulty.is_some() && error.is_transient() => {
                        was_lost |= error.kind() == StoreErrorKind::Unknown;
                    }
                    Err(error) => panic!("a store failed: {error}"),
                }
            };
            match &answer {
                None => answer = Some(answered),
                Some(first) => assert_eq!(answered, *first, "the stores differ"),
            }
        }
        (answer.expect("there is a store"), was_lost)
    }

    fn live(&mut self, steps: u32) {
        for step in 0..steps {
            self.step = step;
            match self.rng.u32(0..100) {
                0..55 => {
                    let most = if self.faulty.is_some() { 1 } else { 4 };
                    let mut ops: Vec<Op> = (0..self.rng.u32(1..=most)).map(|_| self.op()).collect();
                    // The outcome of a cancel by label does not name the timers. So it must be the only operation in
                    // its batch.
                    let is_bulk = |op: &Op| matches!(op, Op::CancelLabelled { .. });
                    if let Some(bulk) = ops.iter().position(is_bulk) {
                        ops = vec![ops.swap_remove(bulk)];
                    }
                    match self.unsure.pop().filter(|_| self.rng.bool()) {
                        Some(again) => self.apply(vec![again]),
                        None => self.apply(ops),
                    }
                }
                55..72 => {
                    let limit = Limit {
                        timers: self.rng.choice([0, 1, 3, 3, 100, 100]).unwrap_or(1),
                        bytes: self.rng.choice([0, 1, 20, u64::MAX]).unwrap_or(1),
                    };
                    self.claim(limit);
                }
                72..77 => self.renew(),
                77..82 => {
                    let limit = self.rng.choice([0, 1, 3, 100]).unwrap_or(1);
                    self.reap(limit);
                }
                // With faults, an import may be repeated, and it would then fail on its own timers.
                82 if self.faulty.is_none() => self.import(),
                82..98 => {
                    let by = match self.rng.u32(0..20) {
                        // Ids are remembered for an hour. With faults, the clock must not jump by an hour before a
                        // creation is repeated.
                        0 if self.faulty.is_none() => super::bench::HOUR,
                        1..5 => LEASE / 2,
                        _ => self.rng.u64(0..1_500),
                    };
                    self.clock.advance(Duration::from_millis(by));
                }
                _ => {
                    // As for a jump ahead, ids must stay remembered in a life with faults.
                    let is_far = self.faulty.is_none() && self.rng.u32(0..4) == 0;
                    let by = if is_far { 2 * super::bench::HOUR } else { 500 };
                    self.was_set_back = true;
                    let back = self.now().as_millis() - self.rng.u64(0..by);
                    self.clock.set(Timestamp::from_nanos(back * 1_000_000));
                    if self.faulty.is_none() {
                        self.forget_ended();
                    }
                }
            }
            if step % 16 == 0 {
                self.compare();
            }
        }
        self.compare();
    }

    /// Forgets the ids of the timers that have ended. Stores remember such an id for an hour. If the clock was set
    /// back, they may have forgotten it already, each at a moment of its own, so no operation may use it again.
    fn forget_ended(&mut self) {
        let stored = &self.seen.stored;
        self.ids.retain(|id| stored.contains_key(id));
        self.chosen.retain(|id| stored.contains_key(id));
        self.held.retain(|(id, _)| stored.contains_key(id));
    }

    /// Checks the structure of all stores, and that they have the expected timers. Then compares the stores' counts,
    /// horizons (counts of pending timers by due moment) and lists.
    #[track_caller]
    fn compare(&self) {
        for store in self.stores.iter().skip(1).chain([&self.raw]) {
            audit(&**store);
            let stored: Vec<Timer> = all(&**store);
            assert!(stored.iter().eq(self.seen.stored.values()), "the stores have stored different timers");
        }
        for timer in self.seen.stored.values().filter(|timer| !self.ids.contains(&timer.id)) {
            let derived =
                timer.series.as_ref().map(|series| TimerId::of_occurrence(series.id, timer.scheduled));
            let is_derived = derived.is_none_or(|id| id == timer.id);
            assert!(is_derived, "{} is not the id of the instant for which it was made", timer.id);
        }
        if self.stores.len() < 2 {
            return;
        }
        let _same = self.ask(|store| store.counts());
        let _same = self.ask(|store| store.horizon());
        for limit in [0, 3, 1_000] {
            let _same = self.ask(|store| store.upcoming(UtcMillis::ZERO, UtcMillis::MAX, limit));
        }
        let phases = [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead].map(Some);
        for phase in phases.into_iter().chain([None]) {
            for (label, key) in [(None, None), (Some("l"), None), (None, Some("k")), (Some("m"), Some("k1"))]
            {
                let filter = Filter {
                    label: label.map(Into::into),
                    key_prefix: key.map(Into::into),
                    phase,
                    ..Filter::default()
                };
                let _same = self.ask(|store| Box::pin(core::future::ready(Ok(pages(store, &filter)))));
            }
        }
    }
}

/// Reads all pages of a list. Returns the ids sorted, because the order of some lists differs from store to store.
fn pages(store: &dyn TimerStore, filter: &Filter) -> Vec<TimerId> {
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let page = pollster::block_on(store.list(filter.clone(), cursor, 7)).expect("a read failed");
        ids.extend(page.timers.iter().map(|timer| timer.id));
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    ids.sort_unstable();
    ids
}
