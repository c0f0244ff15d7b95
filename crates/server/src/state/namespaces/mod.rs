//! Keeps the namespaces, with their limits and the secrets that sign their callbacks.
//!
//! # The copy of a node
//! Each node works with a copy of the stored namespaces. A change is computed from the copy, and stored if the stored
//! namespaces still have the version of the copy. The store draws the version of a change, and answers with it.
//!
//! | event | effect on the copy |
//! |---|---|
//! | a read answers that was sent after the copy was made | the result takes its place |
//! | a read answers that was sent before, or in the same moment | none, because the copy may be newer. A caller that needs newer namespaces reads again |
//! | a change is stored in the place of the version of the copy | the changed namespaces take its place, with their new version |
//! | the same, but a read has replaced the copy since the change was sent | none: the result of the read includes the change |
//! | a change is refused by the version | none. The change reads the namespaces, and is computed again |
//! | a change fails, or its answer is lost | none. The next read finds the change if it was stored |
//! | the store loses a change, for example by a failover | none. The next read finds another version |
//!
//! # The loss of the document
//! Each node makes sure at its start that the shared document exists, and nobody removes it. So if a node that has a
//! copy finds no document, the store has lost it. The node then must not act as if there were no namespaces: that would
//! end pauses, and send callbacks without signatures.
//!
//! | state of the node | event | next state |
//! |---|---|---|
//! | kept | a read finds no document | lost: the read fails, the copy stays, and every change fails |
//! | lost | a read finds a document | kept, with the namespaces of the document, or after a put-back |
//!
//! A new document may be made before a node with a copy has noticed the loss. So a document has *origins*, which are
//! random numbers: a process that makes the document while the store has none draws an origin, and each later change
//! keeps it. If a document lacks an origin of a node's copy, the store has lost the document of this copy. The node
//! then *puts its copy back*: it adds the origins, namespaces, limits and secrets that the document lacks. Those that
//! clients have created or set since the loss stay. The field [`Copies`] of the document says whether nodes add their
//! copies:
//!
//! | event | origins | copies |
//! |---|---|---|
//! | a start, or a change at its node, makes the document | one is drawn | are added |
//! | `tourbillond mend` makes the document | one is drawn | are added, and are awaited |
//! | `tourbillond mend --anew` makes the document | one is drawn | are refused |
//! | a restore makes the document, or changes it | one is drawn for a new document | are refused |
//! | a client's change, or a start that makes missing namespaces | stay | stay as they are |
//! | a put-back | those of the copy are added | are added |
//! | the end of a mend for which no copy came, or a start without timers | stay | are added, and no longer awaited |
//!
//! Each write names the version that it replaces, so of two concurrent writes the second is refused. Its sender reads
//! the document and repeats its change. The races end so:
//!
//! | race | ending |
//! |---|---|
//! | two starts find no document | one makes it, and the other takes it with its origin |
//! | a start has made the document, and a client changes it, before a node with a copy reads it | the node puts its copy back. Until then, for a second or so, the new node works without the copy |
//! | two nodes put their copies back | the second finds its origins in the document, and takes the document. If it had another document, it adds its copy, too |
//! | a put-back and a change | each has its effect |
//! | a start beside a mend | while the mend waits, a start fails if there are timers. A start without timers succeeds, and a later put-back adds the copy |
//! | a mend is killed while it waits | the copies stay awaited. A put-back, a start without timers, or another mend ends this |
//! | the server's backup is restored beside a new document | nodes of the new document put their copies back |
//! | a node comes back after a restore, with the copy of an earlier deployment | it drops the copy |
//! | the same, but the deployment was made anew by a start | it puts the copy back, however old the copy is |
//!
//! Reads and changes of one node may overlap. A read does not wait for a change, so a store that does not answer a
//! change does not delay reads.

#[cfg(test)]
mod tests;

use super::cluster::ClusterStore;
use super::namespace::{Copies, DEFAULT, Namespace, StoredNamespaces};
use super::namespace_storage::NamespaceStorage;
use core::convert::Infallible;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use pollster::block_on;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Instant;
use tokio::time::timeout;
use tourbillon::Timestamp;
use tourbillon_api::{Problem, ProblemKind};
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::store::{Counts, ServerTime};
use tracing::{error, info, warn};

type Map = BTreeMap<Box<str>, Arc<Namespace>>;

