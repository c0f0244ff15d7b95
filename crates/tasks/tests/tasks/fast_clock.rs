//! The default clock's fast answer is ahead of the true time by some microseconds. The clock of this test is ahead by
//! far more. The true time decides which instants have come.

use crate::support::{MS, wait_until};
use crate::{counts, ms};
use std::time::Duration;
use tourbillon::{Builder, Clock, ManualClock, OnStep, Timestamp};
use tourbillon_tasks::{Overlap, Repeat, TaskEngine};

const AHEAD: Duration = Duration::from_millis(300);
const PERIOD: Duration = Duration::from_millis(200);

#[derive(Clone)]
struct Fast(ManualClock);

impl Clock for Fast {
    fn now(&self) -> Timestamp {
        self.0.now() + AHEAD
    }

    fn true_now(&self) -> Timestamp {
        self.0.now()
    }

    fn sleep_for(&self, now: Timestamp, deadline: Timestamp) -> Option<Duration> {
        self.0.sleep_for(now, deadline)
    }

    fn subscribe(&self, on_step: OnStep) {
        self.0.subscribe(on_step);
    }
}

fn on_a_fast_clock() -> (TaskEngine, ManualClock) {
    let clock = ManualClock::new();
    let builder = Builder::new().clock(Fast(clock.clone())).shards(1).workers(1).unpinned();
    (TaskEngine::start(builder).unwrap(), clock)
}

#[test]
fn an_instant_that_the_true_clock_has_not_reached_is_neither_missed_nor_overlapped() {
    for overlap in [Overlap::Skip, Overlap::QueueOne] {
        let (tasks, clock) = on_a_fast_clock();
        let during = clock.clone();
        let plan = Repeat::every(PERIOD).overlap(overlap);
        let task = tasks.handle().repeat(plan, move |_| during.advance(50 * MS)).unwrap();
        assert_eq!(task.next(), Some(ms(500)));
        clock.set(ms(500));
        wait_until("the first run has ended", || clock.now() == ms(550) && task.next() == Some(ms(700)));
        clock.set(ms(700));
        wait_until("the second run has ended", || clock.now() == ms(750) && task.next() == Some(ms(900)));
        assert_eq!(counts(&task), [2, 0, 0, 0], "{overlap:?}");
    }
}

#[test]
fn a_pause_begins_at_the_end_of_a_run() {
    let (tasks, clock) = on_a_fast_clock();
    let during = clock.clone();
    let task = tasks.handle().repeat(Repeat::pausing(PERIOD), move |_| during.advance(50 * MS)).unwrap();
    clock.set(ms(500));
    wait_until("the first run has ended", || clock.now() == ms(550) && task.next() == Some(ms(750)));
    assert_eq!(counts(&task), [1, 0, 0, 0]);
}
