//! Checks the structure of the stored data, shard by shard. The data of a shard are from a single moment.

use crate::deployment::{Deployment, join_or_fail};
use crate::layout::{
    Entry, Found, Layout, Part, REDIRECT_HASHES, Redirect, Shard, Slice, count_field, entries, id_at_end,
    id_bytes, id_of, is_keyless, period_of, place_entry, without_id,
};
use crate::link::is_wrong_type;
use crate::script::decimal;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tourbillon_durable::store::{Fault, StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Timer, TimerId};

/// The greatest number of reads of one shard. The check repeats a read if the shard has other slices (sets of pending
/// timers) than at the previous read.
const TURNS: usize = 20;
/// The number of faults at which the check stops.
const MOST_FAULTS: usize = 1_000;
/// The number of redirects that the check reads again at the same time.
const LOOKS_AT_ONCE: usize = 64;

/// The members of a sorted set, each with its score.
type Scored = Vec<(Vec<u8>, u64)>;

/// All data of a shard at a single moment.
struct Contents {
    records: Scored,
    tokens: HashMap<Vec<u8>, Vec<u8>>,
    leases: Scored,
    keys: Vec<(u16, Scored)>,
    labels: Scored,
    stopped: Scored,
    places: Scored,
    parked: Scored,
    dead: Scored,
    counts: HashMap<Vec<u8>, Vec<u8>>,
    directory: Scored,
    slices: Vec<(Slice, Scored)>,
    homes: HashMap<Vec<u8>, Vec<u8>>,
}

pub(crate) async fn check(deployment: &Deployment) -> Result<Vec<Fault>, StoreError> {
    let mut faults = deployment.losses().await?;
    let (mut homes, mut wanted, mut unread) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for shard in deployment.layout.shards() {
        let contents = match contents(deployment, shard).await {
            Ok(contents) => contents,
            Err(Unread::Failed(error)) => return Err(error),
            Err(Unread::Keys(damaged)) => {
                faults.extend(damaged);
                unread.insert(shard);
                continue;
            }
        };
        let timers = faults_of(&deployment.layout, shard, &contents, &mut faults);
        for timer in timers.iter().filter(|timer| deployment.layout.shard_of_id(timer.id) != shard) {
            wanted.insert(timer.id, shard);
        }
        for (id, home) in contents.homes {
            // A redirect that cannot be read counts as missing. If it should lead to a stored timer, that timer is a
            // fault.
            if let (Some(id), Some(home)) = (id_of(&id), Redirect::of(home).home()) {
                homes.insert(id, home);
            }
        }
        if faults.len() >= MOST_FAULTS {
            // Redirects and timers can only be compared after the last shard, so this comparison is left out.
            return Ok(faults);
        }
    }
    let ids: BTreeSet<&TimerId> = homes.keys().chain(wanted.keys()).collect();
    // The contents of a shard in `unread` are unknown. In a cluster, a redirect may lead nowhere.
    let is_known = |id: &TimerId| {
        let places =
            [Some(deployment.layout.shard_of_id(*id)), homes.get(id).copied(), wanted.get(id).copied()];
        places.into_iter().flatten().all(|shard| !unread.contains(&shard))
    };
    let is_fault = |id: &&TimerId| {
        homes.get(id) != wanted.get(id)
            && is_known(id)
            && (!deployment.topology.has_loose_redirects() || wanted.contains_key(id))
    };
    let doubtful: Vec<TimerId> = ids.into_iter().filter(is_fault).copied().collect();
    // A damaged deployment may have a million of these redirects.
    for some in doubtful.chunks(LOOKS_AT_ONCE) {
        if faults.len() >= MOST_FAULTS {
            break;
        }
        let looks = some.iter().map(async |id| {
            let (shard, noted) = (wanted.get(id).copied(), homes.get(id).copied());
            let fault = || {
                let fault = format!("its shard is {shard:?}, noted as {noted:?}");
                Fault::new("homes", Some(*id), fault)
            };
            Ok::<_, StoreError>(is_still_wrong(deployment, *id, shard, noted).await?.then(fault))
        });
        faults.extend(join_or_fail(looks).await?.into_iter().flatten());
    }
    Ok(faults)
}

