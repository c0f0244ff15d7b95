//! Defines the namespaces as they are stored, and joins two copies of them.
//!
//! # Why copies differ
//! Each node works with a copy of the shared document. A store can lose the document, and can go back to an earlier
//! one, by a failover or by the restore of the server's backup. Somebody may then make a new document, or change the
//! earlier one, before a node with the lost changes reads it. So a document and a copy may each have changes that the
//! other lacks.
//!
//! # The moments of changes
//! Each change has a *moment*: the time by the store's clock, or the next millisecond after all moments in the document
//! if that is later. The document has the moment of everything that it has. So two copies can be *joined*: of
//! everything that both have, the join has the later, and what one of them has removed later is gone. A join does not
//! depend on the order of the copies, and a second join with the same copy changes nothing.
//!
//! | part | its moment | in the join of two copies |
//! |---|---|---|
//! | a namespace | `since`, when a client or a restore made it, or when a former namespace of its name was removed | with the later `since`. What is from before this moment belongs to a former namespace, and is gone |
//! | a namespace that a start made, as it had timers | `found` | it is there, unless it was removed later. All that is set in the other copy is kept |
//! | a removed namespace | in `gone`, when it was removed | it is gone, unless something of it is later. It then has only what is later, as after a request that makes a namespace by setting a limit |
//! | a limit | when a client has last set it, or `since` | the later value, also if the later value is no limit |
//! | a secret | when it was made, or `since` if that is later | it is there, and ends by the rule of [`in_rotation`] |
//! | the whole document | `floor` | what is from before this moment, and is not in the document, is gone |
//! | the mark of a removal | none | as in the document, so the removals of the copy end without an effect |
//!
//! A document is joined with a copy when the node of the copy reads the document. If the document lacks anything, the
//! node *puts its copy back*: it stores the join.
//!
//! | event | the document | what becomes of the copies of nodes |
//! |---|---|---|
//! | the store loses the document | none | nodes keep them, and refuse changes |
//! | a start, or a change at its node, makes the document | has nothing that anybody has set | are put back at the next read |
//! | `tourbillond mend`, also with `--anew`, makes the document | the same, and it awaits copies | are put back, which ends the wait |
//! | a wait ends without a copy, or a start without timers ends it | awaits none | are put back, however late |
//! | a client's change | has the moment of the change | have the change after their next read |
//! | a start makes missing namespaces | has them with `found` | are put back, and what is set in them counts |
//! | a failover, or a restore of the server's backup | an earlier one | put the later changes back |
//! | `tourbillond restore` | all of it has the moment of the restore, and so has `floor`. It has no marks of removals | are dropped, unless they are of a later document |
//! | more removals than [`MOST_GONE`] | the oldest are forgotten, and `floor` is the moment of the last of them | what they have from before this moment, and the document lacks, is dropped |
//!
//! Each write names the version that it replaces, so of two writes at the same time the later one is refused. Its
//! sender reads the document and begins again. The races end so:
//!
//! | race | ending |
//! |---|---|
//! | two starts find no document | one makes it, and the other takes it |
//! | a start has made the document, and a client changes it, before a node with a copy reads it | the document has the change and the copy. Until then, for a second or so, the new node works without the copy |
//! | two nodes put their copies back | the document has the later of everything, whichever is first, and however old one of the copies is |
//! | a put-back and a change | each has its effect |
//! | a put-back whose write fails | the node works with the join, says so in `/readyz` and the log, and tries again at each read |
//! | a start beside a mend | while the mend waits, a start fails if there are timers. A start without timers succeeds, and a later put-back adds the copy |
//! | a mend is killed while it waits | the copies stay awaited. A put-back, a start without timers, or another mend ends this |
//! | the document is lost again while a mend waits | the mend makes it again, and waits on |
//! | the server's backup is restored beside a new document | the nodes of the new document put their copies back, also after a `tourbillond restore` before the backup |
//! | a node comes back after a restore, with the copy of an earlier deployment | it drops the copy |
//! | the same, but the deployment was made anew by a start or a mend | it puts the copy back, however old the copy is |
//! | a failover loses a change, and another node changes the earlier document | the document has both changes |

#[cfg(test)]
mod model;

use super::namespace::{Changes, DEFAULT, Namespace, SECRETS, SigningSecret, in_rotation};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tourbillon_api::{LimitsPatch, NamespaceLimits};

/// The greatest number of removed namespaces whose removal the document has. It bounds the length of the document.
const MOST_GONE: usize = 1_000;

/// The namespaces as a node reads and changes them. The shared document has this form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredNamespaces {
    pub(crate) namespaces: BTreeMap<Box<str>, Namespace>,
    /// The *marks*: for each namespace that is being removed, the random number of the removal. See the module
    /// `removal`.
    #[serde(default)]
    pub(crate) removals: BTreeMap<Box<str>, u64>,
    #[serde(default)]
    pub(crate) past: Past,
    #[serde(default)]
    pub(crate) copies: Copies,
}

