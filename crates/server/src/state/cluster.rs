//! Defines [`ClusterStore`], the store of a deployment that several nodes share, in Redis or PostgreSQL. Its documents
//! hold all shared data besides the timers: namespaces, operations, and renewals of claims (receivers' leases on
//! fetched timers).

use tourbillon_durable::store::{SharedDocument, StoreFuture, TimerStore};
use tourbillon_postgres::PostgresStore;
use tourbillon_redis::RedisStore;

/// A function that is called when a timer was parked (set aside in the store, and not delivered even if due). The
/// function gets the reason. It gets `None` if reports may have been missed, so that timers may have been parked for
/// any reason.
pub(crate) type ParkedListener = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// A store of timers and documents that the nodes of a deployment share.
pub(crate) trait ClusterStore: TimerStore {
    /// Returns the document with this name, or `None` if it does not exist.
    fn document<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<SharedDocument>>;

    /// Sets the value of a document if the document still has the version `version`. Version 0 stands for an absent
    /// document. The value `None` removes the document. Returns the new version of the document, which is 0 after a
    /// removal. Returns `None` if the document has a version other than `version`.
    fn replace_document<'a>(
        &'a self,
        name: &'a str,
        version: u64,
        value: Option<&'a [u8]>,
    ) -> StoreFuture<'a, Option<u64>>;

    /// Returns the number by which other nodes identify this node. Each start of the process has a new number.
    fn incarnation(&self) -> u64;

    /// Registers the function `tell`, which is called whenever a node has parked a timer (see [`ParkedListener`]).
    /// Returns false if the store does not report parked timers. The caller must then poll
    /// [`parked_among`](Self::parked_among).
    fn on_parked(&self, tell: ParkedListener) -> bool {
        drop(tell);
        false
    }

    /// Returns each reason in `reasons` for which any node has parked due timers (see [`ParkedListener`]). A store need
    /// not implement this method if it reports parked timers through [`on_parked`](Self::on_parked).
    fn parked_among(&self, reasons: Vec<Box<str>>) -> StoreFuture<'_, Vec<Box<str>>> {
        Box::pin(async { Ok(reasons) })
    }

    /// Returns a text that names the shards of this node, the parts of the store whose timers this node delivers. If
    /// the text has changed since the last call, the node may have new shards with parked timers. A store need not
    /// implement this method if it calls the function of [`on_parked`](Self::on_parked) after such a change.
    fn owned_shards(&self) -> String {
        String::new()
    }
}

impl ClusterStore for RedisStore {
    fn document<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<SharedDocument>> {
        // `Self::document` is the store's own method, which Rust prefers to the method of this trait.
        Box::pin(Self::document(self, name))
    }

    fn replace_document<'a>(
        &'a self,
        name: &'a str,
        version: u64,
        value: Option<&'a [u8]>,
    ) -> StoreFuture<'a, Option<u64>> {
        Box::pin(Self::replace_document(self, name, version, value))
    }

    fn incarnation(&self) -> u64 {
        Self::incarnation(self)
    }

    fn on_parked(&self, tell: ParkedListener) -> bool {
        Self::on_parked(self, tell);
        true
    }
}

impl ClusterStore for PostgresStore {
    fn document<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<SharedDocument>> {
        // `Self::document` is the store's own method, which Rust prefers to the method of this trait.
        Box::pin(Self::document(self, name))
    }

    fn replace_document<'a>(
        &'a self,
        name: &'a str,
        version: u64,
        value: Option<&'a [u8]>,
    ) -> StoreFuture<'a, Option<u64>> {
        Box::pin(Self::replace_document(self, name, version, value))
    }

    fn incarnation(&self) -> u64 {
        Self::incarnation(self)
    }

    fn parked_among(&self, reasons: Vec<Box<str>>) -> StoreFuture<'_, Vec<Box<str>>> {
        Box::pin(Self::parked_among(self, reasons))
    }

    fn owned_shards(&self) -> String {
        Self::owned_shards(self)
    }
}

/// A store in memory that plays a node of a deployment, for tests.
#[cfg(test)]
pub(crate) mod double {
    use super::ClusterStore;
    use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
    use std::collections::{BTreeMap, VecDeque};
    use std::sync::{Arc, Mutex, OnceLock};
    use tokio::sync::oneshot;
    use tourbillon_durable::store::{
        self as durable, Call, Durability, Hook, Hooked, MemoryStore, Nodes, Op, Outcome, SharedDocument,
        StoreError, StoreErrorKind, StoreFuture, TimerStore,
    };

    /// The version of the next document or change. As in the real stores, a version is never used again, even after a
    /// loss.
    static VERSION: AtomicU64 = AtomicU64::new(100);

    /// The documents of a deployment, by their names, each with its version.
    pub(crate) type Documents = Arc<Mutex<BTreeMap<String, (u64, Vec<u8>)>>>;

