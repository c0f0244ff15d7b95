//! Makes parked timers pending again. Waits for transactions of callers that have locked parked timers, and keeps no
//! timer locked during this wait.

use super::needs::is_any_parked;
use super::operate::operate;
use super::transaction::{Act, Transactions, Work};
use crate::link::{Failure, Session};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tourbillon_durable::store::{Durability, Op, Outcome, StoreError, StoreErrorKind};

/// The pause between two attempts to unpark timers, while transactions of callers have locked some of these timers.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest time for which [`unpark`] waits for transactions of callers that have locked timers which it must
/// unpark.
const PATIENCE: Duration = Duration::from_secs(30);

/// One attempt to unpark timers (see [`unpark`]). Each attempt is one transaction.
struct Unpark<'r> {
    reason: &'r str,
    limit: u32,
    owner: Option<i64>,
}

impl Work for Unpark<'_> {
    /// The number of timers that this attempt has made pending, and whether other transactions have locked timers that
    /// are still parked.
    type Result = (u32, bool);

    fn is_brief(&self) -> bool {
        true
    }

    async fn run(&self, session: &mut Session, act: &mut Act) -> Result<Self::Result, Failure> {
        let op = Op::Unpark(self.reason.into(), self.limit);
        act.owner = self.owner;
        let outcome = operate(session, act, &op).await?;
        let count = if let Outcome::Unparked(count) = outcome { count } else { 0 };
        let has_held =
            act.skips && count < self.limit && is_any_parked(session, self.reason, self.owner).await?;
        Ok((count, has_held))
    }
}

/// Unparks timers: at most `limit` timers that are parked (set aside) for `reason` become pending again. Returns the
/// number of these timers. If `owner` is given, searches only the shards of this node. If the number is below the
/// limit, no timer in the searched shards is parked for the reason any longer.
pub(super) async fn unpark(
    transactions: &Transactions,
    durability: Durability,
    reason: &str,
    limit: u32,
    owner: Option<i64>,
) -> Result<u32, StoreError> {
    let (begin, mut sum) = (Instant::now(), 0);
    loop {
        let work = Unpark { reason, limit: limit - sum, owner };
        let (count, has_held) = transactions.transact(durability, &work).await?;
        sum += count;
        if !has_held || sum >= limit {
            return Ok(sum);
        }
        if begin.elapsed() > PATIENCE {
            let message = "transactions of callers hold timers that are parked";
            return Err(StoreError::new(StoreErrorKind::Held, message));
        }
        sleep(PAUSE).await;
    }
}
