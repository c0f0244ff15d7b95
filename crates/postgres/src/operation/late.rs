//! Ends of deliveries that wait for transactions of callers.
//!
//! A caller's transaction may hold a timer during its delivery, for example after a cancel of the timer. The end of the
//! delivery must wait for that transaction. The runtime claims nothing while an end is at the store, so a long
//! transaction would stop the whole node. Therefore the store answers such an end at once, and tries again here until
//! the transaction has ended. While the transaction holds the timer, no reap ends the lease. The answer and each try
//! prolong the lease, so no reap comes between the end of the transaction and the next try.
//!
//! | event | effect |
//! |---|---|
//! | the transaction ends | the end takes effect at the next try |
//! | the lease is over, and another transaction holds it, when the runtime reports the end | the end is refused: a reap may be under way |
//! | the transaction has ended the delivery itself (`done`), is open until the lease is over, and rolls back | the end takes effect, unless a reap comes before the next try: nobody else can prolong a lease that the transaction has deleted |
//! | the process dies or stops before | the lease ends, and the timer is delivered again, as after a death of a process |
//! | the store answers an error that is not transient, or errors for a minute | the same, for the ends that were tried |
//!
//! A task tries the ends, and so does a call that makes earlier changes durable (`flush`). One of them tries at a time.
//! So a flush waits for the transaction of the task, and the task for that of a flush.
//!
//! | the ends | the task | next |
//! |---|---|---|
//! | none | none | ends that are kept start the task |
//! | in the list | sleeps, or waits for its turn to try | the next try, of the task or of a flush, takes all |
//! | with the task | tries | those that are still held, or that met a transient error, are kept again; without any, the task ends |
//! | with a flush | sleeps, waits, or has found the list empty and ended | as with the task; to keep them starts the task if it has ended |

use super::apply::ApplyEnds;
use super::transaction::Transactions;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tourbillon_durable::store::{Durability, Op, StoreError};

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// The time after which ends are given up if each try fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// The ends that wait, and whether a task tries them.
#[derive(Default)]
struct Waiting {
    ops: Vec<Op>,
    has_task: bool,
}

/// Keeps ends of deliveries until the transactions of callers that hold their timers have ended.
pub(crate) struct LateEnds {
    transactions: Transactions,
    waiting: Mutex<Waiting>,
    /// Lets one transaction try at a time. Locked before `waiting`.
    turn: tokio::sync::Mutex<()>,
}

impl LateEnds {
    pub(crate) fn new(transactions: Transactions) -> Self {
        Self { transactions, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps ends, and tries them until each has had its effect.
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
            // Without the store, nobody waits for the ends.
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

    /// Tries all ends once, after the try that is under way. Keeps those whose timers are still held, and all of them
    /// if the store cannot be reached. After another error it gives them up.
    pub(super) async fn try_all(self: &Arc<Self>) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
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
