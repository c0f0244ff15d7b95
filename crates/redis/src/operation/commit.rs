//! Builds the arguments of the script `commit`: the changes of an operation, and checks. The changes follow from data
//! that were read before, and the checks verify that these data have not changed.

use crate::deployment::millis;
use crate::layout::{
    Entry, Found, Layout, Part, Redirect, Shard, count_field, entries, id_bytes, key_entry, place_entry,
    without_id,
};
use crate::script::{Values, Words, decimal};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::dry_run::{Change, Changes};
use tourbillon_durable::timer::{KeyOf, Timer, TimerId};

/// The stored data that an operation has read and from which its changes were computed.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) timers: BTreeMap<TimerId, Found>,
    pub(crate) remembered: BTreeMap<TimerId, UtcMillis>,
    /// The timer whose overdue lease the operation ends. The script checks by the server's time that the lease is over.
    pub(crate) expired: Option<TimerId>,
}

impl Known {
    pub(crate) fn add(&mut self, found: Option<Found>) {
        if let Some(found) = found {
            self.timers.insert(found.id(), found);
        }
    }
}

/// A reservation of the id of a new timer, in a cluster. The timer will be stored in another shard than the shard to
/// which its id belongs. So before its commit, the operation writes a redirect, which names the other shard, in the
/// shard of the id.
#[derive(Clone, Debug)]
pub(crate) struct Reserved {
    pub(crate) redirect: Redirect,
    /// The moment at which the reservation of the timer's id ends. The moment is by the clock of the server that stores
    /// `redirect`.
    pub(crate) until: UtcMillis,
}

/// The ids that an operation has reserved before its commit, each with its reservation. A reservation is a redirect in
/// the shard of the id. The redirect names the other shard that will store the timer.
pub(crate) type Reservations = BTreeMap<TimerId, Reserved>;

/// The answer of the script `commit`.
pub(crate) enum Sent {
    /// The script has made the changes.
    Done,
    /// A check of the script failed, and nothing was changed.
    Refused(Refused),
}

/// The reason why the script `commit` has changed nothing.
pub(crate) struct Refused {
    /// The server's time when it ran the script and one of the script's checks failed.
    pub(crate) now: UtcMillis,
    pub(crate) doubt: Doubt,
    /// The stored values that the failed check found.
    pub(crate) found: Values,
}

/// The reason why a commit fails: some stored data differ from the data that the operation has read before or has
/// assumed. Most variants name these data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Doubt {
    Timer(TimerId),
    Key(KeyOf),
    Remembered(TimerId),
    /// In a cluster, another creation has used this id and stored a redirect in the shard of the id. The redirect names
    /// the shard that stores the other creation's timer, or will store it.
    Redirected(TimerId, Redirect),
    /// In a cluster, the operation had [reserved](Reserved) this id for its new timer, but the reservation is no longer
    /// valid: its time is over, or another client has cancelled it.
    Reserved(TimerId),
    /// The shard does not have the deployment's id: its server has lost the shard's data.
    Lost(Shard),
}

/// The shards whose keys a commit may name.
#[derive(Clone, Copy)]
pub(crate) enum Scope<'a> {
    /// The commit may name keys of all shards, because one server stores all of them.
    All,
    /// The commit may name keys of this shard only, because a script in a cluster cannot use keys of several shards.
    /// Other scripts change the other shards before and after the commit, see [`redirects`](super::redirects).
    Shard(Shard, &'a Reservations),
}

/// A message that tells the owner of a shard about a timer that is due soon.
pub(crate) struct Hint<'a> {
    pub(crate) due: UtcMillis,
    /// The owner gets the message only if the timer is due within this time.
    pub(crate) within: Duration,
    /// The node that sends the message. For its own shards, no message is sent.
    pub(crate) sender: &'a [u8],
    pub(crate) channel: &'a [u8],
    pub(crate) message: Vec<u8>,
}

/// A commit under construction: its checks, its changes, and the keys that they name.
pub(crate) struct Commit<'a> {
    layout: &'a Layout,
    scope: Scope<'a>,
    keys: Vec<Vec<u8>>,
    /// The positions in `keys`, counted from 1. Each part of a shard is stored at one Redis key, and the map has the
    /// position of this key.
    places: HashMap<(Shard, Part), usize>,
    checks: Words,
    doubts: Vec<Doubt>,
    changes: Words,
    counts: BTreeMap<(Shard, Vec<u8>), i64>,
    /// True if the changes make the stored data grow. A server without free memory refuses such a script.
    pub(crate) is_growing: bool,
}

