//! Forks while threads of the parent use a task engine, its tasks and a queue.

use crate::children::{copy_for_a_child, fork_while_used, forks, in_child};
use std::mem::ManuallyDrop;
use std::time::Duration;
use tourbillon::Builder;
use tourbillon_tasks::uses::DelayQueue;
use tourbillon_tasks::{Repeat, Task, TaskEngine};

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
