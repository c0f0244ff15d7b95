//! Policies for runs that are late or long. Examples show each policy, and a plain model checks all of them.

use crate::support::{Log, MS, Rng};
use crate::{SECOND, counts, driven, every, lasting, logged, ms, seen, stall};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tourbillon::{Clock, Timestamp};
use tourbillon_tasks::{First, Missed, Overlap, Repeat, Run};

#[test]
fn missed_and_skipped() {
    for overlap in [Overlap::Skip, Overlap::QueueOne] {
        let mut tasks = driven();
        let (task, log) = logged(tasks.handle(), every(10).missed(Missed::Skip).overlap(overlap));
        stall(&mut tasks, 45 * MS);
        assert_eq!(log.take(), [seen(1, 10, 35, 3)]);
        assert_eq!((counts(&task), task.next()), ([1, 3, 0, 3], Some(ms(50))));
        tasks.advance_to(ms(60));
        assert_eq!(log.take(), [seen(2, 50, 0, 0), seen(3, 60, 0, 0)]);
        assert_eq!(counts(&task), [3, 3, 0, 3]);
        // The run is late by less than a period, so nothing is missed.
        stall(&mut tasks, 19 * MS);
        assert_eq!(log.take(), [seen(4, 70, 9, 0)]);
        // The run is late by exactly one period. The next instant has come, so it is missed.
        stall(&mut tasks, 11 * MS);
        assert_eq!(log.take(), [seen(5, 80, 10, 1)]);
        assert_eq!((counts(&task), task.next()), ([5, 4, 0, 4], Some(ms(100))));
    }
}

#[test]
fn missed_and_delayed() {
    for overlap in [Overlap::Skip, Overlap::QueueOne] {
        let mut tasks = driven();
        let (task, log) = logged(tasks.handle(), every(10).missed(Missed::Delay).overlap(overlap));
        // This run has missed no instant, so the next instant stays as planned.
        stall(&mut tasks, 15 * MS);
        assert_eq!((log.take(), task.next()), (vec![seen(1, 10, 5, 0)], Some(ms(20))));
        stall(&mut tasks, 30 * MS);
        assert_eq!(log.take(), [seen(2, 20, 25, 2)]);
        assert_eq!((counts(&task), task.next()), ([2, 2, 0, 2], Some(ms(55))));
        tasks.advance_to(ms(65));
        assert_eq!(log.take(), [seen(3, 55, 0, 0), seen(4, 65, 0, 0)]);
        assert_eq!(counts(&task), [4, 2, 0, 2]);
    }
}

#[test]
fn missed_and_made_up_for_in_a_burst() {
    for overlap in [Overlap::Skip, Overlap::QueueOne] {
        let mut tasks = driven();
        let (task, log) = logged(tasks.handle(), every(10).missed(Missed::Burst).overlap(overlap));
        stall(&mut tasks, 45 * MS);
        // Each turn makes one run of the burst, although the clock does not move.
        assert_eq!((log.take(), task.next()), (vec![seen(1, 10, 35, 3)], Some(ms(20))));
        for _ in 0..10 {
            tasks.turn();
        }
        assert_eq!(log.take(), [seen(2, 20, 25, 0), seen(3, 30, 15, 0), seen(4, 40, 5, 0)]);
        assert_eq!((counts(&task), task.next()), ([4, 3, 0, 0], Some(ms(50))));
        tasks.advance_to(ms(60));
        assert_eq!(log.take(), [seen(5, 50, 0, 0), seen(6, 60, 0, 0)]);
        assert_eq!(counts(&task), [6, 3, 0, 0]);
    }
}

#[test]
fn overlapped_and_skipped() {
    for missed in [Missed::Burst, Missed::Delay, Missed::Skip] {
        let mut tasks = driven();
        let plan = every(10).missed(missed).overlap(Overlap::Skip);
        let (task, log) =
            lasting(&tasks, plan, |number| [0, 35, 10, 9, 0][usize::try_from(number).unwrap().min(4)]);
        tasks.advance_to(ms(45));
        assert_eq!((log.take(), task.next()), (vec![seen(1, 10, 0, 0)], Some(ms(50))));
        assert_eq!(counts(&task), [1, 0, 3, 3]);
        // Run 2 ends exactly when an instant comes, and run 3 ends just before an instant.
        tasks.advance_to(ms(100));
        assert_eq!(
            log.take(),
            [seen(2, 50, 0, 0), seen(3, 70, 0, 0), seen(4, 80, 0, 0), seen(5, 90, 0, 0), seen(6, 100, 0, 0)]
        );
        assert_eq!(counts(&task), [6, 0, 4, 4]);
    }
}

