//! The names of a deployment's keys, and the choice of the shard for a timer.
//!
//! A key's name is `tb:{deployment:shard.n}:part`. The text in the braces is the shard's *tag*: Redis Cluster keeps all
//! keys with the same tag in the same slot. The number `n` is the smallest number that puts the tag into the middle of
//! the shard's share of the slots. So the shards of a deployment lie evenly over the slots. They also lie evenly over
//! the primaries, if these have equal ranges of slots. The names contain no text from users: namespaces, keys of
//! timers, labels and reasons are stored in members and fields.

use super::slice::Slice;
use super::slot::{Shard, tag_of};
use tourbillon_durable::timer::{Timer, TimerId};

/// The version of the stored layout that this crate writes. A deployment with a lower or higher version is refused.
pub(crate) const VERSION: u64 = 6;

/// Returns the id for a new deployment: [`VERSION`], a dot, and a random text. Each shard stores this id, so the
/// version of the layout is known even if the deployment's own key is lost.
pub(crate) fn fresh_deployment_id() -> Vec<u8> {
    format!("{VERSION}.{}", TimerId::fresh()).into_bytes()
}

/// Reads the version of the layout from the id of a deployment. Returns `None` for an id without a version, as in
/// old layouts.
pub(crate) fn version_in(id: &[u8]) -> Option<u64> {
    core::str::from_utf8(id).ok()?.split_once('.')?.0.parse().ok()
}

/// The parts of a shard's stored data. Each part is stored under a key of its own.
///
/// In a sorted set *in the order of the members*, all members have the same score, so Redis sorts them by their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    /// A hash with the id of the deployment, and with the owner of the shard: the only node that claims the shard's
    /// pending timers.
    Meta,
    /// A sorted set of all timers, in the order of the members. A member is: id, length of the payload, encoded record.
    Records,
    /// A hash of leased timers. The field is the id. The value is the token, and a byte that shows whether the timer
    /// was withdrawn.
    Tokens,
    /// A sorted set of leased timers. A member is an id, and its score is the moment at which the lease ends.
    Leases,
    /// A sorted set of the keys of timers, in the order of the members. A member is: namespace, key, id. A timer that
    /// owns no key and is not dead has the member: namespace, 255, id. A shard has several of these sorted sets, each
    /// with a number. [`Layout::key_set`] and [`Layout::keyless_set`] choose the sorted set for a timer.
    Keys(u16),
    /// A sorted set that says which of the sorted sets [`Keys`](Self::Keys) may have entries of a namespace. A member
    /// is a namespace, followed by the number of one sorted set `Keys`. The sorted set is in the order of the members.
    Places,
    /// A sorted set of the timers that are parked (set aside for a reason) or dead (not delivered again), in the order
    /// of the members. The member of a parked timer is: namespace, phase, reason, due moment, id. The member of a dead
    /// timer is: namespace, phase, moment of death, id.
    Stopped,
    /// A sorted set of the timers' labels, in the order of the members. A member is: namespace, label, id.
    Labels,
    /// A sorted set of parked timers, in the order of the members. A parked timer is set aside for a reason, and not
    /// delivered even if it is due. A member is: reason, due moment, id.
    Parked,
    /// A sorted set of dead timers, which are not delivered again. A member is an id, and its score is the moment of
    /// death.
    Dead,
    /// A sorted set of members that the shard remembers for some time. The score of a member is the moment until which
    /// the shard remembers it. A member is one of:
    ///
    /// - The id of an ended timer, if the caller chose the id.
    /// - The id of a timer and the random mark of a [redirect](crate::layout::Redirect) for this id. While the
    ///   shard remembers this member, the creation that has written the redirect cannot store its timer.
    Recent,
    /// A hash of the numbers of timers. A field is a namespace and a phase, and its value is the number of the
    /// namespace's timers in that phase.
    Counts,
    /// The quarantine: a hash of records that could not be read. The field is the timer's id, and the value is the
    /// record.
    Quarantined,
    /// A sorted set of the [slices](Slice) (groups of pending timers) that are not empty. A member is the number of
    /// a slice, and its score is the slice's first due moment.
    Slices,
    /// A sorted set of the pending timers of one slice. A member is an id, and its score is the due moment.
    Slice(Slice),
    /// A hash of timers that are stored in another shard, although their ids belong to this shard. The field is the id,
    /// and the value is a [redirect](crate::layout::Redirect), which has the number of the other shard.
    Redirects(u8),
}

