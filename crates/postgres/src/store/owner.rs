//! Decides whether a deployment belongs to the service `tourbillond` or to programs with handlers of their own.

use super::builder::Owner;
use crate::link::{Failure, Pool};
use std::sync::Arc;
use tourbillon_durable::store::{StoreError, StoreErrorKind};

/// The condition in SQL that the deployment has no timers and no live nodes, so that it may be given to the service.
const IS_FREE: &str = "NOT EXISTS (SELECT 1 FROM tourbillon.timer) AND NOT EXISTS (
                           SELECT 1 FROM tourbillon.node n WHERE n.seen + n.ttl > tourbillon.now_ms())";

/// Returns whether the deployment belongs to the service, or may be given to it (see [`IS_FREE`]).
pub(super) async fn is_open_to_service(pool: &Arc<Pool>) -> Result<bool, StoreError> {
    let mut session = pool.session().await.map_err(Failure::into_error)?;
    let sql = format!("SELECT s.service OR {IS_FREE} FROM tourbillon.setting s");
    let rows = session.read(&sql, &[]).await.map_err(Failure::into_error)?;
    Ok(rows.first().is_some_and(|row| row.get::<_, bool>(0)))
}

/// Checks that the deployment belongs to this owner: the service `tourbillond`, or programs with handlers of their own.
/// If `owner` is the service, first gives it a deployment without timers and live nodes.
pub(super) async fn agree_on_owner(pool: &Arc<Pool>, owner: Owner) -> Result<(), StoreError> {
    if owner == Owner::Any {
        return Ok(());
    }
    let is_of_service = owner == Owner::Service;
    let mut session = pool.session().await.map_err(Failure::into_error)?;
    let agreed = async {
        let sql = "SELECT s.service FROM tourbillon.setting s";
        let has_service = session.read(sql, &[]).await?.first().is_some_and(|row| row.get::<_, bool>(0));
        if has_service || !is_of_service {
            return Ok(has_service == is_of_service);
        }
        // Another node of the service may have done the same at the same time.
        // Nodes lock the row for their signs of life. So the commit waits for the disk, and for no standby. Later
        // commits follow it in the log, so what a standby confirms of them includes it.
        let sql = format!(
            "UPDATE tourbillon.setting s SET service = true
             FROM (SELECT set_config('synchronous_commit', 'local', true)) AS fast
             WHERE s.service OR {IS_FREE} RETURNING true"
        );
        Ok::<bool, Failure>(!session.query(&sql, &[]).await?.is_empty())
    };
    if agreed.await.map_err(Failure::into_error)? {
        return Ok(());
    }
    let schema = pool.schema().as_str();
    let message = if is_of_service {
        format!("the timers in the schema {schema} are those of programs, which the service cannot deliver")
    } else {
        format!("the schema {schema} is that of the service tourbillond: a program needs a schema of its own")
    };
    Err(StoreError::new(StoreErrorKind::Limit, message))
}