#[test]
fn overlapped_and_the_last_one_queued() {
    for missed in [Missed::Burst, Missed::Delay, Missed::Skip] {
        let mut tasks = driven();
        let plan = every(10).missed(missed).overlap(Overlap::QueueOne);
        let (task, log) = lasting(&tasks, plan, |number| if number == 1 { 35 } else { 0 });
        tasks.advance_to(ms(10));
        assert_eq!((log.take(), task.next()), (vec![seen(1, 10, 0, 0)], Some(ms(40))));
        assert_eq!(counts(&task), [1, 0, 3, 2]);
        tasks.advance_to(ms(60));
        assert_eq!(log.take(), [seen(2, 40, 5, 0), seen(3, 50, 0, 0), seen(4, 60, 0, 0)]);
        assert_eq!(counts(&task), [4, 0, 3, 2]);
    }
}

/// Every run of a task is longer than the task's period. The task runs back to back, or at every other instant.
#[test]
fn a_task_that_always_outlasts_its_period_neither_piles_up_nor_starves() {
    let mut tasks = driven();
    let (skips, skipped) = lasting(&tasks, every(10), |_| 15);
    tasks.advance_to(ms(1_000));
    assert_eq!(skipped.take()[..3], [seen(1, 10, 0, 0), seen(2, 30, 0, 0), seen(3, 50, 0, 0)]);
    let [runs, missed, overlapped, left_out] = counts(&skips);
    assert_eq!((runs, missed, overlapped, left_out), (50, 0, 50, 50));
    let mut tasks = driven();
    let (queues, queued) = lasting(&tasks, every(10).overlap(Overlap::QueueOne), |_| 15);
    while tasks.handle().now() < ms(1_000) {
        if tasks.next_expiry() > Some(tasks.handle().now()) { tasks.advance(MS) } else { tasks.turn() }
    }
    // The runs last from 10 to 25, to 40, to 55 and to 70. Each takes an instant and a half.
    assert_eq!(
        queued.take()[..5],
        [seen(1, 10, 0, 0), seen(2, 20, 5, 0), seen(3, 40, 0, 0), seen(4, 50, 5, 0), seen(5, 70, 0, 0)]
    );
    let [runs, missed, overlapped, left_out] = counts(&queues);
    assert_eq!((runs, missed, overlapped, left_out), (66, 0, 99, 33));
}

#[test]
fn runs_that_are_left_are_not_spent_on_what_is_skipped() {
    let mut tasks = driven();
    let (task, log) = logged(tasks.handle(), every(10).times(3));
    stall(&mut tasks, 45 * MS);
    tasks.advance_to(ms(1_000));
    assert_eq!(log.take(), [seen(1, 10, 35, 3), seen(2, 50, 0, 0), seen(3, 60, 0, 0)]);
    // Instants during and after the last run are not counted.
    assert_eq!((counts(&task), task.has_ended()), ([3, 3, 0, 3], true));
    let mut tasks = driven();
    let (task, log) = lasting(&tasks, every(10).times(2).overlap(Overlap::QueueOne), |_| 100);
    tasks.advance_to(ms(1_000));
    // The queued run comes a turn later, which `advance` makes with the next tick.
    assert_eq!(log.take(), [seen(1, 10, 0, 0), seen(2, 110, 1, 0)]);
    assert_eq!((counts(&task), task.has_ended()), ([2, 0, 10, 9], true));
}

#[test]
fn a_burst_of_a_task_with_few_runs_ends_with_them() {
    let mut tasks = driven();
    let (task, log) = logged(tasks.handle(), every(10).times(3).missed(Missed::Burst));
    stall(&mut tasks, SECOND);
    for _ in 0..10 {
        tasks.turn();
    }
    assert_eq!(log.take(), [seen(1, 10, 990, 99), seen(2, 20, 980, 0), seen(3, 30, 970, 0)]);
    assert_eq!((counts(&task), task.has_ended()), ([3, 99, 0, 0], true));
}

/// A task with a pause misses and overlaps no instant, no matter which policies its plan sets.
#[test]
fn a_pause_knows_no_policy() {
    for missed in [Missed::Burst, Missed::Delay, Missed::Skip] {
        for overlap in [Overlap::Skip, Overlap::QueueOne] {
            let mut tasks = driven();
            let plan = Repeat::pausing(10 * MS).missed(missed).overlap(overlap);
            let (task, log) = lasting(&tasks, plan, |number| if number == 2 { 45 } else { 0 });
            stall(&mut tasks, 35 * MS);
            tasks.advance_to(ms(110));
            let expected = [seen(1, 10, 25, 0), seen(2, 45, 0, 0), seen(3, 100, 0, 0), seen(4, 110, 0, 0)];
            assert_eq!((log.take(), counts(&task)), (expected.to_vec(), [4, 0, 0, 0]));
        }
    }
}

/// The stall is a century and the period a millisecond. The cost is a division, not three trillion steps.
#[test]
fn a_long_stall_is_counted_at_once() {
    const YEAR: Duration = Duration::from_secs(31_557_600);
    for missed in [Missed::Delay, Missed::Skip] {
        let mut tasks = driven();
        let (task, log) = logged(tasks.handle(), every(1).missed(missed));
        stall(&mut tasks, 100 * YEAR);
        let came = 100 * 31_557_600_000;
        assert_eq!(log.take(), [seen(1, 1, came - 1, came - 1)]);
        assert_eq!((counts(&task), task.next()), ([1, came - 1, 0, came - 1], Some(ms(came + 1))));
    }
}