/// The number of hashes [`Part::Redirects`] into which a shard divides its redirects. Redis keeps a hash with few
/// fields in a compact form.
pub(crate) const REDIRECT_HASHES: u16 = 256;

/// The number of sorted sets [`Part::Keys`] of a deployment. With many sorted sets, each sorted set has few members,
/// and Redis keeps a small sorted set in a compact form. The disadvantage is that a caller who lists timers in the
/// order of their keys must read all these sorted sets.
const KEY_SETS: u16 = 8_192;

/// The greatest number of shards of a deployment.
pub(crate) const MOST_SHARDS: u16 = 1_024;

/// Computes the names of the keys that store a deployment's data.
#[derive(Debug)]
pub(crate) struct Layout {
    shards: u16,
    /// The hash tag of each shard, without braces. All keys of the shard have the tag.
    tags: Vec<Box<str>>,
    /// The number of sorted sets [`Part::Keys`] of all shards together.
    key_sets: u16,
}

impl Layout {
    /// Computes the hash tags of the deployment `name` with `shards` shards, which must be a power of two.
    pub(crate) fn new(name: &str, shards: u16) -> Self {
        let tags = (0..shards).map(|shard| tag_of(name, shard, shards)).collect();
        Self { shards, tags, key_sets: KEY_SETS }
    }

    /// Returns the same layout with another number of sorted sets [`Part::Keys`], which must be a power of two. A test
    /// that reads all sets again and again is quicker with fewer sets.
    #[cfg(test)]
    pub(crate) fn with_key_sets(self, key_sets: u16) -> Self {
        Self { key_sets, ..self }
    }

    /// Returns the hash tags of all shards, without braces.
    pub(crate) fn tags(&self) -> impl Iterator<Item = &[u8]> {
        self.tags.iter().map(|tag| tag.as_bytes())
    }

    /// Returns the key that stores the deployment's own settings.
    pub(crate) fn deployment(name: &str) -> Vec<u8> {
        format!("tb:{{{name}}}:deployment").into_bytes()
    }

    /// Returns the key of the hash that stores the deployment's shared documents
    /// ([`SharedDocument`](crate::SharedDocument)).
    pub(crate) fn documents(name: &str) -> Vec<u8> {
        format!("tb:{{{name}}}:notes").into_bytes()
    }

    /// Returns the key of a sorted set whose members are the nodes. A node's score is the moment at which the node last
    /// reported that it is alive.
    pub(crate) fn signs(name: &str) -> Vec<u8> {
        format!("tb:{{{name}}}:nodes").into_bytes()
    }

    /// Returns the key that stores the nodes' registration records.
    pub(crate) fn node_records(name: &str) -> Vec<u8> {
        format!("tb:{{{name}}}:about").into_bytes()
    }

    /// Returns the channel of the messages to all nodes.
    pub(crate) fn channel(name: &str) -> Vec<u8> {
        format!("tb:{{{name}}}:hints").into_bytes()
    }

    /// Returns the channel to which the node with the number `node` listens while it is connected.
    pub(crate) fn channel_of(name: &str, node: u64) -> Vec<u8> {
        format!("tb:{{{name}}}:node:{node}").into_bytes()
    }

    /// Returns a key that never exists, in the slot of the key `beside`. Each script gets such a key as its last key.
    /// The key has an effect only while a cluster moves the slot from one server to another. In this time, each of the
    /// two servers starts a script only if all keys of the script exist on that server. So both servers refuse all
    /// scripts of this crate until the slot has moved. Without the key that never exists, a server could start a
    /// script, and the script could fail in the middle, at a key that it has removed itself.
    pub(crate) fn absent(beside: &[u8]) -> Vec<u8> {
        let end = beside.iter().position(|byte| *byte == b'}').map_or(beside.len(), |at| at + 1);
        let (tag, _) = beside.split_at(end);
        [tag, b":absent"].concat()
    }

