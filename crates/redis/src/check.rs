//! The check of the structure: each shard as it is at one moment.

use crate::commit::{count_field, text};
use crate::layout::{HOMES, Layout, Part, Shard, Slice, period_of};
use crate::lists::pairs;
use crate::reservation::Note;
use crate::shared::Core;
use crate::stored::{Entry, Found, entries, id_at_end, id_bytes, id_of, is_keyless, place_entry, without_id};
use crate::values::{Values, bytes, number};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tourbillon_durable::store::{Fault, StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Timer, TimerId};

/// Reads of a shard whose slices change all the time.
const TURNS: usize = 20;
/// Faults after which a check stops.
const MOST_FAULTS: usize = 1_000;

/// A sorted set: members with scores.
type Scored = Vec<(Vec<u8>, u64)>;

/// The content of a shard.
struct Whole {
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

impl Core {
    pub(crate) async fn check(&self) -> Result<Vec<Fault>, StoreError> {
        let mut faults = self.losses().await?;
        let (mut homes, mut wanted) = (BTreeMap::new(), BTreeMap::new());
        for shard in self.layout.shards() {
            let whole = self.whole(shard).await?;
            let timers = faults_of(&self.layout, shard, &whole, &mut faults);
            for timer in timers.iter().filter(|timer| self.layout.shard_of_id(timer.id) != shard) {
                wanted.insert(timer.id, shard);
            }
            for (id, home) in whole.homes {
                if let (Some(id), Some(home)) = (id_of(&id), Note::of(home).home()) {
                    homes.insert(id, home);
                }
            }
            if faults.len() >= MOST_FAULTS {
                return Ok(faults);
            }
        }
        let ids: BTreeSet<&TimerId> = homes.keys().chain(wanted.keys()).collect();
        // In a cluster, a note may lead nowhere.
        let is_fault =
            |id: &&TimerId| homes.get(id) != wanted.get(id) && (!self.is_split || wanted.contains_key(id));
        for id in ids.into_iter().filter(is_fault) {
            let fault = format!("its shard is {:?}, noted as {:?}", wanted.get(id), homes.get(id));
            faults.push(Fault::new("homes", Some(*id), fault));
        }
        Ok(faults)
    }

    /// The content of a shard at one moment.
    async fn whole(&self, shard: Shard) -> Result<Whole, StoreError> {
        let mut named: Vec<Slice> = Vec::new();
        for _ in 0..TURNS {
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
            let homes = (0..HOMES).filter_map(|bucket| u8::try_from(bucket).ok()).map(Part::Homes);
            let sets = self.layout.key_sets().map(Part::Keys);
            let parts = parts.into_iter().chain(slices).chain(sets).chain(homes);
            let keys = parts.map(|part| self.layout.key(shard, part));
            let count = text((named.len() + self.layout.key_sets().len()) as u64);
            let mut rest = self.run(|scripts| &scripts.whole, keys.collect(), [count]).await?.rest;
            let records = scored(&mut rest)?;
            let tokens = pairs(&mut rest)?;
            let (leases, labels) = (scored(&mut rest)?, scored(&mut rest)?);
            let (parked, dead) = (scored(&mut rest)?, scored(&mut rest)?);
            let counts = pairs(&mut rest)?;
            let directory = scored(&mut rest)?;
            let (stopped, places) = (scored(&mut rest)?, scored(&mut rest)?);
            // In the order of their numbers: that of their first due moments changes all the time.
            let open: BTreeSet<Slice> = directory.iter().filter_map(|(name, _)| Slice::named(name)).collect();
            let open: Vec<Slice> = open.into_iter().collect();
            if open != named {
                named = open;
                continue;
            }
            let slices: Result<Vec<_>, StoreError> =
                named.iter().map(|slice| Ok((*slice, scored(&mut rest)?))).collect();
            let slices = slices?;
            let keys: Result<Vec<_>, StoreError> =
                self.layout.key_sets().map(|set| Ok((set, scored(&mut rest)?))).collect();
            let keys = keys?;
            let mut homes = HashMap::new();
            while !rest.is_empty() {
                homes.extend(pairs(&mut rest)?);
            }
            return Ok(Whole {
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
        Err(StoreError::new(StoreErrorKind::Io, message))
    }
}

fn scored(values: &mut Values) -> Result<Scored, StoreError> {
    let mut list = Values::of(values.next()?)?;
    let mut scored = Vec::new();
    while !list.is_empty() {
        let member = bytes(list.next()?)?.unwrap_or_default();
        scored.push((member, number(&list.next()?)?));
    }
    Ok(scored)
}

/// Adds the faults of a shard. Returns its timers.
fn faults_of(layout: &Layout, shard: Shard, whole: &Whole, faults: &mut Vec<Fault>) -> Vec<Timer> {
    let ends: HashMap<&[u8], u64> = whole.leases.iter().map(|(id, until)| (&id[..], *until)).collect();
    let (mut timers, mut wanted, mut counts) = (Vec::new(), BTreeSet::new(), HashMap::<Vec<u8>, u64>::new());
    for (member, _) in &whole.records {
        let id = member.get(..16).unwrap_or_default();
        let (mark, until) = (whole.tokens.get(id).cloned(), ends.get(id).copied().unwrap_or_default());
        match Found::read(shard, member.clone(), mark, until) {
            Some(found) => {
                let is_leased = found.token.is_some();
                let of = |entry| match entry {
                    // That of the timer before it was leased: it was pending, or parked.
                    Entry::Record(_) if is_leased => Entry::Record(member.clone()),
                    entry => entry,
                };
                wanted.extend(entries(&found.timer).into_iter().map(|entry| located(found.id(), of(entry))));
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
    add("records", &whole.records, &|member, _| Entry::Record(member.to_vec()));
    add("leases", &whole.leases, &|_, until| Entry::Lease(until));
    let places: BTreeSet<&[u8]> = whole.places.iter().map(|(place, _)| &place[..]).collect();
    for (set, keys) in &whole.keys {
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
            if !places.contains(&place_entry(member, *set)[..]) {
                faults.push(Fault::new("places", id, "the place of the entry's namespace is missing"));
            }
        }
    }
    add("stopped", &whole.stopped, &|member, _| Entry::Stopped(member.to_vec()));
    add("labels", &whole.labels, &|member, _| Entry::Label(member.to_vec()));
    add("parked", &whole.parked, &|member, _| Entry::Parked(member.to_vec()));
    add("dead", &whole.dead, &|_, at| Entry::Dead(at));
    for (slice, timers) in &whole.slices {
        add("slices", timers, &|_, due| Entry::Pending(*slice, due));
        let (number, first) = (slice.number(), timers.first().map(|(_, due)| *due));
        let noted = whole.directory.iter().find(|(name, _)| *name == text(number)).map(|(_, due)| *due);
        let is_wrong = timers.iter().any(|(_, due)| period_of(*due) != slice.period());
        if first != noted || is_wrong {
            let fault = format!("slice {number} of shard {shard} begins with {first:?}, noted as {noted:?}");
            faults.push(Fault::new("slices", None, fault));
        }
    }
    for (id, mark) in &whole.tokens {
        found.insert(("tokens", id.clone(), Entry::Token(mark.clone())));
    }
    for (table, member, _) in wanted.difference(&found) {
        faults.push(Fault::new(table, timer_of(table, member), "the entry is missing"));
    }
    for (table, member, _) in found.difference(&wanted) {
        faults.push(Fault::new(table, timer_of(table, member), "the entry is not its timer's"));
    }
    let stored: HashMap<Vec<u8>, u64> = whole
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

/// An entry with the names of its table and its member.
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
