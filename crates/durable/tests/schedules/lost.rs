//! Tests decisions whose result is lost or refused: the store loses an answer, a process dies, or another process
//! changes the schedule.

use super::{MINUTE, NOON, PATIENCE, Seen, World, at, clock, each_minute, template};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon_durable::plan::Plan;
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::schedule::{Missed, Overlap, Schedule, Schedules, Template};
use tourbillon_durable::store::{
    Call, Hook, Hooked, IfPresent, MemoryStore, Op, StoreError, StoreErrorKind, StoreFuture, TimerStore,
};
use tourbillon_durable::{UtcMillis, Verdict};

/// The changes of a decision.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// The occurrences of instants.
    Occurrences,
    /// A state of the schedule.
    State,
    /// Both, in a transaction.
    Both,
}

/// What happens to a change.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    /// The store applies the change, and the answer is lost.
    Answer,
    /// The store refuses the change, which has no effect.
    Refusal,
    /// The change does not reach the store, and the program does not know it.
    Silence,
}

/// A hook that loses some changes of decisions.
#[derive(Default)]
struct Losing {
    /// The changes that are lost, the next one first. A change of another part is not lost.
    losses: Mutex<Vec<(Part, Loss)>>,
    is_transactional: bool,
    /// The number of losses so far.
    lost: AtomicUsize,
    /// A state of this generator of random numbers other than zero lets changes be lost at random.
    random: AtomicU64,
    /// The instant whose occurrence does not reach the store.
    cut: Mutex<Option<UtcMillis>>,
    /// Called before the next transaction that has occurrences.
    first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Losing {
    fn part(ops: &[Op]) -> Option<Part> {
        let is_state = |op: &Op| matches!(op, Op::Place(_, IfPresent::ReplaceOnly(_)));
        let is_occurrence = |op: &Op| matches!(op, Op::Place(timer, _) if *timer.namespace == *"shop");
        match (ops.iter().any(is_state), ops.iter().any(is_occurrence)) {
            (true, true) => Some(Part::Both),
            (true, false) => Some(Part::State),
            (false, true) => Some(Part::Occurrences),
            (false, false) => None,
        }
    }
}

impl Hook for Losing {
    type Seen = Option<Loss>;

    fn see(&self, call: Call<'_>) -> Option<Loss> {
        let Call::Apply(ops) = call else { return None };
        let part = Self::part(ops)?;
        if part != Part::State {
            let first = self.first.lock().unwrap().take();
            if let Some(first) = first {
                first();
            }
        }
        let cut = *self.cut.lock().unwrap();
        let is_cut = |op: &Op| matches!(op, Op::Place(timer, _) if *timer.namespace == *"shop" && Some(timer.scheduled) == cut);
        if ops.iter().any(is_cut) {
            return Some(Loss::Silence);
        }
        let random = self.random.load(Ordering::SeqCst);
        if random != 0 {
            let next = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.random.store(next, Ordering::SeqCst);
            let losses = [Loss::Answer, Loss::Refusal, Loss::Silence];
            return losses.get(usize::try_from(next >> 60).unwrap()).copied();
        }
        let mut losses = self.losses.lock().unwrap();
        let (_, loss) = losses.first().copied().filter(|(lost, _)| *lost == part)?;
        let _lost = losses.remove(0);
        let _number = self.lost.fetch_add(1, Ordering::SeqCst);
        Some(loss)
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        loss: Option<Loss>,
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        let unknown = || StoreError::new(StoreErrorKind::Unknown, "the answer is lost");
        match loss {
            None => pass_on(),
            Some(Loss::Refusal) => Box::pin(async { Err(StoreError::new(StoreErrorKind::Full, "no room")) }),
            Some(Loss::Silence) => Box::pin(async move { Err(unknown()) }),
            Some(Loss::Answer) => {
                let applied = pass_on();
                Box::pin(async move {
                    drop(applied.await);
                    Err(unknown())
                })
            }
        }
    }