    type BeforeCall = Box<dyn Fn(Call<'_>) + Send + Sync>;

    /// A node of a deployment. The timers are the node's own, and the documents are shared.
    pub(crate) struct Node {
        documents: Documents,
        incarnation: u64,
        /// Whether changes of documents take effect, but their answers are lost.
        pub(crate) loses_answers: AtomicBool,
        /// Whether calls about timers fail.
        pub(crate) fails_calls: AtomicBool,
        /// The number of further ends of deliveries that are refused, as if another transaction held the timer.
        pub(crate) held_ends: AtomicU32,
        /// Whether reads of documents fail.
        pub(crate) fails_reads: AtomicBool,
        /// Whether changes of documents fail, without an effect.
        pub(crate) fails_writes: AtomicBool,
        /// Whether another node of the deployment reports that it runs.
        pub(crate) is_beside_node: AtomicBool,
        /// For each of the next reads of documents: the moment at which the store looks at the document, and the
        /// signal for which the read then waits. Further reads are answered at once.
        pub(crate) waits: Mutex<VecDeque<(Looks, oneshot::Receiver<()>)>>,
        /// Called before each call about timers. The function may block the call, or change the store first.
        pub(crate) before_call: OnceLock<BeforeCall>,
    }

    /// Whether a read that waits takes the document before or after its wait.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Looks {
        Before,
        After,
    }

    /// Makes the node `incarnation` of the deployment that has these documents.
    pub(crate) fn node(documents: &Documents, incarnation: u64) -> Arc<Hooked<Node>> {
        let documents = Arc::clone(documents);
        let [loses_answers, fails_calls, fails_reads, fails_writes, is_beside_node] =
            [(); 5].map(|()| AtomicBool::new(false));
        let node = Node {
            documents,
            incarnation,
            loses_answers,
            fails_calls,
            held_ends: AtomicU32::new(0),
            fails_reads,
            fails_writes,
            is_beside_node,
            waits: Mutex::default(),
            before_call: OnceLock::new(),
        };
        Arc::new(Hooked::new(Arc::new(MemoryStore::default()), node))
    }

    impl Hook for Node {
        type Seen = ();

        fn see(&self, call: Call<'_>) {
            if let Some(before) = self.before_call.get() {
                before(call);
            }
        }

        fn answer<'a, T: Send + 'a>(
            &'a self,
            (): (),
            pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
        ) -> StoreFuture<'a, T> {
            match self.fails_calls.load(Ordering::Relaxed) {
                true => Box::pin(core::future::ready(Err(StoreError::new(StoreErrorKind::Io, "no answer")))),
                false => pass_on(),
            }
        }

        fn apply<'a>(
            &'a self,
            store: &'a dyn TimerStore,
            ops: Vec<Op>,
            durability: Durability,
        ) -> StoreFuture<'a, Vec<Outcome>> {
            let are_ends = ops.iter().all(|op| op.ended_delivery().is_some());
            let left = |left: u32| left.checked_sub(1);
            if are_ends && self.held_ends.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok() {
                return Box::pin(core::future::ready(Ok(vec![Outcome::Held; ops.len()])));
            }
            self.see(Call::Apply(&ops));
            self.answer((), move || store.apply(ops, durability))
        }

        fn nodes<'a>(&'a self, store: &'a dyn TimerStore) -> StoreFuture<'a, Option<Nodes>> {
            if !self.is_beside_node.load(Ordering::Relaxed) {
                return store.nodes();
            }
            let now = store.now();
            let (name, version) = ("other".into(), "".into());
            let other = durable::Node {
                incarnation: 0,
                name,
                version,
                since: now,
                seen: now,
                is_live: true,
                is_this: false,
            };
            let nodes = Nodes { now, nodes: vec![other], ..Nodes::default() };
            Box::pin(core::future::ready(Ok(Some(nodes))))
        }
    }

    impl ClusterStore for Hooked<Node> {
        fn document<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<SharedDocument>> {
            let node = self.hook();
            let look = move || {
                let found = match node.fails_reads.load(Ordering::Relaxed) {
                    true => Err(StoreError::new(StoreErrorKind::Io, "no answer")),
                    false => Ok(node.documents.lock().unwrap().get(name).cloned()),
                };
                found.map(|found| found.map(|(version, value)| SharedDocument { version, value }))
            };
            let Some((looks, signal)) = node.waits.lock().unwrap().pop_front() else {
                return Box::pin(core::future::ready(look()));
            };
            let found = (looks == Looks::Before).then(look);
            Box::pin(async move {
                signal.await.unwrap();
                found.unwrap_or_else(look)
            })
        }

        fn replace_document<'a>(
            &'a self,
            name: &'a str,
            version: u64,
            value: Option<&'a [u8]>,
        ) -> StoreFuture<'a, Option<u64>> {
            let node = self.hook();
            if node.fails_writes.load(Ordering::Relaxed) {
                let full = StoreError::new(StoreErrorKind::Full, "no memory");
                return Box::pin(core::future::ready(Err(full)));
            }
            let mut documents = node.documents.lock().unwrap();
            let present = documents.get(name).map_or(0, |(version, _)| *version);
            let drawn = VERSION.fetch_add(1, Ordering::Relaxed);
            let next = (present == version).then(|| value.map_or(0, |_| drawn));
            match value.filter(|_| next.is_some()) {
                Some(value) => drop(documents.insert(name.to_owned(), (drawn, value.to_vec()))),
                None if next.is_some() => drop(documents.remove(name)),
                None => {}
            }
            Box::pin(core::future::ready(match node.loses_answers.load(Ordering::Relaxed) {
                true => Err(StoreError::new(StoreErrorKind::Unknown, "the answer is lost")),
                false => Ok(next),
            }))
        }

        fn incarnation(&self) -> u64 {
            self.hook().incarnation
        }
    }
}
