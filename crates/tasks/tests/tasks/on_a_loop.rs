//! Tasks on shards that an event loop of the program turns. Between two turns, the loop's thread makes more calls than
//! its lane holds. The calls make room themselves.

use crate::support::{MS, wait_until, within_patience};
use crate::{SECOND, every};
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Clock, Job, LoopLeft, LoopShard, ManualClock, Timestamp};
use tourbillon_tasks::uses::{Lifetime, Limits, Rate};
use tourbillon_tasks::{IfPresent, Stopped, TaskEngine, Tasks};

const COUNT: u64 = 10_000;

/// Makes an engine on a loop of the calling thread. Each lane (queue of a thread) has room for 64 tickets (requests to
/// check timers). The loop has turned once.
fn looped() -> (TaskEngine, LoopShard) {
    let (shards, mut loops) = Builder::new().clock(ManualClock::new()).loops(1).unwrap();
    let tasks = TaskEngine::start(shards.engine().lane_capacity(64)).unwrap();
    let mut shard = loops.remove(0);
    settle(&mut shard, Timestamp::ZERO);
    (tasks, shard)
}

fn settle(shard: &mut LoopShard, now: Timestamp) {
    while shard.turn(now, 1 << 20) == LoopLeft::More {}
}

/// Returns the deadline of the `n`th timer. All deadlines are different.
fn deadline(n: u64) -> Timestamp {
    Timestamp::ZERO + SECOND + Duration::from_millis(n)
}

#[test]
fn one_shots_and_closures_with_moments() {
    let (tasks, _shard) = looped();
    for n in 0..COUNT {
        tasks.handle().at(deadline(n), || {}).unwrap();
        let id = tasks.handle().at_with(deadline(n), |_| {}).unwrap();
        assert!(tasks.handle().reschedule(id, SECOND).is_ok());
    }
    assert_eq!(tasks.handle().shutdown().len(), 20_000);
}

#[test]
fn timers_by_key_and_their_moves() {
    let (tasks, mut shard) = looped();
    let keyed = tasks.handle().keyed(|_| {});
    for n in 0..COUNT {
        assert_eq!(keyed.schedule(n, SECOND, ()).unwrap(), None);
    }
    for n in 0..COUNT {
        keyed.reschedule_at(&n, deadline(n)).unwrap();
    }
    settle(&mut shard, Timestamp::ZERO);
    assert_eq!((keyed.len(), tasks.handle().stats().pending), (10_000, COUNT));
}

#[test]
fn permits() {
    let (tasks, _shard) = looped();
    let limiter = tasks.handle().rate_limiter(Rate::every(SECOND)).unwrap();
    for _ in 0..COUNT {
        limiter.run_when_due(|| {}).unwrap();
    }
    assert_eq!(tasks.handle().stats().pending, COUNT);
}

#[test]
fn connections_and_entries_that_expire() {
    let (tasks, _shard) = looped();
    let timeouts = tasks.handle().idle_timeouts(Limits::idle(SECOND), |_| {});
    let connections: Vec<_> = (0..COUNT).map(|n| timeouts.insert(n).unwrap()).collect();
    assert!(connections.iter().all(|connection| connection.touch() && timeouts.touch(connection.id())));
    let map = tasks.handle().expiry_map(Lifetime::of(SECOND));
    for n in 0..COUNT {
        assert_eq!(map.insert(n, ()).unwrap(), None);
        assert!(map.refresh(&n));
    }
    assert_eq!((timeouts.len(), map.len()), (10_000, 10_000));
}

#[test]
fn repeating_tasks_and_named_ones() {
    let (tasks, _shard) = looped();
    let start = |tasks: &Tasks| tasks.every(SECOND, || {}).unwrap();
    let started: Vec<_> = (0..1_000).map(|_| start(tasks.handle())).collect();
    let named = tasks.handle().named();
    for n in 0..1_000 {
        named.start(IfPresent::Reject, n, every(1_000), |_| {}).unwrap();
    }
    assert_eq!((started.len(), named.keys().len()), (1_000, 1_000));
}

#[test]
fn items_of_a_queue_each_earlier_than_the_one_before() {
    let (tasks, _shard) = looped();
    let queue = tasks.handle().delay_queue();
    let mut receiver = queue.receiver();
    assert!(receiver.poll_recv(&mut Context::from_waker(Waker::noop())).is_pending());
    for n in (0..COUNT).rev() {
        // This push sets the receiver's alarm again.
        queue.push_at(deadline(n), n).unwrap();
    }
    assert_eq!(queue.len(), 10_000);
}

/// A run in parallel is a one-shot that only the next turn of the loop passes to the executor. Between two turns, the
/// loop's thread stops the task and waits.
#[test]
fn a_stop_does_not_wait_for_a_run_that_needs_the_loops_next_turn() {
    within_patience(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        let pool = thread::spawn(move || queue.into_iter().for_each(Job::run));
        let clock = ManualClock::new();
        let (shards, mut loops) = Builder::new().clock(clock.clone()).loops(1).unwrap();
        let executor = move |job: Job| drop(jobs.send(job));
        let tasks = TaskEngine::start(Builder::new().on(&shards).executor(executor)).unwrap();
        let task = tasks.handle().repeat_in_parallel(every(10), |_| {}).unwrap();
        clock.advance(15 * MS);
        settle(&mut loops[0], clock.now());
        wait_until("the task's own timer has fired", || task.report().runs == 1);
        assert_eq!((task.stop_and_wait(), task.report().runs), (Stopped::Stopped, 0));
        clock.advance(SECOND);
        settle(&mut loops[0], clock.now());
        drop((tasks, shards, loops));
        drop(pool);
    });
}