impl<'a> Commit<'a> {
    /// Builds a commit that makes `changes`. The commit checks all data in `known` and all assumptions in `changes`.
    pub(crate) fn new(layout: &'a Layout, known: &Known, changes: &Changes, scope: Scope<'a>) -> Self {
        let mut commit = Self {
            layout,
            scope,
            keys: Vec::new(),
            places: HashMap::new(),
            checks: Words::default(),
            doubts: Vec::new(),
            changes: Words::default(),
            counts: BTreeMap::new(),
            is_growing: grows(changes),
        };
        commit.check(known, changes);
        for change in &changes.timers {
            commit.change(known, changes, change);
        }
        let is_inside = |id: &&TimerId| scope.has(layout.shard_of_id(**id));
        for id in changes.forget.iter().filter(is_inside) {
            let recent = commit.place(layout.shard_of_id(*id), Part::Recent);
            commit.change_at(b"r", recent).push(&id_bytes(*id));
        }
        for (id, until) in changes.remember.iter().filter(|(id, _)| is_inside(&id)) {
            let recent = commit.place(layout.shard_of_id(*id), Part::Recent);
            let words = commit.change_at(b"e", recent);
            words.push(&id_bytes(*id));
            words.push_number(until.as_millis());
        }
        for ((shard, field), number) in core::mem::take(&mut commit.counts) {
            if number != 0 {
                let counts = commit.place(shard, Part::Counts);
                let words = commit.change_at(b"c", counts);
                words.push(&field);
                words.push(number.to_string().as_bytes());
            }
        }
        commit
    }

    /// Adds a message to the owner of a shard about a due timer. The script publishes the message only if another node
    /// owns the shard and the timer is the first of the shard.
    pub(crate) fn hint(&mut self, shard: Shard, hint: &Hint<'_>) {
        // The hint stands behind all changes of timers, because the script looks for the first timer of the shard after
        // these changes.
        let (meta, slices) = (self.place(shard, Part::Meta), self.place(shard, Part::Slices));
        let words = self.change_at(b"n", meta);
        words.push_number(slices);
        words.push_number(hint.due.as_millis());
        words.push_number(millis(hint.within));
        words.push(hint.sender);
        words.push(hint.channel);
        words.push(&hint.message);
    }

    /// Adds a message that the script publishes on this channel.
    pub(crate) fn say(&mut self, shard: Shard, channel: &[u8], message: &[u8]) {
        // The script does not use this key. Every change begins with the place of a key.
        let parked = self.place(shard, Part::Parked);
        let words = self.change_at(b"m", parked);
        words.push(channel);
        words.push(message);
    }

    /// Makes the commit fail if a shard that gets new timers does not have the deployment's id.
    pub(crate) fn expect_marks(&mut self, known: &Known, changes: &Changes, id: &[u8]) {
        if !known.timers.is_empty() {
            // The shard of the known timers has its data, and the new timers are stored there, too.
            return;
        }
        let created = changes.timers.iter().filter(|change| change.before.is_none());
        let homes = created.filter_map(|change| Some(self.layout.home_of(change.after.as_ref()?)));
        homes.collect::<BTreeSet<_>>().into_iter().for_each(|shard| self.expect_mark(shard, id));
    }

    /// Makes the commit fail if the shard does not have the deployment's id.
    pub(crate) fn expect_mark(&mut self, shard: Shard, id: &[u8]) {
        self.expect(Doubt::Lost(shard), "field", shard, Part::Meta, b"id");
        self.checks.push(id);
    }

    /// Makes the commit fail if the server of the shard has no free memory, even if the commit stores nothing. A server
    /// without free memory refuses each write that may need memory, so the commit writes the deployment's id again. The
    /// caller must also [expect](Self::expect_mark) this id, so that the write changes nothing.
    pub(crate) fn expect_memory(&mut self, shard: Shard, id: &[u8]) {
        self.is_growing = true;
        let meta = self.place(shard, Part::Meta);
        let words = self.change_at(b"s", meta);
        words.push(b"id");
        words.push(id);
    }