/// Returns whether a timer and its redirect are still as the check has read them: the timer is stored in `shard`
/// only (`None`: not stored), and the redirect leads to `noted` (`None`: no redirect). The check reads one shard
/// after another, so a timer that is stored or ends between two reads seems to have a wrong redirect.
async fn is_still_wrong(
    deployment: &Deployment,
    id: TimerId,
    shard: Option<Shard>,
    noted: Option<Shard>,
) -> Result<bool, StoreError> {
    let keys = deployment.layout.keys(deployment.layout.shard_of_id(id), [Layout::redirects_of(id)]);
    let mut answered = deployment.run(|scripts| &scripts.redirects, keys, [decimal(1)]).await?;
    let (_read, mut values, mut home) = (answered.rest.number()?, answered.rest.list()?, None);
    while !values.is_empty() {
        let (other, redirect) = (values.bytes()?, values.bytes()?);
        if id_of(&other) == Some(id) {
            home = Redirect::of(redirect).home();
        }
    }
    let place = shard.or(noted).filter(|shard| deployment.layout.shards().contains(shard));
    let Some(place) = place else { return Ok(home == noted) };
    let keys = deployment.layout.keys(place, [Part::Records]);
    let mut answered = deployment.run(|scripts| &scripts.are_stored, keys, [id_bytes(id).to_vec()]).await?;
    let is_stored = answered.rest.list()?.number()? == 1;
    Ok(home == noted && is_stored == shard.is_some())
}

/// The reason why the contents of a shard were not read.
enum Unread {
    Failed(StoreError),
    /// The faults of keys that have data of a wrong type.
    Keys(Vec<Fault>),
}

