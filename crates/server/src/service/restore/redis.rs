//! Restores a backup into a deployment on Redis. The documentation of the parent module has the states of the note.

use super::{
    DEAD, RestoreError, Restored, add_namespaces, drop_timers, is_empty, refuse_beside_nodes, verified,
};
use crate::service::deployment::{RESTORING, open_store};
use crate::settings::RedisSettings;
use crate::state::{ClusterStore, NamespaceStorage, Stop};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use pollster::block_on;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::backup::{BackupError, Restore};
use tourbillon_durable::store::{StoreError, StoreErrorKind, TimerStore as _};
use tourbillon_redis::RedisStore;

/// The time between two renewals of a restore's note in Redis (the document that marks a running restore).
const WRITTEN: Duration = Duration::from_secs(3);
/// The time before the end of a restore's note from which the servers refuse the restore's requests about timers. A
/// request may reach its server late, and the clocks of the servers differ a little. Even so, it has no effect after
/// the end of the note, when another restore may run.
const MARGIN: Duration = Duration::from_secs(15);
/// The second word in the text of a note, after the moment at which the note ends. It means that the deployment was
/// found empty.
const EMPTY: &str = "empty";

/// The note of this restore (the document in Redis that marks a running restore), as this process last wrote it.
#[derive(Clone, Copy)]
struct Note {
    version: u64,
    /// The end of the note: the moment from which another restore may overwrite the note.
    until: UtcMillis,
    /// Whether the deployment was found empty under this note. If so, all timers in the deployment come from a restore,
    /// so a restore may remove them.
    may_drop: bool,
}

impl Note {
    /// Writes the note if it still has the version `version` in the store. Otherwise returns `None`.
    fn write(
        store: &RedisStore,
        version: u64,
        until: UtcMillis,
        may_drop: bool,
    ) -> Result<Option<Self>, StoreError> {
        let until_text = until.as_millis().to_string();
        let text = if may_drop { format!("{until_text} {EMPTY}") } else { until_text };
        let written = block_on(store.replace_document(RESTORING, version, Some(text.as_bytes())))?;
        Ok(written.map(|version| Self { version, until, may_drop }))
    }

    /// Writes the note of this restore, so that no other restore begins. Returns `None` if another restore is running.
    /// The note permits the removal of timers only if it replaces such a note of a killed restore.
    fn take(store: &RedisStore) -> Result<Option<Self>, StoreError> {
        let found = block_on(store.document(RESTORING))?;
        let text = found.as_ref().and_then(|note| core::str::from_utf8(&note.value).ok()).unwrap_or_default();
        let (until, rest) = text.split_once(' ').unwrap_or((text, ""));
        let until = until.parse().ok().map(UtcMillis::from_millis);
        if until.is_some_and(|until| store.now() < until) {
            return Ok(None);
        }
        let version = found.as_ref().map_or(0, |note| note.version);
        Self::write(store, version, store.now() + DEAD, rest == EMPTY)
    }

    /// Extends the note until [`DEAD`] from now. `may_drop` says whether the deployment was found empty. Returns `None`
    /// if another process has changed the note.
    fn renew(self, store: &RedisStore, may_drop: bool) -> Result<Option<Self>, StoreError> {
        Self::write(store, self.version, store.now() + DEAD, may_drop)
    }

    /// Limits the store's requests about timers to the lifetime of the note, less [`MARGIN`].
    fn limit(self, store: &RedisStore) {
        let margin = u64::try_from(MARGIN.as_millis()).unwrap_or(u64::MAX);
        store.work_until(Some(UtcMillis::from_millis(self.until.as_millis().saturating_sub(margin))));
    }

    /// Ends the note after a failure before any change of timers. Removes the note, unless it permits the removal of
    /// timers of an earlier restore. Such a note stays, but ends at once, so the next restore need not wait.
    fn give_up(self, store: &RedisStore) {
        if self.may_drop {
            return self.leave(store, UtcMillis::from_millis(0));
        }
        // The caller reports the first error. If this change fails, too, the note is as a killed restore leaves it.
        let _removed = block_on(store.replace_document(RESTORING, self.version, None));
    }

