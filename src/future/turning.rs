//! Turns a loop's shard in a task of an asynchronous runtime.

use crate::api::loops::LoopShard;
use crate::base::fork::ForkLock;
use crate::base::sync::StdArc;
use crate::shard::LoopLeft;
use core::convert::Infallible;
use core::future::{Future, pending, poll_fn};
use core::mem;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

/// The greatest number of timers of each engine that one turn of the shard handles. Between two turns, the other tasks
/// of the runtime run.
const BUDGET: usize = 1_024;
/// The longest single sleep of the task that turns a shard. A longer wait is divided into several sleeps, because not
/// every runtime's timer can count centuries.
const LONGEST_SLEEP: Duration = Duration::from_secs(86_400);

impl LoopShard {
    /// Turns the shard for ever. The program spawns the returned future as a task of an asynchronous runtime. `sleep`
    /// is the runtime's own timer: `tokio::time::sleep`, or `smol::Timer::after`. This *turning task* sleeps by `sleep`
    /// until the shard's next deadline. It is woken when another task or a thread arms an earlier timer. The turning
    /// task may run on any thread of the runtime, and handlers of the shard's engines run in it.
    ///
    /// Why a task turns the shard: if shards have threads of their own, a thread outside of the runtime wakes a task
    /// whose timeout has passed. On tokio, the woken task goes to the end of the queue that all workers share. The
    /// turning task runs on a worker, and a task that it wakes goes to the worker's own queue. While all workers are
    /// busy, a task in the worker's own queue runs earlier: BENCHMARKS.md has the times of both under `proxy`.
    ///
    /// A deadline is rounded up to the tick of the shards, and `sleep` may round it up once more. A turn fires at most
    /// some 1,024 timers of each engine, and the other tasks of the runtime go on after each turn. On tokio, a task may
    /// arm a timer and then compute for long without an `await`. This can hold the turning task up: tokio keeps the
    /// task that was woken last for the worker that woke it.
    ///
    /// The future does nothing before its first poll. The first poll replaces the function of
    /// [`wake_by`](Self::wake_by). Dropping the future drops the shard: see "The end" at [`LoopShard`]. (A task of smol
    /// ends when its handle is dropped, unless it was detached.) `sleep` must not use a timer on these shards: that
    /// timer would wait for a turn of this task.
    ///
    /// # Panics
    ///
    /// The task panics if `sleep` or the future that `sleep` returns panics. For example, tokio's `sleep` panics in a
    /// runtime without a timer. The shard is dropped then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    ///
    /// let (shards, mut loops) = Builder::new().loops(1)?;
    /// let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    /// let outcome = runtime.block_on(async {
    ///     tokio::spawn(loops.remove(0).turn_as_task(tokio::time::sleep));
    ///     shards.futures().timeout(Duration::from_millis(5), std::future::pending::<()>()).await
    /// });
    /// assert!(outcome.is_err(), "it has passed");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn turn_as_task<S: Future>(self, sleep: impl FnMut(Duration) -> S) -> Infallible {
        self.turn_with(sleep, || ()).await
    }

    /// Turns the shard as [`turn_as_task`](Self::turn_as_task) does. Calls `nudge` after each wake-up of the task.
    pub(crate) async fn turn_with<S: Future>(
        mut self,
        mut sleep: impl FnMut(Duration) -> S,
        nudge: impl Fn() + Send + Sync + 'static,
    ) -> Infallible {
        let bell = StdArc::new(Bell::new());
        let rings = StdArc::clone(&bell);
        self.wake_task_by(move || {
            rings.ring();
            nudge();
        });
        loop {
            let left = self.turn(self.true_now(), BUDGET);
            if self.is_forked() {
                // In the child of a fork the shard does not turn, and nothing rings the bell.
                pending::<()>().await;
            }
            let has_waited = match self.rest() {
                _ if left == LoopLeft::More => false,
                Some(Duration::ZERO) => false,
                Some(rest) => bell.rung_or(sleep(rest.min(LONGEST_SLEEP))).await,
                None => bell.rung_or(pending::<()>()).await,
            };
            if !has_waited {
                let_the_others_go_on().await;
            }
        }
    }
}

/// Wakes the task that turns a shard. A thread that arms an earlier timer rings this bell.
pub(crate) struct Bell(ForkLock<Rope>);

#[derive(Default)]
struct Rope {
    /// Whether the bell has rung after the task's last wait began.
    has_rung: bool,
    /// The waker of the turning task; `None` while the task does not wait.
    waits: Option<Waker>,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self(ForkLock::default())
    }

    pub(crate) fn ring(&self) {
        let waits = self.0.lock().and_then(|mut rope| {
            rope.has_rung = true;
            rope.waits.take()
        });
        // The runtime's code runs outside of the lock.
        if let Some(task) = waits {
            task.wake();
        }
    }

    /// Waits until the bell rings or `sleep` ends. Returns false without a wait if the bell had rung after the last
    /// wait, or if `sleep` had ended.
    pub(crate) async fn rung_or(&self, sleep: impl Future) -> bool {
        let mut sleep = pin!(sleep);
        let mut has_waited = false;
        poll_fn(|cx| {
            if self.take_ring(cx) || sleep.as_mut().poll(cx).is_ready() {
                return Poll::Ready(has_waited);
            }
            has_waited = true;
            Poll::Pending
        })
        .await
    }

    /// Returns whether the bell has rung after the last wait. If it has not, stores the task's waker, so that the next
    /// ring wakes the task. Returns true in the child of a fork if the lock is held for ever. Then the task goes on,
    /// and finds that it is in the child.
    fn take_ring(&self, cx: &Context<'_>) -> bool {
        let task = cx.waker().clone();
        let former = {
            let Some(mut rope) = self.0.lock() else { return true };
            if mem::take(&mut rope.has_rung) {
                return true;
            }
            rope.waits.replace(task)
        };
        // The former waker is dropped outside of the lock, since its drop is the runtime's code.
        drop(former);
        false
    }
}

/// Lets the runtime's other tasks run. Completes when the runtime polls the calling task the next time.
async fn let_the_others_go_on() {
    let mut is_second = false;
    poll_fn(|cx| {
        if mem::replace(&mut is_second, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(all(test, unix, not(tourbillon_loom)))]
mod tests {
    use super::*;
    use crate::base::sync::thread;
    use crate::system::forks::tests::in_child;

    #[test]
    fn a_child_goes_on_without_a_bell_whose_lock_its_parent_holds() {
        let bell = Bell::new();
        let held = bell.0.lock();
        let goes_on = || {
            let mut cx = Context::from_waker(Waker::noop());
            pin!(bell.rung_or(pending::<()>())).poll(&mut cx).is_ready()
        };
        // The thread that forks is not the holder.
        let fork = || thread::scope(|scope| scope.spawn(|| in_child(goes_on)).join());
        assert!(fork().expect("it ends"));
        drop(held);
        assert!(!goes_on(), "the parent's task waits");
    }
}
