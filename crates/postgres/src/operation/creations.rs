//! Stores new timers. Creations that wait at the same time share a statement.
//!
//! A task sends a statement with the creations of a group. During this time new creations wait in a queue. The task
//! then takes the next group from the queue. At most [`TASKS`] tasks run. A creation ends in one of these ways:
//!
//! | event | the creation |
//! |---|---|
//! | the statement stores its timer | succeeds |
//! | its id or its key is taken | is repeated by its caller, in a transaction of its own |
//! | another transaction takes an id or a key of the group at the same moment | is repeated in the same way, as all creations of the group |
//! | the statement fails | fails with the same error |
//! | the runtime of the store ends | fails with `Closed` |

use super::columns::Columns;
use crate::deployment::{Deployment, Made};
use crate::layout::Id;
use crate::link::{Failure, Session};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;
use tokio_postgres::types::Type;
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Timer, TimerId};

/// The greatest number of tasks that send statements of creations at the same time.
const TASKS: usize = 3;
/// The greatest number of creations in one statement.
const AT_ONCE: usize = 256;

struct Waiting {
    timer: Box<Timer>,
    is_synced: bool,
    answer: oneshot::Sender<Result<bool, StoreError>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    tasks: usize,
}

/// Stores new timers. They wait in a queue until one of the tasks sends a statement with many of them to the server.
pub(crate) struct Creations {
    deployment: Arc<Deployment>,
    queue: Mutex<Queue>,
}

/// Stores new timers by one statement, and returns the ids of the stored timers. Does not store a timer whose id or key
/// is taken. The ids and keys of the given timers must differ from each other.
///
/// If `is_brief` is set, the statement waits for a lock for 20 ms at most, and then fails. Such a statement must be
/// sent outside a transaction.
pub(crate) async fn place_many(
    session: &mut Session,
    now: Option<i64>,
    timers: &[&Timer],
    is_synced: bool,
    is_brief: bool,
) -> Result<BTreeSet<Id>, Failure> {
    let columns = Columns::of(timers);
    let mut params = columns.of_new();
    params.extend([(&now as _, Type::INT8), (&is_synced as _, Type::BOOL)]);
    // A caller's transaction may lock one of the keys for long. The brief statement fails then. Its creations are
    // repeated one by one, and only the creation with this key waits.
    let sql = if is_brief {
        "SELECT m.* FROM (SELECT set_config('lock_timeout', '20ms', true) <> '' AS is_set) s,
             tourbillon.place_many($11, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, s.is_set AND $12) m"
    } else {
        "SELECT * FROM tourbillon.place_many($11, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $12)"
    };
    let made = session.query(sql, &params).await?;
    Ok(made.iter().map(|row| row.get(0)).collect())
}

impl Creations {
    pub(crate) fn new(deployment: Arc<Deployment>) -> Self {
        Self { deployment, queue: Mutex::default() }
    }

    /// Stores a new timer if its id and its key are free. Returns whether the timer is stored.
    pub(crate) async fn create(
        self: &Arc<Self>,
        timer: Box<Timer>,
        is_synced: bool,
    ) -> Result<bool, StoreError> {
        let (answer, answered) = oneshot::channel();
        let is_needed = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.waiting.push_back(Waiting { timer, is_synced, answer });
            let is_needed = queue.tasks < TASKS;
            queue.tasks += usize::from(is_needed);
            is_needed
        };
        if is_needed {
            let _task = tokio::spawn(Arc::clone(self).send_all());
        }
        let closed = StoreError::new(StoreErrorKind::Closed, "the store is closed");
        answered.await.unwrap_or(Err(closed))
    }

    /// Takes the creations of the next statement from the queue. Their ids and keys differ from each other. If no
    /// creation waits, returns an empty list and subtracts the calling task from `tasks`. The task must then end.
    fn take(&self) -> Vec<Waiting> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut ids, mut keys, mut taken) = (BTreeSet::<TimerId>::new(), BTreeSet::new(), Vec::new());
        let Queue { waiting, tasks } = &mut *queue;
        let is_synced = waiting.front().is_some_and(|next| next.is_synced);
        while taken.len() < AT_ONCE
            && let Some(next) = waiting.front()
        {
            let key = next.timer.key_of();
            let fits = next.is_synced == is_synced
                && !ids.contains(&next.timer.id)
                && key.as_ref().is_none_or(|key| !keys.contains(key));
            if !fits {
                break;
            }
            ids.insert(next.timer.id);
            keys.extend(key);
            taken.extend(waiting.pop_front());
        }
        if taken.is_empty() {
            *tasks -= 1;
        }
        taken
    }

    async fn send_all(self: Arc<Self>) {
        loop {
            let taken = self.take();
            let Some(first) = taken.first() else { return };
            let is_synced = first.is_synced;
            let result = async {
                let mut session = self.deployment.pool.session().await?;
                let timers: Vec<&Timer> = taken.iter().map(|waiting| &*waiting.timer).collect();
                place_many(&mut session, self.deployment.argument(), &timers, is_synced, true).await
            }
            .await;
            if let Err(Failure::Unknown(_)) = &result {
                self.deployment.alarm.wake();
            }
            for Waiting { timer, answer, .. } in taken {
                let made = match &result {
                    Ok(made) => {
                        let is_made = made.contains(&Id(timer.id));
                        if is_made {
                            let mut made = Made::default();
                            made.add(&timer);
                            made.wake(&self.deployment.alarm);
                        }
                        Ok(is_made)
                    }
                    // The callers repeat these creations, each in a transaction of its own.
                    Err(Failure::Again(_) | Failure::Held(_) | Failure::Lost(_)) => Ok(false),
                    Err(failure) => Err(failure.clone().into_error()),
                };
                // The caller may be gone.
                let _sent = answer.send(made);
            }
        }
    }
}