    /// Leaves the note in Redis after a failure, because a part of a backup may be stored. The note ends at the moment
    /// `until`, when the next restore may overwrite it.
    fn leave(self, store: &RedisStore, until: UtcMillis) {
        // If this change fails, too, the note is as a killed restore leaves it.
        let _left = Self::write(store, self.version, until, self.may_drop);
    }
}

/// Removes the permission to remove timers from the note of a restore, if there is a note. A running node calls this
/// function, because timers in the deployment may now come from the node. Does nothing once the node stops, because a
/// restore may begin as soon as the node has left.
pub(crate) async fn revoke(store: &dyn ClusterStore, stop: &Stop) -> Result<(), StoreError> {
    let Some(note) = store.document(RESTORING).await? else { return Ok(()) };
    let text = core::str::from_utf8(&note.value).unwrap_or_default();
    // The node leaves after its stop has begun. So this check comes after the read.
    if let Some((until, EMPTY)) = text.split_once(' ')
        && !stop.has_begun()
    {
        // If the restore has renewed its note since the read, this change fails, and the next call reads the new note.
        store.replace_document(RESTORING, note.version, Some(until.as_bytes())).await?;
    }
    Ok(())
}

fn lost() -> StoreError {
    let message = "this restore could not renew its note in Redis: another process restores into the deployment, or a \
                   node runs on it";
    StoreError::new(StoreErrorKind::Closed, message)
}

/// A lock that keeps other restores out of a deployment on Redis. A thread renews the restore's note (the document in
/// Redis that marks a running restore) until [`end`](Self::end).
struct Hold {
    ending: Sender<()>,
    thread: JoinHandle<Result<Note, StoreError>>,
    /// The end of the note, in milliseconds since 1970.
    until: Arc<AtomicU64>,
    /// Whether the restore has seen a live node. From then on, the restore removes no timers, and its note permits no
    /// removal, even if the node dies before it revokes the permission itself.
    is_beside_node: Arc<AtomicBool>,
}

impl Hold {
    fn begin(store: &Arc<RedisStore>, mut note: Note) -> Result<Self, StoreError> {
        let (ending, ended) = channel();
        let until = Arc::new(AtomicU64::new(note.until.as_millis()));
        let is_beside_node = Arc::<AtomicBool>::default();
        note.limit(store);
        let (store, written, beside) = (Arc::clone(store), Arc::clone(&until), Arc::clone(&is_beside_node));
        let thread = thread::Builder::new().name("tourbillond-restore".to_owned()).spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(WRITTEN) {
                note = note.renew(&store, !beside.load(Ordering::Relaxed))?.ok_or_else(lost)?;
                note.limit(&store);
                written.store(note.until.as_millis(), Ordering::Relaxed);
            }
            Ok(note)
        })?;
        Ok(Self { ending, thread, until, is_beside_node })
    }

    /// Fails if the note may end, so that another restore may begin, during a change of timers that starts now.
    fn confirm(&self, store: &RedisStore) -> Result<(), StoreError> {
        let until = UtcMillis::from_millis(self.until.load(Ordering::Relaxed));
        if self.thread.is_finished() || until <= store.now() + MARGIN { Err(lost()) } else { Ok(()) }
    }

    /// Fails if the note ends soon, so that another restore may begin. Also fails if a node is running or was running
    /// under this note, or if a node has revoked the permission to remove timers.
    fn confirm_removal(&self, store: &RedisStore) -> Result<(), StoreError> {
        refuse_beside_nodes(store, "the deployment").map_err(|error| {
            if matches!(error, RestoreError::Nodes(..)) {
                self.is_beside_node.store(true, Ordering::Relaxed);
            }
            StoreError::caused_by(StoreErrorKind::Closed, error)
        })?;
        if self.is_beside_node.load(Ordering::Relaxed) {
            return Err(lost());
        }
        let note = block_on(store.document(RESTORING))?;
        let text = note.as_ref().and_then(|note| core::str::from_utf8(&note.value).ok()).unwrap_or_default();
        if !matches!(text.split_once(' '), Some((_, EMPTY))) {
            return Err(lost());
        }
        // The read may be slow. It has read this restore's own note only if the note has not ended yet.
        self.confirm(store)
    }

    /// Waits for the present end of the note, after which no request that was already sent can have an effect.
    fn settle(&self, store: &RedisStore) {
        let until = UtcMillis::from_millis(self.until.load(Ordering::Relaxed));
        while store.now() < until {
            thread::sleep(WRITTEN / 10);
        }
    }

    /// Stops the thread that renews the note. Returns the note, whose version the caller needs to remove it. If the
    /// restore has seen a live node, the returned note does not permit the removal of timers. Fails if another process
    /// has changed the note.
    fn end(self) -> Result<Note, StoreError> {
        drop(self.ending);
        let panicked =
            |_| Err(StoreError::new(StoreErrorKind::Io, "the thread of the restore's note has panicked"));
        let note = self.thread.join().unwrap_or_else(panicked)?;
        Ok(Note { may_drop: !self.is_beside_node.load(Ordering::Relaxed), ..note })
    }
}

