//! Keeps the progress of operations, and stores the unfinished operations.
//!
//! The file `operations.json` has the unfinished operations, with the positions that they have reached in their lists.
//! The file is written when an operation starts or ends, and once a second in between. After a crash, an operation
//! continues from its position in the file. If it had already cancelled timers beyond that position before the crash,
//! it no longer finds these timers, and does not count them.
//!
//! If several nodes share the timers, a shared document of the deployment replaces the file, and is written at the same
//! times. So each node shows the operations of all nodes, and the last hundred ended operations. If a node stops or
//! dies, another node takes over the operations of the dead node. To do so, the other node writes its incarnation (the
//! number of one start of a node) into the document.
//!
//! - If two nodes take an operation over at the same time, the second node cannot write the document, because the first
//!   node has changed it. The second node reads the document again later.
//! - If the former node of the operation is alive after all, it finds the other node's incarnation in the document at
//!   its next write, and leaves the operation to the other node. Both nodes may have processed the same page of timers.
//!   The second cancellation of a timer changes nothing, and is not counted.
//! - If the document cannot be written, the operation continues, and shows its progress late.
//! - The store may change the document and lose the answer. A take-over may then have this node's incarnation in the
//!   document, although this node does not run the operation. Such an operation is taken over like that of a dead node.
//!
//! If an operation cannot be stored at its start, its request fails, but the store may have the operation even so. The
//! store may also lack the end of an operation after a failed write. So each operation that has ended is written until
//! the store has its end:
//!
//! 1. The operation ends in memory. It is not forgotten, and it still counts against the limit of running operations,
//!    so a store that cannot be written does not make more and more tasks and records.
//! 2. A write succeeds that began after the end. From now on, the operation is only kept to be shown.
//! 3. If another node has taken the operation over before that write, this node drops its record instead, and leaves
//!    the operation to the other node.
//!
//! A service that stops makes a last attempt. If the process dies before the second step, the next start or another
//! node runs the operation.

use super::work::Unfinished;
use crate::clock::millis;
use crate::share::free_for;
use crate::state::{ClusterStore, files};
use core::cmp::Reverse;
use core::time::Duration;
use pollster::block_on;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;
use tourbillon_api::{Operation, OperationState, Problem, ProblemKind};
use tourbillon_durable::UtcMillis;

/// The greatest number of operations that run in this process at the same time, without the reserve for namespaces that
/// run none. A single namespace may run at most three quarters of this number, and fewer while operations of other
/// namespaces run: see [`free_for`].
const MOST_RUNNING: usize = 16;
/// The greatest number of ended operations that this process remembers.
const MOST_ENDED: usize = 1_000;
/// The time for which an operation is shown after its end.
const SHOWN: Duration = Duration::from_secs(3_600);
/// The greatest number of ended operations in the shared [`Document`].
const MOST_SHARED: usize = 100;
/// The name of the shared [`Document`] in the store.
const DOCUMENT: &str = "operations";
/// The greatest number of attempts to change the shared [`Document`]. An attempt fails if another node changes the
/// document at the same time.
const TURNS: usize = 64;
/// The least time between two writes of the operations' progress.
const WRITTEN: Duration = Duration::from_secs(1);

/// An operation of any node, as it is stored in the shared [`Document`].
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SharedRecord {
    namespace: Box<str>,
    /// The random number of the namespace. A later namespace of the same name has another number.
    number: u64,
    operation: Operation,
    unfinished: Option<Unfinished>,
    /// The incarnation (the number of one start) of the node that runs or ran the operation. `None` if the node stopped
    /// before the operation ended.
    node: Option<u64>,
    /// The moment at which the operation ended. `None` if the operation has not ended.
    ended: Option<UtcMillis>,
}

/// The document in a shared store that has the operations of all nodes, by their ids. It replaces the file
/// `operations.json` if several nodes share the timers.
type Document = BTreeMap<Box<str>, SharedRecord>;

/// Unfinished operations by their ids. The file `operations.json` has this content.
type UnfinishedById = BTreeMap<Box<str>, Unfinished>;

