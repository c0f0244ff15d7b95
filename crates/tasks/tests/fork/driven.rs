//! A child goes on with an engine that has no threads. A thread of the child holds a lock for longer than a moment. No
//! other thread of the child takes the lock for lost.

use crate::children::{Called, check, in_child};
use crate::drops::{Name, under_a_look};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;
use tourbillon_tasks::DrivenTasks;
use tourbillon_tasks::uses::Limits;

const HOUR: Duration = Duration::from_secs(3_600);
/// The time for which a thread holds a lock. A child gives up a lock of a forked engine in less time.
const HELD: Duration = Duration::from_millis(20);

/// Calls `f` while another thread looks for the name 0 by `look`. That thread holds the lock of the name's shard for a
/// while.
fn during_a_look(look: impl FnOnce(&Name) + Send, f: impl FnOnce()) {
    under_a_look(look, |gate| {
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(HELD);
                gate.is_open.store(true, Ordering::Release);
            });
            f();
        });
    });
}

pub(crate) fn a_connection_expires_that_another_thread_looks_for() {
    let mut tasks = DrivenTasks::new().expect("an engine");
    let expired = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&expired);
    let timeouts = tasks.handle().idle_timeouts(Limits::idle(HOUR), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let _connection = timeouts.insert(Name::default()).expect("room");
    check(in_child(|| {
        during_a_look(|name| assert!(timeouts.contains(name)), || tasks.advance(HOUR));
        assert_eq!((expired.load(Ordering::Relaxed), timeouts.len()), (1, 0));
    }));
}

pub(crate) fn a_connection_is_removed_or_dropped_that_another_thread_looks_for() {
    let tasks = DrivenTasks::new().expect("an engine");
    let timeouts = tasks.handle().idle_timeouts(Limits::idle(HOUR), |_| {});
    check(in_child(|| {
        let dropped = timeouts.insert(Name::default()).expect("room");
        during_a_look(|name| assert!(timeouts.contains(name)), || drop(dropped));
        let removed = timeouts.insert(Name::default()).expect("its id is free again");
        during_a_look(|name| assert!(timeouts.contains(name)), || assert!(removed.remove()));
        assert!(timeouts.is_empty());
    }));
}

pub(crate) fn a_key_is_drained_that_another_thread_looks_for() {
    let tasks = DrivenTasks::new().expect("an engine");
    let keyed = tasks.handle().keyed(|_| {});
    keyed.schedule(Name::default(), HOUR, 1).expect("room");
    check(in_child(|| {
        let drain = || assert_eq!(keyed.drain(), [(Name::default(), 1)]);
        during_a_look(|name| assert!(keyed.contains(name)), drain);
    }));
}

pub(crate) fn a_receiver_leaves_a_queue_that_another_thread_searches() {
    let mut tasks = DrivenTasks::new().expect("an engine");
    let queue = tasks.handle().delay_queue();
    // The search of these items lasts long enough to meet the drop.
    for number in 0..300_000 {
        queue.push(HOUR, number).expect("room");
    }
    let (mut leaving, mut staying) = (queue.receiver(), queue.receiver());
    let called = Arc::new(Called::default());
    let waker = Waker::from(Arc::clone(&called));
    assert!(leaving.poll_recv(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(staying.poll_recv(&mut Context::from_waker(&waker)).is_pending());
    check(in_child(|| {
        let begins = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                begins.store(true, Ordering::Release);
                assert!(queue.peek().is_some());
            });
            while !begins.load(Ordering::Acquire) {
                thread::yield_now();
            }
            // The search begins.
            thread::sleep(Duration::from_millis(1));
            drop(leaving);
        });
        queue.push(HOUR / 2, 0).expect("room");
        tasks.advance(HOUR / 2);
        assert!(called.0.load(Ordering::Acquire), "the item is for the receiver that still waits");
    }));
}
