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
//! Each node makes the shared document at its start, and nobody removes it. So if a node that has a copy finds no
//! document, the store has lost it. An absent document then does not mean that there are no namespaces: that would end
//! pauses, and deliver without secrets. If the node finds a document that lacks changes of its copy, it *puts its copy
//! back*. The module `stored_namespaces` says how, and has the races.
//!
//! | state of the node | event | next state |
//! |---|---|---|
//! | kept | a read finds no document | lost: the read fails, the copy stays, and every change fails |
//! | kept, lost, not stored | a read finds a document that has all changes of the copy | kept, with the document |
//! | kept, lost, not stored | a read finds a document that lacks changes of the copy | kept: the join of both is stored, and takes the place of the copy |
//! | kept, lost, not stored | the same, but the join cannot be stored | not stored: the join takes the place of the copy, and each read tries again |
//! | lost, not stored | any | `/readyz` fails, and says why |
//!
//! Reads and changes of one node may overlap. A read does not wait for a change, so a store that does not answer a
//! change does not delay reads.

#[cfg(test)]
mod losses;
#[cfg(test)]
mod tests;

use super::cluster::ClusterStore;
use super::namespace::Namespace;
use super::namespace_storage::{self, NamespaceStorage};
use super::stored_namespaces::{Copies, Past, StoredNamespaces};
use core::convert::Infallible;
use core::fmt;
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
/// The texts for people about the loss of the document, and about a copy that the store does not take.
const LOSS: &str = "the store has lost the document of the namespaces, with their limits and secrets: restore a backup of \
                    the server, or run `tourbillond mend`, after which a node that runs puts its copy back";
const NOT_STORED: &str =
    "the store has lost changes of the namespaces, and does not take them back from this node";
/// The greatest number of attempts to change the namespaces. An attempt fails if another node changes the namespaces at
/// the same time.
const TURNS: usize = 64;

fn outrun() -> io::Error {
    io::Error::other(format!("other nodes changed the namespaces during {TURNS} attempts"))
}

/// Returns the names of the namespaces that have stored timers or schedules.
pub(crate) fn names_with_timers(counts: &Counts) -> BTreeSet<&str> {
    let stored = counts.by_namespace.iter().filter(|(_, count)| **count > 0);
    let names = stored.map(|((name, _), _)| name.strip_prefix(Schedules::NAMESPACES).unwrap_or(name));
    // A program without namespaces stores its timers under the empty name, which no namespace of the service has.
    names.filter(|name| !name.is_empty()).collect()
}

/// The function that [`Namespaces`] calls when its copy has changed, with the names of the namespaces that are new.
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
    /// What the last read has found to be wrong: the store has lost the document, or does not take the copy back.
    fault: Mutex<Option<String>>,
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
    past: Past,
    copies: Copies,
    version: u64,
    /// Whether the document with this version lacks changes of the copy.
    is_ahead: bool,
    /// The moment at which the call was sent that has made the copy or confirmed it. The copy includes all changes
    /// before this moment.
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
        let StoredNamespaces { namespaces, removals, past, copies } = stored;
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
        let next = Self { map, removed, former, past, copies, version, is_ahead: false, at, made: now };
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
            past: self.past.clone(),
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
            fault: Mutex::default(),
        })
    }

    /// Returns whether the store had no document of the namespaces at the last read, or a document that awaits the copy
    /// of a node. The namespaces are then lost, or were never created.
    pub(crate) fn are_absent(&self) -> bool {
        let known = self.known();
        self.is_shared() && (known.version == 0 || known.copies == Copies::Awaited)
    }

    /// Returns a text for people if the store has lost changes of the namespaces that this node has in its copy.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes the shared document or the file if there is none. From then on its absence is a loss. A document that
    /// awaits copies awaits them no longer. Blocks the calling thread.
    pub(crate) fn make_document(&self) -> io::Result<()> {
        if let NamespaceStorage::File(path) = &self.storage {
            let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            if !path.exists() {
                block_on(self.storage.replace(0, &self.stored()))?;
            }
            // The next start tries again. Without the note, the service works all the same.
            let _best_effort = namespace_storage::note(path);
            return Ok(());
        }
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
        let missing = names_with_timers(counts).into_iter().filter(|name| known.find(name).is_none());
        missing.map(Box::from).collect()
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

    /// Reads the stored namespaces again. Uses the result only if the copy was made before the read was sent. Puts the
    /// copy back if the store has lost changes of it.
    async fn read(&self) -> io::Result<()> {
        for _ in 0..TURNS {
            let sent = ServerTime::moment();
            let (version, stored) = self.storage.read().await?;
            let (before, made, copy) = {
                let known = self.known();
                let differs = version != known.version || known.is_ahead;
                // A document that awaits copies is none.
                let has_copy = known.version != 0 && known.copies != Copies::Awaited;
                (known.version, known.made, (differs && has_copy).then(|| known.stored()))
            };
            // The result may then be older than the document that this node has made since.
            if sent <= made {
                return Ok(());
            }
            if version == 0 && before != 0 {
                self.note_fault(Some(LOSS.to_owned()));
                return Err(io::Error::other(LOSS));
            }
            let (version, stored, fault) = match copy.and_then(|copy| stored.with(&copy)) {
                None => (version, stored, None),
                Some(joined) => match self.storage.replace(version, &joined).await {
                    Ok(None) => continue,
                    Ok(Some(new)) => {
                        let done =
                            "this node has put its copy back: the store had lost changes of the namespaces";
                        warn!(target: "namespaces", "{done}");
                        (new, joined, None)
                    }
                    // The node works with the join, which has the pauses and removals of other nodes, too.
                    Err(error) => (version, joined, Some(format!("{NOT_STORED}: {error}"))),
                },
            };
            self.note_fault(fault.clone());
            self.update(|known| {
                if sent <= known.made {
                    return None;
                }
                if version == known.version && !known.is_ahead && fault.is_none() {
                    known.at = sent;
                    return None;
                }
                let new = known.replace(version, stored, sent);
                known.is_ahead = fault.is_some();
                Some(new)
            });
            return Ok(());
        }
        Err(outrun())
    }

    /// Notes what is wrong with the stored namespaces. Logs its begin and its end.
    fn note_fault(&self, fault: Option<String>) {
        let mut known = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*known, &fault) {
            (before, Some(fault)) if before.as_ref() != Some(fault) => {
                error!(target: "namespaces", "{fault}");
            }
            (Some(_), None) => info!(target: "namespaces", "the namespaces are stored again"),
            _ => {}
        }
        *known = fault;
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
            if self.is_shared() {
                stored.begin(self.storage.now());
            }
            let answer = change(&mut stored);
            let is_newest = at >= begun || !self.is_shared();
            if answer.is_err() && is_newest {
                return Ok(answer);
            }
            if answer.is_ok() {
                if self.is_shared() {
                    stored.note(&before);
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
