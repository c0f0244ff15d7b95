//! The stored form of a timer in a shard: its record, and its entries in the shard's other keys.
//!
//! A claim never changes a record, so its script need not parse records. The token and the end of a lease are stored
//! beside the record. The record of a leased timer therefore still has the state before the claim: pending or parked.
//!
//! Timers are found by their keys through the Redis sorted sets [`Part::Keys`]. These sorted sets have an entry for
//! each timer that owns a key, and for each timer that owns no key and is not dead.

use super::keys::Part;
use super::slice::Slice;
use super::slot::Shard;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Lease, Phase, State, Token, Withdrawal};
use tourbillon_durable::store::dry_run::{decode, encode};
use tourbillon_durable::timer::{Timer, TimerId};

/// A timer that was read from a shard, in its decoded and its stored form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) shard: Shard,
    /// The timer as a member of the shard's set of records: id, length of the payload, encoded record.
    pub(crate) member: Vec<u8>,
    /// The value that the shard stores for a leased timer: the token of the lease, and a byte that shows whether the
    /// timer was withdrawn. `None` if the timer is not leased.
    pub(crate) token: Option<Vec<u8>>,
    pub(crate) timer: Timer,
}

/// A piece of data that a shard stores for a timer: the timer's record, or the timer's member, field or score in
/// another [`Part`] of the shard. [`entries`] computes all these pieces from the timer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entry {
    Record(Vec<u8>),
    Token(Vec<u8>),
    Lease(u64),
    Pending(Slice, u64),
    Parked(Vec<u8>),
    Dead(u64),
    Stopped(Vec<u8>),
    Key(Vec<u8>),
    Keyless(Vec<u8>),
    Label(Vec<u8>),
}

pub(crate) fn id_bytes(id: TimerId) -> [u8; 16] {
    id.as_u128().to_be_bytes()
}

/// Returns the timer id in the first 16 bytes, or `None` if there are fewer bytes.
pub(crate) fn id_of(bytes: &[u8]) -> Option<TimerId> {
    let (id, _) = bytes.split_first_chunk::<16>()?;
    Some(TimerId::from_u128(u128::from_be_bytes(*id)))
}

/// Returns the timer id in the last 16 bytes, or `None` if there are fewer bytes.
pub(crate) fn id_at_end(bytes: &[u8]) -> Option<TimerId> {
    let (_, id) = bytes.split_last_chunk::<16>()?;
    Some(TimerId::from_u128(u128::from_be_bytes(*id)))
}

/// Returns a member of a sorted set without the timer id, which is the last 16 bytes of the member.
pub(crate) fn without_id(member: &[u8]) -> &[u8] {
    member.split_last_chunk::<16>().map_or(member, |(rest, _)| rest)
}

pub(crate) fn token_bytes(token: Token) -> Vec<u8> {
    [token.incarnation.to_be_bytes(), token.claim.to_be_bytes()].concat()
}

/// Returns the value that a shard stores beside the record of a leased timer: the token, and a byte that shows whether
/// the timer was withdrawn. Returns `None` if the timer is not leased.
pub(crate) fn mark_of(state: &State) -> Option<Vec<u8>> {
    let State::Leased(lease) = state else { return None };
    let mark = match lease.withdrawn {
        None => 0,
        Some(Withdrawal::Cancelled) => 1,
        Some(Withdrawal::Replaced) => 2,
    };
    Some([&token_bytes(lease.token)[..], &[mark]].concat())
}

fn lease_of(mark: &[u8], until: UtcMillis) -> Option<Lease> {
    let (incarnation, rest) = mark.split_first_chunk::<8>()?;
    let (claim, rest) = rest.split_first_chunk::<8>()?;
    let withdrawn = match rest {
        [0] => None,
        [1] => Some(Withdrawal::Cancelled),
        [2] => Some(Withdrawal::Replaced),
        _ => return None,
    };
    let token = Token { incarnation: u64::from_be_bytes(*incarnation), claim: u64::from_be_bytes(*claim) };
    Some(Lease { token, until, withdrawn })
}

/// Encodes a timer as a member of the set of records: id, length of the payload, encoded record.
pub(crate) fn member_of(timer: &Timer) -> Vec<u8> {
    let record = match timer.state {
        State::Leased(_) => {
            // A leased timer does not say whether it was pending or parked before. `Found::read` replaces either state
            // by the lease, so `Pending` serves for both.
            let deliveries = timer.deliveries.saturating_sub(1);
            encode(&Timer { deliveries, state: State::Pending, ..timer.clone() })
        }
        _ => encode(timer),
    };
    let length = u32::try_from(timer.payload.0.len()).unwrap_or(u32::MAX);
    // The scripts read the id, the length, and the namespace at the start of the record at fixed places.
    [&id_bytes(timer.id)[..], &length.to_be_bytes(), &record].concat()
}