    pub(crate) fn shards(&self) -> core::ops::Range<Shard> {
        0..self.shards
    }

    pub(crate) fn key(&self, shard: Shard, part: Part) -> Vec<u8> {
        let mut number = None;
        let part = match part {
            Part::Meta => "meta",
            Part::Records => "records",
            Part::Tokens => "tokens",
            Part::Leases => "leases",
            Part::Keys(set) => {
                number = Some(set.into());
                "k:"
            }
            Part::Places => "places",
            Part::Stopped => "stopped",
            Part::Labels => "labels",
            Part::Parked => "parked",
            Part::Dead => "dead",
            Part::Recent => "recent",
            Part::Counts => "counts",
            Part::Quarantined => "aside",
            Part::Slices => "slices",
            Part::Slice(slice) => {
                number = Some(slice.number());
                "q:"
            }
            Part::Redirects(bucket) => {
                number = Some(bucket.into());
                "h:"
            }
        };
        // Callers name shards of the layout. Any other number gets an empty tag, which no shard has.
        let tag = self.tags.get(usize::from(shard)).map_or("", |tag| tag);
        let mut key = Vec::with_capacity(tag.len() + 16);
        for text in ["tb:{", tag, "}:", part] {
            key.extend_from_slice(text.as_bytes());
        }
        if let Some(number) = number {
            key.extend_from_slice(number.to_string().as_bytes());
        }
        key
    }

    /// Returns the keys that store `parts` of a shard, in the order of `parts`.
    pub(crate) fn keys<const N: usize>(&self, shard: Shard, parts: [Part; N]) -> Vec<Vec<u8>> {
        parts.into_iter().map(|part| self.key(shard, part)).collect()
    }

    fn shard_of(&self, bytes: &[u8]) -> Shard {
        self.shard_with(crc32fast::hash(bytes))
    }

    /// Returns the shard that a checksum selects.
    fn shard_with(&self, sum: u32) -> Shard {
        // The number of shards is a power of two. So the last bits of the checksum choose the shard, and the choice is
        // linear in the bytes, as `fresh_id` requires.
        let mask = u32::from(self.shards) - 1;
        Shard::try_from(sum & mask).unwrap_or_default()
    }

    /// Returns the shard to which a timer id belongs. The timer is stored in this shard or in another shard. If it is
    /// stored in another shard, this shard has a [redirect](crate::layout::Redirect) for the id, with the number of the
    /// other shard.
    pub(crate) fn shard_of_id(&self, id: TimerId) -> Shard {
        self.shard_of(&id.as_u128().to_be_bytes())
    }

    /// Returns a new id for a timer with this key. The id belongs to the shard of the key.
    pub(crate) fn fresh_id(&self, namespace: &str, key: &str) -> TimerId {
        let (shard, id) = (self.shard_of_key(namespace, key), TimerId::fresh());
        let bits = id.as_u128();
        // The loop changes the last two bytes by XOR with 0, 1, 2 and so on, and takes the first number that leads to
        // the shard. The checksum is linear, so this number is the same for all drawn ids of one shard. XOR with a
        // fixed number maps these ids one to one to ids of the wanted shard. So all endings that lead to the wanted
        // shard stay equally likely.
        let [first @ .., _, _] = bits.to_be_bytes();
        let mut sum = crc32fast::Hasher::new();
        sum.update(&first);
        let last = u16::try_from(bits & 0xffff).unwrap_or_default();
        let is_there = |last: &u16| {
            let mut sum = sum.clone();
            sum.update(&last.to_be_bytes());
            self.shard_with(sum.finalize()) == shard
        };
        // Each shard has endings that lead to it, so the search succeeds. With an id of another shard, the timer would
        // only need a redirect.
        let last = (0..=u16::MAX).map(|difference| last ^ difference).find(is_there).unwrap_or(last);
        TimerId::from_u128(bits >> 16 << 16 | u128::from(last))
    }