/// The name and the random number of a namespace. A later namespace of the same name has another number.
pub(super) type Owner<'a> = (&'a str, u64);

struct Record {
    operation: Operation,
    namespace: Box<str>,
    /// The random number of the namespace. A later namespace of the same name has another number.
    number: u64,
    unfinished: Option<Unfinished>,
    ended: Option<Instant>,
    /// Whether the operation has ended, but no write since its end has succeeded.
    lacks_end: bool,
}

impl Record {
    /// Makes the record of an operation that has not ended.
    fn new(id: &str, unfinished: Unfinished) -> Self {
        let (operation, namespace) = (unfinished.shown(id), unfinished.namespace.clone());
        let number = unfinished.number;
        Self { operation, namespace, number, unfinished: Some(unfinished), ended: None, lacks_end: false }
    }

    fn is_of(&self, (name, number): Owner<'_>) -> bool {
        *self.namespace == *name && self.number == number
    }

    /// Returns whether the operation has ended, and a write since then has succeeded.
    fn is_settled(&self) -> bool {
        self.ended.is_some() && !self.lacks_end
    }

    /// Returns whether another node has taken the operation over. `this` is the incarnation of this node, and `noted`
    /// is the operation's entry in the shared [`Document`]. If the entry names no node, because its node has stopped,
    /// the operation is another node's if the entry shows more progress than this record.
    fn is_others(&self, noted: &SharedRecord, this: u64) -> bool {
        match noted.node {
            Some(node) => node != this,
            None => noted.operation.changed > self.operation.changed,
        }
    }
}

/// The operations on many timers that this process runs, or that have ended and are still shown. They are stored in the
/// file `operations.json` or, if nodes share the timers, in the shared [`Document`].
pub(crate) struct OperationRecords {
    path: PathBuf,
    /// The store that has the shared [`Document`]. `None` if this process uses its store alone, so that the file `path`
    /// replaces the document.
    shared: Option<Arc<dyn ClusterStore>>,
    records: Mutex<BTreeMap<Box<str>, Record>>,
    /// The moment of the last attempt to write. Locked during a write, so that writes do not overlap.
    written: Mutex<Instant>,
}

