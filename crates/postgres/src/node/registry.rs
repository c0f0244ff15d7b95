//! Reads the nodes and the shards of a deployment.

use super::this_node::Node;
use crate::layout::moment;
use crate::link::Failure;
use tokio_postgres::types::Type;
use tourbillon_durable::store::{self, Nodes, Shard, StoreError};

/// Returns the nodes in the order of their starts, and the shards in the order of their numbers.
pub(crate) async fn nodes(node: &Node) -> Result<Nodes, StoreError> {
    let deployment = &node.deployment;
    let mut session = deployment.session_for_read().await?;
    let argument = deployment.argument();
    let failed = Failure::into_error;
    let sql =
        "SELECT coalesce($1, tourbillon.now_ms()), n.incarnation, n.name, n.version, n.since, n.seen, n.ttl
               FROM tourbillon.node n ORDER BY n.since, n.incarnation";
    let rows = session.read(sql, &[(&argument, Type::INT8)]).await.map_err(failed)?;
    let mut nodes = Nodes { now: deployment.time.now(), ..Nodes::default() };
    for row in rows {
        let (now, seen, ttl): (i64, i64, i64) = (row.get(0), row.get(5), row.get(6));
        nodes.now = moment(now);
        let incarnation: i64 = row.get(1);
        nodes.nodes.push(store::Node {
            incarnation: incarnation.cast_unsigned(),
            name: row.get::<_, &str>(2).into(),
            version: row.get::<_, &str>(3).into(),
            since: moment(row.get(4)),
            seen: moment(seen),
            is_live: seen.saturating_add(ttl) > now,
            is_this: incarnation == node.incarnation,
        });
    }
    // A lane has timers of all shards. The statement reads the first timers of each lane. A shard that has none of
    // these timers gets no due moment. A lease is looked up by a scalar subquery, because a join might read all leases
    // once for each lane.
    let sql = "WITH first AS (
                   SELECT e.shard, min(e.due) AS due FROM generate_series(0, 63) AS n (lane), LATERAL (
                       SELECT t.shard, t.due FROM tourbillon.timer t WHERE t.lane = n.lane AND t.phase = 'p'
                           AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = t.id) IS NULL
                       ORDER BY t.due, t.id LIMIT 256) e
                   GROUP BY e.shard)
               SELECT s.number, s.owner, s.epoch, s.takeovers, s.taken_over,
                   (SELECT f.due FROM first f WHERE f.shard = s.number)
               FROM tourbillon.shard s ORDER BY s.number";
    for row in session.read(sql, &[]).await.map_err(failed)? {
        let owner: Option<i64> = row.get(1);
        let is_live = |owner: &u64| nodes.nodes.iter().any(|node| node.incarnation == *owner && node.is_live);
        let is_own = owner == Some(node.incarnation);
        nodes.shards.push(Shard {
            number: u16::try_from(row.get::<_, i16>(0)).unwrap_or(0),
            owner: owner.map(i64::cast_unsigned).filter(is_live),
            polled: is_own.then_some(nodes.now),
            first_due: row.get::<_, Option<i64>>(5).map(moment),
            epoch: row.get::<_, i64>(2).cast_unsigned(),
            takeovers: row.get::<_, i64>(3).cast_unsigned(),
            taken_over: row.get::<_, Option<i64>>(4).map(moment),
            ..Shard::default()
        });
    }
    Ok(nodes)
}