/// Returns the problem for each request about a namespace that is being removed. The client may repeat the request,
/// because a removal that finds timers ends, and the namespace stays.
pub(super) fn being_removed() -> Problem {
    let detail = "a removal of this namespace is under way";
    Problem::new(ProblemKind::LimitReached, detail).with_retry_after_ms(1_000)
}

/// The age from which a node's copy of the namespaces is old. If its copy is old, a node reads the namespaces again
/// before it creates a timer. A removal of a namespace waits for this time, so that the other nodes read its mark.
pub(crate) const VIEW: Duration = Duration::from_secs(5);
/// The longest time for which the creation of a timer waits for a new copy of the namespaces. After a failed read,
/// creations use the old copy without a wait for the time [`AGAIN`].
const PATIENCE: Duration = Duration::from_millis(300);
const AGAIN: Duration = Duration::from_secs(1);
/// The text about the loss of the document, for people.
const LOSS: &str = "the store has lost the document of the namespaces, with their limits and secrets: restore a backup of \
                    the server, or run `tourbillond mend`, after which a node that runs puts its copy back";
/// The greatest number of attempts to change the namespaces. An attempt fails if another node changes the namespaces at
/// the same time.
const TURNS: usize = 64;

fn outrun() -> io::Error {
    io::Error::other(format!("other nodes changed the namespaces during {TURNS} attempts"))
}

/// The function that [`Namespaces`] calls after a change of its copy, with the names of the new namespaces.
type Listener = Box<dyn Fn(&[Box<str>]) + Send + Sync>;

/// This node's copy of the namespaces, and the place where the namespaces are stored.
pub(crate) struct Namespaces {
    storage: NamespaceStorage,
    /// Locked while this process changes the stored namespaces, so that its changes do not overlap. The value is true
    /// if the last write of the file has failed, so that the file may differ from the copy.
    writing: Mutex<bool>,
    /// Locked while [`renew`](Self::renew) reads the stored namespaces, so that waiting calls share the next read.
    reading: tokio::sync::Mutex<()>,
    known: RwLock<Known>,
    listener: OnceLock<Listener>,
    /// The moment of the last failed attempt to read the namespaces again before a timer is created. `None` if no
    /// attempt has failed.
    failed: Mutex<Option<Instant>>,
    /// Whether the store had lost the document of the namespaces at the last read.
    is_lost: AtomicBool,
}

/// A node's copy of the stored namespaces. Its moments come from [`ServerTime::moment`], which continues to count while
/// the machine is suspended.
#[derive(Default)]
struct Known {
    /// The namespaces that are not being removed.
    map: Arc<Map>,
    /// The namespaces that are being removed.
    removed: BTreeMap<Box<str>, Removed>,
    /// Former values of namespaces that were changed or removed, by name. Each change of the copy drops the values that
    /// nobody else references.
    former: BTreeMap<Box<str>, Vec<Weak<Namespace>>>,
    origins: BTreeSet<u64>,
    copies: Copies,
    version: u64,
    /// The moment at which the last read or write was sent that has produced or confirmed the copy. The copy includes
    /// all changes before this moment.
    at: Timestamp,
    /// The moment at which the copy was made.
    made: Timestamp,
}

/// A namespace that is being removed.
struct Removed {
    namespace: Arc<Namespace>,
    removal: u64,
    /// The moment at which this node's copy got the mark of the removal.
    since: Timestamp,
}

impl Known {
    fn find(&self, name: &str) -> Option<&Arc<Namespace>> {
        self.map.get(name).or_else(|| self.removed.get(name).map(|removed| &removed.namespace))
    }