/// The moments of the changes that are not those of a namespace. A file has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Past {
    /// The moment of the last change.
    last: u64,
    /// The moment from before which nothing is missing in the document. No namespace has an earlier `since`.
    floor: u64,
    /// The namespaces that were removed, with the moments of their removals.
    gone: BTreeMap<Box<str>, u64>,
}

/// Whether a document awaits the copy of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Copies {
    /// It awaits none.
    #[default]
    Added,
    /// `tourbillond mend` waits for a copy. Until then a start takes the document for lost.
    Awaited,
    /// A node has put its copy into a document that has awaited one.
    Back,
}

/// Calls a macro with the names of all limits of a namespace.
macro_rules! with_limits {
    ($macro:ident) => {
        $macro! {
            max_timers creations_per_second max_schedules rate_per_second concurrency max_body_bytes max_delay_ms
            allowed_hosts paused keep_answers
        }
    };
}

/// Returns the names of the limits in which two namespaces differ.
fn differing(one: &NamespaceLimits, other: &NamespaceLimits) -> Vec<&'static str> {
    macro_rules! names {
        ($($limit:ident)*) => { [$((stringify!($limit), one.$limit != other.$limit)),*] };
    }
    with_limits!(names).into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

/// Returns the names of the limits that a patch sets.
pub(crate) fn limits_in(patch: &LimitsPatch) -> Vec<&'static str> {
    macro_rules! names {
        ($($limit:ident)*) => { [$((stringify!($limit), patch.$limit.is_some())),*] };
    }
    with_limits!(names).into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
}

impl StoredNamespaces {
    /// Ends the wait for copies. A copy that comes later is added all the same.
    pub(crate) fn await_no_copy(&mut self) {
        if self.copies == Copies::Awaited {
            self.copies = Copies::Added;
        }
    }

    /// Begins a change of a shared document at the moment `now` of the store's clock. The caller then changes the
    /// document, and calls [`note`](Self::note).
    pub(crate) fn begin(&mut self, now: u64) {
        self.past.last = now.max(self.past.last.saturating_add(1));
    }

    /// Notes that the change that has [begun](Self::begin) sets these limits of the namespace `name`, also those that
    /// keep their values. [`ALL`](super::ALL) stands for all limits. Has no effect in a file, where no change begins.
    pub(crate) fn set_limits(&mut self, name: &str, limits: &[&'static str]) {
        let at = self.past.last;
        if let Some(namespace) = self.namespaces.get_mut(name).filter(|_| at > 0) {
            namespace.changes.limits.extend(limits.iter().map(|limit| (Box::from(*limit), at)));
        }
    }

    /// Makes the document refuse the copies of nodes from before the change that has [begun](Self::begin), and ends the
    /// removals from before it. The process of such a removal may stand still, and has perhaps counted the timers
    /// before those of a backup came.
    pub(crate) fn refuse_earlier(&mut self) {
        self.past.floor = self.past.last;
        self.removals.clear();
        self.await_no_copy();
    }

    /// Notes the moment of the change that has [begun](Self::begin) at everything that differs from `before`.
    pub(crate) fn note(&mut self, before: &Self) {
        let (at, floor) = (self.past.last, before.past.floor);
        for name in before.namespaces.keys().filter(|name| !self.namespaces.contains_key(*name)) {
            self.past.gone.insert(name.clone(), at);
        }
        for (name, namespace) in &mut self.namespaces {
            let since = self.past.gone.remove(name).unwrap_or(0).max(floor);
            namespace.note(before.namespaces.get(name), since, at);
        }
        self.keep_bounds();
    }

    /// Forgets the oldest removals beyond [`MOST_GONE`], and everything that `floor` hides.
    fn keep_bounds(&mut self) {
        let Past { floor, gone, .. } = &mut self.past;
        if let Some(surplus) = gone.len().checked_sub(MOST_GONE).filter(|surplus| *surplus > 0) {
            let mut moments: Vec<_> = gone.values().copied().collect();
            moments.sort_unstable();
            *floor = moments.into_iter().take(surplus).fold(*floor, u64::max);
        }
        gone.retain(|_, at| *at > *floor);
        self.namespaces.values_mut().for_each(|namespace| namespace.changes.hide_before(*floor));
    }

    /// Returns the join of this document with the copy of a node, or `None` if the document lacks nothing.
    pub(crate) fn with(&self, copy: &Self) -> Option<Self> {
        let [one, two] = [self, copy].map(|side| &side.past);
        let past =
            Past { last: one.last.max(two.last), floor: one.floor.max(two.floor), gone: BTreeMap::new() };
        let mut joined =
            Self { past, removals: self.removals.clone(), copies: self.copies, ..Self::default() };
        if joined.copies == Copies::Awaited {
            joined.copies = Copies::Back;
        }
        let sides = [self, copy].into_iter();
        let names = sides.flat_map(|side| side.namespaces.keys().chain(side.past.gone.keys()));
        for name in names.collect::<BTreeSet<_>>() {
            let (since, namespace) = Side::joined(name, [self.side(name), copy.side(name)]);
            if let Some(namespace) = namespace {
                joined.namespaces.insert(name.clone(), namespace);
            } else {
                joined.past.gone.insert(name.clone(), since);
            }
        }
        joined.removals.retain(|name, _| joined.namespaces.contains_key(name));
        joined.keep_bounds();
        let is_same = joined.namespaces == self.namespaces
            && (&joined.past.gone, joined.past.floor) == (&self.past.gone, self.past.floor)
            && joined.copies == self.copies;
        (!is_same).then_some(joined)
    }

    /// Returns what this copy knows of the namespace `name`.
    fn side(&self, name: &str) -> Side<'_> {
        let namespace = self.namespaces.get(name);
        let gone = self.past.gone.get(name).copied().unwrap_or(0);
        let since = namespace.map_or(gone, |namespace| namespace.changes.since);
        Side { since: since.max(self.past.floor), namespace }
    }
}

