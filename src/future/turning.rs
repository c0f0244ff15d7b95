//! Turning a loop's shard in a task of a runtime.

use crate::api::loops::LoopShard;
use crate::base::sync::{ModelledMutex, PoisonError, StdArc};
use crate::shard::LoopLeft;
use core::convert::Infallible;
use core::future::{Future, pending, poll_fn};
use core::mem;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

/// The budget of one turn. The other tasks of the runtime go on between two turns.
const BUDGET: usize = 1_024;
/// A longer sleep is divided: not every timer of a runtime can count centuries.
const LONGEST_SLEEP: Duration = Duration::from_secs(86_400);

impl LoopShard {
    /// A future that turns the shard and never completes, to be spawned as a task of an asynchronous runtime. `sleep`
    /// is the runtime's own timer: `tokio::time::sleep`, or `smol::Timer::after`. The turning task sleeps by `sleep`
    /// until the shard's next deadline, and is woken when another task or a thread arms an earlier timer. The turning
    /// task may run on any thread of the runtime, and handlers of the shard's engines run in it.
    ///
    /// If the shards have threads of their own, a thread outside of the runtime wakes a task whose timeout has passed.
    /// On tokio, that task goes to the end of the queue that all workers share. The turning task runs on a worker, and
    /// a task that it wakes goes to the worker's own queue. While all workers are busy, the own queue is the shorter
    /// way: BENCHMARKS.md has both under `proxy`.
    ///
    /// A deadline is rounded up to the tick of the shards, and `sleep` may round it up once more. A turn fires at most
    /// some 1,024 timers of each engine, and the other tasks of the runtime go on after each turn. On tokio, a task
    /// that arms a timer and then computes for long without an `await` can hold the turning task up: tokio keeps a task
    /// that was woken last for the worker that woke it.
    ///
    /// Nothing is turned before the first poll, which replaces the function of [`wake_by`](Self::wake_by). Dropping the
    /// future drops the shard: see "The end" at [`LoopShard`]. (A task of smol ends when its handle is dropped, unless
    /// it was detached.) `sleep` must not be a timer on the same shards, which would wait for a turn of this task.
    ///
    /// # Panics
    ///
    /// The task panics if `sleep` panics, or the future that `sleep` returns. tokio's `sleep` panics in a runtime
    /// without a timer. The shard is dropped then.
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
    pub async fn turn_as_task<S: Future>(mut self, mut sleep: impl FnMut(Duration) -> S) -> Infallible {
        let bell = StdArc::new(Bell::new());
        let rings = StdArc::clone(&bell);
        self.wake_task_by(move || rings.ring());
        loop {
            let left = self.turn(self.true_now(), BUDGET);
            if self.is_forked() {
                // A thread that is gone may hold the bell's lock.
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

/// The bell of a turning task. Each thread that arms an earlier timer rings it.
pub(crate) struct Bell(ModelledMutex<Rope>);

#[derive(Default)]
struct Rope {
    /// Whether the bell has rung since the task last waited.
    has_rung: bool,
    /// The task, while it waits.
    waits: Option<Waker>,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self(ModelledMutex::new(Rope::default()))
    }

    pub(crate) fn ring(&self) {
        let waits = {
            let mut rope = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            rope.has_rung = true;
            rope.waits.take()
        };
        // The runtime's code runs outside of the lock.
        if let Some(task) = waits {
            task.wake();
        }
    }

    /// Waits until the bell rings or `sleep` ends. Returns false if there was nothing to wait for: the bell has rung
    /// since the last wait, or `sleep` had ended already.
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

    /// Whether the bell has rung since the last wait. If it has not, the next ring wakes the task.
    fn take_ring(&self, cx: &Context<'_>) -> bool {
        let task = cx.waker().clone();
        let former = {
            let mut rope = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if mem::take(&mut rope.has_rung) {
                return true;
            }
            rope.waits.replace(task)
        };
        // Outside of the lock, as in `ring`.
        drop(former);
        false
    }
}

/// Returns once the runtime has polled the task again.
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