impl From<StoreError> for Unread {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// Returns a fault for each of the keys that has data of a wrong type. `wanted` has each key of a shard with its type.
async fn wrong_types(
    deployment: &Deployment,
    shard: Shard,
    wanted: Vec<(Vec<u8>, &'static str)>,
) -> Result<Vec<Fault>, StoreError> {
    let keys = wanted.iter().map(|(key, _)| key.clone()).collect();
    let mut rest = deployment.run(|scripts| &scripts.types, keys, []).await?.rest;
    let mut faults = Vec::new();
    for (key, wanted) in wanted {
        let found = rest.bytes()?;
        if found != wanted.as_bytes() && found != b"none" {
            let (key, found) = (String::from_utf8_lossy(&key), String::from_utf8_lossy(&found));
            let fault = format!("the key {key} of shard {shard} is a {found}, and not a {wanted}");
            faults.push(Fault::new("keys", None, fault));
        }
    }
    Ok(faults)
}

/// Reads all data of a shard at a single moment. The script must name all slices (sets of pending timers) of the shard.
/// If the answer has other slices than the script has named, the read is repeated with the names from the answer.
async fn contents(deployment: &Deployment, shard: Shard) -> Result<Contents, Unread> {
    let mut named: Vec<Slice> = Vec::new();
    for _ in 0..TURNS {
        // The script `contents` knows by the positions of the keys which of them are hashes, so the order must be the
        // same.
        let parts = [
            Part::Records,
            Part::Tokens,
            Part::Leases,
            Part::Labels,
            Part::Parked,
            Part::Dead,
            Part::Counts,
            Part::Slices,
            Part::Stopped,
            Part::Places,
        ];
        let slices = named.iter().map(|slice| Part::Slice(*slice));
        let homes = (0..REDIRECT_HASHES).filter_map(|bucket| u8::try_from(bucket).ok()).map(Part::Redirects);
        let sets = deployment.layout.key_sets().map(Part::Keys);
        let parts = parts.into_iter().chain(slices).chain(sets).chain(homes);
        let parts: Vec<Part> = parts.collect();
        let keys = parts.iter().map(|part| deployment.layout.key(shard, *part)).collect();
        let count = decimal((named.len() + deployment.layout.key_sets().len()) as u64);
        let read = deployment.run(|scripts| &scripts.contents, keys, [count]).await;
        let mut rest = match read {
            Ok(answered) => answered.rest,
            Err(error) if is_wrong_type(&error) => {
                let wanted = parts.iter().map(|part| (deployment.layout.key(shard, *part), type_of(*part)));
                let damaged = wrong_types(deployment, shard, wanted.collect()).await?;
                // The key may have been mended since.
                return Err(if damaged.is_empty() { Unread::Failed(error) } else { Unread::Keys(damaged) });
            }
            Err(error) => return Err(error.into()),
        };
        let records = rest.scored()?;
        let tokens = rest.pairs()?;
        let (leases, labels) = (rest.scored()?, rest.scored()?);
        let (parked, dead) = (rest.scored()?, rest.scored()?);
        let counts = rest.pairs()?;
        let directory = rest.scored()?;
        let (stopped, places) = (rest.scored()?, rest.scored()?);
        // The slices are compared in the order of their numbers, since the order of their first due moments changes.
        let open: BTreeSet<Slice> = directory.iter().filter_map(|(name, _)| Slice::named(name)).collect();
        let open: Vec<Slice> = open.into_iter().collect();
        if open != named {
            named = open;
            continue;
        }
        let slices: Result<Vec<_>, StoreError> =
            named.iter().map(|slice| Ok((*slice, rest.scored()?))).collect();
        let slices = slices?;
        let keys: Result<Vec<_>, StoreError> =
            deployment.layout.key_sets().map(|set| Ok((set, rest.scored()?))).collect();
        let keys = keys?;
        let mut homes = HashMap::new();
        while !rest.is_empty() {
            homes.extend(rest.pairs()?);
        }
        return Ok(Contents {
            records,
            tokens,
            leases,
            keys,
            labels,
            stopped,
            places,
            parked,
            dead,
            counts,
            directory,
            slices,
            homes,
        });
    }
    let message = format!("the slices of shard {shard} change too often for a check");
    Err(StoreError::new(StoreErrorKind::Io, message).into())
}

/// Returns the name that Redis has for the type of this part of a shard.
fn type_of(part: Part) -> &'static str {
    match part {
        Part::Tokens | Part::Counts | Part::Redirects(_) => "hash",
        _ => "zset",
    }
}

/// Compares the entries of a shard with the entries that the shard's timers need, and adds each difference to `faults`.
/// Returns the timers.
fn faults_of(layout: &Layout, shard: Shard, contents: &Contents, faults: &mut Vec<Fault>) -> Vec<Timer> {
    let ends: HashMap<&[u8], u64> = contents.leases.iter().map(|(id, until)| (&id[..], *until)).collect();
    let (mut timers, mut wanted, mut counts) = (Vec::new(), BTreeSet::new(), HashMap::<Vec<u8>, u64>::new());
    for (member, _) in &contents.records {
        let id = member.get(..16).unwrap_or_default();
        // A token without an end counts as a lease that ends at 0. Its entry in `leases` is then reported as missing.
        let (mark, until) = (contents.tokens.get(id).cloned(), ends.get(id).copied().unwrap_or_default());
        match Found::read(shard, member.clone(), mark, until) {
            Some(found) => {
                let is_leased = found.token.is_some();
                let stored = |entry| match entry {
                    // The stored record still shows the timer before its lease: pending, or parked.
                    Entry::Record(_) if is_leased => Entry::Record(member.clone()),
                    entry => entry,
                };
                wanted.extend(
                    entries(&found.timer).into_iter().map(|entry| located(found.id(), stored(entry))),
                );
                timers.push(found.timer);
            }
            None => faults.push(Fault::new("records", id_of(member), "the record cannot be read")),
        }
    }
    for timer in &timers {
        *counts.entry(count_field(timer)).or_default() += 1;
    }
    let mut found = BTreeSet::new();
    let mut add = |table: &'static str, members: &[(Vec<u8>, u64)], entry: &dyn Fn(&[u8], u64) -> Entry| {
        for (member, score) in members {
            let bytes = entry(member, *score);
            found.insert((table, member.clone(), bytes));
        }
    };
    add("records", &contents.records, &|member, _| Entry::Record(member.to_vec()));
    add("leases", &contents.leases, &|_, until| Entry::Lease(until));
    let places: BTreeSet<&[u8]> = contents.places.iter().map(|(place, _)| &place[..]).collect();
    for (set, keys) in &contents.keys {
        for (member, score) in keys {
            let id = id_at_end(member);
            let (name, own) = match is_keyless(member) {
                true => ("keyless", id.map(|id| layout.keyless_set(id))),
                false => ("keys", Some(layout.key_set(without_id(member)))),
            };
            let entry = match is_keyless(member) {
                true => Entry::Keyless(member.clone()),
                false => Entry::Key(member.clone()),
            };
            add(name, &[(member.clone(), *score)], &|_, _| entry.clone());
            if own != Some(*set) {
                faults.push(Fault::new(name, id, "the entry is not in its set of keys"));
            }
            // A place without entries is permitted, because a place says only that its set may have entries of a
            // namespace.
            if !places.contains(&place_entry(member, *set)[..]) {
                faults.push(Fault::new("places", id, "the place of the entry's namespace is missing"));
            }
        }
    }
    add("stopped", &contents.stopped, &|member, _| Entry::Stopped(member.to_vec()));
    add("labels", &contents.labels, &|member, _| Entry::Label(member.to_vec()));
    add("parked", &contents.parked, &|member, _| Entry::Parked(member.to_vec()));
    add("dead", &contents.dead, &|_, at| Entry::Dead(at));
    for (slice, timers) in &contents.slices {
        add("slices", timers, &|_, due| Entry::Pending(*slice, due));
        let (number, first) = (slice.number(), timers.first().map(|(_, due)| *due));
        let noted = contents.directory.iter().find(|(name, _)| *name == decimal(number)).map(|(_, due)| *due);
        let is_wrong = timers.iter().any(|(_, due)| period_of(*due) != slice.period());
        if first != noted || is_wrong {
            let fault = format!("slice {number} of shard {shard} begins with {first:?}, noted as {noted:?}");
            faults.push(Fault::new("slices", None, fault));
        }
    }
    for (id, mark) in &contents.tokens {
        found.insert(("tokens", id.clone(), Entry::Token(mark.clone())));
    }
    for (table, member, _) in wanted.difference(&found) {
        faults.push(Fault::new(table, timer_of(table, member), "the entry is missing"));
    }
    for (table, member, _) in found.difference(&wanted) {
        faults.push(Fault::new(table, timer_of(table, member), "the entry is not its timer's"));
    }
    let stored: HashMap<Vec<u8>, u64> = contents
        .counts
        .iter()
        .filter_map(|(field, count)| Some((field.clone(), core::str::from_utf8(count).ok()?.parse().ok()?)))
        .collect();
    if stored != counts {
        let fault = format!("shard {shard} has {stored:?}, counted as {counts:?}");
        faults.push(Fault::new("counts", None, fault));
    }
    timers
}