    /// Returns the home shard of a commit: the shard of the timers that the commit changes or stores, or else of the
    /// data that it checks. Returns `None` if the commit neither changes nor checks anything.
    pub(crate) fn home(layout: &Layout, known: &Known, changes: &Changes) -> Option<Shard> {
        let created = || Some(layout.home_of(changes.timers.first()?.after.as_ref()?));
        let read = || known.timers.values().next().map(|found| found.shard);
        let free = || changes.free.first().map(|key| layout.shard_of_key(&key.namespace, &key.key));
        let absent =
            || changes.absent.first().or(changes.forgotten.first()).map(|id| layout.shard_of_id(*id));
        // The keys come before `read`: a timer that was read may be in another shard by now, and is not checked there.
        changed(known, changes).or_else(created).or_else(free).or_else(read).or_else(absent)
    }

    /// Returns the keys and the arguments of the script. Also returns a [`Doubt`] for each check: the reason why the
    /// commit fails if the check fails.
    pub(crate) fn into_parts(self) -> (Vec<Vec<u8>>, Words, Vec<Doubt>) {
        let mut arguments = Words::default();
        arguments.push_number(self.doubts.len() as u64);
        arguments.append(&self.checks);
        arguments.append(&self.changes);
        (self.keys, arguments, self.doubts)
    }

    /// Returns the position of a Redis key among the script's keys, counted from 1. The key is the key at which `part`
    /// of the shard is stored. Adds the key to the script if it is new.
    fn place(&mut self, shard: Shard, part: Part) -> u64 {
        let (layout, keys) = (self.layout, &mut self.keys);
        let place = *self.places.entry((shard, part)).or_insert_with(|| {
            keys.push(layout.key(shard, part));
            keys.len()
        });
        place as u64
    }

    /// Begins a change of the key at the position `place` among the script's keys. `kind` is the code of the change in
    /// the script. The caller pushes the other arguments of the change.
    fn change_at(&mut self, kind: &[u8], place: u64) -> &mut Words {
        self.changes.push(kind);
        self.changes.push_number(place);
        &mut self.changes
    }

    /// Adds a check of one key. If the check fails, the script refuses the commit because of `doubt`.
    fn expect(&mut self, doubt: Doubt, check: &str, shard: Shard, part: Part, expected: &[u8]) {
        let place = self.place(shard, part);
        self.checks.push(check.as_bytes());
        self.checks.push_number(place);
        self.checks.push(expected);
        self.doubts.push(doubt);
    }

    fn check(&mut self, known: &Known, changes: &Changes) {
        // Data in other shards of a cluster are not checked again. The operation does not change these data, so it may
        // count as made at the moment of their read.
        let (scope, layout) = (self.scope, self.layout);
        for found in known.timers.values().filter(|found| scope.has(found.shard)) {
            let (id, shard) = (found.id(), found.shard);
            self.expect(Doubt::Timer(id), "member", shard, Part::Records, &found.member);
            let bytes = &id_bytes(id);
            match &found.token {
                Some(mark) => {
                    self.expect(Doubt::Timer(id), "field", shard, Part::Tokens, bytes);
                    self.checks.push(mark);
                }
                // A claim does not change the record, so only the absence of a token shows that the timer is not
                // leased.
                None => self.expect(Doubt::Timer(id), "no-field", shard, Part::Tokens, bytes),
            }
        }
        if let Some(found) = known.expired.and_then(|id| known.timers.get(&id)) {
            let bytes = &id_bytes(found.id());
            self.expect(Doubt::Timer(found.id()), "over", found.shard, Part::Leases, bytes);
        }
        for id in &changes.absent {
            let (shard, bytes) = (self.layout.shard_of_id(*id), &id_bytes(*id));
            if let Scope::Shard(home, reserved) = self.scope
                && home != shard
            {
                // Without a reservation, the operation needs no free id: the shard of the id has answered that it
                // remembers the id.
                if let Some(reservation) = reserved.get(id) {
                    self.expect(Doubt::Timer(*id), "free", home, Part::Records, bytes);
                    let void = &reservation.redirect.void(*id);
                    self.expect(Doubt::Reserved(*id), "forgotten", home, Part::Recent, void);
                    let until = &decimal(reservation.until.as_millis());
                    self.expect(Doubt::Reserved(*id), "before", home, Part::Recent, until);
                }
                continue;
            }
            self.expect(Doubt::Timer(*id), "free", shard, Part::Records, bytes);
            self.expect(Doubt::Timer(*id), "no-field", shard, Layout::redirects_of(*id), bytes);
        }
        for id in changes.forgotten.iter().filter(|id| scope.has(layout.shard_of_id(**id))) {
            let shard = self.layout.shard_of_id(*id);
            self.expect(Doubt::Remembered(*id), "forgotten", shard, Part::Recent, &id_bytes(*id));
        }
        // These checks need no scope: a timer with a key is stored in the shard of its key, so in a cluster that shard
        // is the home.
        for key in &changes.free {
            let shard = self.layout.shard_of_key(&key.namespace, &key.key);
            let entry = &key_entry(&key.namespace, &key.key);
            self.expect(Doubt::Key(key.clone()), "free", shard, self.layout.keys_of(entry), entry);
        }
    }

