//! A fork happens while threads of the parent hold locks of tasks, queues, maps and engines. Then the child stops
//! tasks, closes queues, ends engines and drops objects. No child hangs. A child whose engine has no threads goes
//! on with it.
//!
//! The test harness is not used, since it has threads of its own. An alarm ends a child that hangs.

#[cfg(unix)]
mod children;
#[cfg(unix)]
mod driven;
#[cfg(unix)]
mod drops;
#[cfg(unix)]
mod layers;

#[cfg(unix)]
fn main() {
    drops::a_name_is_in_use();
    drops::a_name_of_thousands_is_in_use();
    drops::a_key_is_in_use();
    drops::a_connection_is_in_use();
    drops::a_queue_is_in_use_that_a_receiver_leaves();
    drops::a_queue_wakes_nobody_that_waits_in_the_parent();
    drops::a_task_is_in_use_whose_run_waits_for_a_worker();
    driven::a_connection_expires_that_another_thread_looks_for();
    driven::a_connection_is_removed_or_dropped_that_another_thread_looks_for();
    driven::a_key_is_drained_that_another_thread_looks_for();
    driven::a_receiver_leaves_a_queue_that_another_thread_searches();
    layers::a_queue_has_ended();
    layers::a_task_has_ended();
    layers::no_child_hangs_while_threads_of_the_parent_use_the_layers();
}

#[cfg(not(unix))]
fn main() {}