impl Found {
    /// Decodes the record of a timer, or returns `None` if the record cannot be read. For a leased timer, `mark` is the
    /// timer's value in the shard's hash of tokens, and `until` is the end of the lease in milliseconds.
    pub(crate) fn read(shard: Shard, member: Vec<u8>, mark: Option<Vec<u8>>, until: u64) -> Option<Self> {
        let id = id_of(&member)?;
        let mut timer = decode(id, member.get(20..)?)?;
        if let Some(mark) = &mark {
            // A record is never stored as leased, and a dead timer has no token. So any other state is damage.
            if !matches!(timer.state, State::Pending | State::Parked(_)) {
                return None;
            }
            timer.state = State::Leased(lease_of(mark, UtcMillis::from_millis(until))?);
            timer.deliveries = timer.deliveries.saturating_add(1);
        }
        Some(Self { shard, member, token: mark, timer })
    }

    pub(crate) fn id(&self) -> TimerId {
        self.timer.id
    }

    /// Returns whether the timer is parked (set aside), or was parked when a claim leased it.
    pub(crate) fn was_parked(&self) -> bool {
        let record = self.member.get(20..).and_then(|record| decode(self.id(), record));
        record.is_some_and(|timer| matches!(timer.state, State::Parked(_)))
    }
}

/// Encodes a text with a byte for its length in front. The limits for texts permit at most 255 bytes.
pub(crate) fn part(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
    [&[length], text.as_bytes()].concat()
}

/// Encodes a moment (Unix time in milliseconds) in 6 bytes, which suffice beyond the year 9999.
pub(crate) fn moment_bytes(moment: u64) -> [u8; 6] {
    // Members sort by their bytes, and big-endian numbers sort like their bytes. The script `take_parked` reads these
    // bytes.
    let [_, _, bytes @ ..] = moment.to_be_bytes();
    bytes
}

/// Encodes a namespace and `key`, the first bytes of a timer's key, as the beginning of members of the sorted sets
/// [`Part::Keys`]. There, a key has a byte 255 after each zero byte, and ends with two zero bytes, which this
/// function leaves out. So members sort as the keys do, and no encoded key is a prefix of another.
pub(crate) fn key_beginning(namespace: &str, key: &str) -> Vec<u8> {
    let mut bytes = part(namespace);
    for byte in key.bytes() {
        bytes.push(byte);
        if byte == 0 {
            bytes.push(u8::MAX);
        }
    }
    bytes
}

/// Encodes the beginning of a member of the sorted sets [`Part::Keys`]: the namespace and the key. In the whole member,
/// the id of the timer that has the key follows.
pub(crate) fn key_entry(namespace: &str, key: &str) -> Vec<u8> {
    let mut bytes = key_beginning(namespace, key);
    bytes.extend([0, 0]);
    bytes
}

/// Encodes the beginning of a member of the sorted set [`Part::Labels`]: the namespace and the label. In the whole
/// member, the id of a timer that has the label follows.
pub(crate) fn label_entry(namespace: &str, label: &str) -> Vec<u8> {
    [part(namespace), part(label)].concat()
}

/// Encodes the beginning of a member of the sorted set [`Part::Stopped`]: a namespace and a phase. The phase is parked
/// (set aside for a reason) or dead (not delivered again).
pub(crate) fn stopped_beginning(namespace: &str, phase: Phase) -> Vec<u8> {
    let mut bytes = part(namespace);
    bytes.push(phase_byte(phase));
    bytes
}

/// Returns the byte that encodes a phase in the members of [`Part::Stopped`] and in the fields of [`Part::Counts`].
pub(crate) fn phase_byte(phase: Phase) -> u8 {
    // The scripts contain these numbers, too. A stored timer is never done or withdrawn.
    match phase {
        Phase::Pending => 0,
        Phase::Leased => 1,
        Phase::Parked => 2,
        Phase::Dead => 3,
        Phase::Done | Phase::Withdrawn => u8::MAX,
    }
}

/// The byte that marks a member of the sorted sets [`Part::Keys`] as the member of a timer without a key. The byte
/// follows the namespace. No key begins with this byte, so all keys of the namespace sort before it.
pub(crate) const KEYLESS: u8 = u8::MAX;

