//! The free connections of a pool, and the settings of its sessions.

use super::connect::Connect;
use crate::layout::SchemaName;
use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio_postgres::{CancelToken, Client};

/// The free connections. Sessions put their connections back here.
pub(crate) struct Shelf {
    free: Mutex<Vec<Client>>,
    schema: SchemaName,
    connect: Connect,
    /// Whether a statement outside a transaction would run at another level of isolation than READ COMMITTED.
    has_other_level: AtomicBool,
}

impl Shelf {
    pub(super) fn new(schema: SchemaName, connect: Connect) -> Self {
        let (free, has_other_level) = (Mutex::default(), AtomicBool::new(false));
        Self { free, schema, connect, has_other_level }
    }

    /// Takes a free connection. The connection may have ended since it was put back.
    pub(super) fn take(&self) -> Option<Client> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(super) fn put(&self, client: Client) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    }

    /// Closes all free connections.
    pub(super) fn clear(&self) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn schema(&self) -> &SchemaName {
        &self.schema
    }

    pub(super) fn response_timeout(&self) -> Duration {
        self.connect.response_timeout
    }

    /// Sends cancel requests, as [`Connect::cancel`] does.
    pub(super) async fn cancel(&self, token: &CancelToken) {
        self.connect.cancel(token).await;
    }

    pub(super) fn has_other_level(&self) -> bool {
        self.has_other_level.load(Ordering::Relaxed)
    }

    pub(super) fn set_other_level(&self, has_other: bool) {
        self.has_other_level.store(has_other, Ordering::Relaxed);
    }
}
