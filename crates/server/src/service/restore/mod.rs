//! Restores a backup into the data folder of a stopped service, into its SQLite database, or into a deployment without
//! running nodes.
//!
//! # States of a restore
//! A restore that is killed leaves its state behind. A *mark* (a file) or a *note* (a document in Redis) shows that a
//! restore is unfinished. Three rules hold in all stores:
//!
//! - No service opens a store with a mark or a note.
//! - A restore removes timers only under a mark or a note which says that the store was found empty. All timers in the
//!   store then come from a restore.
//! - A mark or a note that permits a removal goes away only after all timers are removed, or after the whole backup is
//!   stored.
//!
//! **A file and SQLite.** The mark is the file `restoring` in the data folder (`mark.rs`). Its content names the store.
//! The restore locks the data folder, as each service does. So a mark that a later restore finds is that of a killed
//! restore.
//!
//! | state | left by a kill | next restore | after an error |
//! |---|---|---|---|
//! | store open, not yet found empty | nothing | starts again | changes nothing |
//! | found empty, no mark yet | nothing, or a mark without a name | checks that the store is empty | the same |
//! | storing, or all is stored | a mark with a name | removes the timers | removes the timers, then the mark |
//! | removing the timers | a mark with a name | removes the timers | leaves the mark |
//!
//! A restore refuses a mark that names another store, and does not change it. It refuses a mark without a name if the
//! store has timers.
//!
//! **Redis.** A shared document, the *note*, replaces the file (`redis.rs`). A running restore renews the note every
//! few seconds, so an old note belongs to a restore that was killed. A note must come before the check, because a node
//! that starts looks for the note. So the note says whether the deployment was found empty.
//!
//! | state | left by a kill | next restore | after an error |
//! |---|---|---|---|
//! | nothing noted | nothing | starts again | changes nothing |
//! | noted, not yet found empty | a bare note | takes it, checks for timers | removes the note, no timer |
//! | found empty, storing, or all is stored | a note with `empty` | removes the timers | removes the timers, then the note |
//! | removing the timers, renewing the note | a note with `empty` | removes the timers | leaves the note with `empty` until its end |
//! | note lost to another restore | the note of that restore | as after a kill of that restore | changes nothing |
//! | live node seen before a removal | a note with `empty` until its next renewal, then a bare note | as it finds the note | removes no timer, leaves a bare note |
//! | permission revoked by a node | a bare note | takes it, checks for timers | removes no timer, leaves the note |
//!
//! The servers refuse a restore's requests about timers from 15 seconds before the end of its note. So neither a
//! process that was suspended nor a request that was slow in the network changes the timers of another restore. If the
//! answer to a request was lost, the restore waits for the end that the note had at that time, and then removes the
//! timers. After a removal that failed, the note stays until its end. Before a removal, the restore reads the note in
//! Redis. While its own note has not ended, the note that it reads is its own.
//!
//! A node that was suspended while a restore looked for live nodes may create timers beside those of the restore. So
//! each node reads the note about once a second, and revokes the permission in it to remove timers. The restore finds
//! its note changed at the next renewal, within three seconds. Before each removal of timers, it also looks for live
//! nodes and reads the note. A node that stops revokes nothing, because a restore may begin as soon as the node has
//! left.
//!
//! A node may also start while a restore begins. So the node reads the note again after its deliveries have begun,
//! before it serves the first request. If there is a note, the node fails to start. By then it has created no timers
//! and no namespaces for clients, and its deliveries have changed only timers of the restore. So it revokes nothing.
//!
//! **PostgreSQL.** A restore is one transaction (`postgres.rs`). A kill or an error in any state leaves nothing, and
//! the next restore starts again.

mod folder;
mod mark;
mod postgres;
mod redis;

pub(crate) use folder::{restore, restore_on_sqlite};
pub(crate) use mark::is_half_restored;
pub(crate) use postgres::restore_in_postgres;
pub(crate) use redis::{restore_shared, revoke};