/// A plain model of a repeating task that counts instants one by one. It has a queue of instants to run, and the first
/// instant that has not come.
struct Model {
    period: u64,
    missed: Missed,
    overlap: Overlap,
    queue: VecDeque<u64>,
    coming: u64,
    runs: u64,
    counts: [u64; 3],
}

impl Model {
    fn new(period: u64, first: u64, missed: Missed, overlap: Overlap) -> Self {
        Self { period, missed, overlap, queue: VecDeque::new(), coming: first, runs: 0, counts: [0; 3] }
    }

    fn next(&self) -> u64 {
        self.queue.front().copied().unwrap_or(self.coming)
    }

    /// Returns the instants that have come after the last call of this method, up to `now`.
    fn come(&mut self, now: u64) -> VecDeque<u64> {
        let mut come = VecDeque::new();
        while self.coming <= now {
            come.push_back(self.coming);
            self.coming += self.period;
        }
        come
    }

    fn begin(&mut self, now: u64) -> (u64, u64, u64, u64) {
        let mut come = self.come(now);
        let instant = self.queue.pop_front().or_else(|| come.pop_front()).expect("it runs for an instant");
        let count = come.len() as u64;
        self.runs += 1;
        self.counts[0] += count;
        match self.missed {
            Missed::Burst => self.queue.extend(come),
            Missed::Delay if count > 0 => {
                self.counts[2] += count;
                self.coming = now + self.period;
            }
            _ => self.counts[2] += count,
        }
        (self.runs, instant, now - instant, count)
    }

    fn end(&mut self, now: u64) {
        if !self.queue.is_empty() {
            // A burst goes on. Instants that came during the run join it.
            return;
        }
        let come = self.come(now);
        self.counts[1] += come.len() as u64;
        match (self.overlap, come.back()) {
            (Overlap::QueueOne, Some(&last)) => {
                self.queue.push_back(last);
                self.counts[2] += come.len() as u64 - 1;
            }
            _ => self.counts[2] += come.len() as u64,
        }
    }
}

/// Stalls, long runs and quiet times happen at random. The model gets only the moments at which runs start and end.
#[test]
fn stalls_and_long_runs_by_chance_agree_with_a_plain_model() {
    for seed in 0..120 {
        let mut rng = Rng::new(seed);
        let missed = [Missed::Burst, Missed::Delay, Missed::Skip][rng.index(3)];
        let overlap = [Overlap::Skip, Overlap::QueueOne][rng.index(2)];
        let (period, first) = (1 + rng.below(20), rng.below(30));
        let mut model = Model::new(period, first, missed, overlap);
        let mut tasks = driven();
        let (log, clock) = (Log::new(), tasks.clock().clone());
        let (sink, mut lasts, calm) = (log.clone(), Rng::new(!seed), Arc::new(AtomicBool::new(false)));
        let is_calm = Arc::clone(&calm);
        let run = move |run: &Run| {
            let begin = clock.now();
            if lasts.chance(30) && !is_calm.load(Ordering::Relaxed) {
                clock.advance(MS * u32::try_from(lasts.below(60)).unwrap());
            }
            let ran = (run.number, run.scheduled, run.lateness, run.missed);
            sink.push((begin, clock.now(), ran));
        };
        let plan =
            every(period).first(First::After(Duration::from_millis(first))).missed(missed).overlap(overlap);
        let task = tasks.handle().repeat(plan, run).unwrap();
        for step in 0..200 {
            let by = MS * u32::try_from(rng.below(40)).unwrap();
            if rng.chance(50) {
                stall(&mut tasks, by)
            } else {
                tasks.advance(by)
            }
            for (begin, end, ran) in log.take() {
                let in_ms = |moment: Timestamp| crate::millis(moment - Timestamp::ZERO);
                let expected = model.begin(in_ms(begin));
                let ran = (ran.0, in_ms(ran.1), crate::millis(ran.2), ran.3);
                assert_eq!(ran, expected, "seed {seed}, step {step}, {missed:?}, {overlap:?}");
                model.end(in_ms(end));
            }
            assert_eq!(
                task.next(),
                Some(ms(model.next())),
                "seed {seed}, step {step}, {missed:?}, {overlap:?}"
            );
            let [missed, overlapped, skipped] = model.counts;
            assert_eq!(counts(&task), [model.runs, missed, overlapped, skipped], "seed {seed}, step {step}");
        }
        // If runs are short, a burst ends, and all due instants get their runs.
        calm.store(true, Ordering::Relaxed);
        for _ in 0..10_000 {
            tasks.turn();
        }
        assert!(task.next() > Some(tasks.handle().now()), "seed {seed}: {task:?}");
    }
}
