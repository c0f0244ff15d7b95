//! Reads the numbers of timers.

use crate::deployment::Deployment;
use crate::layout::{millis, moment};
use crate::link::Failure;
use std::collections::BTreeMap;
use tokio_postgres::types::Type;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Counts, Horizon, StoreError};

/// The greatest number of pending timers that a call of [`horizon`] counts.
const LOOKS: u64 = 10_000;

/// Returns the numbers of timers by namespace and phase. The table `tally` counts leased timers as pending. So the
/// leases are counted, and subtracted from the pending timers.
pub(crate) async fn counts(deployment: &Deployment) -> Result<Counts, StoreError> {
    let mut session = deployment.session_for_read().await?;
    let sql = "WITH leased AS (SELECT l.namespace, count(*) AS number FROM tourbillon.lease l GROUP BY 1)
               SELECT c.namespace, c.phase, sum(c.number)::bigint FROM (
                   SELECT a.namespace, a.phase::text AS phase, a.number FROM tourbillon.tally a
                   UNION ALL SELECT l.namespace, 'p', -l.number FROM leased l
                   UNION ALL SELECT l.namespace, 'l', l.number FROM leased l
               ) c GROUP BY 1, 2";
    let rows = session.read(sql, &[]).await.map_err(Failure::into_error)?;
    let mut by_namespace = BTreeMap::new();
    for row in rows {
        let phase = match row.get::<_, &str>(1) {
            "p" => Phase::Pending,
            "l" => Phase::Leased,
            "k" => Phase::Parked,
            _ => Phase::Dead,
        };
        let number = u64::try_from(row.get::<_, i64>(2)).unwrap_or(0);
        if number > 0 {
            by_namespace.insert((row.get::<_, &str>(0).into(), phase), number);
        }
    }
    Ok(Counts { by_namespace, ..Counts::default() })
}

/// Counts the pending timers by the time until they are due. Counts [`LOOKS`] pending timers at most, in the order of
/// the spans of time. If more timers are pending, the counts of the later spans are lower bounds.
pub(crate) async fn horizon(deployment: &Deployment) -> Result<Horizon, StoreError> {
    let counts = counts(deployment).await?;
    let (pending, leased) = (counts.of(Phase::Pending), counts.of(Phase::Leased));
    let mut session = deployment.session_for_read().await?;
    let argument = deployment.argument();
    let failed = Failure::into_error;
    let sql = "SELECT coalesce($1, tourbillon.now_ms())";
    let rows = session.read(sql, &[(&argument, Type::INT8)]).await.map_err(failed)?;
    let mut horizon =
        Horizon::empty(rows.first().map_or_else(|| deployment.time.now(), |row| moment(row.get(0))));
    // The index contains leased timers, too. So the number of entries to read is greater by the number of leases.
    let most = i64::try_from(leased.saturating_add(LOOKS + 1)).unwrap_or(i64::MAX);
    let ends: Vec<i64> = horizon.spans.iter().map(|span| millis(span.until)).collect();
    let sql = "SELECT h.number, h.is_exact FROM tourbillon.horizon($1, $2) h";
    let rows = session.read(sql, &[(&ends, Type::INT8_ARRAY), (&most, Type::INT8)]).await;
    for (span, row) in horizon.spans.iter_mut().zip(rows.map_err(failed)?) {
        span.count = u64::try_from(row.get::<_, i64>(0)).unwrap_or(0);
        span.is_exact = row.get(1);
    }
    horizon.unplaced = pending.saturating_sub(horizon.placed());
    Ok(horizon)
}
