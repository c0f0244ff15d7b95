//! Finds timers by address, by claim and by due moment.

use crate::deployment::Deployment;
use crate::layout::{COLUMNS, Id, millis, moment, read};
use crate::link::Failure;
use tokio_postgres::types::Type;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{Leased, StoreError};
use tourbillon_durable::timer::{Address, Timer, TimerId};

/// Returns the timer at an address. `None` if no timer has the address, or if its row cannot be read.
pub(crate) async fn find(deployment: &Deployment, at: &Address) -> Result<Option<Timer>, StoreError> {
    let mut session = deployment.session_for_read().await?;
    let rows = match at {
        Address::Id(id) => {
            let sql = format!("SELECT {COLUMNS} FROM tourbillon.stored_timer r WHERE r.id = $1");
            session.read(&sql, &[(&Id(*id), Type::UUID)]).await
        }
        Address::Key(at) => {
            if at.namespace.contains('\0') || at.key.contains('\0') {
                return Ok(None);
            }
            let sql = format!(
                "SELECT {COLUMNS} FROM tourbillon.stored_timer r
                 WHERE r.namespace = $1 AND r.key = $2 AND r.phase IN ('p', 'k')"
            );
            session.read(&sql, &[(&at.namespace, Type::TEXT), (&at.key, Type::TEXT)]).await
        }
    };
    let rows = rows.map_err(Failure::into_error)?;
    Ok(rows.first().and_then(|row| read(row, 0).ok()))
}

/// Returns the timers that the claim with this token has leased, and whose leases still exist.
pub(crate) async fn recover(deployment: &Deployment, token: Token) -> Result<Vec<Leased>, StoreError> {
    let mut session = deployment.session().await?;
    let sql = format!(
        "SELECT {COLUMNS} FROM tourbillon.stored_timer r WHERE r.incarnation = $1 AND r.claim = $2
         ORDER BY r.due, r.id"
    );
    let (incarnation, claim) = (token.incarnation.cast_signed(), token.claim.cast_signed());
    let rows = session.read(&sql, &[(&incarnation, Type::INT8), (&claim, Type::INT8)]).await;
    let rows = rows.map_err(Failure::into_error)?;
    Ok(rows.iter().filter_map(|row| read(row, 0).ok()).map(|timer| Leased { timer, token }).collect())
}

/// Returns the due moments and ids of pending timers that are due at `from` or later, and before `until`.
pub(crate) async fn upcoming(
    deployment: &Deployment,
    from: UtcMillis,
    until: UtcMillis,
    limit: u32,
) -> Result<Vec<(UtcMillis, TimerId)>, StoreError> {
    let mut session = deployment.session_for_read().await?;
    // The index by due moments begins with the lane. So the statement reads the first timers of each lane.
    let sql = "SELECT c.due, c.id FROM generate_series(0, 63) AS s (number), LATERAL (
                   SELECT t.due, t.id FROM tourbillon.timer t
                   WHERE t.lane = s.number AND t.phase = 'p' AND t.due >= $1 AND t.due < $2
                       AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = t.id) IS NULL
                   ORDER BY t.due, t.id LIMIT $3) c
               ORDER BY c.due, c.id LIMIT $3";
    let (from, until, limit) = (millis(from), millis(until), i64::from(limit));
    let rows = session.read(sql, &[(&from, Type::INT8), (&until, Type::INT8), (&limit, Type::INT8)]).await;
    let rows = rows.map_err(Failure::into_error)?;
    Ok(rows.iter().map(|row| (moment(row.get(0)), row.get::<_, Id>(1).0)).collect())
}