    fn change(&mut self, known: &Known, changes: &Changes, change: &Change) {
        let Some(id) = change.before.as_ref().or(change.after.as_ref()).map(|timer| timer.id) else { return };
        let found = known.timers.get(&id);
        let shard = match (found, &change.after) {
            (Some(found), _) => found.shard,
            // A new timer without a key may follow another timer. Then that timer's shard stores the new timer, too.
            (None, Some(after)) => match (&after.key, changed(known, changes)) {
                (None, Some(home)) => home,
                _ => self.layout.home_of(after),
            },
            (None, None) => return,
        };
        // Removes the record with its stored bytes, since this version may encode it differently.
        let was = found.map_or_else(Vec::new, |found| {
            let mut was = entries(&found.timer);
            was.retain(|entry| !matches!(entry, Entry::Record(_)));
            was.push(Entry::Record(found.member.clone()));
            was
        });
        let is = change.after.as_ref().map_or_else(Vec::new, entries);
        // Only the differences are sent, so an entry that stays costs nothing. The removals come first: if only the
        // score of a member changes, such as the due moment, a later removal would remove the new entry.
        for entry in was.iter().filter(|entry| !is.contains(entry)) {
            // A field that is set again need not be removed before.
            let is_set_again =
                matches!(entry, Entry::Token(_)) && is.iter().any(|is| matches!(is, Entry::Token(_)));
            if !is_set_again {
                self.remove(shard, id, entry);
            }
        }
        for entry in is.iter().filter(|entry| !was.contains(entry)) {
            self.add(shard, id, entry);
        }
        // A redirect exists as long as its timer, so a change of a stored timer leaves the redirect alone. In a
        // cluster, scripts of their own write and remove redirects.
        let own = self.layout.shard_of_id(id);
        if own != shard && self.scope.has(own) && change.before.is_some() != change.after.is_some() {
            let redirects = self.place(own, Layout::redirects_of(id));
            let words = self.change_at(if change.after.is_some() { b"s" } else { b"d" }, redirects);
            words.push(&id_bytes(id));
            if change.after.is_some() {
                words.push_number(shard.into());
            }
        }
        for (timer, difference) in [(&change.before, -1), (&change.after, 1)] {
            if let Some(timer) = timer {
                *self.counts.entry((shard, count_field(timer))).or_default() += difference;
            }
        }
    }

    fn remove(&mut self, shard: Shard, timer: TimerId, entry: &Entry) {
        let id = &id_bytes(timer)[..];
        let (part, member) = match entry {
            Entry::Record(member) => (Part::Records, &member[..]),
            Entry::Lease(_) => (Part::Leases, id),
            Entry::Parked(member) => (Part::Parked, &member[..]),
            Entry::Dead(_) => (Part::Dead, id),
            Entry::Stopped(member) => (Part::Stopped, &member[..]),
            Entry::Key(member) => {
                return self.remove_from_keys(shard, self.layout.key_set(without_id(member)), member);
            }
            Entry::Keyless(member) => {
                return self.remove_from_keys(shard, self.layout.keyless_set(timer), member);
            }
            Entry::Label(member) => (Part::Labels, &member[..]),
            Entry::Token(_) => {
                let tokens = self.place(shard, Part::Tokens);
                return self.change_at(b"d", tokens).push(id);
            }
            Entry::Pending(slice, _) => {
                let slices = self.place(shard, Part::Slices);
                let place = self.place(shard, Part::Slice(*slice));
                let words = self.change_at(b"p", slices);
                words.push_number(place);
                words.push_number(slice.number());
                return words.push(id);
            }
        };
        let place = self.place(shard, part);
        self.change_at(b"r", place).push(member);
    }

