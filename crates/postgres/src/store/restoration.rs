//! Restores backups. A restore is one transaction, so other connections never see a part of it.
//!
//! | event during a restore | consequence |
//! |---|---|
//! | the process of the restore dies, or loses its connection | PostgreSQL rolls back, and the deployment is empty |
//! | the process stands still for a minute | the server ends its session, and the deployment is empty |
//! | the answer of the commit is lost | the restore looks for the document that its last statement has written |
//! | a second restore begins | the second restore waits for five seconds at most, and fails. If the first restore commits earlier, the second restore finds timers and ends |
//! | another transaction locks a table that the restore needs, such as that of the counts, for more than five seconds | the restore fails, and the deployment is empty |
//! | a caller creates a timer in SQL | the caller waits for the end of the restore. Then the timer is created, or refused because a timer of the backup has its key |
//! | a node starts | the node finds the timers when the restore commits, as it finds timers of any long transaction |

use super::documents::admit;
use super::postgres_store::PostgresStore;
use crate::deployment::Deployment;
use crate::link::{Failure, LockWait, Param, Session, io};
use crate::operation::{Act, import_all};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_postgres::types::Type;
use tourbillon_durable::store::{SharedDocument, StoreError};
use tourbillon_durable::timer::Timer;

/// The name of the document that a restore writes before its commit. If the answer of the commit is lost, the version
/// of this document shows whether the commit had its effect.
const MARK: &str = "restored";
/// The settings of the restore's transaction. They permit a longer pause between two statements than in other
/// transactions, because the program reads the backup during the pauses.
const SETTINGS: &str = "SET LOCAL idle_in_transaction_session_timeout = 60000";
/// The longest time for which a statement of the restore waits for a lock.
const WAIT: LockWait = LockWait::Short(5_000);
/// Locks the tables of timers and documents against other writers. Readers do not wait.
const LOCK: &str = "LOCK TABLE tourbillon.timer, tourbillon.document IN SHARE ROW EXCLUSIVE MODE";

/// A restore of a backup into a deployment without timers, as one transaction. Dropping this value undoes the restore.
///
/// Until the restore ends, no other transaction can write a timer or a document. All processes can read. They find a
/// deployment without timers.
pub struct Restoration {
    deployment: Arc<Deployment>,
    session: Arc<Mutex<Session>>,
    version: i64,
}

impl fmt::Debug for Restoration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.deployment.pool.schema().as_str();
        f.debug_struct("Restoration").field("schema", &schema).finish_non_exhaustive()
    }
}

/// The future of one step of a restore, such as the import of some timers. All steps run in the restore's transaction.
type Step<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

impl PostgresStore {
    /// Begins to restore a backup. Returns `None` if the deployment has timers.
    ///
    /// # Errors
    ///
    /// Fails if the tables cannot be locked within five seconds: another restore is under way, a caller's transaction
    /// has written timers and is still open, or maintenance has locked the tables. Also fails if the server cannot be
    /// reached.
    pub async fn begin_restore(&self) -> Result<Option<Restoration>, StoreError> {
        let deployment = Arc::clone(&self.deployment);
        let begun = async move {
            let session = match begin(&deployment).await {
                Ok(session) => session,
                Err(Failure::Again(error) | Failure::Held(error)) => {
                    let others = "another restore, a transaction that has written timers, or maintenance of the tables";
                    return Err(io(format!("{others} is under way: {error}")));
                }
                Err(failure) => return Err(failure.into_error()),
            };
            let Some(session) = session else { return Ok(None) };
            let session = Arc::new(Mutex::new(session));
            Ok(Some(Restoration {
                deployment,
                session,
                version: SharedDocument::fresh_version().cast_signed(),
            }))
        };
        self.deployment.pool.spawn(begun).await
    }
}

/// Begins the transaction of a restore. Returns `None` if the deployment has timers.
async fn begin(deployment: &Deployment) -> Result<Option<Session>, Failure> {
    let mut session = deployment.pool.session().await?;
    session.begin_with(SETTINGS, WAIT).await?;
    session.run(LOCK).await?;
    let rows = session.read("SELECT EXISTS (SELECT 1 FROM tourbillon.timer)", &[]).await?;
    if rows.first().is_none_or(|row| row.get(0)) {
        session.roll_back().await;
        return Ok(None);
    }
    Ok(Some(session))
}