/// Restores a backup into a deployment on Redis. Fails if the deployment already has timers or running nodes. `how`
/// gets the present time of the store's clock. It returns the [`Restore`], which says when the restored timers become
/// due.
///
/// After a failure, the timers of the backup are removed again. If they cannot be removed, the note of this restore
/// (the document that marks a running restore) stays in Redis. No node then starts before a later restore has removed
/// the timers and the note.
pub(crate) fn restore_shared(
    redis: &RedisSettings,
    from: &Path,
    how: impl FnOnce(UtcMillis) -> Restore,
) -> Result<Restored, RestoreError> {
    let name: Box<str> = format!("the deployment {}", redis.deployment).into();
    let of_store = |error: StoreError| RestoreError::Deployment(name.clone(), error.into());
    let (at, attached) = verified(from)?;
    let store = Arc::new(open_store(redis).map_err(of_store)?);
    let (note, is_left_behind) = begin(&store, &name)?;
    // If no thread starts, the note stays and permits the removal of timers, which are all from a restore.
    let hold = Hold::begin(&store, note).map_err(of_store)?;
    let confirm = || hold.confirm(&store);
    let confirm_removal = || hold.confirm_removal(&store);
    let fill = || {
        if is_left_behind {
            drop_timers(&*store, confirm_removal).map_err(of_store)?;
        }
        let open = || File::open(from).map(BufReader::new);
        let import = |timers| confirm().and_then(|()| block_on(store.import(timers)));
        let stored = how(store.now()).read_into(open, import).map_err(|error| match error {
            BackupError::Store(_) => RestoreError::Deployment(name.clone(), error),
            error => RestoreError::Backup(from.to_owned(), error),
        });
        let timers = stored?;
        let counted = block_on(store.counts()).map_err(of_store)?;
        let shared = NamespaceStorage::Shared(Arc::clone(&store) as _);
        let added = add_namespaces(shared, &attached, &counted, confirm);
        let of_notes = |error| RestoreError::Deployment(name.clone(), BackupError::Io(error));
        let (kept, bare) = added.map_err(of_notes)?;
        Ok(Restored { at, timers, kept, bare })
    };
    let restored = fill();
    if matches!(&restored, Err(error) if is_unknown(error)) {
        // The servers may still receive a request, and would then store timers after the removal.
        hold.settle(&store);
    }
    // The timers are removed while the note lasts. Otherwise another restore could store timers at the same time, and
    // this restore would remove them.
    let dropped = if restored.is_err() { drop_timers(&*store, confirm_removal) } else { Ok(()) };
    // If another process has overwritten the note, the timers belong to that process. `end` then fails, and this
    // restore does not change the note.
    let note = hold.end().map_err(of_store)?;
    if let Err(error) = dropped {
        // A request to remove timers may still be under way, so the next restore waits for the end of the note.
        note.leave(&store, note.until);
        return Err(of_store(error));
    }
    let removed = block_on(store.replace_document(RESTORING, note.version, None)).map_err(of_store)?;
    if removed.is_none() && restored.is_ok() {
        return Err(of_store(lost()));
    }
    restored
}