    /// Removes the entry `member` from the sorted set [`Part::Keys`] with the number `set`. If this was the last entry
    /// of its namespace in the sorted set, also removes the pair of the namespace and `set` from [`Part::Places`],
    /// which says in which of the sorted sets a namespace has entries.
    fn remove_from_keys(&mut self, shard: Shard, set: u16, member: &[u8]) {
        let keys = self.place(shard, Part::Keys(set));
        let places = self.place(shard, Part::Places);
        let words = self.change_at(b"k", keys);
        words.push_number(places);
        words.push(&place_entry(member, set));
        words.push(member);
    }

    fn add(&mut self, shard: Shard, timer: TimerId, entry: &Entry) {
        let id = &id_bytes(timer)[..];
        let (part, score, member) = match entry {
            Entry::Record(member) => (Part::Records, 0, &member[..]),
            Entry::Lease(until) => (Part::Leases, *until, id),
            Entry::Parked(member) => (Part::Parked, 0, &member[..]),
            Entry::Dead(at) => (Part::Dead, *at, id),
            Entry::Stopped(member) => (Part::Stopped, 0, &member[..]),
            Entry::Key(member) => (self.layout.keys_of(without_id(member)), 0, &member[..]),
            Entry::Keyless(member) => (Part::Keys(self.layout.keyless_set(timer)), 0, &member[..]),
            Entry::Label(member) => (Part::Labels, 0, &member[..]),
            Entry::Token(mark) => {
                let tokens = self.place(shard, Part::Tokens);
                let words = self.change_at(b"s", tokens);
                words.push(id);
                return words.push(mark);
            }
            Entry::Pending(slice, due) => {
                let slices = self.place(shard, Part::Slices);
                let place = self.place(shard, Part::Slice(*slice));
                let words = self.change_at(b"q", slices);
                words.push_number(place);
                words.push_number(slice.number());
                words.push_number(*due);
                return words.push(id);
            }
        };
        if let Part::Keys(set) = part {
            // The namespace may have this place already. The client does not know, and a repeated addition changes
            // nothing.
            let places = self.place(shard, Part::Places);
            let words = self.change_at(b"z", places);
            words.push_number(0);
            words.push(&place_entry(member, set));
        }
        let place = self.place(shard, part);
        let words = self.change_at(b"z", place);
        words.push_number(score);
        words.push(member);
    }
}

/// Returns the shard of the first timer in `changes` that is stored already, or `None` if all timers in `changes` are
/// new.
fn changed(known: &Known, changes: &Changes) -> Option<Shard> {
    let before = changes.timers.iter().filter_map(|change| change.before.as_ref());
    before.filter_map(|timer| known.timers.get(&timer.id)).map(|found| found.shard).next()
}

impl Scope<'_> {
    fn has(self, shard: Shard) -> bool {
        match self {
            Self::All => true,
            Self::Shard(home, _) => home == shard,
        }
    }
}

/// Returns whether the changes make the stored data grow by a timer, or by more than 512 bytes.
fn grows(changes: &Changes) -> bool {
    const WORDS: usize = 512;
    let size = |timer: &Timer| {
        let labels = timer.labels.iter().map(|label| label.len()).sum::<usize>();
        timer.payload.0.len() + labels + timer.key.as_ref().map_or(0, |key| key.len())
    };
    let sizes = |timers: Vec<&Timer>| (timers.len(), timers.into_iter().map(size).sum::<usize>());
    let before = sizes(changes.timers.iter().filter_map(|change| change.before.as_ref()).collect());
    let after = sizes(changes.timers.iter().filter_map(|change| change.after.as_ref()).collect());
    after.0 > before.0 || after.1 > before.1 + WORDS
}