impl Restoration {
    /// Runs a step of the restore, within the restore's transaction, on the runtime of the connections.
    async fn run<T: Send + 'static>(
        &self,
        step: impl for<'a> FnOnce(&'a mut Session, Arc<Deployment>) -> Step<'a, T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (session, deployment) = (Arc::clone(&self.session), Arc::clone(&self.deployment));
        let run = async move {
            let mut session = session.lock().await;
            step(&mut session, deployment).await.map_err(Failure::into_error)
        };
        self.deployment.pool.spawn(run).await
    }

    /// Stores timers of the backup, as [`TimerStore::import`] does.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Limit`] if another timer of the backup has the same id or key and is stored
    /// already. Fails with [`StoreErrorKind::Io`] if another transaction locks a table for more than five seconds, or
    /// if the server cannot be reached. After an error the restore cannot go on.
    ///
    /// [`TimerStore::import`]: tourbillon_durable::store::TimerStore::import
    /// [`StoreErrorKind::Limit`]: tourbillon_durable::store::StoreErrorKind::Limit
    /// [`StoreErrorKind::Io`]: tourbillon_durable::store::StoreErrorKind::Io
    pub async fn import(&self, timers: Vec<Timer>) -> Result<(), StoreError> {
        self.run(move |session, deployment| {
            Box::pin(async move {
                let mut act = Act::new(deployment);
                import_all(session, &mut act, timers).await
            })
        })
        .await
    }

    /// Returns the value of the shared document of this name, or `None` if there is no such document.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached. After an error the restore cannot go on.
    pub async fn document(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let name = name.to_owned();
        self.run(move |session, _| {
            Box::pin(async move {
                let sql =
                    "SELECT d.value FROM tourbillon.document d WHERE d.name = $1 AND d.value IS NOT NULL";
                let rows = session.read(sql, &[(&name, Type::TEXT)]).await?;
                Ok(rows.first().map(|row| row.get(0)))
            })
        })
        .await
    }

    /// Creates or replaces the shared document of this name.
    ///
    /// # Errors
    ///
    /// Fails if the name or the value is too long, as [`PostgresStore::replace_document`] does. Also fails if the
    /// server cannot be reached, and then the restore cannot go on.
    pub async fn set_document(&self, name: &str, value: Vec<u8>) -> Result<(), StoreError> {
        admit(name, value.len())?;
        self.write_document(name, value, SharedDocument::fresh_version().cast_signed()).await
    }

    async fn write_document(&self, name: &str, value: Vec<u8>, version: i64) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.run(move |session, _| {
            Box::pin(async move {
                let sql = "INSERT INTO tourbillon.document (name, version, value) VALUES ($1, $2, $3)
                           ON CONFLICT (name) DO UPDATE SET version = excluded.version, value = excluded.value";
                let params: [Param<'_>; 3] =
                    [(&name, Type::TEXT), (&version, Type::INT8), (&value, Type::BYTEA)];
                session.query(sql, &params).await.map(drop)
            })
        })
        .await
    }

    /// Commits the restore. All timers and documents exist from now on.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Unknown`] if the answer was lost, and the store could not find out whether the
    /// commit had its effect. After any other error nothing is stored.
    ///
    /// [`StoreErrorKind::Unknown`]: tourbillon_durable::store::StoreErrorKind::Unknown
    pub async fn commit(self) -> Result<(), StoreError> {
        self.write_document(MARK, self.deployment.time.now().as_millis().to_string().into(), self.version)
            .await?;
        let Self { deployment, session, version } = self;
        let pool = Arc::clone(&deployment.pool);
        let commit = async move {
            let committed = session.lock().await.commit().await;
            // `confirm` needs a connection, so this connection is given back first.
            drop(session);
            match committed {
                Err(Failure::Unknown(error)) => confirm(&deployment, version, error).await,
                committed => committed.map_err(Failure::into_error),
            }
        };
        pool.spawn(commit).await
    }
}

/// Finds out whether the commit of a restore took effect, after the answer to the commit was lost. It took effect if
/// the document [`MARK`] has the version `version`. If the transaction is still open, waits for its end. `lost` is the
/// error to return if this function cannot find out.
async fn confirm(deployment: &Deployment, version: i64, lost: StoreError) -> Result<(), StoreError> {
    let (begin, longest) = (Instant::now(), deployment.pool.patience().saturating_mul(4));
    loop {
        match find_mark(deployment).await {
            Ok(found) if found == Some(version) => return Ok(()),
            Ok(_) => return Err(io("the connection was lost, and nothing was restored")),
            Err(Failure::Again(_) | Failure::Held(_) | Failure::Lost(_) | Failure::Unknown(_))
                if begin.elapsed() < longest =>
            {
                sleep(core::time::Duration::from_millis(100)).await;
            }
            Err(_) => return Err(lost),
        }
    }
}

async fn find_mark(deployment: &Deployment) -> Result<Option<i64>, Failure> {
    let mut session = deployment.pool.session().await?;
    session.begin_with(SETTINGS, WAIT).await?;
    session.run(LOCK).await?;
    let sql = "SELECT d.version FROM tourbillon.document d WHERE d.name = $1";
    let rows = session.read(sql, &[(&MARK, Type::TEXT)]).await?;
    session.commit_confirmed().await?;
    Ok(rows.first().map(|row| row.get(0)))
}