/// Encodes the beginning of a member of the sorted sets [`Part::Keys`], for a timer without a key: the namespace
/// and [`KEYLESS`]. In the whole member, the timer's id follows.
pub(crate) fn keyless_entry(namespace: &str) -> Vec<u8> {
    let mut bytes = part(namespace);
    bytes.push(KEYLESS);
    bytes
}

/// Returns the first bytes of an entry: the length byte of the namespace, and the namespace.
pub(crate) fn namespace_of(entry: &[u8]) -> &[u8] {
    let length = entry.first().map_or(0, |length| 1 + usize::from(*length));
    entry.get(..length).unwrap_or_default()
}

/// Returns whether a member of one of the sorted sets [`Part::Keys`] belongs to a timer without a key.
pub(crate) fn is_keyless(member: &[u8]) -> bool {
    member.get(namespace_of(member).len()) == Some(&KEYLESS)
}

/// Encodes a member of the sorted set [`Part::Places`]. The member says that a namespace may have entries in the sorted
/// set [`Part::Keys`] with the number `set`. The namespace is the beginning of `entry`.
pub(crate) fn place_entry(entry: &[u8], set: u16) -> Vec<u8> {
    [namespace_of(entry), &set.to_be_bytes()].concat()
}

/// Returns the sorted set [`Part::Keys`] whose number is at the end of `place`, or `None` if `place` is too short.
/// `place` is a member of [`Part::Places`]: a namespace, and the number of a sorted set that may have entries of this
/// namespace.
pub(crate) fn set_of(place: &[u8]) -> Option<Part> {
    place.last_chunk().map(|number| Part::Keys(u16::from_be_bytes(*number)))
}

/// Returns all entries that a shard stores for this timer.
pub(crate) fn entries(timer: &Timer) -> Vec<Entry> {
    let id = id_bytes(timer.id);
    let mut entries = vec![Entry::Record(member_of(timer))];
    let phase = timer.state.phase();
    let stopped = || stopped_beginning(&timer.namespace, phase);
    match &timer.state {
        State::Pending => {
            let due = timer.due.as_millis();
            entries.push(Entry::Pending(Slice::of(&timer.namespace, due), due));
        }
        State::Leased(lease) => {
            entries.push(Entry::Lease(lease.until.as_millis()));
            entries.extend(mark_of(&timer.state).map(Entry::Token));
        }
        State::Parked(reason) => {
            let due = moment_bytes(timer.due.as_millis());
            let parked = [&part(reason)[..], &due, &id].concat();
            entries.push(Entry::Stopped([stopped(), parked.clone()].concat()));
            entries.push(Entry::Parked(parked));
        }
        State::Dead(death) => {
            let at = death.at.as_millis();
            entries.push(Entry::Stopped([&stopped()[..], &moment_bytes(at), &id].concat()));
            entries.push(Entry::Dead(at));
        }
    }
    for (nth, label) in timer.labels.iter().enumerate() {
        if !timer.labels[..nth].contains(label) {
            let entry = label_entry(&timer.namespace, label);
            entries.push(Entry::Label([&entry[..], &id].concat()));
        }
    }
    match timer.key.as_ref().filter(|_| timer.owns_key()) {
        Some(key) => entries.push(Entry::Key([&key_entry(&timer.namespace, key)[..], &id].concat())),
        // The dead timers of a namespace are found by their entries in `Part::Stopped`.
        None if phase != Phase::Dead => {
            entries.push(Entry::Keyless([&keyless_entry(&timer.namespace)[..], &id].concat()));
        }
        None => {}
    }
    entries
}

/// Returns whether a timer is leased. For a leased timer, the shard stores a token.
pub(crate) fn is_leased(timer: &Timer) -> bool {
    mark_of(&timer.state).is_some()
}

/// Returns the field of the hash [`Part::Counts`] whose value counts this timer and all other timers of the same
/// namespace and phase. The field is the namespace, and a byte for the phase.
pub(crate) fn count_field(timer: &Timer) -> Vec<u8> {
    [timer.namespace.as_bytes(), &[phase_byte(timer.state.phase())]].concat()
}