    /// Replaces the copy by `stored`, which has the version `version`. Returns the names of the new namespaces. `at` is
    /// the moment at which the read or write of `stored` was sent.
    fn replace(&mut self, version: u64, stored: StoredNamespaces, at: Timestamp) -> Vec<Box<str>> {
        let StoredNamespaces { mut namespaces, removals, origins, copies } = stored;
        namespaces.entry(DEFAULT.into()).or_default();
        let now = ServerTime::moment();
        let (mut map, mut removed, mut new) = (Map::new(), BTreeMap::new(), Vec::new());
        for (name, namespace) in namespaces {
            let before = self.find(&name);
            if before.is_none_or(|before| before.number != namespace.number) {
                new.push(name.clone());
            }
            let namespace = match before {
                Some(before) if **before == namespace => Arc::clone(before),
                _ => Arc::new(namespace),
            };
            let Some(&removal) = removals.get(&name) else {
                map.insert(name, namespace);
                continue;
            };
            let same = self.removed.get(&name).filter(|before| before.removal == removal);
            let since = same.map_or(now, |before| before.since);
            removed.insert(name, Removed { namespace, removal, since });
        }
        let (map, former) = (Arc::new(map), BTreeMap::new());
        let next = Self { map, removed, former, origins, copies, version, at, made: now };
        let before = core::mem::replace(self, next);
        self.former = before.former;
        let were_removed = before.removed.iter().map(|(name, removed)| (name, &removed.namespace));
        for (name, value) in before.map.iter().chain(were_removed) {
            if self.find(name).is_none_or(|now| !Arc::ptr_eq(now, value)) {
                self.former.entry(name.clone()).or_default().push(Arc::downgrade(value));
            }
        }
        // From here on, only holders ([`Namespaces::is_held`]) reference the former values.
        drop((before.map, before.removed));
        self.former.retain(|_, values| {
            values.retain(|value| value.strong_count() > 0);
            !values.is_empty()
        });
        new
    }

    /// Returns the namespaces of the copy as clones, which do not count as holders in [`Namespaces::is_held`].
    fn stored(&self) -> StoredNamespaces {
        let removed = self.removed.iter().map(|(name, removed)| (name, &removed.namespace));
        let all = self.map.iter().chain(removed);
        StoredNamespaces {
            namespaces: all.map(|(name, namespace)| (name.clone(), Namespace::clone(namespace))).collect(),
            removals: self.removed.iter().map(|(name, removed)| (name.clone(), removed.removal)).collect(),
            origins: self.origins.clone(),
            copies: self.copies,
        }
    }
}

impl fmt::Debug for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Namespaces").field("is_shared", &self.storage.is_shared()).finish_non_exhaustive()
    }
}

impl Namespaces {
    /// Reads the stored namespaces for the first time. Blocks the calling thread.
    pub(crate) fn open(storage: NamespaceStorage) -> io::Result<Self> {
        let at = ServerTime::moment();
        let (version, stored) = block_on(storage.read())?;
        let mut known = Known::default();
        known.replace(version, stored, at);
        Ok(Self {
            storage,
            writing: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            known: RwLock::new(known),
            listener: OnceLock::new(),
            failed: Mutex::default(),
            is_lost: AtomicBool::new(false),
        })
    }

    /// Returns whether the store had no document of the namespaces at the last read, or a document that awaits the copy
    /// of a node. The namespaces are then lost, or were never created.
    pub(crate) fn are_absent(&self) -> bool {
        let known = self.known();
        self.is_shared() && (known.version == 0 || known.copies == Copies::Awaited)
    }

