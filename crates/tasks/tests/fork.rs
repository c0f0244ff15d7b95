//! A fork happens while threads of the parent hold locks of tasks, queues and engines. Then the child stops tasks,
//! closes queues and ends engines. No child hangs.
//!
//! The test harness is not used, since it has threads of its own. An alarm ends a child that hangs.

#[cfg(unix)]
use std::{
    mem::ManuallyDrop,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
#[cfg(unix)]
use tourbillon::Builder;
#[cfg(unix)]
use tourbillon_tasks::uses::DelayQueue;
#[cfg(unix)]
use tourbillon_tasks::{Repeat, Task, TaskEngine};

#[cfg(unix)]
const HOUR: Duration = Duration::from_secs(3_600);

/// An engine with two repeating tasks, whose runs follow each other or may overlap, and a queue.
#[cfg(unix)]
struct Layers {
    engine: TaskEngine,
    queue: DelayQueue<u32>,
    in_turn: Task,
    in_parallel: Task,
}

#[cfg(unix)]
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

#[cfg(unix)]
fn main() {
    let forks: u32 =
        std::env::var("TOURBILLON_FORKS").map_or(1_000, |forks| forks.parse().expect("a number"));
    let (layers, ends) = (Layers::start(), AtomicBool::new(false));
    let hung = thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    layers.use_once();
                }
            });
        }
        let hung = (0..forks).filter(|fork| fork_once(&layers, *fork) != 0).count();
        ends.store(true, Ordering::Relaxed);
        hung
    });
    assert_eq!(hung, 0, "of {forks} children hung or failed");
}

#[cfg(not(unix))]
fn main() {}

/// Forks, and lets the child end the engine, the tasks and the queue in `layers`. Returns the child's exit status.
#[cfg(unix)]
fn fork_once(layers: &Layers, fork: u32) -> i32 {
    // SAFETY: only the child drops the copy, and the child has its own copy of all memory.
    let copy = ManuallyDrop::new(unsafe { ptr::read(layers) });
    in_child(move || match fork % 5 {
        0 => drop(copy.engine.handle().shutdown()),
        1 => drop(ManuallyDrop::into_inner(copy)),
        2 => drop(copy.queue.close()),
        3 => {
            let _ = copy.in_turn.stop_and_wait();
            let _ = copy.in_parallel.stop_and_wait();
        }
        _ => {
            // SAFETY: the call ends this process.
            unsafe { libc::exit(0) };
        }
    })
}

/// Forks, runs `f` in the child, and returns the status with which the child ended.
#[cfg(unix)]
fn in_child(f: impl FnOnce()) -> i32 {
    // SAFETY: the child uses only calls that work after a fork of a process with threads, on the systems of this test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the alarm ends this process in time.
        unsafe { libc::alarm(10) };
        let outcome = catch_unwind(AssertUnwindSafe(f));
        // SAFETY: the call ends this process, without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    assert!(child > 0, "it forks");
    let mut status = 0;
    // SAFETY: the process is a child of this process, and `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}
