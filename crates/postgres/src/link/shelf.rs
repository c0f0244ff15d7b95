//! The free connections of a pool, and the settings of its sessions.

use core::time::Duration;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio_postgres::Client;

/// The name of the schema in the statements of this crate. [`Shelf::named`] replaces it by the schema's name in the
/// settings.
const SCHEMA: &str = "tourbillon";

/// The free connections. Sessions put their connections back here.
pub(crate) struct Shelf {
    free: Mutex<Vec<Client>>,
    schema: Box<str>,
    response_timeout: Duration,
    /// Whether a statement outside a transaction would run at another level of isolation than READ COMMITTED.
    has_other_level: AtomicBool,
}

impl Shelf {
    pub(super) fn new(schema: &str, response_timeout: Duration) -> Self {
        let (free, has_other_level) = (Mutex::default(), AtomicBool::new(false));
        Self { free, schema: schema.into(), response_timeout, has_other_level }
    }

    /// Takes a free connection. The connection may have ended since it was put back.
    pub(super) fn take(&self) -> Option<Client> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(super) fn put(&self, client: Client) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    }

    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    pub(super) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    pub(super) fn has_other_level(&self) -> bool {
        self.has_other_level.load(Ordering::Relaxed)
    }

    pub(super) fn set_other_level(&self, has_other: bool) {
        self.has_other_level.store(has_other, Ordering::Relaxed);
    }

    /// Replaces the name [`SCHEMA`] in a statement by the name of the schema.
    pub(super) fn named<'a>(&self, sql: &'a str) -> Cow<'a, str> {
        if *self.schema == *SCHEMA {
            return Cow::Borrowed(sql);
        }
        let quoted = format!("'{}'", self.schema);
        Cow::Owned(
            sql.replace(&format!("{SCHEMA}."), &format!("{}.", self.schema))
                .replace(&format!("'{SCHEMA}'"), &quoted)
                .replace(&format!("SCHEMA {SCHEMA}"), &format!("SCHEMA {}", self.schema)),
        )
    }
}
