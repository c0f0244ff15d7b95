//! Counts parked timers by reason.

use crate::deployment::Deployment;
use crate::link::Failure;
use tokio_postgres::types::Type;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{Cursor, ReasonCount, Reasons, StoreError};

/// Returns a page of the reasons for which timers are parked (set aside until they are unparked) in the shards of the
/// node `owner`, each with the number of these timers and their earliest due moment. The page begins behind the reason
/// `after`. To find the next reason, the search skips the index entries of all other timers with the reason that it has
/// just found.
pub(crate) async fn reasons(
    deployment: &Deployment,
    owner: i64,
    after: Option<Cursor>,
    limit: u32,
) -> Result<Reasons, StoreError> {
    let after = after.map(|cursor| String::from_utf8_lossy(cursor.as_bytes()).into_owned());
    let limit = i64::from(limit.max(1));
    let sql = "WITH RECURSIVE found (reason) AS (
                   (SELECT t.reason FROM tourbillon.timer t
                    WHERE t.phase = 'k' AND ($1 IS NULL OR t.reason > $1) ORDER BY t.reason LIMIT 1)
                   UNION ALL
                   SELECT (SELECT t.reason FROM tourbillon.timer t
                           WHERE t.phase = 'k' AND t.reason > f.reason ORDER BY t.reason LIMIT 1)
                   FROM found f WHERE f.reason IS NOT NULL
               )
               SELECT f.reason, own.timers, own.first_due
               FROM (SELECT reason FROM found WHERE reason IS NOT NULL LIMIT $3) f CROSS JOIN LATERAL (
                   SELECT count(*) AS timers, min(t.due) AS first_due FROM tourbillon.timer t
                   WHERE t.phase = 'k' AND t.reason = f.reason
                       AND t.shard IN (SELECT s.number FROM tourbillon.shard s WHERE s.owner = $2)) own";
    let mut session = deployment.session_for_read().await?;
    let params = [(&after as _, Type::TEXT), (&owner as _, Type::INT8), (&limit as _, Type::INT8)];
    let rows = session.read(sql, &params).await.map_err(Failure::into_error)?;
    let mut page = Reasons::default();
    if i64::try_from(rows.len()) == Ok(limit) {
        page.next = rows.last().map(|row| Cursor::from_bytes(row.get::<_, &str>(0).as_bytes()));
    }
    for row in rows {
        // Without a timer in a shard of this node, there is no due moment.
        if let (Ok(timers), Some(due)) = (u64::try_from(row.get::<_, i64>(1)), row.get::<_, Option<i64>>(2)) {
            let first_due = UtcMillis::from_millis(due.cast_unsigned());
            page.counts.push(ReasonCount { reason: row.get::<_, &str>(0).into(), timers, first_due });
        }
    }
    Ok(page)
}

/// Returns those of the given `reasons` for which at least one due timer is parked (set aside until it is unparked), in
/// any shard.
pub(crate) async fn parked_among(
    deployment: &Deployment,
    reasons: Vec<Box<str>>,
) -> Result<Vec<Box<str>>, StoreError> {
    let reasons: Vec<&str> = reasons.iter().map(|reason| &**reason).collect();
    let sql = "SELECT n.reason FROM unnest($1) AS n (reason)
               WHERE EXISTS (SELECT 1 FROM tourbillon.timer t WHERE t.phase = 'k' AND t.reason = n.reason
                   AND t.due <= coalesce($2, tourbillon.now_ms()))";
    let now = deployment.argument();
    let mut session = deployment.session_for_read().await?;
    let params = [(&reasons as _, Type::TEXT_ARRAY), (&now as _, Type::INT8)];
    let rows = session.read(sql, &params).await.map_err(Failure::into_error)?;
    Ok(rows.iter().map(|row| row.get::<_, &str>(0).into()).collect())
}
