//! Shared documents: small values that the processes of a deployment share, such as the limits of a service.

use super::{StoreError, StoreErrorKind};
use crate::timer::TimerId;

/// The greatest length of a document's name, in bytes.
const LONGEST_NAME: usize = 255;
/// The greatest length of a document's value, in bytes. Each read sends the whole value.
const MOST: usize = 4 << 20;

/// A small value that the processes of a deployment share. Stores on a database server have such documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDocument {
    /// The random version of the document's value. Each change gives the document a new version.
    pub version: u64,
    /// The document's value, as the bytes that its writer has stored.
    pub value: Vec<u8>,
}

impl SharedDocument {
    /// Returns a random version for a document, below 2^62. Never returns 0, the version of an absent document. For
    /// authors of stores.
    #[must_use]
    pub fn fresh_version() -> u64 {
        // The lowest 62 bits of a fresh id are random.
        let random = TimerId::fresh().as_u128() & u128::from(u64::MAX >> 2);
        u64::try_from(random).unwrap_or(1).max(1)
    }

    /// Checks the name of a document, and the length of its value. For authors of stores.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Limit`] if the name has more than 255 bytes, or the value more than 4 MiB.
    pub fn admit(name: &str, length: usize) -> Result<(), StoreError> {
        if name.len() > LONGEST_NAME || length > MOST {
            let message = format!("a document of {length} bytes under a name of {} bytes", name.len());
            return Err(StoreError::new(StoreErrorKind::Limit, message));
        }
        Ok(())
    }
}