    fn is_transactional(&self, _: &dyn TimerStore) -> bool {
        self.is_transactional
    }
}

fn start(is_transactional: bool) -> (World, Arc<Hooked<Losing>>) {
    let clock = clock();
    let hook = Losing { is_transactional, ..Losing::default() };
    let store = Arc::new(Hooked::new(Arc::new(MemoryStore::new(clock.clone())), hook));
    (World::on(clock, Arc::clone(&store) as Arc<dyn TimerStore>, Seen::default()), store)
}

fn minute(number: u64) -> UtcMillis {
    UtcMillis::from_millis(NOON + number * MINUTE)
}

fn template_of(guarantee: Guarantee) -> Template {
    Template { policy: Policy { guarantee, ..template().policy }, ..template() }
}

impl World {
    fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            self.settle();
        }
    }

    /// Checks that the observer has got events of all that the schedule has counted, and of nothing else.
    #[track_caller]
    fn assert_told(&self, case: &str) {
        let (mut missed, mut skipped) = (0, 0);
        for event in self.events() {
            let Some((name, number)) = event.trim_end_matches(')').split_once('(') else { continue };
            match name {
                "Missed" => missed += number.parse::<u64>().unwrap(),
                "Skipped" => skipped += number.parse::<u64>().unwrap(),
                _ => panic!("{event}"),
            }
        }
        let mut told = self.told.lock().unwrap().clone();
        told.sort_unstable();
        let number = told.len();
        told.dedup();
        assert_eq!(number, told.len(), "{case}: an occurrence has two events");
        assert_eq!((told.len() as u64, missed, skipped), self.counts(), "{case}");
    }
}

/// Each change of a decision is lost in each way, and a later decision comes much later than the grace.
#[test]
fn an_instant_whose_decision_is_lost_counts_once() {
    let transactional = [(true, vec![Part::Both]), (false, vec![Part::State, Part::Occurrences])];
    for (is_transactional, parts) in transactional {
        for missed in [Missed::Skip, Missed::Once, Missed::All] {
            for part in &parts {
                for loss in [Loss::Answer, Loss::Refusal, Loss::Silence] {
                    let case = format!("{is_transactional} {missed:?} {part:?} {loss:?}");
                    let (mut world, store) = start(is_transactional);
                    world.put(Schedule { missed, overlap: Overlap::Allow, ..each_minute() });
                    store.hook().losses.lock().unwrap().push((*part, loss));
                    world.advance(1);
                    assert_eq!(store.hook().lost.load(Ordering::SeqCst), 1, "{case}");
                    // The process is away for longer than the grace.
                    drop(world.durable.take().unwrap().shutdown(PATIENCE));
                    world.clock.advance(Duration::from_secs(30));
                    let world =
                        World::on(world.clock.clone(), Arc::clone(&world.store), Arc::clone(&world.seen));
                    world.settle();
                    world.pass(2);
                    let is_missed = missed == Missed::Skip && world.minutes().is_empty();
                    let counts = if is_missed { (0, 1, 0) } else { (1, 0, 0) };
                    assert_eq!(world.counts(), counts, "{case}");
                    assert_eq!(world.minutes(), if is_missed { vec![] } else { vec![1] }, "{case}");
                    world.pass(28);
                    assert_eq!(world.minutes().len(), if is_missed { 1 } else { 2 }, "{case}");
                }
            }
        }
    }
}

