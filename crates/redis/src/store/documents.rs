//! Shared documents: small values that the processes of a deployment share, such as the limits of a service.
//!
//! All documents are in one hash, whose key has the hash tag of the deployment itself. A process replaces a document
//! only if the document still has the version from which the new value was computed. Versions are drawn at random. A
//! counter would step back in a failover that loses writes, and a new value could get the version of a lost value. An
//! absent document has a version, too: that of its removal, or 0 if there was never a document of the name.
//!
//! The store draws the new version before it sends the script. So if the reply is lost, a second run finds out whether
//! the first had its effect:
//!
//! | the second run finds | the answer |
//! |---|---|
//! | the version from which the value was computed | the second run makes the change. If the first run arrives later, it finds another version and changes nothing |
//! | the version that was drawn | this version: the first run has made the change |
//! | another version | [`StoreErrorKind::Unknown`]: another process may have been first, or may have followed |

use super::redis_store::RedisStore;
use crate::deployment::{Deployment, kept};
use crate::script::{bytes, decimal, number};
use core::time::Duration;
use std::time::Instant;
use tourbillon_durable::store::{SharedDocument, StoreError, StoreErrorKind};

/// The pause before the repetition of a script whose reply was lost.
const PAUSE: Duration = Duration::from_millis(20);

impl RedisStore {
    /// Returns the shared document of this name, or `None` if the deployment has no such document.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached. Also fails if the server has lost the data of the deployment, for example
    /// by a restart without its data.
    pub async fn document(&self, name: &str) -> Result<Option<SharedDocument>, StoreError> {
        read(&self.deployment, name).await
    }

    /// Replaces or creates the document of this name, or removes it if `value` is `None`. `version` is the version that
    /// the caller has read, or 0 for an absent document. Returns the document's new version, which is 0 after a
    /// removal. If the document has a version other than `version`, returns `None` and changes nothing.
    ///
    /// If the server's answer is lost, the store repeats the change, and finds out whether it was made. The name of a
    /// removed document stays on the server, with the version of the removal.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Limit`] if the name has more than 255 bytes or the value more than 4 MiB. Fails
    /// with [`StoreErrorKind::Unknown`] if the server's answer was lost and the store could not find out whether the
    /// change was made. Fails with the same kind if the change is not yet as durable as the connection's
    /// [`SyncPolicy`](crate::SyncPolicy) requires. Also fails if the server cannot be reached, or if the server has
    /// lost the data of the deployment, for example by a restart without its data.
    pub async fn replace_document(
        &self,
        name: &str,
        version: u64,
        value: Option<&[u8]>,
    ) -> Result<Option<u64>, StoreError> {
        kept(replace(&self.deployment, name, version, value)).await
    }
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

/// The replacement, creation or removal of the document `name`. A removal has no value.
struct Change<'a> {
    name: &'a str,
    value: Option<&'a [u8]>,
    /// The version that the document gets by this change.
    fresh: u64,
}

/// A document after an attempt to change it.
struct After {
    /// True if this attempt has made the change.
    is_replaced: bool,
    version: u64,
    exists: bool,
}

impl Change<'_> {
    /// Makes the change if the document has the version `expected`. A document that was removed has the version of its
    /// removal, and a document that never existed has the version 0.
    async fn attempt(&self, deployment: &Deployment, expected: u64) -> Result<After, StoreError> {
        let arguments = [
            deployment.id(),
            self.name.as_bytes().to_vec(),
            decimal(expected),
            decimal(u64::from(self.value.is_some())),
            self.value.unwrap_or_default().to_vec(),
            decimal(self.fresh),
        ];
        let keys = vec![deployment.key.clone(), deployment.documents.clone()];
        let mut answered = deployment.run(|scripts| &scripts.replace_document, keys, arguments).await?;
        let mut next = || answered.rest.number();
        Ok(After { is_replaced: next()? == 1, version: next()?, exists: next()? == 1 })
    }
}

async fn replace(
    deployment: &Deployment,
    name: &str,
    version: u64,
    value: Option<&[u8]>,
) -> Result<Option<u64>, StoreError> {
    SharedDocument::admit(name, value.map_or(0, <[u8]>::len))?;
    // The script is not sent, because it would store the version of a removal for a document that never existed.
    if version == 0 && value.is_none() {
        return Ok(read(deployment, name).await?.is_none().then_some(0));
    }
    let change = Change { name, value, fresh: SharedDocument::fresh_version() };
    let (begin, patience) = (Instant::now(), deployment.link.patience());
    let mut expected = version;
    // The error of an attempt that may have had its effect.
    let mut unknown = None;
    loop {
        match change.attempt(deployment, expected).await {
            // An earlier attempt may have made the change.
            Ok(after) if after.is_replaced || after.version == change.fresh => {
                return Ok(Some(value.map_or(0, |_| change.fresh)));
            }
            Ok(after) => match unknown {
                Some(error) => return Err(error),
                // The caller expects an absent document, and the document was removed. So the next attempt expects the
                // version of the removal instead of 0.
                None if version == 0 && !after.exists && after.version != expected => {
                    expected = after.version;
                }
                None => return Ok(None),
            },
            // The first lost reply may have taken longer than the patience. The attempt is repeated all the same.
            Err(error)
                if error.kind() == StoreErrorKind::Unknown
                    && (unknown.is_none() || begin.elapsed() < patience) =>
            {
                unknown = Some(error);
                deployment.link.wait(PAUSE).await;
            }
            // An earlier attempt may have made the change, whatever the last error says.
            Err(error) => return Err(unknown.unwrap_or(error)),
        }
    }
}
