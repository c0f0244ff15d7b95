//! Finds the next place in a walk over namespaces, which reads the pages of each namespace's list.

use core::ops::Bound;
use std::collections::BTreeMap;
use tourbillon_durable::store::Cursor;

/// A place in a walk: a namespace, and the cursor of the next page of its list.
pub(crate) struct Place {
    pub(crate) namespace: Box<str>,
    pub(crate) cursor: Option<Cursor>,
}

impl Place {
    /// Returns the beginning of the namespace that follows `other`. Without `other`, it is the first namespace of the
    /// walk. If the walk goes back, the order is reversed. `None` at the end of the walk.
    pub(crate) fn behind<T>(
        all: &BTreeMap<Box<str>, T>,
        other: Option<&str>,
        goes_back: bool,
    ) -> Option<Self> {
        let other = other.map_or(Bound::Unbounded, Bound::Excluded);
        let next = match goes_back {
            true => all.range::<str, _>((Bound::Unbounded, other)).next_back(),
            false => all.range::<str, _>((other, Bound::Unbounded)).next(),
        };
        next.map(|(name, _)| Self { namespace: name.clone(), cursor: None })
    }

    /// Encodes the place: the length of the namespace's name, the name, and the cursor.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let length = u8::try_from(self.namespace.len()).unwrap_or(u8::MAX);
        let cursor = self.cursor.as_ref().map_or(&[][..], Cursor::as_bytes);
        [&[length], self.namespace.as_bytes(), cursor].concat()
    }

    /// Decodes a place that [`bytes`](Self::bytes) has encoded. `None` if the bytes are not a place.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first()?;
        let (namespace, cursor) = rest.split_at_checked(usize::from(*length))?;
        let cursor = Some(cursor).filter(|cursor| !cursor.is_empty()).map(Cursor::from_bytes);
        Some(Self { namespace: core::str::from_utf8(namespace).ok()?.into(), cursor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_meets_each_namespace_once_in_both_directions() {
        let all: BTreeMap<Box<str>, ()> = ["a", "ab", "b"].map(|name| (name.into(), ())).into();
        for (goes_back, expected) in [(false, ["a", "ab", "b"]), (true, ["b", "ab", "a"])] {
            let (mut met, mut place) = (Vec::new(), Place::behind(&all, None, goes_back));
            while let Some(at) = place {
                let at = Place::of(&at.bytes()).unwrap();
                assert!(at.cursor.is_none());
                place = Place::behind(&all, Some(&at.namespace), goes_back);
                met.push(at.namespace);
            }
            assert_eq!(met, expected.map(Box::from));
        }
        let at = Place { namespace: "a".into(), cursor: Some(Cursor::from_bytes(b"xy")) };
        assert_eq!(Place::of(&at.bytes()).unwrap().cursor, at.cursor);
        assert!(Place::of(b"").is_none() && Place::of(b"\x05ab").is_none());
    }
}