/// What a copy knows of a namespace. A copy that has no namespace of a name knows that there is none since a moment.
#[derive(Clone, Copy)]
struct Side<'a> {
    since: u64,
    namespace: Option<&'a Namespace>,
}

impl Side<'_> {
    /// Joins what two copies know of the namespace `name`. Returns the later `since`, and the namespace if it is there.
    fn joined(name: &str, sides: [Self; 2]) -> (u64, Option<Namespace>) {
        let since = sides.iter().map(|side| side.since).fold(0, u64::max);
        let is_there = |side: &Self| {
            side.namespace.is_some_and(|namespace| namespace.changes.last().max(side.since) >= since)
        };
        if name != DEFAULT && !sides.iter().any(is_there) {
            return (since, None);
        }
        if let [Some(one), Some(two)] = sides.map(|side| side.namespace)
            && one == two
        {
            return (since, Some(one.clone()));
        }
        let absent = Namespace::default();
        let [one, two] =
            sides.map(|side| Known { since: side.since, namespace: side.namespace.unwrap_or(&absent) });
        let number = (one.since, one.namespace.number).max((two.since, two.namespace.number)).1;
        let secrets = [one, two].into_iter().flat_map(|side| side.secrets_after(since)).collect();
        let mut changes = Changes {
            since,
            found: one.namespace.changes.found.max(two.namespace.changes.found),
            limits: one.namespace.changes.limits.clone(),
        };
        for (limit, at) in &two.namespace.changes.limits {
            let last = changes.limits.entry(limit.clone()).or_default();
            *last = (*last).max(*at);
        }
        changes.hide_before(since);
        let limits = later_limits(one, two);
        (since, Some(Namespace { number, limits, secrets: in_rotation(secrets), changes }))
    }
}

/// A namespace as one of two copies has it, with the moment from before which it has nothing.
#[derive(Clone, Copy)]
struct Known<'a> {
    since: u64,
    namespace: &'a Namespace,
}

impl<'a> Known<'a> {
    fn of_limit(self, name: &str) -> u64 {
        self.namespace.changes.of_limit(name).max(self.since)
    }

    /// Returns the secrets that do not belong to a namespace from before `since`.
    fn secrets_after(self, since: u64) -> impl Iterator<Item = SigningSecret> + use<'a> {
        let own = self.since;
        let secrets = self.namespace.secrets.iter();
        secrets.filter(move |secret| secret.made.as_millis().max(own) >= since).cloned()
    }
}

/// Returns for each limit the value that was set later.
fn later_limits(one: Known<'_>, two: Known<'_>) -> NamespaceLimits {
    let (first, second) = (&one.namespace.limits, &two.namespace.limits);
    macro_rules! later {
        ($($limit:ident)*) => {
            NamespaceLimits {
                $($limit: {
                    let name = stringify!($limit);
                    // Two changes in the same millisecond have the same order at each node.
                    let is_first = (one.of_limit(name), &first.$limit) >= (two.of_limit(name), &second.$limit);
                    let later = if is_first { first } else { second };
                    later.$limit.clone()
                },)*
            }
        };
    }
    with_limits!(later)
}

impl Namespace {
    /// Notes the moment `at` of a change at everything that differs from the namespace `former`, which it replaces. A
    /// namespace that is new and that no client has made has nothing from before `since`.
    fn note(&mut self, former: Option<&Self>, since: u64, at: u64) {
        let none = Self::default();
        let (base, changes) = match former {
            Some(former) if former.number == self.number => (former, former.changes.clone()),
            None if self.number == 0 => (&none, Changes { since, found: at, ..Changes::default() }),
            _ => (&none, Changes { since: at, ..Changes::default() }),
        };
        let differing = differing(&base.limits, &self.limits).into_iter().map(Box::from);
        let named = core::mem::replace(&mut self.changes, changes).limits.into_iter();
        let named = named.filter(|(_, moment)| *moment == at).map(|(limit, _)| limit);
        let secrets = (base.secrets != self.secrets).then(|| Box::from(SECRETS));
        self.changes.limits.extend(named.chain(differing).chain(secrets).map(|limit| (limit, at)));
        self.changes.hide_before(0);
    }
}
