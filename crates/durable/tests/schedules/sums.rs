//! Tests that each instant of a schedule is counted once: it gets an occurrence, is missed, is skipped, or waits.

use super::{MINUTE, NOON, PATIENCE, World, at, cron, each_minute, template};
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::plan::Plan;
use tourbillon_durable::schedule::{Missed, Overlap, Schedule};
use tourbillon_durable::{UtcMillis, Verdict};

const OVERLAPS: [Overlap; 3] = [Overlap::Skip, Overlap::QueueOne, Overlap::Allow];
const RULES: [Missed; 3] = [Missed::Skip, Missed::Once, Missed::All];
/// The window of the jitter in these tests.
const WINDOW: Duration = Duration::from_secs(59 * 60);

fn minute(number: u64) -> UtcMillis {
    UtcMillis::from_millis(NOON + number * MINUTE)
}

fn retry(seconds: u64) -> Option<Verdict> {
    Some(Verdict::Retry { error: "no".into(), after: Some(Duration::from_secs(seconds)) })
}

impl World {
    /// Ends the runtime, lets the time pass, and starts a runtime on the same store.
    fn be_away(mut self, time: Duration) -> Self {
        let _ended = self.durable.take().map(|durable| durable.shutdown(PATIENCE));
        self.clock.advance(time);
        let world = Self::on(self.clock.clone(), Arc::clone(&self.store), Arc::clone(&self.seen));
        world.settle();
        world
    }

    /// Puts an hourly schedule, and advances the clock to the middle between the instant of minute 60 and the moment
    /// at which its occurrence is due. Returns the time from the instant to the due moment.
    fn stand_within_jitter(&self, schedule: Schedule) -> Duration {
        let jitter = at().jitter(WINDOW);
        assert!(jitter > Duration::from_secs(120), "{jitter:?}");
        self.put(Schedule { plan: Plan::Every(60 * MINUTE), jitter: WINDOW, ..schedule });
        self.clock.advance(Duration::from_millis(60 * MINUTE) + jitter / 2);
        self.settle();
        assert!(self.minutes().is_empty());
        jitter
    }
}

/// The occurrence of minute 1 fails, and waits for its retry in minute 30. Instants pass during a downtime.
#[test]
fn the_last_missed_instant_gets_its_occurrence_although_one_before_it_is_under_way() {
    for overlap in OVERLAPS {
        for is_one_on_time in [false, true] {
            let case = format!("{overlap:?} {is_one_on_time}");
            let world = World::new();
            world.put(Schedule { overlap, ..each_minute() });
            *world.verdict.lock().unwrap() = retry(29 * 60 + 10);
            world.advance(1);
            let rest = if is_one_on_time { 0 } else { 30_000 };
            let world = world.be_away(Duration::from_millis(5 * MINUTE + rest));
            // The retry ends the occurrence of minute 1 between two instants.
            while world.store.now() < minute(35) {
                world.clock.advance(Duration::from_secs(10));
                world.settle();
            }
            let (fired, missed, skipped) = world.counts();
            let waiting = u64::from(world.view().progress.queued.is_some());
            assert_eq!(fired + missed + skipped + waiting, 35, "{case}");
            // Minute 6 stands for the others if it gets an occurrence at once.
            let last = if is_one_on_time && overlap != Overlap::Allow { 5 } else { 6 };
            assert!(world.minutes().contains(&last), "{case} {:?}", world.minutes());
            let left_out = if is_one_on_time && overlap != Overlap::Allow { 3 } else { 4 };
            assert_eq!(missed, left_out, "{case}");
        }
    }
}

#[test]
fn an_instant_whose_occurrence_is_not_due_yet_survives_a_pause() {
    let world = World::new();
    let jitter = world.stand_within_jitter(each_minute());
    world.schedules.pause(&at()).unwrap();
    let resumed = world.schedules.resume(&at()).unwrap();
    assert_eq!(resumed.due, Some(minute(60) + jitter));
    let shown = resumed.upcoming(minute(60) + jitter / 2, 2).unwrap();
    let shown: Vec<_> = shown.iter().map(|one| one.instant).collect();
    assert_eq!(shown, [Some(minute(60)), Some(minute(120))]);
    world.clock.advance(jitter);
    world.settle();
    assert_eq!((world.minutes(), world.counts()), (vec![60], (1, 0, 0)));
    // An occurrence that would be due during the pause is left out.
    world.schedules.pause(&at()).unwrap();
    world.advance(60);
    assert_eq!(world.schedules.resume(&at()).unwrap().due, Some(minute(180) + jitter));
    assert_eq!((world.minutes(), world.counts()), (vec![60], (1, 0, 0)));
}

#[test]
fn an_instant_whose_occurrence_is_not_due_yet_survives_changes() {
    let changes: [fn(Schedule) -> Schedule; 5] = [
        |schedule| Schedule { end: Some(minute(1_000)), ..schedule },
        |schedule| Schedule { start: Some(minute(60)), ..schedule },
        |schedule| Schedule { plan: Plan::Every(30 * MINUTE), ..schedule },
        |schedule| Schedule { plan: cron("0 * * * *", "UTC").plan, ..schedule },
        |schedule| Schedule { jitter: Duration::ZERO, ..schedule },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for missed in RULES {
            let world = World::new();
            let grace = Duration::from_millis(100);
            let jitter = world.stand_within_jitter(Schedule { missed, grace, ..each_minute() });
            world.put(change(world.view().schedule));
            world.settle();
            world.clock.advance(jitter / 2 + Duration::from_millis(1));
            world.settle();
            assert_eq!((world.minutes(), world.counts()), (vec![60], (1, 0, 0)), "{number} {missed:?}");
        }
    }
}

