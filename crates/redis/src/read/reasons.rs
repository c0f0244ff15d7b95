//! Counts parked timers by reason.

use crate::deployment::Deployment;
use crate::layout::{Part, Shard};
use crate::script::decimal;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{Cursor, ReasonCount, Reasons, StoreError};

/// Counts the parked timers in `shards` by reason. A parked timer was set aside for a reason, and is not delivered
/// until it is unparked. Returns a page of at most `limit` reasons with their counts and earliest due moments. A reason
/// occurs once for each shard that has timers parked for it.
pub(crate) async fn reasons(
    deployment: &Deployment,
    shards: Vec<Shard>,
    after: Option<Cursor>,
    limit: u32,
) -> Result<Reasons, StoreError> {
    let after = after.as_ref().and_then(|cursor| cursor.as_bytes().split_first_chunk::<2>());
    let after = after.map(|(shard, from)| (Shard::from_be_bytes(*shard), from.to_vec()));
    let first = after.as_ref().map_or(0, |(shard, _)| *shard);
    let shards = shards.into_iter().filter(|shard| *shard >= first);
    let groups = deployment.topology.groups(shards);
    let (mut reasons, mut left) = (Reasons::default(), limit.max(1));
    for group in groups {
        if left == 0 {
            // The page became full at the end of the previous group. A bound of `-` is the start of a sorted set.
            let first = group.first().copied().unwrap_or_default();
            reasons.next = Some(Cursor::from_bytes(&[&first.to_be_bytes()[..], b"-"].concat()));
            break;
        }
        // The cursor is a position in one shard. If another node owns that shard by now, no group begins with it, and
        // the read begins at the start of the first group.
        let begins = after.as_ref().filter(|(shard, _)| group.first() == Some(shard));
        let from = begins.map_or_else(|| b"-".to_vec(), |(_, from)| from.clone());
        let keys = deployment.keys(&group, [Part::Parked]);
        let mut answered =
            deployment.run(|scripts| &scripts.reasons, keys, [from, decimal(left.into())]).await?;
        let mut found = answered.rest.list()?;
        while !found.is_empty() {
            let reason = found.bytes()?;
            let reason = String::from_utf8_lossy(&reason).into();
            let (timers, first_due) = (found.number()?, UtcMillis::from_millis(found.number()?));
            reasons.counts.push(ReasonCount { reason, timers, first_due });
            left = left.saturating_sub(1);
        }
        let place = usize::try_from(answered.rest.number()?).unwrap_or_default();
        let from = answered.rest.bytes()?;
        // A place of 0 says that the script has read all shards of the group.
        if let Some(shard) = place.checked_sub(1).and_then(|place| group.get(place)) {
            reasons.next = Some(Cursor::from_bytes(&[&shard.to_be_bytes()[..], &from].concat()));
            break;
        }
    }
    Ok(reasons)
}
