//! Reads the numbers of timers.

use crate::deployment::Deployment;
use crate::layout::moment;
use crate::link::Failure;
use std::collections::BTreeMap;
use tokio_postgres::types::Type;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Counts, Horizon, StoreError};

/// The greatest number of pending timers that a horizon looks at.
const LOOKS: usize = 10_000;

/// Returns the numbers of timers by namespace and phase. The sums of the changes count leased timers as pending, and
/// the leases are counted by themselves.
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

/// Counts the pending timers by the time until they are due. Looks at [`LOOKS`] timers at most, the earliest first. The
/// counts of later spans are lower bounds.
pub(crate) async fn horizon(deployment: &Deployment) -> Result<Horizon, StoreError> {
    let pending = counts(deployment).await?.of(Phase::Pending);
    let mut session = deployment.session_for_read().await?;
    let argument = deployment.time.argument();
    let most = i64::try_from(LOOKS).unwrap_or(i64::MAX) + 1;
    let sql = "SELECT coalesce($1, tourbillon.now_ms()), d.due, count(*) FROM (
                   SELECT c.due FROM generate_series(0, 63) AS s (number), LATERAL (
                       SELECT t.due, t.id FROM tourbillon.timer t WHERE t.lane = s.number AND t.phase = 'p'
                           AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = t.id) IS NULL
                       ORDER BY t.due, t.id LIMIT $2) c
                   ORDER BY c.due LIMIT $2) d
               GROUP BY d.due ORDER BY d.due";
    let rows = session.read(sql, &[(&argument, Type::INT8), (&most, Type::INT8)]).await;
    let rows = rows.map_err(Failure::into_error)?;
    let now = rows.first().map_or_else(|| deployment.time.now(), |row| moment(row.get(0)));
    let mut horizon = Horizon::empty(now);
    let (mut looked, mut last) = (0_usize, None);
    for row in &rows {
        let (due, number) = (moment(row.get(1)), u64::try_from(row.get::<_, i64>(2)).unwrap_or(0));
        horizon.add(due, number);
        looked = looked.saturating_add(usize::try_from(number).unwrap_or(usize::MAX));
        last = Some(due);
    }
    if looked > LOOKS
        && let Some(last) = last
    {
        // More timers may follow from the last moment on.
        horizon.spans.iter_mut().filter(|span| span.until >= last).for_each(|span| span.is_exact = false);
    }
    horizon.unplaced = pending.saturating_sub(horizon.placed());
    Ok(horizon)
}