    /// Returns the shard that stores a timer with this key.
    pub(crate) fn shard_of_key(&self, namespace: &str, key: &str) -> Shard {
        let length = u8::try_from(namespace.len()).unwrap_or(u8::MAX);
        self.shard_of(&[&[length], namespace.as_bytes(), key.as_bytes()].concat())
    }

    /// Returns the sorted set [`Part::Keys`] that stores a timer's key, in the shard of the key. `entry` is the key as
    /// [`key_entry`](crate::layout::key_entry) encodes it, without the timer's id.
    pub(crate) fn keys_of(&self, entry: &[u8]) -> Part {
        Part::Keys(self.key_set(entry))
    }

    /// Returns the number of the sorted set [`Part::Keys`] that stores a timer's key. `entry` is the key as
    /// [`key_entry`](crate::layout::key_entry) encodes it, without the timer's id.
    pub(crate) fn key_set(&self, entry: &[u8]) -> u16 {
        // The first bytes of the checksum choose the set, because the last bits of a similar checksum choose the shard.
        let [first, second, ..] = crc32fast::hash(entry).to_be_bytes();
        u16::from_be_bytes([first, second]) & (self.key_sets().end - 1)
    }

    /// Returns the number of the sorted set [`Part::Keys`] that stores the [entry](crate::layout::keyless_entry) of the
    /// timer `id`. The timer has no key, but still has an entry in one of these sorted sets.
    pub(crate) fn keyless_set(&self, id: TimerId) -> u16 {
        self.key_set(&id.as_u128().to_be_bytes())
    }

    /// Returns the numbers of all sorted sets [`Part::Keys`] of one shard.
    pub(crate) fn key_sets(&self) -> core::ops::Range<u16> {
        0..self.key_sets / self.shards.clamp(1, self.key_sets)
    }

    /// Returns the shard that stores a new timer: the shard of its key, or else of its series, or else of its id. So
    /// timers of one key share a shard, and so do keyless timers of one series.
    pub(crate) fn home_of(&self, timer: &Timer) -> Shard {
        match (&timer.key, &timer.series) {
            (Some(key), _) => self.shard_of_key(&timer.namespace, key),
            (None, Some(series)) => self.shard_of_id(series.id),
            (None, None) => self.shard_of_id(timer.id),
        }
    }