/// Returns where a shard stores an entry: the name of the table, and the member in that table. Also returns the entry
/// itself. A [`Fault`] shows the name of the table. A table consists of all entries of one kind, which the shard stores
/// in one or more Redis hashes or sorted sets. In four tables, the member is the timer's id: the tables of lease
/// tokens, of lease ends, of dead timers, and of pending timers ("slices").
fn located(id: TimerId, entry: Entry) -> (&'static str, Vec<u8>, Entry) {
    let id = id_bytes(id).to_vec();
    match &entry {
        Entry::Record(member) => ("records", member.clone(), entry),
        Entry::Key(member) => ("keys", member.clone(), entry),
        Entry::Keyless(member) => ("keyless", member.clone(), entry),
        Entry::Stopped(member) => ("stopped", member.clone(), entry),
        Entry::Label(member) => ("labels", member.clone(), entry),
        Entry::Parked(member) => ("parked", member.clone(), entry),
        Entry::Token(_) => ("tokens", id, entry),
        Entry::Lease(_) => ("leases", id, entry),
        Entry::Dead(_) => ("dead", id, entry),
        Entry::Pending(..) => ("slices", id, entry),
    }
}

fn timer_of(table: &str, member: &[u8]) -> Option<TimerId> {
    match table {
        "keys" | "keyless" | "labels" | "parked" | "stopped" => id_at_end(member),
        _ => id_of(member),
    }
}
