//! Tests the decisions of schedules, without a store.

use super::*;
use crate::plan::MOST_COUNTED;

const MINUTE: u64 = 60_000;

fn at(millis: u64) -> UtcMillis {
    UtcMillis::from_millis(millis)
}

fn each_minute() -> Schedule {
    Schedule { start: Some(at(0)), ..Schedule::new(Plan::Every(MINUTE)) }
}

fn id() -> TimerId {
    TimerId::from_u128(7)
}

/// Returns the decision at `now` of a schedule that was created half a minute after zero.
#[track_caller]
fn decide(schedule: &Schedule, now: u64, is_under_way: bool) -> Decision {
    let progress = Progress::new(id(), schedule, at(MINUTE / 2)).unwrap();
    progress.decide(schedule, Duration::ZERO, at(now), is_under_way).unwrap()
}

#[track_caller]
fn assert_decided(decision: &Decision, fire: &[u64], missed: u64, skipped: u64, wake: u64) {
    let fired: Vec<u64> = decision.fire.iter().map(|instant| instant.as_millis() / MINUTE).collect();
    assert_eq!((&fired[..], decision.missed, decision.skipped), (fire, missed, skipped), "{decision:?}");
    assert_eq!(decision.wake, Some(at(wake)));
}

fn changed(progress: &Progress, before: &Schedule, after: &Schedule, now: u64) -> Progress {
    progress.changed((before, Duration::ZERO), (after, Duration::ZERO), at(now)).unwrap()
}

#[test]
fn an_instant_on_time_gets_its_occurrence_and_an_early_look_changes_nothing() {
    let schedule = each_minute();
    let early = decide(&schedule, MINUTE - 1, false);
    assert_decided(&early, &[], 0, 0, MINUTE);
    let created = Progress::new(id(), &schedule, at(MINUTE / 2)).unwrap();
    assert_eq!(early.progress, Progress { settled: at(MINUTE - 1), ..created });
    let decision = decide(&schedule, MINUTE + 9_000, false);
    assert_decided(&decision, &[1], 0, 0, 2 * MINUTE);
    let progress = decision.progress;
    assert_eq!(progress.last_scheduled, Some(at(MINUTE)));
    assert_eq!(progress.last_fired, Some(at(MINUTE + 9_000)));
    assert_eq!(progress.last_occurrence, Some(TimerId::of_occurrence(id(), at(MINUTE))));
}

#[test]
fn missed_instants_are_left_out_or_get_one_occurrence_or_all() {
    let with = |missed| Schedule { missed, overlap: Overlap::Allow, ..each_minute() };
    let late = 5 * MINUTE + 30_000;
    assert_decided(&decide(&with(Missed::Skip), late, false), &[], 5, 0, 6 * MINUTE);
    assert_decided(&decide(&with(Missed::Once), late, false), &[5], 4, 0, 6 * MINUTE);
    assert_decided(&decide(&with(Missed::All), late, false), &[1, 2, 3, 4, 5], 0, 0, 6 * MINUTE);
    // Each policy fires an instant that is on time. With `Skip` and `Once`, the missed instants get no occurrences.
    let on_time = 5 * MINUTE + 10_000;
    assert_decided(&decide(&with(Missed::Skip), on_time, false), &[5], 4, 0, 6 * MINUTE);
    assert_decided(&decide(&with(Missed::Once), on_time, false), &[5], 4, 0, 6 * MINUTE);
    assert_decided(&decide(&with(Missed::All), on_time, false), &[1, 2, 3, 4, 5], 0, 0, 6 * MINUTE);
}

#[test]
fn the_grace_says_what_is_late() {
    let schedule = Schedule { missed: Missed::Skip, grace: Duration::from_millis(100), ..each_minute() };
    assert_decided(&decide(&schedule, MINUTE + 100, false), &[1], 0, 0, 2 * MINUTE);
    assert_decided(&decide(&schedule, MINUTE + 101, false), &[], 1, 0, 2 * MINUTE);
    let endless = Schedule { grace: Duration::MAX, ..schedule };
    assert_decided(&decide(&endless, 3 * MINUTE, false), &[1], 0, 2, 4 * MINUTE);
}

