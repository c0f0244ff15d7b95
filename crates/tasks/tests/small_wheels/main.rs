//! Faults of the small wheels of Go, which tasks and keys must not have. The table has a row for each fault with its
//! test.
//!
//! The wheels: L xiaoxuxiansheng/timewheel (its local one), O ouqiang/timewheel, N nosixtools/timewheel, K
//! lk668/timewheel, G HDT3213/godis, T RussellLuo/timingwheel, A antlabs/timer.
//!
//! | row | fault | test |
//! |---|---|---|
//! | L1, L2, T3 | the caller computes the slot while the wheel turns: a race, and timers are a revolution late | [`moments::what_is_scheduled_while_the_wheel_turns_is_on_time`] |
//! | L3 | a moment that has passed kills the wheel, or is a revolution late | [`moments::a_moment_that_has_passed_runs_next_and_the_wheel_lives`] |
//! | L4, O2, T9, A8 | delays are rounded down, so timers are early | [`moments::nothing_runs_early_whatever_the_phase`] |
//! | L5, O7, N7, K8, G6, T10 | after a stop calls hang, and a second stop panics | [`stops::after_a_stop_every_call_answers`] |
//! | L6 | ticks that were dropped are never made up for | [`moments::ticks_that_were_slept_through_are_made_up_for`] |
//! | L7 | each task has a goroutine | [`tasks_and_keys::tasks_run_on_the_engines_threads_and_on_no_other_thread`] |
//! | O1, K2, G1, A4 | a tick or an interval is below a second, or below the tick: it divides by zero, or never runs again | [`moments::short_ticks_work_and_shorter_periods_are_refused`] |
//! | N1 | the faults O1 and O2 | the tests of O1 and O2 |
//! | O3, G5 | a second task of a key hides the first, which cannot be removed | [`tasks_and_keys::a_key_has_one_entry_and_the_newest_is_cancelled`] |
//! | O4, G5 | several tasks in a slot match, and only the first is removed | [`stops::all_tasks_of_a_slot_are_removed`] |
//! | O5, N7, K8 | a panic in a job kills the process | [`tasks_and_keys::a_job_that_panics_costs_only_itself`] |
//! | O6 | an unhashable key kills the process | the compiler refuses such a key; the nearest test is [`tasks_and_keys::a_key_whose_hash_panics_costs_its_call`] |
//! | N2, T11 | a periodic task is removed while the wheel adds it again, and the removal is lost | [`stops::a_stop_between_two_runs_holds`] |
//! | N3, G4 | a leftover of a removed entry removes the new entry of the same key | [`tasks_and_keys::an_old_generation_does_not_end_the_new_one`] |
//! | N4 | two adds of one key both succeed; a remove right after an add finds nothing | [`tasks_and_keys::of_two_adds_one_succeeds_and_is_found_at_once`] |
//! | N5, K4 | two tasks have a period of a slot or a revolution: a tick is an endless loop | [`moments::tasks_of_one_slot_whose_period_is_a_revolution_do_not_loop`] |
//! | N6, K3 | a task with a period of one revolution runs at every second revolution, or its first run is a revolution early | [`moments::a_period_of_a_revolution_is_one`] |
//! | K1 | a job fires while it is being removed, and the process dies | [`stops::a_cancel_that_races_with_firing_has_one_outcome`] |
//! | K5 | a task that is created anew takes up its phase half a period late | [`moments::a_task_that_is_created_anew_keeps_its_phase`] |
//! | K6 | a task that shall run N times runs N + 1 times | [`moments::n_times_are_n`] |
//! | K7 | the flag that shows a running wheel is not synchronised | there is no such flag; the nearest test is [`stops::of_several_shutdowns_one_gets_what_is_pending`] |
//! | G2, A3 | an add between turning and scanning goes into the list that runs next: the timer is early, or a revolution late | the test of L1 |
//! | G3 | a scan changes the list under a read lock | [`tasks_and_keys::lookers_do_not_disturb_what_fires`] |
//! | T1, T2 | a flush waits for itself, and all threads sleep | [`tasks_and_keys::a_hundred_thousand_that_reschedule_themselves_do_not_deadlock`] |
//! | T4 | a call for a timer that is in no bucket meets a nil pointer | [`stops::what_is_not_armed_can_be_asked_and_stopped`] |
//! | T5 | after a stop the tasks stay in memory | [`stops::a_stop_lets_go_of_what_was_pending`] |
//! | T6, A6 | a timer cannot be reset, or not reliably | [`tasks_and_keys::everything_can_be_moved`] |
//! | T7, A7 | a stop comes while its timer moves between wheels: the stop fails, and the timer fires | [`stops::a_cancel_on_the_way_down_the_wheels_holds`] |
//! | T8 | setting the wall clock disturbs timers | [`moments::a_clock_that_is_set_makes_nothing_early_or_lost`] |
//! | A1 | stopping a timer that has fired, or stopping twice, removes another timer | [`stops::stopping_what_has_ended_touches_no_stranger`] |
//! | A2 | the stop waits for pending timers | [`stops::a_shutdown_does_not_wait_for_what_is_pending`] |
//! | A5 | a documented call is a stub that ends in a nil pointer | the test of T4 |
//! | A9 | 64-bit atomics fail on 32-bit machines | no test: `core`'s types are aligned or do not exist, which the compiler checks |
//!
//! The rows R are left out. They are about a wheel in Redis whose tasks survive their process. The tasks here do not.

#[path = "../../../../tests/support/mod.rs"]
mod support;

mod moments;
mod stops;
mod tasks_and_keys;

use std::time::Duration;
use support::Log;
use tourbillon::{Builder, Timestamp};
use tourbillon_tasks::keyed::{DueKey, Keyed};
use tourbillon_tasks::{DrivenTasks, Repeat, Tasks};

const SECOND: Duration = Duration::from_secs(1);

fn at(since_origin: Duration) -> Timestamp {
    Timestamp::ZERO + since_origin
}

/// Makes an engine without threads, with ticks of a second.
fn seconds() -> DrivenTasks {
    DrivenTasks::start(Builder::new().tick(SECOND)).unwrap()
}

/// Starts a task by `plan` that logs the moments of its runs, in seconds.
fn logged(tasks: &Tasks, plan: Repeat) -> Log<u64> {
    let (log, inside) = (Log::new(), tasks.clone());
    let sink = log.clone();
    tasks.repeat(plan, move |_| sink.push((inside.now() - Timestamp::ZERO).as_secs())).unwrap();
    log
}

fn every(seconds: u64) -> Repeat {
    Repeat::every(Duration::from_secs(seconds))
}

/// Makes timers by key whose jobs are logged.
fn keys(tasks: &Tasks) -> (Keyed<u64, u64>, Log<u64>) {
    let log = Log::new();
    let sink = log.clone();
    (tasks.keyed(move |due: DueKey<'_, u64, u64>| sink.push(due.value)), log)
}
