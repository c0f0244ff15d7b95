//! Reads copies of shards for backups.

use crate::deployment::Deployment;
use crate::layout::{Found, Part, Shard};
use tourbillon_durable::store::StoreError;
use tourbillon_durable::timer::Timer;

/// Returns all timers of a shard, as the shard stored them at a single moment. Leaves out records that cannot be read.
pub(crate) async fn dump(deployment: &Deployment, shard: Shard) -> Result<Vec<Timer>, StoreError> {
    let keys = deployment.layout.keys(shard, [Part::Records, Part::Tokens, Part::Leases]);
    let mut answered = deployment.run(|scripts| &scripts.dump, keys, []).await?;
    let mut records = answered.rest.list()?;
    let mut marks = answered.rest.pairs()?;
    let ends = answered.rest.pairs()?;
    let mut timers = Vec::new();
    while !records.is_empty() {
        let member = records.bytes()?;
        let id = member.get(..16).unwrap_or_default();
        let mark = marks.remove(id);
        let until = ends.get(id).and_then(|end| core::str::from_utf8(end).ok()?.parse().ok());
        timers.extend(Found::read(shard, member, mark, until.unwrap_or_default()).map(|found| found.timer));
    }
    Ok(timers)
}