#[test]
fn an_overlap_is_skipped_allowed_or_queued() {
    let grace = Duration::from_secs(600);
    let with = |overlap| Schedule { overlap, grace, ..each_minute() };
    assert_decided(&decide(&with(Overlap::Skip), MINUTE, true), &[], 0, 1, 2 * MINUTE);
    assert_decided(&decide(&with(Overlap::Allow), MINUTE, true), &[1], 0, 0, 2 * MINUTE);
    // Of three instants, the first is queued, and the others are skipped.
    let queued = decide(&with(Overlap::QueueOne), 3 * MINUTE, true);
    assert_decided(&queued, &[], 0, 2, 3 * MINUTE + 1_000);
    assert_eq!(queued.progress.queued, Some(at(MINUTE)));
    let decide_on = |progress: &Progress, now, is_under_way| {
        progress.decide(&with(Overlap::QueueOne), Duration::ZERO, at(now), is_under_way).unwrap()
    };
    let still = decide_on(&queued.progress, 3 * MINUTE + 1_000, true);
    assert_eq!(still.progress.queued, queued.progress.queued);
    let free = decide_on(&still.progress, 3 * MINUTE + 2_000, false);
    assert_decided(&free, &[1], 0, 0, 4 * MINUTE);
    assert_eq!(free.progress.last_scheduled, Some(at(3 * MINUTE)));
    // The queued instant gets the next occurrence. The instant that comes at the same time is queued until this
    // occurrence ends.
    let both = decide_on(&queued.progress, 4 * MINUTE, false);
    assert_decided(&both, &[1], 0, 0, 4 * MINUTE + 50);
    assert_eq!(both.progress.queued, Some(at(4 * MINUTE)));
}

#[test]
fn of_instants_that_come_at_once_only_the_first_is_not_an_overlap() {
    let schedule = Schedule { grace: Duration::from_secs(600), ..each_minute() };
    assert_decided(&decide(&schedule, 4 * MINUTE, false), &[1], 0, 3, 5 * MINUTE);
}

/// Each minute from 1 to 4 is missed, and minute 5 is on time. Two of the rules make the occurrences one after another.
#[test]
fn each_missed_instant_gets_its_occurrence_whatever_the_rule_for_overlaps_is() {
    for (overlap, at_once, skipped) in
        [(Overlap::Allow, 5, 0), (Overlap::Skip, 1, 1), (Overlap::QueueOne, 1, 0)]
    {
        let schedule = Schedule { missed: Missed::All, overlap, ..each_minute() };
        let mut progress = Progress::new(id(), &schedule, at(1)).unwrap();
        let (mut now, mut fired, mut looks) = (5 * MINUTE, Vec::<u64>::new(), 0_u32);
        loop {
            // Each occurrence is under way at the two decisions that follow.
            let is_under_way = looks > 0;
            looks = looks.saturating_sub(1);
            let decision = progress.decide(&schedule, Duration::ZERO, at(now), is_under_way).unwrap();
            let most = if fired.is_empty() { at_once } else { usize::from(!is_under_way) };
            assert!(decision.fire.len() <= most, "{overlap:?} {decision:?}");
            if !decision.fire.is_empty() {
                looks = 2;
            }
            fired.extend(decision.fire.iter().map(|instant| instant.as_millis() / MINUTE));
            progress = decision.progress;
            if !progress.has_waiting() {
                break;
            }
            let wake = decision.wake.unwrap().as_millis();
            assert!((now + 50..=now + 1_000).contains(&wake), "{overlap:?} {wake}");
            now = wake;
        }
        let all: &[u64] = if overlap == Overlap::Skip { &[1, 2, 3, 4] } else { &[1, 2, 3, 4, 5] };
        assert_eq!((&fired[..], progress.missed, progress.skipped), (all, 0, skipped), "{overlap:?}");
        assert_eq!((progress.next, progress.fired), (Some(at(6 * MINUTE)), fired.len() as u64));
    }
}

