//! Sleeping, timeouts and intervals: on a clock that the test moves, and, in `threads`, in real time.
//!
//! A comment such as `Row P15` names a row of the table of pitfalls in `src/DESIGN.md`.
//!
//! # Cases of tokio
//!
//! The cases of `time_sleep`, `time_timeout`, `time_interval`, `time_rt` and `time_panic` in `tokio/tests` at ea91b33,
//! with the tests that check them here. Neither code nor structure is taken over.
//!
//! | case | here |
//! |------|------|
//! | `immediate_sleep`: one until now is over at once | `sleep::a_sleep_until_now_is_over_when_it_is_first_polled`; ours has elapsed before it is polled, too |
//! | `is_elapsed`: before, at and after | `sleep::it_has_elapsed_from_its_deadline_on` |
//! | `delayed_sleep_level_0`, `delayed_sleep_wrapping_level_0`: exact, from anywhere in the wheel | `sleep::each_sleep_ends_at_the_tick_of_its_deadline` |
//! | `sub_ms_delayed_sleep`: a part of a tick more | `sleep::a_nanosecond_more_is_a_tick_more`; ours is rounded up, theirs may be down |
//! | `reset_future_sleep_before_fire`: to later | `sleep::a_reset_to_a_later_deadline_wakes_at_that_one_alone` |
//! | `reset_past_sleep_before_turn`, `reset_past_sleep_before_fire`: to earlier, unseen or seen by the wheel | `sleep::a_reset_to_an_earlier_deadline_wakes_at_that_one` |
//! | `reset_future_sleep_after_fire`, `reset_after_firing`: after completion | `sleep::a_reset_after_completion_begins_anew` |
//! | `reset_sleep_to_past`: ready with the next poll | `sleep::a_reset_to_the_past_ends_it_with_the_next_poll`, `sleep::a_reset_to_the_past_wakes_the_task_with_the_next_turn` |
//! | `greater_than_max`, `long_sleeps`, `multi_long_sleeps`: years | `sleep::sleeps_of_years_end_on_their_tick` |
//! | `short_sleeps`: a thousand of no length | `sleep::sleeps_without_a_delay_cost_no_time` |
//! | `exactly_max`, `no_out_of_bounds_close_to_max`, `issue_5183`: no delay overflows, nor hides a short one | `sleep::the_longest_sleeps_never_end_and_hide_no_short_one`, `sleep::sleeps_end_up_to_the_last_tick` |
//! | `drop_after_reschedule_at_new_scheduled_time` | `sleep::one_that_was_moved_to_another_tick_is_dropped_there` |
//! | `drop_from_wake`: a wake drops a hundred sleeps | `wakers::a_waker_may_drop_its_own_sleep_and_all_others` |
//! | `simultaneous_deadline_future_completion`, `completed_future_past_deadline`: a ready future is not timed out | `timeout::what_is_ready_is_never_timed_out` |
//! | `future_and_deadline_in_future`, `future_and_timeout_in_future`: an answer in time | `timeout::an_answer_before_the_deadline_is_given_on` |
//! | `very_large_timeout` | `timeout::a_very_large_timeout_is_one` |
//! | `deadline_now_elapses` | `timeout::a_deadline_that_has_come_elapses_with_the_first_poll` |
//! | `deadline_future_elapses`: woken, and over | `timeout::what_never_ends_is_timed_out_at_its_deadline` |
//! | `timeout_is_not_exhausted_by_future`: the future always wants to run | `timeout::a_future_that_never_rests_is_timed_out_all_the_same` |
//! | `interval_zero_duration`, `interval_panic_caller`, `interval_at_panic_caller` | `interval::a_period_of_zero_is_refused`: an error of ours, no panic |
//! | `burst`, `delay`, `skip` | `interval::burst_makes_up_for_missed_ticks_at_once`, `interval::delay_begins_anew_when_a_late_tick_was_taken`, `interval::skip_leaves_missed_ticks_out_and_keeps_step` |
//! | `reset` | `interval::a_reset_ticks_next_after_a_period` |
//! | `reset_immediately` | `interval::a_reset_for_at_once_ticks_with_the_next_poll` |
//! | `reset_after` | `interval::a_reset_after_a_delay_ticks_after_that` |
//! | `reset_at`, `reset_at_bigger_than_interval` | `interval::a_reset_to_a_moment_ticks_then_and_every_period_from_then_on` |
//! | `stream_with_interval_poll_tick_self_waking`, `…_no_waking`: a tick that is ready registers nobody | `interval::a_tick_that_was_taken_wakes_nobody_before_the_next_poll` |
//! | `interval_doesnt_panic_max_duration_when_polling` | `interval::the_longest_period_ticks_once` |
//! | `timer_with_threaded_runtime`, `timer_with_current_thread_scheduler` | `threads::a_sleep_takes_its_time_and_not_much_more`, `threads::a_thousand_sleeps_over_several_threads_end_in_time` |
//! | `starving`: a task that wakes itself | `sleep::a_task_that_never_rests_sleeps_no_longer`, `threads::a_thread_that_never_rests_sleeps_no_longer` |
//! | `timeout_value` | `threads::a_timeout_elapses_or_gives_the_answer` |
//! | `tickspace`: reset amid another clock's work | `sleep::a_sleep_keeps_to_its_own_engine`, `threads::a_sleep_that_moves_from_thread_to_thread_wakes_where_it_is` |
//!
//! Cases that do not apply:
//!
//! | case | why |
//! |------|-----|
//! | `creating_sleep_outside_of_context`, `timeout_panic_caller`, `timeout_at_panic_caller` | there is no context to be outside of: an engine is given, or is the process's own |
//! | `pause_panic_caller`, `resume_panic_caller` | no clock is paused: a manual clock belongs to another engine |
//! | that a sleep of `Duration::MAX` is awaited to its end (`exactly_max`) | theirs ends in some 30 years by a paused clock's own advance; ours never |
//! | each case once for every flavour of runtime | there are no runtimes |
#![cfg(feature = "async")]

#[path = "../support/mod.rs"]
mod support;

mod interval;
mod many;
mod resetting;
mod sleep;
mod spares;
mod tasks;
mod threads;
mod timeout;
mod turning;
mod types;
mod wakers;
