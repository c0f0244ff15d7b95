//! Shared documents: small values that the processes of a deployment share, such as the limits of a service.
//!
//! All documents are in one hash, whose key has the hash tag of the deployment itself. A process replaces a document
//! only if the document still has the version from which the new value was computed. Versions are drawn at random. A
//! counter would step back in a failover that loses writes, and a new value could get the version of a lost value.

use super::redis_store::RedisStore;
use crate::deployment::{Deployment, kept};
use crate::script::{bytes, decimal, number};
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_durable::timer::TimerId;

/// The greatest length of a document's name, in bytes.
const LONGEST_NAME: usize = 255;
/// The greatest length of a document's value, in bytes. A server does nothing else while it reads a document.
const MOST: usize = 4 << 20;

/// A small value that the processes of a deployment share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDocument {
    /// The random version of the value. Each change gives the document a new version.
    pub version: u64,
    /// The bytes that the last writer has stored.
    pub value: Vec<u8>,
}

impl RedisStore {
    /// Returns the shared document of this name, or `None` if the deployment has no such document.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, or has lost the deployment.
    pub async fn document(&self, name: &str) -> Result<Option<SharedDocument>, StoreError> {
        read(&self.deployment, name).await
    }

    /// Replaces or creates the document of this name, or removes it if `value` is `None`. `version` is the version that
    /// the caller has read, or 0 for an absent document. If the document has a different version, returns `false` and
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Limit`] if the name has more than 255 bytes or the value more than 4 MiB. Fails
    /// with [`StoreErrorKind::Unknown`] if the answer was lost: the change may have been made. Also fails if the server
    /// cannot be reached, or has lost the deployment.
    pub async fn replace_document(
        &self,
        name: &str,
        version: u64,
        value: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        kept(replace(&self.deployment, name, version, value)).await
    }
}

/// Returns a random version for a document. Never returns 0, the version of an absent document.
fn fresh_version() -> u64 {
    let bytes = TimerId::fresh().as_u128().to_be_bytes();
    let number = bytes.last_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    // The two highest bits are the same in all ids.
    (number & (u64::MAX >> 2)).max(1)
}

async fn read(deployment: &Deployment, name: &str) -> Result<Option<SharedDocument>, StoreError> {
    let arguments = [deployment.id(), name.as_bytes().to_vec()];
    let keys = vec![deployment.key.clone(), deployment.documents.clone()];
    let mut answered = deployment.run(|scripts| &scripts.document, keys, arguments).await?;
    let version = answered.rest.next()?;
    if bytes(version.clone())?.is_none_or(|version| version.is_empty()) {
        return Ok(None);
    }
    let value = answered.rest.bytes()?;
    Ok(Some(SharedDocument { version: number(&version)?, value }))
}

async fn replace(
    deployment: &Deployment,
    name: &str,
    version: u64,
    value: Option<&[u8]>,
) -> Result<bool, StoreError> {
    let length = value.map_or(0, <[u8]>::len);
    if name.len() > LONGEST_NAME || length > MOST {
        let message = format!("a document of {length} bytes under a name of {} bytes", name.len());
        return Err(StoreError::new(StoreErrorKind::Limit, message));
    }
    let arguments = [
        deployment.id(),
        name.as_bytes().to_vec(),
        decimal(version),
        decimal(u64::from(value.is_some())),
        value.unwrap_or_default().to_vec(),
        decimal(fresh_version()),
    ];
    let keys = vec![deployment.key.clone(), deployment.documents.clone()];
    let mut answered = deployment.run(|scripts| &scripts.replace_document, keys, arguments).await?;
    Ok(answered.rest.number()? == 1)
}
