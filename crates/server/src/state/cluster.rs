//! Defines [`ClusterStore`], the store of a deployment that several nodes share, in Redis or PostgreSQL. Its documents
//! hold all shared data besides the timers: namespaces, operations, and renewals of claims (receivers' leases on
//! fetched timers).

use tourbillon_durable::store::{StoreFuture, TimerStore};
use tourbillon_postgres::PostgresStore;
use tourbillon_redis::RedisStore;

/// A small value that the nodes of a deployment share under a name.
pub(crate) struct Document {
    /// The version of the value. Each value of the document has its own version.
    pub(crate) version: u64,
    pub(crate) value: Vec<u8>,
}

/// A function that is called when a timer was parked, so that the timer stays in the store and is not delivered, even
/// if it is due. The function gets the reason for which the timer is parked. It gets `None` if reports may have been
/// missed, so that timers may have been parked for any reason.
pub(crate) type ParkedListener = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// A store of timers and documents that the nodes of a deployment share.
pub(crate) trait ClusterStore: TimerStore {
    /// Returns the document with this name, or `None` if it does not exist.
    fn document<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<Document>>;

    /// Sets the value of a document if the document still has the version `version`. Version 0 stands for an absent
    /// document. The value `None` removes the document. Returns whether the change was made.
    fn replace_document<'a>(
        &'a self,
        name: &'a str,
        version: u64,
        value: Option<&'a [u8]>,
    ) -> StoreFuture<'a, bool>;

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

    /// Returns a text that describes the shards of this node, the parts of the store whose timers this node delivers.
    /// The caller polls the text. If the text has changed, the node may have got shards with parked timers. A store
    /// need not implement this method if it calls the function of [`on_parked`](Self::on_parked) after such a change.
    fn owned_shards(&self) -> String {
        String::new()
    }
}

impl ClusterStore for RedisStore {
    fn document<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<Document>> {
        Box::pin(async move {
            // `Self::document` is the store's own method, which Rust prefers to the method of this trait.
            let found = Self::document(self, name).await?;
            Ok(found.map(|found| Document { version: found.version, value: found.value }))
        })
    }

    fn replace_document<'a>(
        &'a self,
        name: &'a str,
        version: u64,
        value: Option<&'a [u8]>,
    ) -> StoreFuture<'a, bool> {
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
    fn document<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<Document>> {
        Box::pin(async move {
            // `Self::document` is the store's own method, which Rust prefers to the method of this trait.
            let found = Self::document(self, name).await?;
            Ok(found.map(|found| Document { version: found.version, value: found.value }))
        })
    }

    fn replace_document<'a>(
        &'a self,
        name: &'a str,
        version: u64,
        value: Option<&'a [u8]>,
    ) -> StoreFuture<'a, bool> {
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
