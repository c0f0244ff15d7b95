//! The keys of a deployment, and which of its shards has a timer.
//!
//! A key's name is `tb:{deployment:shard}:part`. The braces make Redis Cluster keep all keys of a shard on one node. Names
//! hold no text of a user's: namespaces, keys, labels and reasons stand in members and fields.

use tourbillon_durable::timer::{Timer, TimerId};

/// A shard's number.
pub(crate) type Shard = u16;

/// The parts of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Hash: the deployment's id, and the owner.
    Meta,
    /// Sorted set, by member: id, length of the payload, record.
    Records,
    /// Hash, of leased timers: id, token and mark.
    Tokens,
    /// Sorted set, of leased timers: id, by the end of the lease.
    Leases,
    /// Sorted set, by member: namespace, key, id.
    Keys,
    /// Sorted set, by member: namespace, label, id.
    Labels,
    /// Sorted set, by member: reason, due moment, id.
    Parked,
    /// Sorted set: id, by the moment of death.
    Dead,
    /// Sorted set, of ended timers whose callers chose their ids: id, by the moment until which it is remembered.
    Recent,
    /// Hash: namespace and phase, number of timers.
    Counts,
    /// Hash: id, record that could not be read.
    Aside,
    /// Sorted set: hour of each slice that is not empty, by its first due moment.
    Slices,
    /// Sorted set, of the pending timers of one hour of UTC: id, by due moment.
    Slice(u64),
    /// Hash, of timers that are in another shard than their ids say: id, shard.
    Homes(u8),
}

/// The numbers of hashes of homes in a shard: with few fields each, Redis keeps them in a compact form.
pub(crate) const HOMES: u16 = 256;

/// The most shards of a deployment.
pub(crate) const MOST_SHARDS: u16 = 1_024;

const HOUR: u64 = 3_600_000;

/// The hour of UTC in which a moment is, in milliseconds since the start of 1970.
pub(crate) const fn hour_of(moment: u64) -> u64 {
    moment / HOUR
}

/// The first millisecond of an hour.
pub(crate) const fn start_of(hour: u64) -> u64 {
    hour * HOUR
}

/// The names of a deployment's keys.
#[derive(Debug)]
pub(crate) struct Layout {
    name: Box<str>,
    shards: u16,
}

impl Layout {
    /// The layout of a deployment with so many shards, a power of two.
    pub(crate) fn new(name: &str, shards: u16) -> Self {
        Self { name: name.into(), shards }
    }

    /// The key of the deployment itself.
    pub(crate) fn deployment(name: &str) -> Vec<u8> {
        format!("tb:{{{name}}}:deployment").into_bytes()
    }

    /// The key of the deployment's notes.
    pub(crate) fn notes(&self) -> Vec<u8> {
        format!("tb:{{{}}}:notes", self.name).into_bytes()
    }

    /// The key of the nodes by the moments of their last signs of life.
    pub(crate) fn signs(name: &str) -> Vec<u8> {
        format!("tb:{{{name}}}:nodes").into_bytes()
    }

    /// The key of what the nodes say of themselves.
    pub(crate) fn texts(name: &str) -> Vec<u8> {
        format!("tb:{{{name}}}:about").into_bytes()
    }

    /// The channel of the nodes' hints.
    pub(crate) fn channel(name: &str) -> Vec<u8> {
        format!("tb:{{{name}}}:hints").into_bytes()
    }

    pub(crate) fn shards(&self) -> core::ops::Range<Shard> {
        0..self.shards
    }

    pub(crate) fn key(&self, shard: Shard, part: Part) -> Vec<u8> {
        let part: &str = match part {
            Part::Meta => "meta",
            Part::Records => "records",
            Part::Tokens => "tokens",
            Part::Leases => "leases",
            Part::Keys => "keys",
            Part::Labels => "labels",
            Part::Parked => "parked",
            Part::Dead => "dead",
            Part::Recent => "recent",
            Part::Counts => "counts",
            Part::Aside => "aside",
            Part::Slices => "slices",
            Part::Slice(hour) => &format!("q:{hour}"),
            Part::Homes(bucket) => &format!("h:{bucket}"),
        };
        format!("tb:{{{}:{shard}}}:{part}", self.name).into_bytes()
    }

    /// The keys of some parts of a shard.
    pub(crate) fn keys<const N: usize>(&self, shard: Shard, parts: [Part; N]) -> Vec<Vec<u8>> {
        parts.into_iter().map(|part| self.key(shard, part)).collect()
    }

    fn shard_of(&self, bytes: &[u8]) -> Shard {
        let mask = u32::from(self.shards) - 1;
        Shard::try_from(crc32fast::hash(bytes) & mask).unwrap_or_default()
    }

    /// The shard that knows where the timer with this id is: its own, unless [`Part::Homes`] has another one.
    pub(crate) fn shard_of_id(&self, id: TimerId) -> Shard {
        self.shard_of(&id.as_u128().to_be_bytes())
    }

    /// The shard of the timer that has this key.
    pub(crate) fn shard_of_key(&self, namespace: &str, key: &str) -> Shard {
        let length = u8::try_from(namespace.len()).unwrap_or(u8::MAX);
        self.shard_of(&[&[length], namespace.as_bytes(), key.as_bytes()].concat())
    }

    /// The shard in which a new timer is stored: with the others of its key, or of its series.
    pub(crate) fn home_of(&self, timer: &Timer) -> Shard {
        match (&timer.key, &timer.series) {
            (Some(key), _) => self.shard_of_key(&timer.namespace, key),
            (None, Some(series)) => self.shard_of_id(series.id),
            (None, None) => self.shard_of_id(timer.id),
        }
    }

    /// The hash of homes that has an id.
    pub(crate) fn homes_of(id: TimerId) -> Part {
        let [_, bucket, ..] = crc32fast::hash(&id.as_u128().to_be_bytes()).to_be_bytes();
        Part::Homes(bucket)
    }
}
