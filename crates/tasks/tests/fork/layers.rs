//! Forks while threads of the parent use a task engine, its tasks and a queue.

use crate::children::{check, copy_for_a_child, fork_while_used, forks, in_child};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Refusal};
use tourbillon_tasks::keyed::MoveError;
use tourbillon_tasks::uses::{DelayQueue, PushErrorKind, TryRecvError};
use tourbillon_tasks::{IfPresent, NamedErrorKind, Repeat, RepeatErrorKind, Stopped, Task, TaskEngine};

const HOUR: Duration = Duration::from_secs(3_600);

/// An engine with two repeating tasks, whose runs follow each other or may overlap, and a queue.
struct Layers {
    engine: TaskEngine,
    queue: DelayQueue<u32>,
    in_turn: Task,
    in_parallel: Task,
}

impl Layers {
    fn start() -> Self {
        let engine = TaskEngine::start(Builder::new().shards(1).workers(1)).expect("an engine");
        let often = || Repeat::every(Duration::from_millis(1));
        let in_turn = engine.handle().repeat(often(), |_| {}).expect("room");
        let in_parallel = engine.handle().repeat_in_parallel(often(), |_| {}).expect("room");
        let queue = engine.handle().delay_queue();
        Self { engine, queue, in_turn, in_parallel }
    }

    /// Makes one call of each kind that the threads of the parent process repeat.
    fn use_once(&self) {
        drop(self.queue.push(HOUR, 1).map(|id| self.queue.remove(id)));
        assert!(self.queue.try_recv().is_err());
        let task = self.engine.handle().repeat_in_parallel(Repeat::every(HOUR), |_| {}).expect("room");
        let _ = task.stop();
        let _reports = [self.in_turn.report(), self.in_parallel.report()];
    }
}

pub(crate) fn no_child_hangs_while_threads_of_the_parent_use_the_layers() {
    let layers = Layers::start();
    fork_while_used(forks(), || layers.use_once(), |fork| fork_once(&layers, fork));
}

/// Forks, and lets the child end the engine, the tasks and the queue in `layers`. Returns the child's exit status.
fn fork_once(layers: &Layers, fork: u32) -> i32 {
    let copy = copy_for_a_child(layers);
    in_child(move || match fork % 6 {
        0 => drop(copy.engine.handle().shutdown()),
        1 => drop(ManuallyDrop::into_inner(copy)),
        2 => drop(copy.queue.close()),
        3 => {
            let _ = copy.in_turn.stop_and_wait();
            let _ = copy.in_parallel.stop_and_wait();
        }
        4 => {
            assert!(copy.queue.is_closed() && copy.queue.push(HOUR, 1).is_err());
            assert!(copy.queue.try_recv().is_err() && copy.queue.recv().is_err());
            assert!(copy.in_turn.has_ended() && copy.in_parallel.next().is_none());
        }
        _ => {
            // SAFETY: the call ends this process.
            unsafe { libc::exit(0) };
        }
    })
}

/// In a child, a queue has ended: it refuses items, and a receiver does not wait for an alarm that nobody rings.
pub(crate) fn a_queue_has_ended() {
    let engine = TaskEngine::start(Builder::new().shards(1).workers(1)).expect("an engine");
    let queue = engine.handle().delay_queue();
    let later = queue.push(HOUR, 2).expect("room");
    queue.push(Duration::ZERO, 1).expect("room");
    thread::sleep(Duration::from_millis(20));
    let poll = |queue: &DelayQueue<u32>| {
        let polled = queue.receiver().poll_recv(&mut Context::from_waker(Waker::noop()));
        polled.map(|received| received.map(|due| due.item))
    };
    let refuses = |queue: &DelayQueue<u32>| {
        let refused = queue.push(HOUR, 3).expect_err("nothing would ring");
        assert_eq!((refused.kind, refused.item), (PushErrorKind::Refused(Refusal::Forked), 3));
    };
    check(in_child(|| {
        assert!(queue.is_closed());
        refuses(&queue);
        assert_eq!(queue.try_recv().map(|due| due.item), Ok(1));
        assert_eq!(poll(&queue), Poll::Ready(None));
        assert_eq!(queue.recv_timeout(HOUR).map(|due| due.item), Err(TryRecvError::Closed));
        assert!(queue.recv().is_err());
        assert_eq!((queue.close(), queue.close()), (vec![2], vec![]));
    }));
    check(in_child(|| {
        assert_eq!(poll(&queue), Poll::Ready(Some(1)));
        assert_eq!(queue.reset(later, HOUR), Err(MoveError::Absent));
        assert_eq!(queue.close(), [2]);
    }));
    // A queue whose timer the child would have to make, and a queue that the child makes.
    let fresh = engine.handle().delay_queue();
    check(in_child(|| {
        refuses(&fresh);
        let own = engine.handle().delay_queue();
        refuses(&own);
        assert_eq!((poll(&fresh), poll(&own)), (Poll::Ready(None), Poll::Ready(None)));
    }));
}

/// In a child, no further run of a task begins, so the task has ended. A stop does not wait for a run of the parent.
pub(crate) fn a_task_has_ended() {
    let engine = TaskEngine::start(Builder::new().shards(1).workers(1)).expect("an engine");
    let (begun, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (has_begun, may_end) = (Arc::clone(&begun), Arc::clone(&ends));
    let run = move || {
        has_begun.store(true, Ordering::Release);
        while !may_end.load(Ordering::Acquire) {
            thread::yield_now();
        }
    };
    let running = engine.handle().every(Duration::from_millis(1), run).expect("room");
    while !begun.load(Ordering::Acquire) {
        thread::yield_now();
    }
    let resting = engine.handle().every(HOUR, || {}).expect("room");
    let named = engine.handle().named();
    drop(named.start(IfPresent::Reject, "job", Repeat::every(HOUR), |_| {}).expect("the name is free"));
    let status = in_child(|| {
        assert_eq!(running.stop_and_wait(), Stopped::Running);
        assert!(running.has_ended() && resting.has_ended() && resting.next().is_none());
        assert!(engine.handle().repeating().is_empty() && named.get("job").is_none());
        let refused = named.start(IfPresent::Keep, "job", Repeat::every(HOUR), |_| {});
        let refused = refused.expect_err("no task starts in a child");
        assert_eq!(refused.kind, NamedErrorKind::NotStarted(RepeatErrorKind::Refused(Refusal::Forked)));
    });
    ends.store(true, Ordering::Release);
    check(status);
}
