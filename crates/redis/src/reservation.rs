//! Notes in the shards of ids: a timer is in another shard, or will be. [`outside`](crate::outside) has what they are
//! for.

use crate::layout::Shard;
use crate::stored::id_bytes;
use std::collections::BTreeMap;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::timer::TimerId;

/// The note that a timer is in another shard than its id says: the shard's number, and in a cluster a colon and a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note(Vec<u8>);

impl Note {
    /// A note of a new creation.
    pub(crate) fn fresh(home: Shard) -> Self {
        let [.., a, b, c, d] = id_bytes(TimerId::fresh());
        Self([home.to_string().as_bytes(), b":", &[a, b, c, d]].concat())
    }

    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn split(&self) -> (&[u8], &[u8]) {
        let colon = self.0.iter().position(|byte| *byte == b':').unwrap_or(self.0.len());
        self.0.split_at(colon)
    }

    /// The shard to which the note leads.
    pub(crate) fn home(&self) -> Option<Shard> {
        core::str::from_utf8(self.split().0).ok()?.parse().ok()
    }

    /// What stands among the memories of the note's shard if the note is void.
    pub(crate) fn void(&self, id: TimerId) -> Vec<u8> {
        [&id_bytes(id)[..], self.split().1].concat()
    }
}

/// A note that this operation has written for a timer that it may store.
#[derive(Clone, Debug)]
pub(crate) struct Reserved {
    pub(crate) note: Note,
    /// The moment, by the time of the shard of the id, from which on the reservation is over.
    pub(crate) until: UtcMillis,
}

/// The reservations of an operation.
pub(crate) type Reservations = BTreeMap<TimerId, Reserved>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_leads_to_its_shard_whatever_its_mark() {
        for home in [0, 7, 1_023] {
            let id = TimerId::from_u128(5);
            let (note, other) = (Note::fresh(home), Note::fresh(home));
            assert_eq!(note.home(), Some(home));
            assert_ne!(note.void(id), other.void(id), "two creations have two marks");
            let plain = Note::of(home.to_string().into_bytes());
            assert_eq!(plain.home(), Some(home), "a note of one server");
            assert_eq!(plain.void(id), id_bytes(id));
        }
        let mark_with_colon = Note::of(b"12:::::".to_vec());
        assert_eq!(mark_with_colon.home(), Some(12));
        for bad in [&b""[..], b":", b"x:1234", b"70000"] {
            assert_eq!(Note::of(bad.to_vec()).home(), None);
        }
    }
}