use super::backup::Attached;
use crate::convert::is_name;
use crate::state::{Namespace, NamespaceStorage, Namespaces, StoredNamespaces};
use core::fmt;
use core::time::Duration;
use pollster::block_on;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::backup::{self, BackupError};
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::store::{Counts, Durability, Filter, Op, StoreError, StoreErrorKind, TimerStore};

/// The lifetime of the note, the document in Redis that marks a running restore. A restore that does not renew its note
/// within this time counts as killed. The time suffices for a slow change of timers and several renewals.
const DEAD: Duration = Duration::from_secs(30);

/// The reason why a restore of a backup failed.
#[derive(Debug)]
pub(crate) enum RestoreError {
    /// The backup is not valid, or the file of the backup cannot be read.
    Backup(PathBuf, BackupError),
    /// The data folder already has timers, or its store cannot be opened or written.
    Store(PathBuf, BackupError),
    /// A file other than the store cannot be read or written.
    File(PathBuf, io::Error),
    /// The file at this path marks an unfinished restore into another store, which the text names.
    OtherStore(PathBuf, Box<str>),
    /// The store at the first path already has timers. The file at the second path is that of a restore that was killed
    /// before it stored any timers.
    Unnamed(PathBuf, PathBuf),
    /// A service uses this data folder, or another process is restoring a backup into it.
    InUse(PathBuf),
    /// The deployment that the text names already has timers, or cannot be read or written. An example of the text is
    /// "the schema shop".
    Deployment(Box<str>, BackupError),
    /// Another process is restoring a backup into this deployment, or was doing so within the last 30 seconds.
    DeploymentUnderWay(Box<str>),
    /// Nodes of a deployment are running. The first value names the deployment, and the second value the nodes.
    Nodes(Box<str>, Names),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backup(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Store(path, BackupError::NotEmpty) => {
                write!(f, "{}: the store has timers; a restore needs an empty store", path.display())
            }
            Self::Store(path, error) => write!(f, "{}: {error}", path.display()),
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Deployment(name, BackupError::NotEmpty) => {
                write!(f, "{name} has timers; a restore needs an empty store")
            }
            Self::Deployment(name, error) => write!(f, "{name}: {error}"),
            Self::DeploymentUnderWay(name) => {
                let seconds = DEAD.as_secs();
                write!(f, "{name}: another restore is under way, or was killed less than {seconds} s ago")
            }
            Self::Nodes(name, nodes) => {
                write!(f, "{name}: stop its nodes first: {}", nodes.join(", "))
            }
            Self::OtherStore(mark, store) => write!(
                f,
                "{}: a restore into {store} has not ended: run `tourbillond restore` again with that store. If that \
                 store is not used, remove this file",
                mark.display()
            ),
            Self::Unnamed(store, mark) => write!(
                f,
                "{}: the store has timers; a restore needs an empty store. A restore that was killed before it stored \
                 any has left {}: to keep the store, remove that file",
                store.display(),
                mark.display()
            ),
            Self::InUse(path) => {
                write!(f, "{}: a service uses this folder, or another restore", path.display())
            }
        }
    }
}

impl core::error::Error for RestoreError {}

type Names = Vec<Box<str>>;

