//! The map of a cluster's slots, which names the primary of each slot.

use crate::layout::SLOTS;
use core::fmt;
use redis::{Value, from_redis_value};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The host and port of a server, as the servers of its cluster name them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

/// The map of a cluster's slots, from the answer of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    /// All primaries of the map, sorted by address, without repetitions.
    primaries: Vec<Address>,
    /// For each slot, the index of its primary in `primaries`, or `None` if no primary is known.
    owners: Vec<Option<u16>>,
}

impl Address {
    /// Parses the address that a redirection (the error `MOVED` or `ASK`) names. `of_answer` is the address of the
    /// server that has sent the redirection. Returns `None` if the text is not an address.
    pub(crate) fn read(text: &str, of_answer: &Self) -> Option<Self> {
        // The last colon separates the port, because the host may be an IPv6 address, which contains colons.
        let (host, port) = text.rsplit_once(':')?;
        Self::at(host, port.parse().ok()?, of_answer)
    }

    /// Returns the address of this host and port, which a server has named in an answer. `of_answer` is the address of
    /// the server that answered. An empty host, `0.0.0.0` and `::` mean that server's own host. For the host `?`, the
    /// address is unknown and the result is `None`.
    fn at(host: &str, port: u16, of_answer: &Self) -> Option<Self> {
        let host = match host {
            "?" => return None,
            "" | "0.0.0.0" | "::" => Arc::clone(&of_answer.host),
            host => host.into(),
        };
        Some(Self { host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        write!(f, "{host}:{port}")
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self { primaries: Vec::new(), owners: vec![None; SLOTS as usize] }
    }
}

impl Slots {
    /// Parses a server's answer to `CLUSTER SLOTS`. `of_answer` is the address of that server. Returns `None` if the
    /// answer names no primary.
    pub(crate) fn read(answer: Value, of_answer: &Address) -> Option<Self> {
        // A range without a known primary is skipped, so that calls to the other slots go on.
        let ranges: Vec<_> = fields(answer).into_iter().filter_map(|range| read(range, of_answer)).collect();
        let primaries: BTreeSet<_> = ranges.iter().map(|(_, primary)| primary.clone()).collect();
        let mut slots = Self { primaries: primaries.into_iter().collect(), ..Self::default() };
        for (range, primary) in &ranges {
            let place = slots.primaries.binary_search(primary).ok().and_then(|place| place.try_into().ok());
            slots.owners.get_mut(range.clone())?.fill(place);
        }
        (!ranges.is_empty()).then_some(slots)
    }

    /// Returns the primaries of the map, sorted by address.
    pub(crate) fn primaries(&self) -> &[Address] {
        &self.primaries
    }

    /// Returns the primary that has this slot, or `None` if no primary is known.
    pub(crate) fn owner(&self, slot: u32) -> Option<&Address> {
        let place = (*self.owners.get(slot as usize)?)?;
        self.primaries.get(usize::from(place))
    }

    /// Returns a copy of the map in which `owner` is the primary of this slot, or `None` if `owner` is the primary
    /// already.
    pub(crate) fn with(&self, slot: u32, owner: &Address) -> Option<Self> {
        if self.owner(slot) == Some(owner) {
            return None;
        }
        let (mut owners, mut primaries) = (self.owners.clone(), self.primaries.clone());
        let place = match primaries.binary_search(owner) {
            Ok(place) => place,
            Err(place) => {
                primaries.insert(place, owner.clone());
                // The list is sorted, so the new primary moves all primaries after it by one place.
                let after = |other: &&mut u16| usize::from(**other) >= place;
                owners.iter_mut().flatten().filter(after).for_each(|other| *other += 1);
                place
            }
        };
        *owners.get_mut(slot as usize)? = u16::try_from(place).ok();
        Some(Self { primaries, owners })
    }
}

/// Parses a range of slots from the answer to `CLUSTER SLOTS`, and returns the range with its primary. A range is a
/// list of the first slot, the last slot and the nodes. The first node is the primary. Each node is a list itself,
/// which begins with a host and a port. `of_answer` is the address of the server that answered.
fn read(range: Value, of_answer: &Address) -> Option<(core::ops::Range<usize>, Address)> {
    let mut range = fields(range).into_iter();
    let (first, last) = (number(range.next()?)?, number(range.next()?)?);
    let mut primary = fields(range.next()?).into_iter();
    // Nil means the server's own host, as an empty host does.
    let host: Option<String> = from_redis_value(primary.next()?).ok()?;
    let port = u16::try_from(number(primary.next()?)?).ok()?;
    let primary = Address::at(host.as_deref().unwrap_or_default(), port, of_answer)?;
    Some((first..last.checked_add(1)?, primary))
}

fn number(value: Value) -> Option<usize> {
    from_redis_value(value).ok()
}

fn fields(value: Value) -> Vec<Value> {
    match value {
        Value::Array(fields) => fields,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::read(text, &Address { host: "answerer".into(), port: 1 }).expect("an address")
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())];
        Value::Array(vec![Value::Int(first), Value::Int(last), Value::Array(node)])
    }

    fn named(host: &str) -> Value {
        Value::BulkString(host.as_bytes().to_vec())
    }

    #[test]
    fn each_slot_has_the_primary_that_the_answer_names() {
        let answer = Value::Array(vec![
            range(8_192, 16_383, named("b"), 7_002),
            range(0, 8_190, Value::Nil, 7_001),
            range(8_191, 8_191, named("?"), 7_003),
        ]);
        let slots = Slots::read(answer, &address("answerer:7001")).expect("slots");
        assert_eq!(slots.primaries(), [address("answerer:7001"), address("b:7002")]);
        for (slot, owner) in [(0, ":7001"), (8_190, ":7001"), (8_192, "b:7002"), (16_383, "b:7002")] {
            assert_eq!(slots.owner(slot), Some(&address(owner)), "{slot}");
        }
        assert_eq!((slots.owner(8_191), slots.owner(16_384)), (None, None));
    }

    #[test]
    fn a_redirection_changes_one_slot() {
        let answer = Value::Array(vec![range(0, 99, named("b"), 1), range(100, 199, named("d"), 1)]);
        let slots = Slots::read(answer, &address(":1")).expect("slots");
        for owner in ["a:1", "b:1", "c:1", "e:1"] {
            let changed = slots.with(100, &address(owner)).expect("a change");
            assert_eq!(changed.owner(100), Some(&address(owner)));
            for (slot, other) in [(0, "b:1"), (99, "b:1"), (101, "d:1"), (199, "d:1")] {
                assert_eq!(changed.owner(slot), Some(&address(other)), "{owner}, slot {slot}");
            }
            assert!(changed.primaries().is_sorted());
        }
        assert_eq!(slots.with(100, &address("d:1")), None);
    }

    #[test]
    fn answers_that_name_no_primary_are_none() {
        let odd = [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(5, -1, named("a"), 1)]),
            Value::Array(vec![range(0, i64::MAX, named("a"), 1)]),
            Value::Array(vec![range(9, 5, named("a"), 1)]),
            Value::Array(vec![range(0, 5, named("a"), 70_000)]),
        ];
        for answer in odd {
            assert_eq!(Slots::read(answer.clone(), &address(":1")), None, "{answer:?}");
        }
        for text in ["no port", "?:7000", "host:70000"] {
            assert_eq!(Address::read(text, &address(":1")), None, "{text}");
        }
        for text in [":7000", "0.0.0.0:7000", ":::7000"] {
            assert_eq!(address(text), address("answerer:7000"), "{text}");
        }
        assert_eq!(address("::1:7000"), Address { host: "::1".into(), port: 7_000 });
    }
}