    /// Returns a text for people if the store has lost the document of which this node has a copy.
    pub(crate) fn loss(&self) -> Option<&'static str> {
        self.is_lost.load(Ordering::Relaxed).then_some(LOSS)
    }

    /// Creates the shared document if the store has none, so that its absence is a loss from then on. If the document
    /// awaits copies of nodes, ends this wait. Blocks the calling thread.
    pub(crate) fn make_document(&self) -> io::Result<()> {
        if !self.are_absent() {
            return Ok(());
        }
        match self.change(StoredNamespaces::await_no_copy) {
            // The document may exist although no replica has confirmed its creation in time. This suffices for a start.
            Err(_) if block_on(self.renew()).is_ok() && !self.are_absent() => Ok(()),
            made => made,
        }
    }

    /// Sets the function that is called with the names of the new namespaces after each change of the copy, before
    /// other threads can see this change. A new namespace may have the name of an earlier namespace. The function must
    /// not call methods of this value. A second call of this method has no effect.
    pub(crate) fn on_change(&self, listener: impl Fn(&[Box<str>]) + Send + Sync + 'static) {
        let _is_first = self.listener.set(Box::new(listener));
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the copy with `change`. Then calls the listener with the names of the new namespaces, which `change`
    /// returns. If `change` returns `None`, nothing has changed.
    fn update(&self, change: impl FnOnce(&mut Known) -> Option<Vec<Box<str>>>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let (Some(new), Some(listener)) = (change(&mut known), self.listener.get()) {
            listener(&new);
        }
    }

    /// Returns all namespaces in this node's copy, without those that are being removed.
    pub(crate) fn all(&self) -> Arc<Map> {
        Arc::clone(&self.known().map)
    }

    /// Returns a copy of all namespaces, including those that are being removed.
    pub(crate) fn stored(&self) -> StoredNamespaces {
        self.known().stored()
    }

    /// Returns the namespace with this name, or `None` if this node's copy does not have it.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Namespace>> {
        self.known().map.get(name).cloned()
    }

    /// Returns the namespace with this name, even if it is being removed. Until the value is dropped,
    /// [`is_held`](Self::is_held) counts the caller as a holder.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Namespace>> {
        self.known().find(name).cloned()
    }

    /// Returns the namespace with this name. Fails if this node's copy does not have it, or if it is being removed.
    pub(crate) fn require(&self, name: &str) -> Result<Arc<Namespace>, Problem> {
        let known = self.known();
        match known.map.get(name) {
            Some(namespace) => Ok(Arc::clone(namespace)),
            None if known.removed.contains_key(name) => Err(being_removed()),
            None => Err(Problem::new(ProblemKind::NotFound, format!("there is no namespace {name:?}"))),
        }
    }

    /// Returns the namespace with this name. First reads the namespaces again if this node's copy is old. Fails if the
    /// namespace does not exist, or if it is being removed.
    ///
    /// Must be called before a write into the namespace, because another node may have removed the namespace.
    pub(crate) async fn require_fresh(&self, name: &str) -> Result<Arc<Namespace>, Problem> {
        self.freshen().await;
        self.require(name)
    }

    /// Returns whether a creation or a delivery still holds a reference to the namespace `name`, which is being
    /// removed, or to a former value of this namespace. The removal waits for these holders, because they may still
    /// store a timer or a schedule, or record the end of a delivery.
    pub(crate) fn is_held(&self, name: &str) -> bool {
        let known = self.known();
        let is_removed_held =
            known.removed.get(name).is_some_and(|removed| Arc::strong_count(&removed.namespace) > 1);
        let mut former = known.former.get(name).into_iter().flatten();
        is_removed_held || former.any(|value| value.strong_count() > 0)
    }

    /// Returns the names of namespaces that have stored timers or schedules, but are missing in this node's copy.
    pub(crate) fn missing(&self, counts: &Counts) -> Vec<Box<str>> {
        let known = self.known();
        let stored = counts.by_namespace.iter().filter(|(_, count)| **count > 0);
        let names = stored.map(|((name, _), _)| name.strip_prefix(Schedules::NAMESPACES).unwrap_or(name));
        // A program without namespaces stores its timers under the empty name, which no namespace of the service has.
        let names: BTreeSet<_> =
            names.filter(|name| !name.is_empty() && known.find(name).is_none()).collect();
        names.into_iter().map(Box::from).collect()
    }

    /// Returns whether other nodes can change the namespaces.
    pub(crate) fn is_shared(&self) -> bool {
        self.storage.is_shared()
    }

    /// Returns the store that the nodes of the deployment share, or `None` if the namespaces are in a file.
    pub(crate) fn shared(&self) -> Option<Arc<dyn ClusterStore>> {
        match &self.storage {
            NamespaceStorage::File(_) => None,
            NamespaceStorage::Shared(store) => Some(Arc::clone(store)),
        }
    }

    /// Reads the stored namespaces again. Drops the result if the copy was replaced after the read was sent. If the
    /// store has lost the document of the copy, adds the copy to the document that was read.
    async fn read(&self) -> io::Result<()> {
        for _ in 0..TURNS {
            let sent = ServerTime::moment();
            let (version, mut stored) = self.storage.read().await?;
            let (known, made, lost) = {
                let known = self.known();
                (known.version, known.made, stored.lacks(&known.origins).then(|| known.stored()))
            };
            // The result may then be older than the document that this node has made since.
            if sent <= made {
                return Ok(());
            }
            self.note_loss(version == 0 && known != 0)?;
            let version = match lost {
                Some(copy) => {
                    stored.add(copy);
                    let Some(new) = self.storage.replace(version, &stored).await? else { continue };
                    warn!(target: "namespaces", "this node has put its copy back: the store had lost the namespaces");
                    new
                }
                None => version,
            };
            self.update(|known| {
                if sent <= known.made {
                    return None;
                }
                if version == known.version {
                    known.at = sent;
                    return None;
                }
                Some(known.replace(version, stored, sent))
            });
            return Ok(());
        }
        Err(outrun())
    }

    /// Stores whether the document is lost. Logs each change of this state. Fails if the document is lost.
    fn note_loss(&self, is_lost: bool) -> io::Result<()> {
        match (self.is_lost.swap(is_lost, Ordering::Relaxed), is_lost) {
            (false, true) => error!(target: "namespaces", "{LOSS}"),
            (true, false) => info!(target: "namespaces", "the document of the namespaces is there again"),
            _ => {}
        }
        if is_lost { Err(io::Error::other(LOSS)) } else { Ok(()) }
    }

    /// Reads the stored namespaces again. After success, the copy includes all changes before the call.
    pub(crate) async fn renew(&self) -> io::Result<()> {
        let asked = ServerTime::moment();
        let _one_at_a_time = self.reading.lock().await;
        // A read that was sent during the wait for the lock also serves this call. If the result of a read is not used,
        // this node has changed the copy. Once such a change was sent after the call, the loop ends.
        while self.known().at <= asked {
            self.read().await?;
        }
        Ok(())
    }

    /// Reads the stored namespaces again if this node's copy is old. If the read fails, the old copy stays in use,
    /// because the server with the namespaces may be down while the servers with the timers still answer. A timer that
    /// is then created in a removed namespace stays in the store, and is not delivered.
    pub(crate) async fn freshen(&self) {
        if !self.is_shared() || ServerTime::moment() - self.known().at <= VIEW {
            return;
        }
        let failed = || self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed().is_some_and(|at| at.elapsed() < AGAIN) {
            return;
        }
        if !matches!(timeout(PATIENCE, self.renew()).await, Ok(Ok(()))) {
            *failed() = Some(Instant::now());
        }
    }

    /// Changes the namespaces with `change`, and returns once the change is stored. If another node has changed the
    /// namespaces since they were read, calls `change` again with the newer namespaces. Blocks the calling thread.
    pub(crate) fn change<T>(&self, mut change: impl FnMut(&mut StoredNamespaces) -> T) -> io::Result<T> {
        self.try_change(|stored| Ok::<_, Infallible>(change(stored))).map(|Ok(answer)| answer)
    }

    /// Changes the namespaces as [`change`](Self::change) does. If `change` fails for the newest namespaces, stores
    /// nothing and returns its error. Blocks the calling thread.
    pub(crate) fn try_change<T, E>(
        &self,
        mut change: impl FnMut(&mut StoredNamespaces) -> Result<T, E>,
    ) -> io::Result<Result<T, E>> {
        let begun = ServerTime::moment();
        let mut file_differs = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..TURNS {
            let (before, version, at) = {
                let known = self.known();
                (known.stored(), known.version, known.at)
            };
            let mut stored = before.clone();
            let answer = change(&mut stored);
            let is_newest = at >= begun || !self.is_shared();
            if answer.is_err() && is_newest {
                return Ok(answer);
            }
            if answer.is_ok() {
                if self.is_shared() && version == 0 {
                    stored.draw_origin()?;
                }
                let sent = ServerTime::moment();
                if let Some(new) = self.store(version, &before, &stored, &mut file_differs)? {
                    self.update(|known| (known.version == version).then(|| known.replace(new, stored, sent)));
                    return Ok(answer);
                }
            }
            // This read is independent of a read by `renew`, which may never get an answer.
            block_on(self.read())?;
        }
        Err(outrun())
    }

    /// Replaces the stored namespaces `before`, of the version `version`, by `stored`. Returns the new version, or
    /// `None` if another node has changed the namespaces.
    fn store(
        &self,
        version: u64,
        before: &StoredNamespaces,
        stored: &StoredNamespaces,
        file_differs: &mut bool,
    ) -> io::Result<Option<u64>> {
        if self.is_shared() {
            return block_on(self.storage.replace(version, stored));
        }
        // A file does not contain marks. So a removal can set and remove its mark even while the disk is full.
        let has_changed = before.namespaces != stored.namespaces;
        if has_changed || *file_differs {
            let written = block_on(self.storage.replace(version, stored));
            // The file may have been replaced all the same: it is replaced before its folder is synced.
            *file_differs = written.is_err();
            if has_changed {
                return written;
            }
        }
        Ok(Some(version))
    }

    /// Returns the namespaces that have been marked for removal in this node's copy for the time `age`, each with the
    /// number of its removal.
    pub(crate) fn stale_removals(&self, age: Duration) -> Vec<(Box<str>, u64)> {
        let (known, now) = (self.known(), ServerTime::moment());
        let stale = known.removed.iter().filter(|(_, removed)| now - removed.since >= age);
        stale.map(|(name, removed)| (name.clone(), removed.removal)).collect()
    }
}