impl OperationRecords {
    /// Reads the unfinished operations from the file `path`. `shared` is the store with the shared [`Document`], which
    /// is not read here.
    pub(crate) fn open(path: &Path, shared: Option<Arc<dyn ClusterStore>>) -> io::Result<Self> {
        let file: UnfinishedById = files::read(path)?.unwrap_or_default();
        let records = file.into_iter().map(|(id, unfinished)| {
            let record = Record::new(&id, unfinished);
            (id, record)
        });
        Ok(Self {
            path: path.to_owned(),
            shared,
            records: Mutex::new(records.collect()),
            written: Mutex::new(Instant::now()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the unfinished operations of this process.
    pub(super) fn unfinished(&self) -> UnfinishedById {
        let records = self.lock();
        records.iter().filter_map(|(id, record)| Some((id.clone(), record.unfinished.clone()?))).collect()
    }

    pub(super) fn running(&self) -> usize {
        self.lock().values().filter(|record| record.ended.is_none()).count()
    }

    /// Writes the operations of this process into the shared [`Document`] or, if this process uses its store alone,
    /// into the file. If `stops` is set, this node is about to stop. The document then names no node for the unfinished
    /// operations, so that another node takes them over. Blocks the calling thread.
    pub(super) fn write(&self, stops: bool) -> io::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let ended: Vec<_> = {
            let records = self.lock();
            records.iter().filter(|(_, record)| record.lacks_end).map(|(id, _)| id.clone()).collect()
        };
        let result = self.write_all(stops);
        *written = Instant::now();
        if result.is_ok() {
            let mut records = self.lock();
            for id in ended {
                records.entry(id).and_modify(|record| record.lacks_end = false);
            }
        }
        result
    }

    fn write_all(&self, stops: bool) -> io::Result<()> {
        let Some(store) = &self.shared else { return files::replace(&self.path, &self.unfinished()) };
        block_on(self.write_shared(&**store, stops))?;
        // A file may remain from a time when the service did not share its store. The document now has the operations
        // of the file. If the file cannot be removed, the next write tries again, and the next start repeats steps that
        // change nothing.
        if self.path.exists() {
            let _best_effort = std::fs::remove_file(&self.path);
        }
        Ok(())
    }

    /// Returns the reason why the shared [`Document`] cannot be read. Returns `None` if the document can be read or
    /// does not exist.
    pub(crate) fn fault_of_document(store: &dyn ClusterStore) -> Option<String> {
        let error = block_on(Self::read_shared(store)).err()?;
        Some(format!("the shared document {DOCUMENT}: {error}"))
    }

    async fn read_shared(store: &dyn ClusterStore) -> io::Result<(u64, Document)> {
        match store.document(DOCUMENT).await.map_err(io::Error::other)? {
            Some(note) => Ok((note.version, serde_json::from_slice(&note.value)?)),
            None => Ok((0, Document::new())),
        }
    }

    async fn replace(store: &dyn ClusterStore, version: u64, all: &Document) -> io::Result<bool> {
        let value = serde_json::to_vec(all)?;
        let replaced = store.replace_document(DOCUMENT, version, Some(&value)).await;
        replaced.map(|version| version.is_some()).map_err(io::Error::other)
    }

    /// Writes the operations of this node into the shared [`Document`]. With `stops`, names no node for the unfinished
    /// operations, so that another node takes them over.
    async fn write_shared(&self, store: &dyn ClusterStore, stops: bool) -> io::Result<()> {
        let this = store.incarnation();
        for _ in 0..TURNS {
            let (version, mut all) = Self::read_shared(store).await?;
            let now = store.now();
            {
                let mut records = self.lock();
                // This node gives up an operation that another node has taken over.
                records.retain(|id, record| {
                    record.is_settled() || all.get(id).is_none_or(|noted| !record.is_others(noted, this))
                });
                for (id, record) in &*records {
                    let (namespace, number) = (record.namespace.clone(), record.number);
                    let operation = record.operation.clone();
                    let unfinished = record.unfinished.clone();
                    let node = Some(this).filter(|_| !stops || unfinished.is_none());
                    // An `Instant` has no meaning on another node, so the document has the moment by the clock of the
                    // store.
                    let ended = record.ended.map(|ended| {
                        let before = millis(ended.elapsed());
                        UtcMillis::from_millis(now.as_millis().saturating_sub(before))
                    });
                    all.insert(
                        id.clone(),
                        SharedRecord { namespace, number, operation, unfinished, node, ended },
                    );
                }
            }
            // This node may remember ended operations that the document no longer has. So the document is shortened
            // only after the records of this node were added.
            all.retain(|_, noted| noted.ended.is_none_or(|ended| ended + SHOWN > now));
            let mut ended: Vec<_> =
                all.iter().filter_map(|(id, noted)| Some((noted.ended?, id.clone()))).collect();
            ended.sort_unstable();
            let surplus = ended.len().saturating_sub(MOST_SHARED);
            ended.into_iter().take(surplus).for_each(|(_, id)| drop(all.remove(&id)));
            if Self::replace(store, version, &all).await? {
                return Ok(());
            }
        }
        Err(io::Error::other(format!("other nodes noted operations during {TURNS} attempts")))
    }

    /// Takes over the unfinished operations of nodes that have stopped or died, and returns these operations.
    pub(super) async fn take_over(&self) -> io::Result<UnfinishedById> {
        let Some(store) = &self.shared else { return Ok(UnfinishedById::new()) };
        let (version, mut all) = Self::read_shared(&**store).await?;
        let this = store.incarnation();
        // If the answer to a take-over was lost, the document may name this node, although it has no record.
        let is_here = |id: &str| self.lock().contains_key(id);
        let is_others = |id: &str, noted: &SharedRecord| {
            noted.unfinished.is_some() && (noted.node != Some(this) || !is_here(id))
        };
        if !all.iter().any(|(id, noted)| is_others(id, noted)) {
            return Ok(UnfinishedById::new());
        }
        let nodes =
            store.nodes().await.map_err(io::Error::other)?.map(|nodes| nodes.nodes).unwrap_or_default();
        let is_live =
            |node| node != this && nodes.iter().any(|other| other.incarnation == node && other.is_live);
        let mut taken = UnfinishedById::new();
        for (id, noted) in all.iter_mut().filter(|(id, noted)| is_others(id, noted)) {
            if !noted.node.is_some_and(is_live) {
                noted.node = Some(this);
                taken.extend(noted.unfinished.clone().map(|unfinished| (id.clone(), unfinished)));
            }
        }
        if taken.is_empty() || !Self::replace(&**store, version, &all).await? {
            return Ok(UnfinishedById::new());
        }
        let mut records = self.lock();
        for (id, unfinished) in &taken {
            records.insert(id.clone(), Record::new(id, unfinished.clone()));
        }
        Ok(taken)
    }

    /// Returns whether this node still runs the operation. Returns false once another node has taken it over.
    pub(super) fn has(&self, id: &str) -> bool {
        self.lock().get(id).is_some_and(|record| record.unfinished.is_some())
    }

    /// Returns the operation with this id, even if another node runs it. Returns `None` if the namespace `name` with
    /// the number `number` has no such operation.
    ///
    /// # Errors
    ///
    /// Fails if this process does not know the operation, and the shared [`Document`] cannot be read.
    pub(crate) async fn find(&self, (name, number): Owner<'_>, id: &str) -> io::Result<Option<Operation>> {
        let known = self.get((name, number), id);
        let Some(store) = self.shared.as_ref().filter(|_| known.is_none()) else { return Ok(known) };
        let (_, mut all) = Self::read_shared(&**store).await?;
        let found = all.remove(id).filter(|noted| *noted.namespace == *name && noted.number == number);
        Ok(found.map(|noted| noted.operation))
    }

    /// Returns the operations of a namespace that this process remembers or that the shared [`Document`] has, the
    /// latest first.
    ///
    /// # Errors
    ///
    /// Fails if the shared [`Document`] cannot be read.
    pub(super) async fn list(&self, (name, number): Owner<'_>) -> io::Result<Vec<Operation>> {
        let mut all = BTreeMap::new();
        if let Some(store) = &self.shared {
            let (_, noted) = Self::read_shared(&**store).await?;
            let here =
                noted.into_iter().filter(|(_, noted)| *noted.namespace == *name && noted.number == number);
            all.extend(here.map(|(id, noted)| (id, noted.operation)));
        }
        let mut records = self.lock();
        Self::forget(&mut records);
        // The records of this node are newer than its entries in the document.
        let here = records.iter().filter(|(_, record)| record.is_of((name, number)));
        all.extend(here.map(|(id, record)| (id.clone(), record.operation.clone())));
        let mut all: Vec<_> = all.into_values().collect();
        all.sort_by_key(|operation| Reverse(operation.begun));
        Ok(all)
    }

    /// Returns whether the operations must be written again, because the last attempt was more than a second ago. Does
    /// not wait for a write that is under way.
    pub(super) fn is_old(&self) -> bool {
        match self.written.try_lock() {
            Ok(written) => written.elapsed() > WRITTEN,
            Err(TryLockError::Poisoned(_)) => true,
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// Returns whether the operation with this id has ended, and the store may lack its end.
    pub(super) fn lacks_end(&self, id: &str) -> bool {
        self.lock().get(id).is_some_and(|record| record.lacks_end)
    }

    /// Adds an operation that begins. Fails if too many operations run in this process or in the namespace.
    pub(super) fn add(&self, id: &str, unfinished: &Unfinished) -> Result<(), Problem> {
        let mut records = self.lock();
        Self::forget(&mut records);
        let running = records.values().filter(|record| !record.is_settled());
        let here = running.clone().filter(|record| record.namespace == unfinished.namespace).count();
        if free_for(here, MOST_RUNNING, running.count()) == 0 {
            let detail =
                format!("at most {MOST_RUNNING} operations run at a time, and a namespace has its share");
            return Err(Problem::new(ProblemKind::LimitReached, detail).with_retry_after_ms(1_000));
        }
        records.insert(id.into(), Record::new(id, unfinished.clone()));
        Ok(())
    }

    /// Replaces the progress of an operation by `unfinished`.
    pub(super) fn update(&self, id: &str, unfinished: &Unfinished) {
        if let Some(record) = self.lock().get_mut(id) {
            record.operation = unfinished.shown(id);
            record.unfinished = Some(unfinished.clone());
        }
    }

    /// Marks an operation as ended, or as failed if `error` is given.
    pub(super) fn end(&self, id: &str, error: Option<String>) {
        if let Some(record) = self.lock().get_mut(id) {
            record.operation.state =
                if error.is_none() { OperationState::Done } else { OperationState::Failed };
            record.operation.error = error;
            record.unfinished = None;
            record.ended = Some(Instant::now());
            record.lacks_end = true;
        }
    }

    /// Returns an operation from the memory of this process. `None` if the namespace has no such operation there.
    fn get(&self, owner: Owner<'_>, id: &str) -> Option<Operation> {
        let mut records = self.lock();
        Self::forget(&mut records);
        let record = records.get(id).filter(|record| record.is_of(owner))?;
        Some(record.operation.clone())
    }

    /// Forgets the operations that ended more than an hour ago, and the oldest ended operations beyond [`MOST_ENDED`].
    /// Keeps the operations whose end the store may lack.
    fn forget(records: &mut BTreeMap<Box<str>, Record>) {
        let is_over = |ended: Instant| ended.elapsed() >= SHOWN;
        records.retain(|_, record| !record.is_settled() || !record.ended.is_some_and(is_over));
        let settled = records.iter().filter(|(_, record)| record.is_settled());
        let mut ended: Vec<_> =
            settled.filter_map(|(id, record)| Some((record.ended?, id.clone()))).collect();
        if let Some(surplus) = ended.len().checked_sub(MOST_ENDED) {
            ended.sort_unstable();
            for (_, id) in ended.into_iter().take(surplus) {
                records.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::work::Work;
    use super::*;
    use crate::state::double::{self, Documents, Node};
    use core::sync::atomic::Ordering;
    use tourbillon_api::{AuditAuthor, AuditVia, CancelMany};
    use tourbillon_durable::store::Hooked;

    const ID: &str = "0";
    /// The number of the namespace of all operations.
    const NUMBER: u64 = 7;

    fn unfinished() -> Unfinished {
        let by = AuditAuthor {
            via: AuditVia::Api,
            token: None,
            token_id: None,
            user: None,
            peer: None,
            request_id: None,
        };
        Unfinished::new("n", NUMBER, Work::Cancel(CancelMany::default()), UtcMillis::ZERO, by)
    }

    /// Returns two nodes of a deployment, each with its records of operations.
    fn nodes() -> [(Arc<Hooked<Node>>, OperationRecords); 2] {
        let documents = Documents::default();
        [1, 2].map(|incarnation| {
            let node = double::node(&documents, incarnation);
            let shared: Arc<dyn ClusterStore> = Arc::clone(&node) as _;
            (node, OperationRecords::open(Path::new("no such folder/operations.json"), Some(shared)).unwrap())
        })
    }

    fn lose_answers(node: &Hooked<Node>, loses: bool) {
        node.hook().loses_answers.store(loses, Ordering::Relaxed);
    }

    #[test]
    fn a_take_over_whose_answer_was_lost_is_made_again() {
        let [(_, former), (node, records)] = nodes();
        former.add(ID, &unfinished()).unwrap();
        former.write(false).unwrap();
        lose_answers(&node, true);
        assert!(block_on(records.take_over()).is_err() && !records.has(ID));
        lose_answers(&node, false);
        assert_eq!(block_on(records.take_over()).unwrap().len(), 1);
        assert!(records.has(ID));
        assert!(block_on(records.take_over()).unwrap().is_empty(), "it runs already");
        former.write(false).unwrap();
        assert!(!former.has(ID));
    }

    #[test]
    fn a_file_that_cannot_be_removed_keeps_no_operation_from_the_shared_document() {
        let (folder, node) = (tempfile::tempdir().unwrap(), double::node(&Documents::default(), 1));
        let path = folder.path().join("operations.json");
        let records = OperationRecords::open(&path, Some(node)).unwrap();
        // A folder is not removed as a file is.
        std::fs::create_dir(&path).unwrap();
        records.add(ID, &unfinished()).unwrap();
        records.write(false).unwrap();
    }

    #[test]
    fn a_namespace_sees_no_operation_of_an_earlier_namespace_of_its_name() {
        let [(_, one), (_, other)] = nodes();
        one.add(ID, &unfinished()).unwrap();
        one.write(false).unwrap();
        for records in [&one, &other] {
            for (number, is_seen) in [(NUMBER, true), (NUMBER + 1, false)] {
                let found = block_on(records.find(("n", number), ID)).unwrap();
                let listed = block_on(records.list(("n", number))).unwrap();
                assert_eq!((found.is_some(), listed.len()), (is_seen, usize::from(is_seen)), "{number}");
            }
        }
    }

    #[test]
    fn an_operation_is_not_absent_because_the_store_does_not_answer() {
        let [(_, one), (node, other)] = nodes();
        one.add(ID, &unfinished()).unwrap();
        one.write(false).unwrap();
        node.hook().fails_reads.store(true, Ordering::Relaxed);
        assert!(block_on(other.find(("n", NUMBER), ID)).is_err());
        assert!(block_on(other.list(("n", NUMBER))).is_err());
    }

    #[test]
    fn an_operation_that_failed_to_begin_is_taken_over_by_nobody() {
        let [(node, former), (_, records)] = nodes();
        lose_answers(&node, true);
        former.add(ID, &unfinished()).unwrap();
        assert!(former.write(false).is_err());
        former.end(ID, Some("not stored".to_owned()));
        lose_answers(&node, false);
        former.write(false).unwrap();
        assert!(block_on(records.take_over()).unwrap().is_empty());
        let found = block_on(records.find(("n", NUMBER), ID)).unwrap().unwrap();
        assert_eq!((found.state, found.changed), (OperationState::Failed, 0));
    }

    #[test]
    fn an_operation_that_failed_to_begin_and_was_taken_over_is_left_to_the_other_node() {
        let [(node, former), (_, records)] = nodes();
        lose_answers(&node, true);
        former.add(ID, &unfinished()).unwrap();
        assert!(former.write(false).is_err());
        former.end(ID, Some("not stored".to_owned()));
        assert_eq!(block_on(records.take_over()).unwrap().len(), 1);
        lose_answers(&node, false);
        former.write(false).unwrap();
        assert!(!former.lacks_end(ID));
        records.write(false).unwrap();
        assert!(records.has(ID), "the other node runs it");
        let found = block_on(former.find(("n", NUMBER), ID)).unwrap().unwrap();
        assert_eq!(found.state, OperationState::Running);
    }

    #[test]
    fn an_operation_whose_end_is_not_stored_keeps_its_place_and_is_not_forgotten() {
        let [(node, records), _] = nodes();
        lose_answers(&node, true);
        let ids: Vec<_> = (0..MOST_RUNNING + 1).map(|number| number.to_string()).collect();
        let begin = |id: &str| {
            records.add(id, &unfinished())?;
            assert!(records.write(false).is_err());
            records.end(id, Some("not stored".to_owned()));
            Ok::<_, Problem>(())
        };
        let begun = ids.iter().map_while(|id| begin(id).ok()).count();
        assert!(begun < MOST_RUNNING, "{begun}");
        assert!(records.lacks_end("0"));
        for number in 0..=MOST_ENDED {
            let (ended, lacks_end) = (Some(Instant::now()), false);
            let record = Record { unfinished: None, ended, lacks_end, ..Record::new("", unfinished()) };
            records.lock().insert(format!("settled {number}").into(), record);
        }
        assert!(records.get(("n", NUMBER), "0").is_some());
        lose_answers(&node, false);
        records.write(false).unwrap();
        assert!(!records.lacks_end("0") && records.get(("n", NUMBER), "0").is_none());
        records.add("another", &unfinished()).unwrap();
    }
}
