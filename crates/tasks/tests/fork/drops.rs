//! Forks while a thread of the parent holds a lock that a drop needs. The child drops all the same.

use crate::children::{Called, SetAtEnd, check, copy_for_a_child, fork_while_used, forks, in_child};
use std::hash::{Hash, Hasher};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Job};
use tourbillon_tasks::uses::Limits;
use tourbillon_tasks::{IfPresent, Repeat, TaskEngine};

const HOUR: Duration = Duration::from_secs(3_600);

/// A place at which a thread waits while it holds a lock.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_reached: AtomicBool,
    pub(crate) is_open: AtomicBool,
}

/// A key. A comparison with a key that has a gate waits at that gate. A map compares keys under the lock of the key's
/// shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Name {
    number: u32,
    gate: Option<Arc<Gate>>,
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        for gate in self.gate.iter().chain(&other.gate) {
            gate.is_reached.store(true, Ordering::Release);
            while !gate.is_open.load(Ordering::Acquire) {
                thread::yield_now();
            }
        }
        self.number == other.number
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

/// Calls `f` while another thread looks for the name 0 by `look`, and so holds the lock of the name's shard. The thread
/// goes on when `f` has ended, or has opened the gate.
pub(crate) fn under_a_look<R>(look: impl FnOnce(&Name) + Send, f: impl FnOnce(&Gate) -> R) -> R {
    let gate = Arc::new(Gate::default());
    let name = Name { number: 0, gate: Some(Arc::clone(&gate)) };
    thread::scope(|scope| {
        scope.spawn(move || look(&name));
        while !gate.is_reached.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let _open = SetAtEnd(&gate.is_open);
        f(&gate)
    })
}

/// Forks while another thread looks for the name 0 by `look`. The child calls `f`. Fails if the child hung or failed.
fn fork_under_a_look(look: impl FnOnce(&Name) + Send, f: impl FnOnce()) {
    check(under_a_look(look, |_| in_child(f)));
}

fn engine() -> TaskEngine {
    TaskEngine::start(Builder::new().shards(1).workers(1)).expect("an engine")
}

pub(crate) fn a_name_is_in_use() {
    let engine = engine();
    let named = engine.handle().named();
    let started = named.start(IfPresent::Reject, Name::default(), Repeat::every(HOUR), |_| {});
    drop(started.expect("the name is free"));
    // The shutdown drops the closure, which frees the name.
    fork_under_a_look(|name| assert!(named.get(name).is_some()), || drop(engine.handle().shutdown()));
}

/// The child waits once for the lock of the names, and not for each name.
pub(crate) fn a_name_of_thousands_is_in_use() {
    let engine = engine();
    let named = engine.handle().named();
    for number in 0..5_000 {
        let name = Name { number, gate: None };
        drop(named.start(IfPresent::Reject, name, Repeat::every(HOUR), |_| {}).expect("the name is free"));
    }
    fork_under_a_look(|name| assert!(named.get(name).is_some()), || drop(engine.handle().shutdown()));
}

pub(crate) fn a_key_is_in_use() {
    let engine = engine();
    let keyed = engine.handle().keyed(|_| {});
    keyed.schedule(Name::default(), HOUR, 1).expect("room");
    let copy = copy_for_a_child(&keyed);
    fork_under_a_look(|name| assert!(keyed.contains(name)), || drop(ManuallyDrop::into_inner(copy)));
}

pub(crate) fn a_connection_is_in_use() {
    let engine = engine();
    let timeouts = engine.handle().idle_timeouts(Limits::idle(HOUR), |_| {});
    let connection = timeouts.insert(Name::default()).expect("room");
    let copy = copy_for_a_child(&connection);
    fork_under_a_look(|name| assert!(timeouts.contains(name)), || drop(ManuallyDrop::into_inner(copy)));
}

pub(crate) fn a_queue_is_in_use_that_a_receiver_leaves() {
    let engine = engine();
    let queue = engine.handle().delay_queue();
    for n in 0..100 {
        queue.push(HOUR, n).expect("room");
    }
    let fork_once = |_| {
        let mut receiver = queue.receiver();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(receiver.poll_recv(&mut cx).is_pending());
        in_child(move || drop(receiver))
    };
    fork_while_used((forks() / 10).max(1), || assert!(queue.peek().is_some()), fork_once);
}

/// The tasks that wait for an item are the parent's, and their wakers may need locks that stay locked in the child.
pub(crate) fn a_queue_wakes_nobody_that_waits_in_the_parent() {
    let engine = engine();
    let queue = engine.handle().delay_queue();
    let mut receivers = [queue.receiver(), queue.receiver()];
    let calls = [Called::default(), Called::default()].map(Arc::new);
    for (receiver, called) in receivers.iter_mut().zip(&calls) {
        let waker = Waker::from(Arc::clone(called));
        assert!(receiver.poll_recv(&mut Context::from_waker(&waker)).is_pending());
    }
    queue.push(Duration::ZERO, 1).expect("room");
    while !calls[0].0.load(Ordering::Acquire) {
        thread::yield_now();
    }
    let is_silent = || assert!(!calls[1].0.load(Ordering::Acquire), "nobody is woken");
    check(in_child(|| {
        drop(engine.handle().shutdown());
        is_silent();
    }));
    let [first, _second] = receivers;
    let copy = copy_for_a_child(&first);
    check(in_child(move || {
        drop(ManuallyDrop::into_inner(copy));
        is_silent();
    }));
}

pub(crate) fn a_task_is_in_use_whose_run_waits_for_a_worker() {
    let (jobs, queue) = mpsc::channel::<Job>();
    let executor = move |job| drop(jobs.send(job));
    let engine = TaskEngine::start(Builder::new().shards(1).executor(executor)).expect("an engine");
    let often = Repeat::every(Duration::from_millis(1));
    let task = engine.handle().repeat_in_parallel(often, |_| {}).expect("room");
    // The timer of the task begins a run. No thread runs the job of this run.
    while task.report().runs == 0 {
        queue.recv().expect("the timer is due").run();
    }
    let fork_once = |fork| {
        let copy = copy_for_a_child(&engine);
        in_child(move || match fork % 2 {
            0 => drop(copy.handle().shutdown()),
            _ => drop(ManuallyDrop::into_inner(copy)),
        })
    };
    fork_while_used((forks() / 10).max(1), || assert!(task.report().runs > 0), fork_once);
}