/// The occurrence of minute 1 is stored and runs, and the schedule does not know it yet.
#[test]
fn runs_do_not_overlap_because_an_answer_was_lost() {
    for part in [Part::Occurrences, Part::State] {
        let (world, store) = start(false);
        *world.verdict.lock().unwrap() = Some(Verdict::Snooze(minute(3)));
        let period = Plan::Every(5_000);
        let start = Some(UtcMillis::from_millis(NOON));
        world.put(Schedule { overlap: Overlap::Skip, start, ..Schedule::new(period) });
        store.hook().losses.lock().unwrap().extend([(Part::State, Loss::Answer), (part, Loss::Answer)]);
        world.pass(60);
        assert_eq!(world.seen.lock().unwrap().len(), 1, "{part:?} {:?}", world.seen);
        let (fired, missed, skipped) = world.counts();
        assert_eq!((fired, missed + skipped), (1, 11), "{part:?}");
    }
}

/// Changes are lost at random for a while. Several instants come at once in between.
#[test]
fn each_instant_counts_once_whatever_is_lost() {
    for seed in 1..=144_u64 {
        let digit = |place: u64, base: u64| usize::try_from(seed / place % base).unwrap();
        let is_transactional = digit(1, 2) == 0;
        let guarantee = [Guarantee::AtLeastOnce, Guarantee::AtMostOnce][digit(2, 2)];
        let rule = [Missed::Skip, Missed::Once, Missed::All][digit(4, 3)];
        let overlap = [Overlap::Allow, Overlap::Skip, Overlap::QueueOne][digit(12, 3)];
        let case = format!("{seed} {is_transactional} {guarantee:?} {rule:?} {overlap:?}");
        let (world, store) = start(is_transactional);
        let schedule = Schedule { missed: rule, overlap, ..each_minute() };
        world.schedules.put(&at(), schedule, template_of(guarantee)).unwrap();
        store.hook().random.store(seed, Ordering::SeqCst);
        world.pass(90);
        // Minutes 2 to 4 come at once, and are late.
        world.advance(3);
        world.pass(90);
        store.hook().random.store(0, Ordering::SeqCst);
        world.pass(60);
        let (fired, missed, skipped) = world.counts();
        assert_eq!(fired + missed + skipped, 7, "{case} {:?}", world.view().progress);
        world.assert_told(&case);
        let mut minutes = world.minutes();
        minutes.sort_unstable();
        minutes.dedup();
        let (once, all, fired) = (minutes.len(), world.minutes().len(), usize::try_from(fired).unwrap());
        assert_eq!(once, all, "{case}");
        match guarantee {
            Guarantee::AtLeastOnce => assert_eq!(once, fired, "{case}"),
            // An occurrence that may have been made counts as missed.
            Guarantee::AtMostOnce => {
                let most = fired + usize::try_from(missed).unwrap();
                assert!((fired..=most).contains(&once), "{case}");
            }
        }
        let of_downtime = minutes.iter().filter(|minute| (2..=4).contains(*minute)).count();
        let most = [0, 1, 3][digit(4, 3)];
        assert!(of_downtime <= most, "{case} {minutes:?}");
    }
}

/// Minutes 1 to 5 come at once, and minute 5 is late like the others or on time. Minute 5 stands for all of them,
/// whatever is lost of the decision.
#[test]
fn a_downtime_has_one_run_whatever_is_lost() {
    let transactional = [(true, vec![Part::Both]), (false, vec![Part::State, Part::Occurrences])];
    for (is_transactional, parts) in transactional {
        for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
            for overlap in [Overlap::Skip, Overlap::Allow] {
                for (part, late) in parts.iter().flat_map(|part| [(part, 0), (part, 30)]) {
                    for loss in [Loss::Answer, Loss::Refusal, Loss::Silence] {
                        let case =
                            format!("{is_transactional} {guarantee:?} {overlap:?} {part:?} {late} {loss:?}");
                        let (world, store) = start(is_transactional);
                        let schedule = Schedule { missed: Missed::Once, overlap, ..each_minute() };
                        world.schedules.put(&at(), schedule, template_of(guarantee)).unwrap();
                        store.hook().losses.lock().unwrap().push((*part, loss));
                        world.clock.advance(Duration::from_secs(5 * 60 + late));
                        world.settle();
                        world.pass(20);
                        assert_eq!(store.hook().lost.load(Ordering::SeqCst), 1, "{case}");
                        let (minutes, (fired, missed, skipped)) = (world.minutes(), world.counts());
                        assert_eq!((fired + missed, skipped), (5, 0), "{case} {minutes:?}");
                        world.assert_told(&case);
                        let is_unknown = guarantee == Guarantee::AtMostOnce && fired == 0;
                        assert!(minutes == [5] || is_unknown && minutes.is_empty(), "{case} {minutes:?}");
                    }
                }
            }
        }
    }
}