#[test]
fn a_queued_instant_that_waits_with_the_missed_ones_gets_one_occurrence() {
    let schedule = Schedule { missed: Missed::All, overlap: Overlap::QueueOne, ..each_minute() };
    let first = decide(&schedule, 5 * MINUTE, false);
    assert_eq!(first.progress.queued, Some(at(5 * MINUTE)));
    // The process is away until after minute 8.
    let (mut progress, mut now, mut fired) = (first.progress, 8 * MINUTE + 30_000, Vec::new());
    while progress.has_waiting() {
        let decision = progress.decide(&schedule, Duration::ZERO, at(now), false).unwrap();
        fired.extend(decision.fire.iter().map(|instant| instant.as_millis() / MINUTE));
        progress = decision.progress;
        now += 1_000;
    }
    assert_eq!(fired, [2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn instants_that_are_missed_while_the_schedule_catches_up_wait_as_well() {
    let schedule = Schedule { missed: Missed::All, ..each_minute() };
    let first = decide(&schedule, 4 * MINUTE + 30_000, false);
    assert_decided(&first, &[1], 0, 0, 4 * MINUTE + 30_050);
    let waiting = |next: u64, last: u64| CatchUp { next: at(next * MINUTE), last: at(last * MINUTE) };
    assert_eq!(first.progress.catch_up, [waiting(2, 4)]);
    let decide_on = |progress: &Progress, schedule: &Schedule, now, is_under_way| {
        progress.decide(schedule, Duration::ZERO, at(now), is_under_way).unwrap()
    };
    let still = decide_on(&first.progress, &schedule, 4 * MINUTE + 31_000, true);
    assert_eq!(still.wake, Some(at(4 * MINUTE + 32_000)));
    assert_eq!(still.progress.catch_up, first.progress.catch_up);
    // Minute 5 comes while an occurrence is under way. Minutes 6 and 7 pass without a process.
    let skips = decide_on(&first.progress, &schedule, 5 * MINUTE, true);
    assert_eq!((skips.skipped, &skips.progress.catch_up[..]), (1, &[waiting(2, 4)][..]));
    let again = decide_on(&skips.progress, &schedule, 7 * MINUTE + 30_000, false);
    assert_decided(&again, &[2], 0, 0, 7 * MINUTE + 30_050);
    assert_eq!(again.progress.catch_up, [waiting(3, 4), waiting(6, 7)]);
    // Each rule that is given to the schedule now decides about the four instants that wait.
    for (missed, overlap, fire, left_out) in [
        (Missed::All, Overlap::Allow, &[3, 4, 6, 7][..], 0),
        (Missed::All, Overlap::QueueOne, &[3][..], 0),
        (Missed::Once, Overlap::Skip, &[7][..], 3),
        (Missed::Skip, Overlap::Allow, &[][..], 4),
    ] {
        let after = Schedule { missed, overlap, ..schedule.clone() };
        let after_change = changed(&again.progress, &schedule, &after, 7 * MINUTE + 40_000);
        let decision = decide_on(&after_change, &after, 7 * MINUTE + 40_000, false);
        let fired: Vec<u64> = decision.fire.iter().map(|instant| instant.as_millis() / MINUTE).collect();
        assert_eq!((&fired[..], decision.missed), (fire, left_out), "{missed:?} {overlap:?}");
    }
    let other = Schedule { plan: Plan::Every(MINUTE / 2), ..schedule.clone() };
    let after_change = changed(&again.progress, &schedule, &other, 7 * MINUTE + 40_000);
    assert_eq!((after_change.catch_up, after_change.next), (vec![], Some(at(8 * MINUTE))));
    assert_eq!(after_change.missed, 4);
}

#[test]
fn of_many_missed_instants_the_last_ones_wait() {
    for overlap in [Overlap::Skip, Overlap::Allow] {
        let schedule = Schedule { missed: Missed::All, overlap, ..each_minute() };
        let now = (MOST_CAUGHT_UP + 50) * MINUTE + 30_000;
        let decision = decide(&schedule, now, true);
        let fired = if overlap == Overlap::Allow { MOST_AT_ONCE as u64 } else { 0 };
        let CatchUp { next, last } = decision.progress.catch_up[0];
        assert_eq!((decision.missed, decision.fire.len() as u64), (50, fired));
        assert_eq!((next, last), (at((51 + fired) * MINUTE), at((MOST_CAUGHT_UP + 50) * MINUTE)));
        // Ten more instants are missed before any further one has got its occurrence.
        let later = decision.progress.decide(&schedule, Duration::ZERO, at(now + 10 * MINUTE), true).unwrap();
        let more = if overlap == Overlap::Allow { 0 } else { 10 };
        assert_eq!((decision.missed, later.missed), (50, more));
    }
}

#[test]
fn a_catch_up_goes_on_at_once_after_so_many() {
    let schedule = Schedule { missed: Missed::All, overlap: Overlap::Allow, ..each_minute() };
    let now = 250 * MINUTE;
    let mut progress = Progress::new(id(), &schedule, at(1)).unwrap();
    for (fired, wake) in [(100, now), (100, now), (50, 251 * MINUTE)] {
        let decision = progress.decide(&schedule, Duration::ZERO, at(now), true).unwrap();
        assert_eq!((decision.fire.len(), decision.wake), (fired, Some(at(wake))));
        progress = decision.progress;
    }
    assert_eq!((progress.fired, progress.catch_up), (250, vec![]));
}

#[test]
fn occurrences_are_due_by_the_offset_later() {
    let (schedule, offset) = (each_minute(), Duration::from_secs(20));
    let progress = Progress::new(id(), &schedule, at(1)).unwrap();
    let early = progress.decide(&schedule, offset, at(MINUTE + 19_999), false).unwrap();
    assert_decided(&early, &[], 0, 0, MINUTE + 20_000);
    let on_time = progress.decide(&schedule, offset, at(MINUTE + 20_000), false).unwrap();
    assert_decided(&on_time, &[1], 0, 0, 2 * MINUTE + 20_000);
    // The grace is counted from the moment at which the occurrence is due.
    let late =
        progress.decide(&Schedule { missed: Missed::Skip, ..schedule }, offset, at(MINUTE + 30_000), false);
    assert_decided(&late.unwrap(), &[1], 0, 0, 2 * MINUTE + 20_000);
}

#[test]
fn a_schedule_begins_and_ends_when_it_shall() {
    let schedule = Schedule { start: Some(at(3 * MINUTE)), end: Some(at(4 * MINUTE)), ..each_minute() };
    let progress = Progress::new(id(), &schedule, at(0)).unwrap();
    assert_eq!(progress.next, Some(at(3 * MINUTE)));
    let first = progress.decide(&schedule, Duration::ZERO, at(3 * MINUTE), false).unwrap();
    assert_decided(&first, &[3], 0, 0, 4 * MINUTE);
    let last = first.progress.decide(&schedule, Duration::ZERO, at(9 * MINUTE), false).unwrap();
    assert_eq!((last.fire.len(), last.missed, last.wake), (1, 0, None));
    let cron = Plan::Cron { expression: "0 * * * *".into(), zone: "UTC".into(), skip_gaps: false };
    let hourly =
        Schedule { plan: cron, start: Some(at(60 * MINUTE)), end: Some(at(120 * MINUTE)), ..schedule };
    assert_eq!(Progress::new(id(), &hourly, at(0)).unwrap().next, Some(at(60 * MINUTE)));
    let shown = hourly.preview(at(0), at(0), 10).unwrap();
    let instants: Vec<_> = shown.iter().map(|one| one.instant.unwrap().as_millis() / MINUTE).collect();
    assert_eq!(instants, [60, 120]);
}

#[test]
fn a_decade_of_seconds_that_were_missed_is_not_walked_for_ever() {
    let cron = Plan::Cron { expression: "* * * * * *".into(), zone: "UTC".into(), skip_gaps: false };
    let sparse = Plan::Cron { expression: "7 0 12 1 * *".into(), zone: "UTC".into(), skip_gaps: false };
    let decade = 10 * 365 * 86_400_000 + 500;
    for (plan, missed, last) in [
        (cron, MOST_COUNTED, decade - 10_500),
        (Plan::Every(1), MOST_COUNTED, decade - 10_001),
        (sparse, 119, decade - 10_001),
    ] {
        let schedule = Schedule { end: Some(at(decade - 10_001)), ..Schedule::new(plan) };
        let progress = Progress::new(id(), &schedule, at(0)).unwrap();
        let decision = progress.decide(&schedule, Duration::ZERO, at(decade), false).unwrap();
        assert_eq!(decision.fire.len(), 1, "{:?}", schedule.plan);
        assert_eq!(decision.missed, missed);
        assert!(decision.fire[0] <= at(last) && decision.wake.is_none(), "{decision:?}");
        assert!(decision.fire[0] > at(last - 32 * 86_400_000), "{decision:?}");
    }
}

#[test]
fn of_instants_of_which_none_is_to_be_missed_the_last_ones_get_occurrences() {
    let decade = 10 * 365 * 86_400_000 + 500;
    let (cron, after_start) = (|expression: &str| Plan::cron(expression, "UTC").unwrap(), at(0));
    let on_time = at(decade - 10_000);
    for (plan, is_more) in [
        (cron("* * * * * *"), true),
        (cron("*/7 * * * *"), true),
        (Plan::Every(1), true),
        (Plan::Every(60_000), true),
        (cron("0 0 * * *"), false),
    ] {
        let schedule = Schedule { missed: Missed::All, overlap: Overlap::Allow, ..Schedule::new(plan) };
        let progress = Progress::new(id(), &schedule, after_start).unwrap();
        let decision = progress.decide(&schedule, Duration::ZERO, at(decade), false).unwrap();
        let (first, count) = (decision.fire[0], usize::try_from(MOST_CAUGHT_UP).unwrap());
        assert_eq!(decision.fire.len(), MOST_AT_ONCE);
        let late = progress.instants(&schedule, first, at(on_time.as_millis() - 1), count + 1).unwrap();
        match is_more {
            true => assert_eq!((late.len(), decision.missed), (count, MOST_COUNTED), "{:?}", schedule.plan),
            false => assert_eq!((late.len(), decision.missed), (3_649, 0), "{:?}", schedule.plan),
        }
        assert_eq!((late[0], &late[..MOST_AT_ONCE]), (first, &decision.fire[..]));
        // The next decision covers the instants that follow.
        let next = decision.progress.decide(&schedule, Duration::ZERO, at(decade), false).unwrap();
        assert_eq!((next.missed, &next.fire[..]), (0, &late[MOST_AT_ONCE..2 * MOST_AT_ONCE]));
    }
}

#[test]
fn a_clock_that_was_ahead_is_forgotten() {
    let schedule = Schedule { missed: Missed::Skip, ..each_minute() };
    let progress = Progress::new(id(), &schedule, at(1)).unwrap();
    let ahead = progress.decide(&schedule, Duration::ZERO, at(1_000_000 * MINUTE), false).unwrap().progress;
    assert_eq!(ahead.next, Some(at(1_000_001 * MINUTE)));
    let now = at(5 * MINUTE + 10);
    let followed = ahead.followed(&schedule, Duration::ZERO, now).unwrap().unwrap();
    assert_eq!((followed.next, followed.last_scheduled), (Some(at(6 * MINUTE)), None));
    assert_eq!((followed.fired, followed.missed), (ahead.fired, ahead.missed), "the numbers stay");
    assert_eq!(followed.followed(&schedule, Duration::ZERO, now).unwrap(), None);
    // Decisions by the present clock stay. An instant without a decision stays, too.
    let on_time = progress.decide(&schedule, Duration::ZERO, at(MINUTE + 5), false).unwrap().progress;
    for moment in [MINUTE + 5, MINUTE - 900, 5 * MINUTE] {
        assert_eq!(on_time.followed(&schedule, Duration::ZERO, at(moment)).unwrap(), None, "{moment}");
    }
}

#[test]
fn a_change_of_the_rule_neither_repeats_nor_forgets() {
    let before = each_minute();
    let progress = Progress::new(id(), &before, at(1)).unwrap();
    let progress = progress.decide(&before, Duration::ZERO, at(MINUTE), false).unwrap().progress;
    // The instants are the same as before. So minute 2, which has come, still waits for its decision.
    let other_overlap = Schedule { overlap: Overlap::Allow, ..before.clone() };
    let same = changed(&progress, &before, &other_overlap, 3 * MINUTE);
    assert_eq!((same.next, same.fired, same.missed), (Some(at(4 * MINUTE)), 1, 0));
    let undecided = Undecided { next: at(2 * MINUTE), last: at(3 * MINUTE), sooner: None };
    assert_eq!(same.undecided, [undecided]);
    // With other instants, only instants from now on count.
    let faster = Schedule { plan: Plan::Every(MINUTE / 2), ..before.clone() };
    let after_change = changed(&progress, &before, &faster, 3 * MINUTE);
    assert_eq!((after_change.next, after_change.fired), (Some(at(7 * MINUTE / 2)), 1));
    assert_eq!(after_change.missed, 2, "minutes 2 and 3");
}

/// Minute 1 has come before the pause, without a decision.
#[test]
fn a_pause_leaves_its_instants_out_and_a_fault_does_not() {
    let schedule = Schedule { overlap: Overlap::Allow, missed: Missed::All, ..each_minute() };
    let progress = Progress::new(id(), &schedule, at(1)).unwrap();
    let fires = |resumed: &Progress, now: u64| {
        let decision = resumed.decide(&schedule, Duration::ZERO, at(now), false).unwrap();
        decision.fire.iter().map(|instant| instant.as_millis() / MINUTE).collect::<Vec<_>>()
    };
    for (pause, resume, expected) in
        [(MINUTE + 2, MINUTE + 4, &[1][..]), (MINUTE + 2, 5 * MINUTE, &[1]), (MINUTE - 1, 5 * MINUTE, &[])]
    {
        let paused = Progress { paused: Some(at(pause)), ..progress.clone() };
        let resumed = paused.resumed(&schedule, Duration::ZERO, at(resume)).unwrap();
        assert_eq!(resumed.next, Some(at((resume / MINUTE + 1) * MINUTE)));
        assert_eq!(fires(&resumed, resume), expected, "{pause} {resume}");
    }
    let faulty = Progress { fault: Some("x".into()), ..progress };
    let resumed = faulty.resumed(&schedule, Duration::ZERO, at(5 * MINUTE)).unwrap();
    assert_eq!((fires(&resumed, 5 * MINUTE), resumed.fault), (vec![1, 2, 3, 4, 5], None));
}

#[test]
fn a_backfill_finds_the_instants_before_the_creation() {
    let schedule = Schedule::new(Plan::Every(MINUTE));
    let progress = Progress::new(id(), &schedule, at(10 * MINUTE + 7)).unwrap();
    let instants = progress.instants(&schedule, at(7 * MINUTE), at(10 * MINUTE), 9).unwrap();
    assert_eq!(instants, [at(7 * MINUTE + 7), at(8 * MINUTE + 7), at(9 * MINUTE + 7)]);
    assert_eq!(progress.instants(&schedule, at(7 * MINUTE), at(10 * MINUTE), 2).unwrap().len(), 2);
}

#[test]
fn a_preview_shows_no_instant_before_the_start_or_after_the_end() {
    // The last second that a calendar knows is in the evening of the 30th of December 9999.
    let (last, day) = (253_402_207_200_000, 1_440 * MINUTE);
    let cron = |expression: &str| Plan::cron(expression, "UTC").unwrap();
    for plan in [cron("0 * * * *"), cron("0 0 * * *"), cron("0 0 1 1 *"), Plan::Every(MINUTE)] {
        for start in [0, last - day, last - 1, last, last + 1, last + day, u64::MAX] {
            for end in [None, Some(start), Some(start.saturating_add(day))] {
                let (start, end) = (Some(at(start)), end.map(at));
                let schedule = Schedule { start, end, ..Schedule::new(plan.clone()) };
                let next = Progress::new(id(), &schedule, at(MINUTE)).unwrap().next;
                let shown = schedule.preview(at(MINUTE), at(MINUTE), 3).unwrap();
                let shown: Vec<_> = shown.iter().filter_map(|one| one.instant).collect();
                assert!(shown.iter().all(|one| Some(*one) >= start && end.is_none_or(|end| *one <= end)));
                // A fixed period also has instants that no calendar can show.
                let is_hidden = shown.is_empty() && matches!(plan, Plan::Every(_));
                assert!(is_hidden || shown.first().copied() == next, "{schedule:?} {next:?} {shown:?}");
            }
        }
    }
}

/// So many pauses have come without a decision that the progress has no room for a further span.
#[test]
fn a_decision_tells_of_the_instants_that_have_no_room() {
    let schedule = Schedule { missed: Missed::All, overlap: Overlap::Allow, ..each_minute() };
    let spans = (0..progress::MOST_SPANS as u64).map(|number| {
        let instant = at((2 * number + 1) * MINUTE);
        Undecided { next: instant, last: instant, sooner: None }
    });
    let created = Progress::new(id(), &schedule, at(MINUTE / 2)).unwrap();
    let progress = Progress { undecided: spans.collect(), settled: at(202 * MINUTE), ..created };
    let decision = progress.decide(&schedule, Duration::ZERO, at(203 * MINUTE), false).unwrap();
    assert_eq!((decision.missed, decision.progress.missed), (1, 1));
    assert_eq!(decision.fire.len(), 100);
}
