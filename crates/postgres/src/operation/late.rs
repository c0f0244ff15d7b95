//! Operations that end deliveries, and must wait for transactions of callers. Here such an operation is called an
//! *end*.
//!
//! A caller's transaction may hold a timer during its delivery, for example after a cancel of the timer. The end of the
//! delivery must wait for that transaction. The runtime claims nothing while an end is at the store, so a long
//! transaction would stop the whole node. Therefore the store answers such an end at once, and tries again here until
//! the transaction has ended. While the transaction holds the timer, no reap (search for expired leases) ends the
//! lease. The answer and each try prolong the lease, so no reap comes between the end of the transaction and the next
//! try.
//!
//! | event | effect |
//! |---|---|
//! | the transaction ends | the end takes effect at the next try |
//! | when the runtime reports the end, the lease has expired and another transaction holds the timer | the end is refused: a reap may be under way |
//! | the transaction has ended the delivery itself (`done`), is open until the lease expires, and rolls back | the end takes effect if the next try comes before a reap. No try can prolong a lease that the transaction has deleted |
//! | the process dies or stops before the end takes effect | the lease ends, and the timer is delivered again, as after a death of a process |
//! | a try fails with an error that is not transient, or all tries fail for a minute | the ends are given up; their leases end, and the timers are delivered again |
//!
//! A task tries the ends. A call that makes earlier changes durable (`flush`) tries them, too. Only one of the two
//! tries at a time. The other waits until the transaction of this try has ended.
//!
//! | the ends that wait | the task | next |
//! |---|---|---|
//! | do not exist | does not run | `keep` adds ends to the list, and starts the task |
//! | are in the list | sleeps, or waits for a flush | the next try, of the task or of a flush, takes all ends from the list |
//! | were taken by the task | tries the ends | the ends whose timers are still held, or all ends after a transient error, go back to the list. If no end goes back, the task ends |
//! | were taken by a flush | sleeps, waits for the flush, or has found an empty list and ended | the same ends go back to the list. `keep` starts the task again if it has ended |

use super::apply::ApplyEnds;
use super::transaction::Transactions;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tourbillon_durable::store::{Durability, Op, StoreError};

/// The pause between two attempts to apply the operations that wait in [`LateEnds`].
const PAUSE: Duration = Duration::from_millis(50);

/// The time after which the store drops the operations that wait in [`LateEnds`], if all attempts to apply them have
/// failed during this time. The leases of their timers then expire, and the timers are delivered again.
const PATIENCE: Duration = Duration::from_secs(60);

/// The operations that end deliveries, and wait for the next attempt to apply them. `has_task` is true while the task
/// that makes the attempts runs.
#[derive(Default)]
struct Waiting {
    ops: Vec<Op>,
    has_task: bool,
}

/// Keeps operations that end deliveries while transactions of callers have locked the timers of the operations. Applies
/// each operation once the transaction has ended.
pub(crate) struct LateEnds {
    transactions: Transactions,
    waiting: Mutex<Waiting>,
    /// Locked during each attempt to apply the operations in `waiting`. So there is only one attempt at a time. A
    /// thread that needs this lock and the lock of `waiting` takes this lock first.
    attempt: tokio::sync::Mutex<()>,
}

impl LateEnds {
    pub(crate) fn new(transactions: Transactions) -> Self {
        Self { transactions, waiting: Mutex::default(), attempt: tokio::sync::Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds operations that end deliveries to the list `waiting`, and tries to apply them until each operation has had
    /// its effect or is dropped.
    pub(super) fn keep(self: &Arc<Self>, ops: Vec<Op>) {
        if ops.is_empty() {
            return;
        }
        let has_task = {
            let mut waiting = self.waiting();
            waiting.ops.extend(ops);
            core::mem::replace(&mut waiting.has_task, true)
        };
        if !has_task {
            let task = Self::run(Arc::downgrade(self));
            drop(self.transactions.deployment.pool.spawn::<()>(task));
        }
    }

    async fn run(late: Weak<Self>) -> Result<(), StoreError> {
        let mut worked = Instant::now();
        loop {
            sleep(PAUSE).await;
            // The store is dropped, so nobody waits for the ends any more.
            let Some(late) = late.upgrade() else { return Ok(()) };
            let result = late.try_all().await;
            let mut waiting = late.waiting();
            match result {
                Ok(()) => worked = Instant::now(),
                Err(_) if worked.elapsed() >= PATIENCE => waiting.ops.clear(),
                Err(_) => {}
            }
            if waiting.ops.is_empty() {
                waiting.has_task = false;
                return Ok(());
            }
        }
    }

    /// Tries to apply all operations in the list `waiting`. First waits for an attempt that is under way. Keeps the
    /// operations whose timers are still locked by other transactions. If the attempt fails with a transient error,
    /// keeps all operations. If the attempt fails with another error, drops all operations that it tried to apply.
    pub(super) async fn try_all(self: &Arc<Self>) -> Result<(), StoreError> {
        let _attempt = self.attempt.lock().await;
        let ops = core::mem::take(&mut self.waiting().ops);
        if ops.is_empty() {
            return Ok(());
        }
        let work = ApplyEnds { ends: ops, are_answered: true };
        match self.transactions.transact(Durability::ProcessCrash, &work).await {
            Ok(((_, late), _)) => {
                self.keep(late);
                Ok(())
            }
            Err(error) => {
                if error.is_transient() {
                    self.keep(work.ends);
                }
                Err(error)
            }
        }
    }
}