/// The answer to an occurrence is lost, and the occurrence runs and ends. Then the schedule is paused for a time.
#[test]
fn an_occurrence_that_has_run_is_not_made_again_after_the_store_has_forgotten_it() {
    for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
        for (minutes, is_known) in [(40, guarantee == Guarantee::AtLeastOnce), (55, false), (120, false)] {
            let case = format!("{guarantee:?} {minutes}");
            let (world, store) = start(false);
            world.schedules.put(&at(), each_minute(), template_of(guarantee)).unwrap();
            store.hook().losses.lock().unwrap().push((Part::Occurrences, Loss::Answer));
            world.advance(1);
            assert_eq!(world.schedules.pause(&at()).unwrap().progress.storing, [minute(1)], "{case}");
            world.advance(minutes);
            assert!(world.schedules.resume(&at()).unwrap().progress.paused.is_none(), "{case}");
            world.pass(10);
            assert_eq!(world.minutes(), [1], "{case}");
            assert_eq!(world.counts(), if is_known { (1, 0, 0) } else { (0, 1, 0) }, "{case}");
            world.assert_told(&case);
        }
    }
}

/// The answer to an occurrence is lost, and the occurrence has not ended when the decision is completed, long after.
#[test]
fn an_occurrence_that_is_still_stored_has_its_instant_after_any_time() {
    let (world, store) = start(false);
    *world.verdict.lock().unwrap() = Some(Verdict::Snooze(minute(300)));
    world.put(each_minute());
    store.hook().losses.lock().unwrap().push((Part::Occurrences, Loss::Answer));
    world.advance(1);
    drop(world.schedules.pause(&at()).unwrap());
    world.advance(120);
    drop(world.schedules.resume(&at()).unwrap());
    world.pass(10);
    assert_eq!((world.minutes(), world.counts()), (vec![1], (1, 0, 0)));
    world.assert_told("");
}

/// A part of the store is away, and it has the place of the occurrence of minute 2.
#[test]
fn an_occurrence_that_cannot_be_stored_holds_up_no_other_one_of_its_decision() {
    for (away, is_made) in [(10, true), (120, false)] {
        let (world, store) = start(false);
        *store.hook().cut.lock().unwrap() = Some(minute(2));
        let schedule = Schedule { missed: Missed::All, overlap: Overlap::Allow, ..each_minute() };
        world.put(Schedule { end: Some(minute(3)), ..schedule });
        world.clock.advance(Duration::from_secs(3 * 60 + 30));
        world.settle();
        world.pass(10);
        let sorted = || {
            let mut minutes = world.minutes();
            minutes.sort_unstable();
            minutes
        };
        assert_eq!((sorted(), world.counts()), (vec![1, 3], (2, 0, 0)));
        assert_eq!(world.view().progress.storing, [minute(2)]);
        assert!(world.view().failure.is_some_and(|failure| failure.contains("the answer is lost")));
        world.advance(away);
        *store.hook().cut.lock().unwrap() = None;
        world.pass(3);
        // The store has forgotten by now whether the occurrence of minute 2 has run.
        let (minutes, counts) = if is_made { (vec![1, 2, 3], (3, 0, 0)) } else { (vec![1, 3], (2, 1, 0)) };
        assert_eq!((sorted(), world.counts()), (minutes, counts));
        assert_eq!(world.view().due, None);
    }
}

