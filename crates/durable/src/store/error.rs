//! Defines the errors of stores.

use core::fmt;
use std::io;
use std::sync::Arc;

/// An error of a store. The failed operation has had no effect. The exception is an error of the kind
/// [`Unknown`](StoreErrorKind::Unknown): the operation may have taken effect.
#[derive(Clone, Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    message: Box<str>,
    source: Option<Arc<dyn core::error::Error + Send + Sync>>,
}

/// The kind of a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Another process has the store open, or this process has opened the store already.
    Locked,
    /// The store was written by a later version of this crate.
    NewerSchema,
    /// The store was written by an earlier version of this crate, in a format that this version cannot read.
    OlderSchema,
    /// The store's files or its server do not accept writes.
    ReadOnly,
    /// The disk, or the memory of the store's server, is full. The store accepts changes again once there is room.
    Full,
    /// The store's structure is damaged.
    Corrupt,
    /// An argument exceeds a limit, or is not valid.
    Limit,
    /// The store has been closed, or has stopped after an earlier error.
    Closed,
    /// The operating system reported an error for a read or a write.
    Io,
    /// The answer was lost, so the operation may or may not have taken effect. The caller may repeat the operation.
    Unknown,
    /// A transaction of another program has kept a timer or a key of the operation locked for longer than the store
    /// waits. The store itself works, and the caller may repeat the operation.
    Held,
}

impl StoreError {
    /// Makes an error of the kind `kind` with a message.
    ///
    /// ```
    /// use tourbillon_durable::store::{StoreError, StoreErrorKind};
    ///
    /// let error = StoreError::new(StoreErrorKind::Full, "no room on the disk");
    /// assert_eq!(error.kind(), StoreErrorKind::Full);
    /// ```
    pub fn new(kind: StoreErrorKind, message: impl Into<Box<str>>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Makes an error of the kind `kind` with the message of `source`, the error that caused the failure. The new error
    /// keeps `source`.
    ///
    /// ```
    /// use std::error::Error as _;
    /// use std::io;
    /// use tourbillon_durable::store::{StoreError, StoreErrorKind};
    ///
    /// let error = StoreError::caused_by(StoreErrorKind::Io, io::Error::other("the cable is out"));
    /// assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("the cable is out"));
    /// ```
    pub fn caused_by(kind: StoreErrorKind, source: impl core::error::Error + Send + Sync + 'static) -> Self {
        Self { kind, message: source.to_string().into(), source: Some(Arc::new(source)) }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Returns whether the failed operation may succeed if it is repeated later.
    ///
    /// ```
    /// use tourbillon_durable::store::{StoreError, StoreErrorKind};
    ///
    /// assert!(StoreError::new(StoreErrorKind::Full, "").is_transient());
    /// assert!(!StoreError::new(StoreErrorKind::Locked, "").is_transient());
    /// ```
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Full | StoreErrorKind::Io | StoreErrorKind::Unknown | StoreErrorKind::Held
        )
    }
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        let kind = match error.kind() {
            // A limit on the length of a file counts as a quota.
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                StoreErrorKind::Full
            }
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => StoreErrorKind::ReadOnly,
            _ => StoreErrorKind::Io,
        };
        Self::caused_by(kind, error)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            StoreErrorKind::Locked => "the store is open elsewhere",
            StoreErrorKind::NewerSchema => "the store was written by a later version",
            StoreErrorKind::OlderSchema => "the store was written by an earlier version",
            StoreErrorKind::ReadOnly => "the store cannot be written",
            StoreErrorKind::Full => "the store is full",
            StoreErrorKind::Corrupt => "the store is damaged",
            StoreErrorKind::Limit => "the store refuses this",
            StoreErrorKind::Closed => "the store is closed",
            StoreErrorKind::Io => "the store could not be read or written",
            StoreErrorKind::Unknown => "the outcome is not known",
            StoreErrorKind::Held => "another transaction holds the timer or its key",
        };
        write!(f, "{kind}: {}", self.message)
    }
}

impl core::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