/// The result of a successful restore of a backup.
#[derive(Debug)]
pub(crate) struct Restored {
    /// The moment at which the backup was made.
    pub(crate) at: UtcMillis,
    pub(crate) timers: u64,
    /// The namespaces of the backup that somebody had made or changed already. They keep their limits and secrets.
    pub(crate) kept: Names,
    /// The namespaces that have restored timers, but are missing in the backup. They have no limits and no secrets.
    pub(crate) bare: Names,
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> RestoreError + use<> {
    let path = path.to_owned();
    move |error| RestoreError::File(path, error)
}

/// Reads a whole backup to check it. Returns the moment of the backup, and the namespaces in it.
fn verified(from: &Path) -> Result<(UtcMillis, Attached), RestoreError> {
    let of_backup = |error| RestoreError::Backup(from.to_owned(), error);
    let file = File::open(from).map(BufReader::new).map_err(file_error(from))?;
    let contents = backup::read(file).map_err(of_backup)?;
    let attached =
        contents.attached.as_deref().map_or(Ok(Attached { namespaces: BTreeMap::new() }), |attached| {
            serde_json::from_str(attached).map_err(|error| of_backup(BackupError::Io(error.into())))
        })?;
    Ok((contents.at, attached))
}

/// Removes all timers of a store, on which no service may run. Fails if a timer is left. `confirm` is called before
/// each change. If it fails, the removal ends.
fn drop_timers(
    store: &dyn TimerStore,
    confirm: impl Fn() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut cursor = None;
    loop {
        let page = block_on(store.list(Filter::default(), cursor, AT_ONCE))?;
        let ops: Vec<_> = page.timers.iter().map(|timer| Op::Cancel(timer.id.into(), None)).collect();
        if !ops.is_empty() {
            confirm()?;
            block_on(store.apply(ops, Durability::PowerLoss))?;
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    match is_empty(store)? {
        true => Ok(()),
        false => {
            Err(StoreError::new(StoreErrorKind::Limit, "not all timers of a failed restore were removed"))
        }
    }
}

/// The number of timers that one call of the store removes.
const AT_ONCE: u32 = 200;

fn is_empty(store: &dyn TimerStore) -> Result<bool, StoreError> {
    let counts = block_on(store.counts())?;
    Ok(counts.by_namespace.is_empty() && counts.quarantined == 0)
}

/// Fails if nodes other than this process are running on the store. `name` is the name of the deployment, such as "the
/// schema shop", for the error.
fn refuse_beside_nodes(store: &dyn TimerStore, name: &str) -> Result<(), RestoreError> {
    let of_store = |error: StoreError| RestoreError::Deployment(name.into(), error.into());
    let nodes = block_on(store.nodes()).map_err(of_store)?.unwrap_or_default().nodes;
    let live: Names =
        nodes.into_iter().filter(|node| node.is_live && !node.is_this).map(|node| node.name).collect();
    if live.is_empty() { Ok(()) } else { Err(RestoreError::Nodes(name.into(), live)) }
}

/// Adds the namespaces of a backup to the stored namespaces, and also adds the namespaces that have restored timers
/// (`used`) but are missing in the backup. `confirm` is called before each attempt to store them, and its failure ends
/// the restore. Returns the names of the namespaces that were kept, and of those that were missing in the backup.
fn add_namespaces(
    storage: NamespaceStorage,
    attached: &Attached,
    used: &Counts,
    confirm: impl Fn() -> Result<(), StoreError>,
) -> io::Result<(Names, Names)> {
    let used = used.by_namespace.keys().map(|(namespace, _)| &**namespace).collect();
    let namespaces = Namespaces::open(storage)?;
    let merged = namespaces.try_change(|stored| {
        // The process may have stood still since the last attempt, while another restore or clients changed the
        // namespaces.
        confirm()?;
        Ok::<_, StoreError>(merge(stored, attached, &used))
    })?;
    let merged = merged.map_err(io::Error::other)?;
    // A start takes a missing file or document for a loss. A file that has not changed was not written.
    namespaces.make_document()?;
    Ok(merged)
}

/// Adds the namespaces of a backup to `stored`, and bare namespaces for the timers of `used` that have none. A
/// namespace in which nobody has set anything counts as missing: a start has made it, or it is `default`. The document
/// refuses the copies of nodes from before the restore, and has no marks of removals. Returns the names of the backup's
/// namespaces that stay as they are in `stored`, and the names of the bare namespaces.
fn merge(stored: &mut StoredNamespaces, attached: &Attached, used: &BTreeSet<&str>) -> (Names, Names) {
    let (mut kept, mut bare) = (Vec::new(), Vec::new());
    for (name, namespace) in &attached.namespaces {
        if stored.namespaces.get(name).is_some_and(|there| !there.is_unset()) {
            kept.push(name.clone());
        } else {
            stored.namespaces.insert(name.clone(), namespace.without_changes());
        }
    }
    // A schedule is a timer in an internal namespace, whose name ends with the namespace in which the schedule creates
    // timers.
    let used: BTreeSet<_> =
        used.iter().map(|name| name.strip_prefix(Schedules::NAMESPACES).unwrap_or(name)).collect();
    for name in used.into_iter().filter(|name| is_name(name)) {
        if !stored.namespaces.contains_key(name) {
            stored.namespaces.insert(name.into(), Namespace::default());
            bare.push(name.into());
        }
    }
    stored.refuse_earlier();
    (kept, bare)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::double::{self, Documents};
    use crate::state::{mark, remove_marked};
    use core::cell::Cell;
    use tourbillon_durable::store::{IfPresent, MemoryStore};
    use tourbillon_durable::timer::{Timer, TimerId};

    #[test]
    fn a_restore_that_has_lost_its_note_removes_no_further_timers() {
        let store = MemoryStore::default();
        let timer = || Box::new(Timer::new(TimerId::fresh(), "half", store.now()));
        let ops = (0..2 * AT_ONCE + 1).map(|_| Op::Place(timer(), IfPresent::Reject)).collect();
        block_on(store.apply(ops, Durability::Volatile)).unwrap();
        let stored = || block_on(store.counts()).unwrap().by_namespace.values().sum::<u64>();
        let pages = Cell::new(0);
        let confirm = || {
            pages.set(pages.get() + 1);
            if pages.get() == 2 { Err(StoreError::new(StoreErrorKind::Closed, "lost")) } else { Ok(()) }
        };
        assert!(drop_timers(&store, confirm).is_err());
        assert_eq!(stored(), u64::from(AT_ONCE) + 1);
        drop_timers(&store, || Ok(())).unwrap();
        assert_eq!(stored(), 0);
    }

    fn limited(most: u64) -> Namespace {
        let mut limited = Namespace::default();
        limited.limits.max_timers = Some(most);
        limited
    }

    fn attached<const COUNT: usize>(all: [(&str, Namespace); COUNT]) -> Attached {
        Attached { namespaces: all.map(|(name, namespace)| (name.into(), namespace)).into() }
    }

    /// A node has started on the empty store before the restore, as systemd starts it after a loss.
    #[test]
    fn a_restore_takes_the_namespaces_of_a_start_for_none_and_keeps_those_that_somebody_has_set() {
        let (documents, folder) = (Documents::default(), tempfile::tempdir().unwrap());
        let file = folder.path().join("namespaces.json");
        let shared = || NamespaceStorage::Shared(double::node(&documents, 1));
        let in_file = || NamespaceStorage::File(file.clone());
        for storage in [&shared as &dyn Fn() -> NamespaceStorage, &in_file] {
            let started = Namespaces::open(storage()).unwrap();
            started.make_document().unwrap();
            let of_client = Namespace { number: 8, ..Namespace::default() };
            started
                .change(|stored| {
                    let all =
                        [("found", Namespace::default()), ("made", of_client.clone()), ("set", limited(2))];
                    stored.namespaces.extend(all.map(|(name, namespace)| (name.into(), namespace)));
                })
                .unwrap();
            let all = ["default", "found", "made", "set"].map(|name| (name, limited(7)));
            let (kept, bare) =
                add_namespaces(storage(), &attached(all), &Counts::default(), || Ok(())).unwrap();
            assert_eq!((kept.join(" "), bare.len()), ("made set".to_owned(), 0));
            let all = Namespaces::open(storage()).unwrap().all();
            let most = |name: &str| all[name].limits.max_timers;
            assert_eq!(["default", "found", "made", "set"].map(most), [Some(7), Some(7), None, Some(2)]);
        }
        assert!(!std::fs::read_to_string(file).unwrap().contains("changes"), "a file has no moments");
    }

    /// A restore has stood still between its read and its write of the namespaces.
    #[test]
    fn a_restore_that_stood_still_changes_no_namespaces_of_clients_and_ends_without_its_note() {
        for loses_note in [false, true] {
            let documents = Documents::default();
            let storage = || NamespaceStorage::Shared(double::node(&documents, 1));
            let client = Namespaces::open(storage()).unwrap();
            let calls = Cell::new(0);
            let confirm = || {
                calls.set(calls.get() + 1);
                match calls.get() {
                    1 => client
                        .change(|stored| drop(stored.namespaces.insert("shop".into(), limited(1))))
                        .unwrap(),
                    _ if loses_note => return Err(StoreError::new(StoreErrorKind::Closed, "lost")),
                    _ => {}
                }
                Ok(())
            };
            let all = attached([("shop", limited(7)), ("other", limited(8))]);
            let added = add_namespaces(storage(), &all, &Counts::default(), confirm);
            assert_eq!(added.is_err(), loses_note);
            let stored = Namespaces::open(storage()).unwrap();
            assert_eq!(stored.get("shop").unwrap().limits.max_timers, Some(1));
            assert_eq!(stored.get("other").is_none(), loses_note);
        }
    }

    /// The machine of a removal was suspended after it had counted no timers. It goes on after the restore.
    #[test]
    fn a_removal_from_before_a_restore_removes_no_namespace_of_the_backup() {
        let documents = Documents::default();
        let storage = || NamespaceStorage::Shared(double::node(&documents, 1));
        let asleep = Namespaces::open(storage()).unwrap();
        asleep.change(|stored| drop(stored.namespaces.insert("shop".into(), limited(1)))).unwrap();
        asleep.try_change(|stored| mark(stored, "shop", 5)).unwrap().unwrap();
        let all = attached([("shop", limited(7)), ("default", limited(7))]);
        add_namespaces(storage(), &all, &Counts::default(), || Ok(())).unwrap();
        assert!(Namespaces::open(storage()).unwrap().require("shop").is_ok(), "it refuses requests");
        assert!(!asleep.change(|stored| remove_marked(stored, "shop", 5)).unwrap());
        let restored = Namespaces::open(storage()).unwrap();
        assert_eq!(restored.get("shop").unwrap().limits.max_timers, Some(1));
    }

    /// A machine that was suspended has a node of the deployment that was there before the restore.
    #[test]
    fn a_node_that_comes_back_after_a_restore_puts_no_copy_over_the_backup() {
        for is_made in [false, true] {
            let documents = Documents::default();
            let storage = || NamespaceStorage::Shared(double::node(&documents, 1));
            let stale = Namespaces::open(storage()).unwrap();
            let former = [("shop".into(), limited(1)), ("former".into(), limited(2))];
            stale.change(|stored| stored.namespaces.extend(former.clone())).unwrap();
            documents.lock().unwrap().clear();
            if is_made {
                Namespaces::open(storage()).unwrap().make_document().unwrap();
            }
            // A later moment than that of the stale node.
            std::thread::sleep(Duration::from_millis(10));
            let attached = attached([("shop", limited(7))]);
            add_namespaces(storage(), &attached, &Counts::default(), || Ok(())).unwrap();
            block_on(stale.renew()).unwrap();
            assert_eq!(stale.get("shop").unwrap().limits.max_timers, Some(7));
            let restored = Namespaces::open(storage()).unwrap();
            assert_eq!(restored.all().keys().map(|name| &**name).collect::<Vec<_>>(), ["default", "shop"]);
            assert_eq!(restored.all(), stale.all());
        }
    }
}
