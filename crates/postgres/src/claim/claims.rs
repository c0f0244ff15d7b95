//! Leases due timers in the shards that this node owns.

use super::leases::first_end;
use crate::deployment::{Deployment, ms};
use crate::layout::{Id, moment, read};
use crate::link::{Failure, Param, Session};
use crate::node::{Head, Node};
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{
    Claimant, Claimed, Leased, Limit, ServerTime, Shares, StoreError, StoreErrorKind,
};

/// Leases due timers for this node.
pub(crate) struct Claims {
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) node: Arc<Node>,
}

/// The arguments of a claim, which leases due timers.
#[derive(Clone, Copy)]
struct Wish<'a> {
    token: Token,
    lease: Duration,
    limit: Limit,
    shares: Option<&'a Shares>,
}

/// The answer of the SQL function `claim`: the [`Head`] from the first row, and a further row for each leased timer.
struct Looked {
    head: Head,
    rows: Vec<Row>,
}

impl Claims {
    /// Leases due timers, the earliest due moments first. If `shares` are given, each lane (group of namespaces) gets
    /// only a part of the places that are free for deliveries. A lane with many deliveries under way gets a smaller
    /// part.
    pub(crate) async fn claim(
        &self,
        by: Claimant,
        number: u64,
        limit: Limit,
        shares: Option<&Shares>,
    ) -> Result<Claimed, StoreError> {
        let claiming = self.deployment.alarm.begin_claim();
        let token = Token { incarnation: by.incarnation, claim: number };
        let claimed = self.take_due(Wish { token, lease: by.lease, limit, shares }).await?;
        claiming.end(if shares.is_some() { claimed.next_claim } else { claimed.next_due });
        Ok(claimed)
    }

    async fn take_due(&self, wish: Wish<'_>) -> Result<Claimed, StoreError> {
        let _one_at_a_time = self.node.claims.lock().await;
        // A node that gets no answer for the time `ttl` has lost its shards.
        let mut session = self.deployment.session().await?.within(self.node.ttl);
        let Looked { head, rows } = self.look(&mut session, wish).await.map_err(Failure::into_error)?;
        let (has_changed, others) = self.node.with_mark(|mark| (mark.follow(&head), mark.others()));
        self.deployment.alarm.set_others(others);
        let (next_due, next_claim) = (head.next.map(moment), head.next_claim.map(moment));
        let mut claimed = Claimed { now: moment(head.now), next_due, next_claim, ..Claimed::default() };
        if has_changed {
            // The node's new shards may have belonged to a dead node. The dead node's leases must be ended when they
            // expire. If the first expiry cannot be read, a reap follows at once. The claim itself does not fail,
            // because it has leased timers already.
            let end = first_end(&mut session, Some(wish.token.incarnation)).await;
            claimed.next_reap = end.unwrap_or(Some(claimed.now));
        }
        self.keep(&mut session, &rows, wish.token, &mut claimed).await;
        claimed.next_claim = claimed.next_claim.filter(|_| wish.shares.is_some());
        Ok(claimed)
    }

    /// Adds the leased timers in `rows` to `claimed`. In each row, the columns of the timer begin at the second column.
    /// If a row cannot be decoded, its timer becomes dead.
    pub(super) async fn keep(
        &self,
        session: &mut Session,
        rows: &[Row],
        token: Token,
        claimed: &mut Claimed,
    ) {
        if !rows.is_empty() {
            self.node.has_claimed.store(true, Ordering::Relaxed);
        }
        let mut unreadable = Vec::new();
        for row in rows {
            match read(row, 1) {
                Ok(timer) => claimed.leased.push(Leased { timer, token }),
                Err(id) => unreadable.push(id),
            }
        }
        // If this fails, the rows stay leased. Once their leases have expired, a later claim sets the rows aside.
        claimed.quarantined = self.set_aside(session, unreadable, token).await.unwrap_or(0);
    }

    /// Runs the SQL function `claim`. First sends a heartbeat if a heartbeat is due, or if this process is not a node
    /// yet: the heartbeat makes the process a node. If the claim's answer says that other nodes have removed this node,
    /// sends a heartbeat again, and repeats the claim.
    async fn look(&self, session: &mut Session, wish: Wish<'_>) -> Result<Looked, Failure> {
        if !self.node.is_member() || self.node.is_sign_due() {
            self.node.give_sign(session).await?;
        }
        let looked = self.ask(session, wish).await?;
        if !looked.head.gone {
            return Ok(looked);
        }
        self.node.put_out();
        self.node.give_sign(session).await?;
        let looked = self.ask(session, wish).await?;
        if looked.head.gone {
            let message = "other nodes take this node for dead";
            return Err(Failure::Failed(StoreError::new(StoreErrorKind::Io, message)));
        }
        Ok(looked)
    }