/// Splits a field of the hash [`Part::Counts`] into the namespace and the phase, or returns `None` if the field is
/// invalid.
pub(crate) fn counted_of(field: &[u8]) -> Option<(Box<str>, Phase)> {
    let (byte, namespace) = field.split_last()?;
    let phase =
        [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead].into_iter().nth(usize::from(*byte))?;
    Some((core::str::from_utf8(namespace).ok()?.into(), phase))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon_durable::state::{Death, DeathReason};
    use tourbillon_durable::timer::Payload;

    fn leased(withdrawn: Option<Withdrawal>) -> Timer {
        let lease = Lease {
            token: Token { incarnation: u64::MAX, claim: 3 },
            until: UtcMillis::from_millis(77),
            withdrawn,
        };
        let timer = Timer::new(TimerId::from_u128(5), "test", UtcMillis::from_millis(50));
        Timer { key: Some("k".into()), deliveries: 4, state: State::Leased(lease), ..timer }
    }

    #[test]
    fn a_leased_timer_is_a_pending_one_with_a_token() {
        for withdrawn in [None, Some(Withdrawal::Cancelled), Some(Withdrawal::Replaced)] {
            let timer = leased(withdrawn);
            let found = Found::read(3, member_of(&timer), mark_of(&timer.state), 77).unwrap();
            assert_eq!(found.timer, timer);
            let pending = Timer { deliveries: 3, state: State::Pending, ..timer };
            assert_eq!(found.member, member_of(&pending));
        }
    }

    /// Programs of two versions may share a deployment. So a change of the encoded bytes, or of their order, needs a
    /// new version of the layout.
    #[test]
    fn the_bytes_that_a_shard_has_of_a_timer_stay() {
        let timer = Timer {
            namespace: "n".into(),
            key: Some("k\0".into()),
            labels: vec!["a".into(), "b".into(), "a".into()],
            payload: Payload(Box::new([1, 2, 3])),
            ..leased(None)
        };
        let dead = Death { reason: DeathReason::Attempts, at: UtcMillis::from_millis(88) };
        let states = [
            State::Pending,
            leased(None).state,
            leased(Some(Withdrawal::Cancelled)).state,
            leased(Some(Withdrawal::Replaced)).state,
            State::Parked("later".into()),
            State::Dead(dead),
        ];
        let mut lines = String::new();
        for state in states {
            let name = format!("{:?}", state.phase());
            for entry in entries(&Timer { state, ..timer.clone() }) {
                let (part, bytes) = match entry {
                    Entry::Record(bytes) => ("record", bytes),
                    Entry::Token(bytes) => ("token", bytes),
                    Entry::Lease(moment) => ("lease", moment.to_be_bytes().to_vec()),
                    Entry::Pending(slice, moment) => {
                        ("pending", [slice.number(), moment].map(u64::to_be_bytes).concat())
                    }
                    Entry::Parked(bytes) => ("parked", bytes),
                    Entry::Dead(moment) => ("dead", moment.to_be_bytes().to_vec()),
                    Entry::Stopped(bytes) => ("stopped", bytes),
                    Entry::Key(bytes) => ("key", bytes),
                    Entry::Keyless(bytes) => ("keyless", bytes),
                    Entry::Label(bytes) => ("label", bytes),
                };
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                lines += &format!("{name}, {part}: {hex}\n");
            }
        }
        let fixed = include_str!("entry_v6.txt");
        assert!(fixed == lines, "other bytes are another layout. The bytes are now:\n{lines}");
        assert_eq!(crate::layout::VERSION, 6, "the file has the layout's version in its name");
    }

    #[test]
    fn a_fetched_timer_is_a_parked_one_with_a_token() {
        let timer = leased(None);
        let parked = Timer { deliveries: 3, state: State::Parked("queue".into()), ..timer.clone() };
        let found = Found::read(3, member_of(&parked), mark_of(&timer.state), 77).unwrap();
        assert_eq!((found.timer, found.member), (timer, member_of(&parked)));
    }

    #[test]
    fn a_mark_that_is_none_makes_no_timer() {
        let timer = leased(None);
        for mark in [vec![], vec![0; 16], vec![3; 17], vec![0; 18]] {
            assert_eq!(Found::read(3, member_of(&timer), Some(mark), 77), None);
        }
    }

    #[test]
    fn entries_of_keys_are_in_the_order_of_the_keys_and_none_begins_another() {
        let mut keys = ["", "a", "a\0", "a\0\0", "a\0b", "a\u{1}", "ab", "b", "\0", "\0\0"];
        keys.sort_unstable();
        let entries: Vec<Vec<u8>> = keys.iter().map(|key| key_entry("n", key)).collect();
        assert!(entries.is_sorted(), "{entries:?}");
        for (nth, one) in entries.iter().enumerate() {
            let others = entries.iter().enumerate().filter(|(other, _)| *other != nth);
            assert!(others.into_iter().all(|(_, other)| !other.starts_with(one)), "{one:?}");
        }
        for (key, entry) in keys.iter().zip(&entries) {
            for prefix in keys {
                assert_eq!(entry.starts_with(&key_beginning("n", prefix)), key.starts_with(prefix));
            }
        }
    }
}