/// An occurrence at most once that the store has refused is made later, and nobody has counted it before.
#[test]
fn a_refused_occurrence_at_most_once_is_not_lost() {
    for is_transactional in [false, true] {
        let (world, store) = start(is_transactional);
        world.schedules.put(&at(), each_minute(), template_of(Guarantee::AtMostOnce)).unwrap();
        let part = if is_transactional { Part::Both } else { Part::Occurrences };
        store.hook().losses.lock().unwrap().extend([(part, Loss::Refusal); 3]);
        world.advance(1);
        assert_eq!((world.counts(), world.minutes()), ((0, 0, 0), vec![]));
        world.pass(2);
        assert_eq!((world.view().overdue, world.counts()), (Duration::from_secs(2), (0, 0, 0)));
        world.pass(1);
        assert_eq!((world.counts(), world.minutes()), ((1, 0, 0), vec![1]));
        assert_eq!(world.view().overdue, Duration::ZERO);
    }
}

/// Nobody knows whether an occurrence at most once was delivered, so it is not made again. It counts as missed.
#[test]
fn an_occurrence_at_most_once_whose_answer_is_lost_is_made_once_at_most() {
    for loss in [Loss::Answer, Loss::Silence] {
        let (world, store) = start(false);
        world.schedules.put(&at(), each_minute(), template_of(Guarantee::AtMostOnce)).unwrap();
        store.hook().losses.lock().unwrap().push((Part::Occurrences, loss));
        world.advance(1);
        world.pass(6);
        assert_eq!(world.minutes().len(), usize::from(loss == Loss::Answer));
        assert_eq!((world.counts(), world.events()), ((0, 1, 0), vec!["Missed(1)".to_owned()]));
        world.pass(54);
        assert_eq!(world.counts(), (1, 1, 0));
    }
}

/// Another process changes the schedule while a decision stores its occurrence in a transaction. The decision is about
/// minute 1, or about minutes 1 to 5, of which the last one stands for the others.
#[test]
fn a_decision_beside_a_change_notes_its_occurrence() {
    type ChangeOf = fn(&Schedules);
    let changes: [ChangeOf; 4] = [
        |schedules| {
            let faster = Schedule { plan: Plan::Every(20_000), ..each_minute() };
            drop(schedules.put(&at(), faster, template()).unwrap());
        },
        |schedules| {
            drop(schedules.pause(&at()).unwrap());
            drop(schedules.resume(&at()).unwrap());
        },
        |schedules| {
            let queue = Schedule { overlap: Overlap::QueueOne, ..each_minute() };
            drop(schedules.put(&at(), queue, template()).unwrap());
        },
        |schedules| {
            let _id = schedules.trigger(&at()).unwrap();
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for (seconds, left_out) in [(60, 0), (5 * 60 + 30, 4)] {
            let (world, store) = start(true);
            *world.verdict.lock().unwrap() = Some(Verdict::Snooze(minute(10)));
            world.put(each_minute());
            let other = Schedules::new(Arc::clone(&store) as Arc<dyn TimerStore>);
            *store.hook().first.lock().unwrap() = Some(Box::new(move || change(&other)));
            world.clock.advance(Duration::from_secs(seconds));
            world.settle();
            let progress = world.view().progress;
            let counts = (progress.fired, progress.missed, progress.skipped);
            assert_eq!(counts, (1, left_out, 0), "{number} {seconds}");
            assert!(progress.last_occurrence.is_some(), "{number} {seconds}");
            // The run goes on, so the instants that follow are overlaps.
            world.pass(60);
            let runs = world.seen.lock().unwrap().iter().filter(|(minute, ..)| *minute > 0).count();
            let asked = usize::try_from(world.view().progress.asked).unwrap();
            assert_eq!(runs, 1 + asked, "{number} {seconds} {:?}", world.seen);
            assert_eq!(world.view().progress.missed, left_out, "{number} {seconds}");
        }
    }
}
