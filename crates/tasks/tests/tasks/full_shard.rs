//! A thread waits for room in its lane to a shard. A handler that runs inline on the shard reads tasks, keys and queues
//! of another engine at that time. Each read returns at once, and the shard goes on.

use crate::every;
use crate::support::{Gate, HOUR, MS, within_patience};
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Timestamp};
use tourbillon_tasks::uses::{Acquired, Lifetime, Limits, Rate};
use tourbillon_tasks::{IfPresent, Stopped, TaskEngine, Tasks};

/// Makes an engine for tasks with short lanes (threads' queues to a shard), and an engine whose handlers run inline on
/// the same shard.
fn engines() -> (TaskEngine, TaskEngine) {
    let shards = Builder::new().shards(1).unpinned().workers(2).start_shards().unwrap();
    let tasks = TaskEngine::start(shards.engine().lane_capacity(64)).unwrap();
    let inline = TaskEngine::start(shards.engine().inline()).unwrap();
    (tasks, inline)
}

/// Fills the calling thread's lane, while a handler holds up the shard.
fn fill(tasks: &Tasks) {
    while tasks.try_at(Timestamp::MAX, || {}).is_ok() {}
}

/// Makes `call` on a thread whose lane is full. During the call, a handler holds up the shard and calls `look`. Returns
/// the results of `call` and `look`.
fn look_while_the_lane_is_full<C: Send + 'static, L: Send + 'static>(
    call: impl FnOnce(&Tasks) -> C + Send + 'static,
    look: impl FnOnce() -> L + Send + 'static,
    (tasks, inline): (TaskEngine, TaskEngine),
) -> (C, L) {
    within_patience(move || {
        let (gate, (sender, looked)) = (Gate::new(), mpsc::channel());
        let filled = gate.clone();
        let hold = move || {
            filled.pass();
            // By the end of this sleep the call waits for the shard.
            thread::sleep(20 * MS);
            sender.send(look()).unwrap();
        };
        inline.handle().after(Duration::ZERO, hold).unwrap();
        gate.await_arrival();
        fill(tasks.handle());
        gate.open();
        let called = call(tasks.handle());
        (called, looked.recv().unwrap())
    })
}

#[test]
fn a_task_whose_run_has_filled_the_lane_answers_a_handler_and_goes_on() {
    within_patience(|| {
        let (tasks, inline) = engines();
        let (gate, (sender, looked), (run_again, ran)) = (Gate::new(), mpsc::channel(), mpsc::channel());
        let (filler, looker, holder) =
            (tasks.handle().clone(), tasks.handle().clone(), inline.handle().clone());
        let task = tasks.handle().repeat(every(20), move |run| {
            if run.number > 1 {
                return run_again.send(()).unwrap();
            }
            let (filled, looker, sender) = (gate.clone(), looker.clone(), sender.clone());
            let hold = move || {
                filled.pass();
                // By the end of this sleep the run has ended, and the task is armed again.
                thread::sleep(20 * MS);
                let task = looker.repeating().remove(0);
                sender.send((task.report().runs, task.next().is_some(), task.has_ended())).unwrap();
            };
            holder.after(Duration::ZERO, hold).unwrap();
            gate.await_arrival();
            fill(&filler);
            gate.open();
        });
        assert_eq!(looked.recv().unwrap(), (1, true, false));
        ran.recv().unwrap();
        assert_ne!(task.unwrap().stop_and_wait(), Stopped::Running);
    });
}

#[test]
fn a_handler_stops_a_task_that_is_being_started() {
    let engines = engines();
    let jobs = engines.0.handle().named();
    let looked = jobs.clone();
    let (started, (stopped, is_gone)) = look_while_the_lane_is_full(
        move |_| jobs.start(IfPresent::Replace, "job", every(1_000), |_| {}).is_ok(),
        move || (looked.stop("job"), looked.get("job").is_none() && looked.keys().is_empty()),
        engines,
    );
    assert_eq!((started, stopped, is_gone), (true, Some(Stopped::Stopped), true));
}

#[test]
fn a_handler_looks_at_keys_while_one_is_scheduled() {
    let engines = engines();
    let keyed = engines.0.handle().keyed(|_| {});
    keyed.schedule(1, HOUR, "a").unwrap();
    let looked = keyed.clone();
    let (scheduled, seen) = look_while_the_lane_is_full(
        move |_| keyed.schedule(2, HOUR, "b").unwrap(),
        move || {
            (looked.contains(&2), looked.reschedule(&1, 2 * HOUR).is_ok(), looked.cancel(&1), looked.keys())
        },
        engines,
    );
    assert_eq!((scheduled, seen), (None, (false, true, Some("a"), vec![])));
}

#[test]
fn a_handler_looks_at_a_map_while_an_entry_is_inserted() {
    let engines = engines();
    let map = engines.0.handle().expiry_map(Lifetime::of(HOUR));
    map.insert(1, "a").unwrap();
    let looked = map.clone();
    let (inserted, seen) = look_while_the_lane_is_full(
        move |_| map.insert(2, "b").unwrap(),
        move || (looked.get(&2), looked.refresh(&1), looked.insert(1, "c").unwrap(), looked.len()),
        engines,
    );
    assert_eq!((inserted, seen), (None, (None, true, Some("a"), 1)));
}

#[test]
fn a_handler_looks_at_connections_while_one_is_inserted_or_touched() {
    let engines = engines();
    let timeouts = engines.0.handle().idle_timeouts(Limits::idle(HOUR), |_| {});
    let kept = timeouts.insert(1).unwrap();
    let looked = timeouts.clone();
    let (inserted, seen) = look_while_the_lane_is_full(
        move |_| (timeouts.insert(2).map(|connection| connection.remove()).ok(), kept.touch()),
        move || (looked.touch(&1), looked.remove(&3), looked.contains(&2)),
        engines,
    );
    assert_eq!((inserted, seen), ((Some(true), true), (true, false, true)));
}

#[test]
fn a_handler_asks_for_a_permit_while_a_closure_is_scheduled() {
    let engines = engines();
    let limiter = engines.0.handle().rate_limiter(Rate::every(HOUR).burst(2)).unwrap();
    let asked = limiter.clone();
    let (scheduled, acquired) = look_while_the_lane_is_full(
        move |_| limiter.run_when_due(|| {}).is_ok(),
        move || asked.acquire(),
        engines,
    );
    assert_eq!((scheduled, acquired), (true, Acquired::Now));
}

#[test]
fn a_handler_looks_at_a_queue_while_an_item_is_pushed_for_a_receiver() {
    let engines = engines();
    let queue = engines.0.handle().delay_queue();
    queue.push(2 * HOUR, 1).unwrap();
    let mut receiver = queue.receiver();
    assert!(receiver.poll_recv(&mut Context::from_waker(Waker::noop())).is_pending());
    let looked = queue.clone();
    let (pushed, seen) = look_while_the_lane_is_full(
        // The pushed item is earlier than all others, so the push sets the receiver's alarm.
        move |_| queue.push(HOUR, 2).is_ok(),
        move || (looked.len(), looked.try_recv().is_err(), looked.push(2 * HOUR, 3).is_ok()),
        engines,
    );
    drop(receiver);
    assert_eq!((pushed, seen), (true, (2, true, true)));
}
