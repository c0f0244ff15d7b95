//! Reads timers by id and by key.

use super::index::IndexEntry;
use crate::deployment::Deployment;
use crate::layout::{Found, Layout, Part, Redirect, Shard, id_bytes, id_of, key_entry};
use crate::script::{Values, damaged};
use futures_util::future::try_join_all;
use std::collections::{BTreeMap, HashMap};
use tourbillon_durable::store::StoreError;
use tourbillon_durable::timer::{Address, KeyOf, TimerId};

/// Reads a timer by its id or key, or returns `None` if there is no such timer.
pub(crate) async fn find(deployment: &Deployment, at: &Address) -> Result<Option<Found>, StoreError> {
    match at {
        Address::Id(id) => find_id(deployment, *id).await,
        Address::Key(key) => find_key(deployment, key).await,
    }
}

pub(crate) async fn find_id(deployment: &Deployment, id: TimerId) -> Result<Option<Found>, StoreError> {
    Ok(look(deployment, id).await?.0)
}

/// Reads a timer by its id, also if the id's redirect leads to another shard that stores the timer. Also returns
/// the redirect, which may be left over without its timer.
pub(crate) async fn look(
    deployment: &Deployment,
    id: TimerId,
) -> Result<(Option<Found>, Option<Redirect>), StoreError> {
    let shard = deployment.layout.shard_of_id(id);
    let parts = [Part::Records, Part::Tokens, Part::Leases, Layout::redirects_of(id)];
    let keys = deployment.layout.keys(shard, parts);
    let mut answered = deployment.run(|scripts| &scripts.find_id, keys, [id_bytes(id).to_vec()]).await?;
    let found = read_found(shard, &mut answered.rest)?;
    match answered.rest.filled()?.map(Redirect::of) {
        // The script answers a redirect only if the shard does not have the record, so `found` is `None` here.
        Some(redirect) => {
            let home = redirect.home().filter(|home| deployment.layout.shards().contains(home));
            let home =
                home.ok_or_else(|| damaged(&format!("the redirect of timer {id} leads to no shard")))?;
            let found = records(deployment, home, &[id]).await?.pop().unwrap_or(Ok(None))?;
            Ok((found, Some(redirect)))
        }
        None => Ok((found, None)),
    }
}

pub(crate) async fn find_key(deployment: &Deployment, key: &KeyOf) -> Result<Option<Found>, StoreError> {
    let shard = deployment.layout.shard_of_key(&key.namespace, &key.key);
    let entry = key_entry(&key.namespace, &key.key);
    let parts = [Part::Records, Part::Tokens, Part::Leases, deployment.layout.keys_of(&entry)];
    let keys = deployment.layout.keys(shard, parts);
    let mut answered = deployment.run(|scripts| &scripts.find_key, keys, [entry]).await?;
    read_found(shard, &mut answered.rest)
}

/// Reads the timers with the ids `ids` in a shard. Returns a result for each id, in order: the timer, `None` without a
/// timer, or an error if the record cannot be read.
pub(crate) async fn records(
    deployment: &Deployment,
    shard: Shard,
    ids: &[TimerId],
) -> Result<Vec<Result<Option<Found>, StoreError>>, StoreError> {
    let keys = deployment.layout.keys(shard, [Part::Records, Part::Tokens, Part::Leases]);
    let arguments = ids.iter().map(|id| id_bytes(*id).to_vec());
    let mut answered = deployment.run(|scripts| &scripts.records, keys, arguments).await?;
    let mut values = answered.rest.list()?;
    Ok(ids.iter().map(|_| read_found(shard, &mut values)).collect())
}

/// Reads the timers of `entries`, in the order of the entries. A timer that is no longer stored, or that cannot be
/// read, becomes `None`.
pub(crate) async fn timers_of(
    deployment: &Deployment,
    entries: &[IndexEntry],
) -> Result<Vec<Option<Found>>, StoreError> {
    let mut shards: BTreeMap<Shard, Vec<TimerId>> = BTreeMap::new();
    for entry in entries {
        shards.entry(entry.shard).or_default().push(entry.id);
    }
    let reads = shards.iter().map(|(shard, ids)| records(deployment, *shard, ids));
    // One unreadable record must not hide the other timers.
    let found = try_join_all(reads).await?.into_iter().flatten().filter_map(|found| found.ok().flatten());
    let mut by_id: HashMap<TimerId, Found> = found.map(|found| (found.id(), found)).collect();
    Ok(entries.iter().map(|entry| by_id.remove(&entry.id)).collect())
}

/// Decodes a timer from three values of a script's answer: record, token, and end of the lease. Returns `None` if the
/// answer has no record.
pub(crate) fn read_found(shard: Shard, values: &mut Values) -> Result<Option<Found>, StoreError> {
    // All three values are taken even without a record, because the values of the next timer follow.
    let (member, mark) = (values.filled()?, values.filled()?);
    let until = values.maybe_number()?.unwrap_or_default();
    let Some(member) = member else { return Ok(None) };
    let id = id_of(&member);
    let unreadable = || {
        let id = id.map(|id| id.to_string()).unwrap_or_default();
        damaged(&format!("the record of timer {id} cannot be read"))
    };
    Found::read(shard, member, mark, until).map(Some).ok_or_else(unreadable)
}