/// Returns whether the servers may still execute a request of the restore that has failed with `error`.
fn is_unknown(error: &RestoreError) -> bool {
    let RestoreError::Deployment(_, BackupError::Store(error)) = error else { return false };
    error.kind() == StoreErrorKind::Unknown
}

/// Writes the note of this restore. Checks that no nodes are running, and that the deployment is empty, unless a killed
/// restore has already found it empty. Returns the note, which permits the removal of timers, and whether this
/// permission comes from a killed restore. After a failure, the timers are unchanged.
fn begin(store: &RedisStore, name: &str) -> Result<(Note, bool), RestoreError> {
    let of_store = |error: StoreError| RestoreError::Deployment(name.into(), error.into());
    let under_way = || RestoreError::DeploymentUnderWay(name.into());
    let note = Note::take(store).map_err(of_store)?.ok_or_else(under_way)?;
    let checked = refuse_beside_nodes(store, name).and_then(|()| {
        if note.may_drop || is_empty(store).map_err(of_store)? {
            return Ok(());
        }
        Err(RestoreError::Deployment(name.into(), BackupError::NotEmpty))
    });
    if let Err(error) = checked {
        note.give_up(store);
        return Err(error);
    }
    let permitted = note.renew(store, true).map_err(of_store)?.ok_or_else(under_way)?;
    Ok((permitted, note.may_drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon_durable::store::{Claimant, Durability, IfPresent, Limit, Op};
    use tourbillon_durable::timer::{Timer, TimerId};
    use tourbillon_fault::{Proxy, Server};
    use tourbillon_redis::Connect;

    #[test]
    fn a_restore_whose_note_runs_out_changes_no_further_timers() {
        let Some(server) = Server::start(&[]) else { return };
        let connect = Connect::single(&server.url()).unwrap();
        let store = block_on(RedisStore::builder("tourbillon").open(&connect)).unwrap();
        let (note, is_left_behind) = begin(&store, "the deployment").unwrap();
        assert!(note.may_drop && !is_left_behind);
        assert!(matches!(begin(&store, "the deployment"), Err(RestoreError::DeploymentUnderWay(_))));
        // The thread of this hold does not renew the note.
        let (ending, ended) = channel();
        let thread = thread::spawn(move || ended.recv().map_or(Ok(note), |()| Ok(note)));
        let hour = Duration::from_secs(3_600);
        let until = Arc::new(AtomicU64::new((store.now() + hour).as_millis()));
        let hold = Hold { ending, thread, until, is_beside_node: Arc::default() };
        hold.confirm(&store).unwrap();
        hold.until.store((store.now() + MARGIN).as_millis(), Ordering::Relaxed);
        assert!(hold.confirm(&store).is_err());
        let note = hold.end().unwrap();
        note.give_up(&store);
        // A later restore takes the note at once, with its permission.
        let (note, is_left_behind) = begin(&store, "the deployment").unwrap();
        assert!(note.may_drop && is_left_behind);
    }

    /// A request to remove a restored timer stays in the network until another restore may have stored the same timer.
    #[test]
    fn a_request_of_a_restore_that_arrives_after_the_end_of_its_note_has_no_effect() {
        let Some(server) = Server::start(&[]) else { return };
        let proxy = Proxy::start(server.address());
        let open = |url: &str| {
            let connect = Connect::single(url).unwrap();
            block_on(RedisStore::builder("tourbillon").open(&connect)).unwrap()
        };
        let (store, other) = (Arc::new(open(&proxy.url())), open(&server.url()));
        let (note, _) = begin(&store, "the deployment").unwrap();
        let timer = Timer::new(TimerId::fresh(), "of a backup", other.now());
        block_on(other.import(vec![timer.clone()])).unwrap();
        let half = Duration::from_millis(500);
        // This hold begins shortly before the servers refuse its requests, and its thread renews the note later.
        let hold = Hold::begin(&store, Note { until: store.now() + MARGIN + half, ..note }).unwrap();
        let confirm = || {
            hold.confirm_removal(&store)?;
            // Requests and replies are each delayed by half of this time.
            proxy.delay(4 * half);
            Ok(())
        };
        let error = drop_timers(&*store, confirm).unwrap_err();
        assert_ne!(error.kind(), StoreErrorKind::Unknown, "{error}");
        assert!(block_on(other.get(timer.id.into())).unwrap().is_some());
    }

    #[test]
    fn a_restore_removes_no_timers_beside_a_node_that_has_just_started() {
        let Some(server) = Server::start(&[]) else { return };
        let connect = Connect::single(&server.url()).unwrap();
        let open = |node| block_on(RedisStore::builder("tourbillon").node(node).open(&connect)).unwrap();
        let store = Arc::new(open("the restore"));
        let (note, _) = begin(&store, "the deployment").unwrap();
        let hold = Hold::begin(&store, note).unwrap();
        hold.confirm_removal(&store).unwrap();
        // The node has looked for a note before this restore began, and has not revoked its permission yet.
        let node = open("the node");
        let by = Claimant { incarnation: 7, lease: Duration::from_secs(60) };
        block_on(node.claim(by, 1, Limit { timers: 1, bytes: u64::MAX }, None)).unwrap();
        let error = hold.confirm_removal(&store).unwrap_err();
        assert!(error.to_string().contains("the node"), "{error}");
        // The node leaves before it revokes the permission. Its timers stay, also under a later restore.
        let timer = Box::new(Timer::new(TimerId::fresh(), "of the node", node.now()));
        block_on(node.apply(vec![Op::Place(timer, IfPresent::Reject)], Durability::PowerLoss)).unwrap();
        block_on(node.leave()).unwrap();
        assert!(hold.confirm_removal(&store).is_err());
        hold.end().unwrap().leave(&store, UtcMillis::from_millis(0));
        let refused = begin(&store, "the deployment");
        assert!(matches!(refused, Err(RestoreError::Deployment(_, BackupError::NotEmpty))));
    }

    #[test]
    fn a_restore_beside_a_node_lets_no_later_restore_remove_timers() {
        let Some(server) = Server::start(&[]) else { return };
        let connect = Connect::single(&server.url()).unwrap();
        let open = || block_on(RedisStore::builder("tourbillon").open(&connect)).unwrap();
        let (store, stop) = (Arc::new(open()), Stop::new());
        block_on(revoke(&*store, &stop)).unwrap();
        let (note, _) = begin(&store, "the deployment").unwrap();
        // A node that stood still during the check goes on, and the restore is killed.
        let timer = Box::new(Timer::new(TimerId::fresh(), "of the node", store.now()));
        block_on(store.apply(vec![Op::Place(timer, IfPresent::Reject)], Durability::PowerLoss)).unwrap();
        let hold = Hold::begin(&store, note).unwrap();
        let stopping = Stop::new();
        stopping.begin();
        block_on(revoke(&*store, &stopping)).unwrap();
        hold.confirm_removal(&store).unwrap();
        block_on(revoke(&*store, &stop)).unwrap();
        // The thread of the note notices the loss later.
        assert!(hold.confirm_removal(&store).is_err());
        drop(hold);
        assert!(note.renew(&store, true).unwrap().is_none(), "the restore that runs finds its note lost");
        let found = block_on(store.document(RESTORING)).unwrap().unwrap();
        // The killed restore's note is over.
        assert!(Note::write(&store, found.version, UtcMillis::from_millis(0), false).unwrap().is_some());
        let refused = begin(&store, "the deployment");
        assert!(matches!(refused, Err(RestoreError::Deployment(_, BackupError::NotEmpty))));
        assert_eq!(block_on(store.counts()).unwrap().by_namespace.values().sum::<u64>(), 1);
    }
}
