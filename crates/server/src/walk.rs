//! The position of a list of timers or schedules over all namespaces. Such a list, a *walk*, reads all pages of one
//! namespace, and then the pages of the next namespace.

use core::ops::Bound;
use std::collections::BTreeMap;
use tourbillon_durable::store::Cursor;

/// The position at which a list of timers or schedules over all namespaces continues: a namespace, and the cursor of
/// the next page in this namespace. Without a cursor, the namespace's first page is next. The list reads one namespace
/// after the other.
pub(crate) struct Place {
    pub(crate) namespace: Box<str>,
    pub(crate) cursor: Option<Cursor>,
}

impl Place {
    /// Returns the position at which the list reads the first page of the namespace that follows `other`. If `other` is
    /// `None`, this is the first namespace of the list. With `goes_back`, the list reads the namespaces in descending
    /// order. Returns `None` if no namespace follows.
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

    /// Encodes the position as bytes, for the cursor that a client gets with a page of the list. The bytes contain the
    /// length of the namespace's name, the name, and the bytes of the field `cursor`.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        // The name of a namespace has at most 64 bytes, so the fallback is never used.
        let length = u8::try_from(self.namespace.len()).unwrap_or(u8::MAX);
        let cursor = self.cursor.as_ref().map_or(&[][..], Cursor::as_bytes);
        [&[length], self.namespace.as_bytes(), cursor].concat()
    }

    /// Decodes a position from [`bytes`](Self::bytes). Returns `None` if the bytes are not a position.
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