    async fn ask(&self, session: &mut Session, wish: Wish<'_>) -> Result<Looked, Failure> {
        let Wish { token, lease, limit, shares } = wish;
        let (mark, now, shares) = (self.node.mark(), self.deployment.argument(), shares.map(shares_json));
        let (incarnation, claim) = (token.incarnation.cast_signed(), token.claim.cast_signed());
        let (lease, timers) = (ms(lease), i64::from(limit.timers));
        let bytes = i64::try_from(limit.bytes).unwrap_or(i64::MAX);
        let sql =
            "SELECT * FROM tourbillon.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
                       $16)";
        let sent = ServerTime::moment();
        let mut params: Vec<Param<'_>> = vec![
            (&now, Type::INT8),
            (&self.node.incarnation, Type::INT8),
            (&incarnation, Type::INT8),
            (&claim, Type::INT8),
            (&lease, Type::INT8),
            (&timers, Type::INT8),
            (&bytes, Type::INT8),
        ];
        params.extend(mark.params());
        params.push((&shares, Type::TEXT));
        let mut rows = session.query(sql, &params).await?;
        let damaged = || StoreError::new(StoreErrorKind::Corrupt, "the answer of a claim cannot be read");
        let head = (!rows.is_empty()).then(|| rows.remove(0)).ok_or_else(damaged)?;
        let head: &str = head.try_get(0).map_err(|_| damaged())?;
        let head: Head = serde_json::from_str(head).map_err(|_| damaged())?;
        if self.deployment.time.learn(sent, moment(head.now)) {
            // The server's clock was set.
            self.deployment.alarm.wake();
        }
        Ok(Looked { head, rows })
    }

    /// Sets aside rows that cannot be decoded: the timers become dead, and their contents stay as they are. Skips
    /// timers that other transactions have locked. Returns the number of rows that were set aside.
    async fn set_aside(&self, session: &mut Session, ids: Vec<Id>, token: Token) -> Result<u32, Failure> {
        if ids.is_empty() {
            return Ok(0);
        }
        let now = self.deployment.argument();
        let (incarnation, claim) = (token.incarnation.cast_signed(), token.claim.cast_signed());
        let sql = "WITH mine AS (
                       SELECT t.id FROM tourbillon.timer t WHERE t.id = ANY ($1) ORDER BY t.id
                       FOR UPDATE SKIP LOCKED
                   ), ended AS (
                       DELETE FROM tourbillon.lease l USING mine m
                       WHERE l.id = m.id AND l.incarnation = $2 AND l.claim = $3 RETURNING l.id
                   )
                   UPDATE tourbillon.timer t SET phase = 'd', reason = 'unreadable',
                       died = coalesce($4, tourbillon.now_ms())
                   FROM ended e WHERE t.id = e.id RETURNING t.id";
        let params: [Param<'_>; 4] =
            [(&ids, Type::UUID_ARRAY), (&incarnation, Type::INT8), (&claim, Type::INT8), (&now, Type::INT8)];
        let rows = session.query(sql, &params).await?;
        Ok(u32::try_from(rows.len()).unwrap_or(u32::MAX))
    }
}

/// Returns `shares` as JSON, in the form that the SQL function `claim` reads. The shares are the numbers from which the
/// function computes how many timers it may take from each lane (group of namespaces).
fn shares_json(shares: &Shares) -> String {
    // Larger numbers could overflow on the server, which multiplies some of them.
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let numbers = |numbers: &BTreeMap<Box<str>, usize>| -> BTreeMap<Box<str>, u32> {
        numbers.iter().map(|(name, count)| (name.clone(), number(*count))).collect()
    };
    let mut json = serde_json::json!({ "free": number(shares.free), "has": numbers(&shares.under_way) });
    if let Some(late) = &shares.late {
        json["after"] = ms(late.after).into();
        json["each"] = number(late.each).into();
        json["left"] = serde_json::json!(numbers(&late.left));
    }
    json.to_string()
}