#[test]
fn a_queued_instant_of_a_former_plan_is_skipped() {
    let yearly = cron("0 0 1 1 *", "UTC").plan;
    for (plan, is_kept) in
        [(yearly, false), (Plan::Every(2 * MINUTE), true), (Plan::Every(7 * MINUTE), false)]
    {
        let world = World::new();
        world.put(Schedule { overlap: Overlap::QueueOne, ..each_minute() });
        *world.verdict.lock().unwrap() = retry(9 * 60);
        world.advance(1);
        world.advance(1);
        assert_eq!(world.view().progress.queued, Some(minute(2)));
        world.put(Schedule { plan: plan.clone(), overlap: Overlap::QueueOne, ..each_minute() });
        let skipped = u64::from(!is_kept);
        assert_eq!((world.counts(), world.events().len() as u64), ((1, 0, skipped), skipped), "{plan:?}");
        *world.verdict.lock().unwrap() = None;
        for _ in 0..10 {
            world.advance(1);
        }
        assert_eq!(world.minutes().contains(&2), is_kept, "{plan:?} {:?}", world.minutes());
    }
}

/// Minutes 1 to 5 are missed. The occurrence of minute 1 is under way, and four instants wait.
#[test]
fn an_end_or_a_plan_keeps_the_missed_instants_that_belong_to_it_and_counts_the_others() {
    let all = Schedule { missed: Missed::All, ..each_minute() };
    for (after, kept) in [
        (Schedule { end: Some(minute(1_000)), ..all.clone() }, 4),
        (Schedule { end: Some(minute(3)), ..all.clone() }, 2),
        (Schedule { end: Some(minute(0)), ..all.clone() }, 0),
        (Schedule { plan: cron("0 0 1 1 *", "UTC").plan, ..all.clone() }, 0),
    ] {
        let world = World::new();
        world.put(all.clone());
        let world = world.be_away(Duration::from_millis(5 * MINUTE + MINUTE / 2));
        let before = (world.minutes().len() as u64, world.view().progress.has_waiting());
        assert_eq!(before, (1, true));
        world.put(after.clone());
        world.settle();
        let left_out = 4 - kept;
        let (_, missed, skipped) = world.counts();
        assert_eq!((missed, skipped), (left_out, 0), "{after:?}");
        let told = if left_out > 0 { vec![format!("Missed({left_out})")] } else { vec![] };
        assert_eq!(world.events(), told, "{after:?}");
        for _ in 0..20 {
            world.clock.advance(Duration::from_secs(1));
            world.settle();
        }
        assert_eq!((world.minutes().len() as u64, world.view().progress.missed), (1 + kept, left_out));
    }
}

/// Minute 3 has passed without a decision when the end is set.
#[test]
fn an_end_in_the_future_changes_nothing_about_the_past() {
    let mut world = World::new();
    world.put(each_minute());
    world.advance(1);
    drop(world.durable.take().unwrap().shutdown(PATIENCE));
    world.clock.advance(Duration::from_millis(2 * MINUTE));
    world.put(Schedule { end: Some(minute(10)), ..each_minute() });
    let world = world.be_away(Duration::from_millis(1));
    assert_eq!((world.minutes(), world.counts()), (vec![1, 3], (2, 1, 0)));
}

#[test]
fn instants_that_pass_unseen_before_a_change_of_the_plan_are_missed() {
    let mut world = World::new();
    world.put(each_minute());
    world.advance(1);
    drop(world.durable.take().unwrap().shutdown(PATIENCE));
    world.clock.advance(Duration::from_millis(3 * MINUTE));
    world.put(Schedule { plan: Plan::Every(10 * MINUTE), ..each_minute() });
    assert_eq!((world.counts(), world.events()), ((1, 3, 0), vec!["Missed(3)".to_owned()]));
}

/// Instants that pass during a pause are no missed instants, also if the schedule is catching up.
#[test]
fn a_pause_amid_a_catch_up_adds_nothing_to_it() {
    let world = World::new();
    world.put(Schedule { missed: Missed::All, ..each_minute() });
    // Minutes 1 to 3 are missed. The occurrence of minute 1 is under way.
    let world = world.be_away(Duration::from_millis(3 * MINUTE + MINUTE / 2));
    assert_eq!(world.minutes(), [1]);
    world.schedules.pause(&at()).unwrap();
    world.advance(3);
    // Minutes 4 to 6 have passed during the pause. Minutes 7 and 8 are missed again.
    world.schedules.resume(&at()).unwrap();
    let world = world.be_away(Duration::from_millis(2 * MINUTE));
    for _ in 0..20 {
        world.clock.advance(Duration::from_secs(1));
        world.settle();
    }
    assert_eq!((world.minutes(), world.counts()), (vec![1, 2, 3, 7, 8], (5, 0, 0)));
}

#[test]
fn a_backfill_has_the_first_instant_of_all() {
    for plan in [cron("* * * * *", "UTC").plan, Plan::Every(MINUTE)] {
        let world = World::new();
        let start = Some(UtcMillis::ZERO);
        world.schedules.put(&at(), Schedule { start, ..Schedule::new(plan.clone()) }, template()).unwrap();
        let until = UtcMillis::from_millis(2 * MINUTE);
        assert_eq!(world.schedules.count(&at(), UtcMillis::ZERO, until, 100).unwrap(), 3, "{plan:?}");
        let step = world.schedules.backfill(&at(), UtcMillis::ZERO, until, 2, None).unwrap();
        assert_eq!((step.stored, step.next), (2, Some(UtcMillis::from_millis(MINUTE + 1))), "{plan:?}");
        let rest = world.schedules.backfill(&at(), step.next.unwrap(), until, 2, None).unwrap();
        assert_eq!((rest.stored, rest.next), (1, None), "{plan:?}");
    }
}