    /// Returns the hash [`Part::Redirects`] for a timer id, in the shard of the id. If another shard stores the
    /// timer, this hash has the [redirect](crate::layout::Redirect) to that shard.
    pub(crate) fn redirects_of(id: TimerId) -> Part {
        // All ids of a shard have the same last bits of the checksum, so another byte chooses the hash.
        let [_, bucket, ..] = crc32fast::hash(&id.as_u128().to_be_bytes()).to_be_bytes();
        Part::Redirects(bucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::entry::key_entry;
    use crate::layout::{SLOTS, slot_of};

    #[test]
    fn an_absent_key_is_in_the_slot_of_its_neighbour_and_is_none_of_a_deployments() {
        let layout = Layout::new("jobs", 4);
        let absent = Layout::absent(&layout.key(2, Part::Slice(Slice::of("n", 7))));
        assert_eq!(slot_of(&absent), slot_of(&layout.key(2, Part::Meta)));
        assert!(absent.ends_with(b"}:absent"), "no part has this name");
        assert_eq!(Layout::absent(&Layout::documents("jobs")), b"tb:{jobs}:absent");
    }

    /// Tests item F-25 of the table in `crates/fault/DESIGN.md`: the hash tag of each shard puts the shard's keys into
    /// a slot of the shard's own range. Another test, on a cluster, checks that every script uses the keys of one slot.
    #[test]
    fn the_tags_of_a_deployment_are_even_and_every_script_is_in_one_slot() {
        for name in ["d", "orders", "a.very-long_name.of-a-deployment"] {
            let layout = Layout::new(name, 64);
            let slots: Vec<u32> = layout.tags.iter().map(|tag| slot_of(tag.as_bytes())).collect();
            for masters in [3_u32, 4, 6] {
                // As `redis-cli --cluster create` divides the slots.
                let master_of = |slot: u32| usize::try_from(slot * masters / SLOTS).unwrap();
                let mut shards = vec![0_u32; masters as usize];
                slots.iter().for_each(|slot| shards[master_of(*slot)] += 1);
                let share = 64.0 / f64::from(masters);
                let is_even = |count: &u32| (f64::from(*count) - share).abs() <= share * 0.1;
                assert!(shards.iter().all(is_even), "{name}: {shards:?} on {masters} masters");
            }
        }
        for shards in [1, 4, MOST_SHARDS] {
            let (layout, share) = (Layout::new("d", shards), SLOTS / u32::from(shards));
            for shard in layout.shards() {
                let tag = &layout.tags[usize::from(shard)];
                assert_eq!(slot_of(tag.as_bytes()) / share, u32::from(shard), "{tag}");
                let names =
                    [Part::Records, Part::Slice(Slice::of("n", 3_528_000_000_000)), Part::Redirects(7)];
                let is_tagged = |name: &Vec<u8>| name.starts_with(format!("tb:{{{tag}}}:").as_bytes());
                assert!(layout.keys(shard, names).iter().all(is_tagged));
            }
        }
    }

    #[test]
    fn a_fresh_id_is_in_the_shard_of_its_key_and_as_random_and_sorted_as_any() {
        for shards in [1, 64, MOST_SHARDS] {
            let layout = Layout::new("d", shards);
            let mut ids = Vec::new();
            for n in 0..3_000 {
                let key = format!("order-{n}");
                let id = layout.fresh_id("shop", &key);
                assert_eq!(layout.shard_of_id(id), layout.shard_of_key("shop", &key));
                ids.push(id);
            }
            // All but the last two bytes are those of an id that was drawn.
            assert!(ids.is_sorted_by_key(|id| id.as_u128() >> 80), "the moments of the calls");
            let mut ends: Vec<u128> = ids.iter().map(|id| id.as_u128() & 0xffff).collect();
            ends.sort_unstable();
            ends.dedup();
            // 3,000 draws of 65,536 ends meet some 2,930 different ends.
            assert!(ends.len() > 2_850, "{} ends of ids", ends.len());
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), 3_000);
        }
    }

    #[test]
    fn the_keys_of_a_shard_lie_evenly_over_its_sets() {
        for shards in [1, 64, MOST_SHARDS] {
            let layout = Layout::new("d", shards);
            let mut sets = vec![0_u32; usize::from(KEY_SETS)];
            for n in 0..40 * u32::from(KEY_SETS) {
                let key = format!("order-{n}");
                let Part::Keys(set) = layout.keys_of(&key_entry("shop", &key)) else { panic!("no set") };
                assert!(layout.key_sets().contains(&set));
                let shard = layout.shard_of_key("shop", &key);
                sets[usize::from(shard) * layout.key_sets().len() + usize::from(set)] += 1;
            }
            let is_even = |count: &u32| (8..100).contains(count);
            assert!(sets.iter().all(is_even), "{shards}: {:?} to {:?}", sets.iter().min(), sets.iter().max());
        }
    }

    #[test]
    fn a_tag_stays_as_it_is() {
        // Another tag would hide the stored data of a deployment.
        let layout = Layout::new("d", 4);
        let names: Vec<_> = layout.shards().map(|shard| layout.key(shard, Part::Records)).collect();
        let names: Vec<_> = names.iter().map(|name| core::str::from_utf8(name).unwrap()).collect();
        assert_eq!(
            names,
            ["tb:{d:0.74}:records", "tb:{d:1.301}:records", "tb:{d:2.272}:records", "tb:{d:3.163}:records"]
        );
    }
}
