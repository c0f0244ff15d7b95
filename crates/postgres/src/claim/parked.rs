//! Claims of parked timers. A process makes them when it has found a receiver, for example in a long poll of a queue.
//!
//! Only the owner of a shard claims the pending timers of the shard. A parked timer waits for something else, such as a
//! receiver, which only some nodes have. So any node may lease a parked timer, in any shard. The node that has the
//! lease delivers the timer, even if another node owns the shard. A claim is one call of the SQL function
//! `claim_parked`: one transaction makes the timers pending and leases them.
//!
//! | event | consequence |
//! |---|---|
//! | two nodes claim at the same time | each locks and takes rows that the other has not locked |
//! | a transaction of a caller has locked the timer | the claim skips the timer; the next claim tries again |
//! | the timer is cancelled, moved or unparked at the same time | the lock of the row decides which change is first; the second sees the first |
//! | the timer's due moment was moved ahead | the timer stays parked until that moment |
//! | the timer's series was paused | the timer is parked again, as paused |
//! | the answer is lost | the caller asks for the leases of the claim by its number |
//! | the server crashes before the claim is on its disk | the row is parked again, as before the claim |
//! | the node dies, or its lease is not renewed | a reap of expired leases, by any node, makes the timer pending, and the owner of its shard claims it |

use super::claims::Claims;
use crate::deployment::ms;
use crate::layout::moment;
use crate::link::Failure;
use tokio_postgres::types::Type;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{Claimant, Claimed, Limit, PAUSED, StoreError};

impl Claims {
    /// Leases due timers that are parked for `reason`, in all shards, the earliest due moments first. A parked timer is
    /// not delivered until something happens, for example until a receiver asks for it. Leases up to `wanted` timers.
    /// If more than twice `wanted` timers are due, leases up to half of the due timers, and leaves the other half to
    /// other nodes. Never leases more than `limit`.
    pub(crate) async fn claim_parked(
        &self,
        by: Claimant,
        number: u64,
        reason: &str,
        wanted: u32,
        limit: Limit,
    ) -> Result<Claimed, StoreError> {
        let mut claimed = Claimed { now: self.deployment.time.now(), ..Claimed::default() };
        let wanted = wanted.min(limit.timers);
        if wanted == 0 || reason.contains('\0') {
            return Ok(claimed);
        }
        let token = Token { incarnation: by.incarnation, claim: number };
        let mut session = self.deployment.session().await?.within(self.node.ttl);
        let now = self.deployment.argument();
        let (incarnation, claim) = (token.incarnation.cast_signed(), token.claim.cast_signed());
        let (lease, wanted, timers) = (ms(by.lease), i64::from(wanted), i64::from(limit.timers));
        let bytes = i64::try_from(limit.bytes).unwrap_or(i64::MAX);
        let sql = "SELECT * FROM tourbillon.claim_parked($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let rows = session
            .query(
                sql,
                &[
                    (&now, Type::INT8),
                    (&incarnation, Type::INT8),
                    (&claim, Type::INT8),
                    (&lease, Type::INT8),
                    (&reason, Type::TEXT),
                    (&PAUSED, Type::TEXT),
                    (&wanted, Type::INT8),
                    (&timers, Type::INT8),
                    (&bytes, Type::INT8),
                ],
            )
            .await
            .map_err(Failure::into_error)?;
        let (first, timers) = rows.split_first().unzip();
        claimed.now = first.map_or(claimed.now, |row| moment(row.get(0)));
        self.keep(&mut session, timers.unwrap_or_default(), token, &mut claimed).await;
        Ok(claimed)
    }
}
