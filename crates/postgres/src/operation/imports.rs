//! Stores the timers of a backup.

use super::needs::{now, read_all};
use super::transaction::{Act, Transactions, Work};
use super::write::write;
use crate::layout::Id;
use crate::link::{Failure, Session, io};
use std::collections::BTreeSet;
use tokio_postgres::types::Type;
use tourbillon_durable::store::dry_run::{DryRun, admit_import};
use tourbillon_durable::store::{Durability, StoreError};
use tourbillon_durable::timer::Timer;

/// Stores the timers of a backup in one transaction, as they are. Fails if the id or the key of one of them is taken.
pub(crate) async fn import(transactions: &Transactions, timers: Vec<Timer>) -> Result<(), StoreError> {
    timers.iter().try_for_each(admit_import)?;
    transactions.transact(Durability::PowerLoss, &Import { timers }).await
}

/// Stores timers of a backup within the open transaction of a restore, which has locked the table of timers against
/// other writers. The transaction may already have stored other timers of the backup, so it cannot be repeated here.
/// Therefore a conflict that would otherwise be repeated becomes [`Failure::Failed`], and the restore ends.
pub(crate) async fn import_all(
    session: &mut Session,
    act: &mut Act,
    timers: Vec<Timer>,
) -> Result<(), Failure> {
    timers.iter().try_for_each(admit_import)?;
    import_in(session, act, timers).await.map_err(|failure| match failure {
        // The dry run assumed that an id or a key is free, but it is taken. No other transaction writes timers, so
        // another timer of the backup has the id or the key.
        Failure::Again(error) if !act.also.is_empty() => {
            Failure::Failed(io(format!("a timer comes twice: {error}")))
        }
        // A wait for a lock has ended, or PostgreSQL has ended a deadlock.
        Failure::Again(error) | Failure::Held(error) => {
            Failure::Failed(io(format!("another transaction is in the way of the restore: {error}")))
        }
        failure => failure,
    })
}

/// The transaction of [`import`]: stores these timers of a backup.
struct Import {
    timers: Vec<Timer>,
}

impl Work for Import {
    type Result = ();

    async fn run(&self, session: &mut Session, act: &mut Act) -> Result<(), Failure> {
        import_in(session, act, self.timers.clone()).await
    }
}

async fn import_in(session: &mut Session, act: &mut Act, timers: Vec<Timer>) -> Result<(), Failure> {
    let now = now(session, act).await?;
    let ids: Vec<Id> = timers.iter().map(|timer| Id(timer.id)).collect();
    let keyed: Vec<&Timer> = timers.iter().filter(|timer| timer.key.is_some()).collect();
    let namespaces: Vec<&str> = keyed.iter().map(|timer| &*timer.namespace).collect();
    let keys: Vec<&str> = keyed.iter().filter_map(|timer| timer.key.as_deref()).collect();
    let sql = "SELECT t.id FROM tourbillon.timer t WHERE t.id = ANY ($1)
               UNION
               SELECT t.id FROM unnest($2, $3) AS k (namespace, key) JOIN tourbillon.timer t
                   ON t.namespace = k.namespace AND t.key = k.key AND t.phase IN ('p', 'k')";
    let rows = session
        .read(sql, &[(&ids, Type::UUID_ARRAY), (&namespaces, Type::TEXT_ARRAY), (&keys, Type::TEXT_ARRAY)])
        .await?;
    let taken: BTreeSet<Id> = rows.iter().map(|row| row.get(0)).collect();
    let mut draft = DryRun::new(now);
    read_all(session, &taken).await?.iter().for_each(|timer| draft.know(timer));
    let changes = draft.import(timers)?;
    write(session, act, now, &changes).await
}
