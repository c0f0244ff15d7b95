//! Shared documents: small values that the processes of a deployment share, such as the limits of a service.
//!
//! A process replaces a document only if the document still has the version from which the new value was computed. An
//! absent document has a version, too: the version of its removal, or 0 if there was never a document of the name.
//!
//! The store draws the new version at random before it sends the statement. If the answer is lost, the store sends the
//! statement a second time. The version then shows whether the first statement had its effect. This holds for creations
//! and removals as well:
//!
//! | the second statement finds | the store returns |
//! |---|---|
//! | the version from which the value was computed | the drawn version: the second statement makes the change. If the first statement arrives later, it finds another version, and changes nothing |
//! | the drawn version | the drawn version: the first statement has made the change |
//! | another version | [`StoreErrorKind::Unknown`]: another process may have changed the document before the first statement, or after it |

use super::postgres_store::PostgresStore;
use crate::deployment::Deployment;
use crate::link::{Failure, Param};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::sleep;
use tokio_postgres::types::Type;
use tourbillon_durable::store::{SharedDocument, StoreError, StoreErrorKind};

/// The pause before a statement is repeated.
const PAUSE: Duration = Duration::from_millis(20);

impl PostgresStore {
    /// Returns the shared document of this name, or `None` if the deployment has no such document.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached.
    pub async fn document(&self, name: &str) -> Result<Option<SharedDocument>, StoreError> {
        let (deployment, name) = (Arc::clone(&self.deployment), name.to_owned());
        self.deployment.pool.spawn(async move { read(&deployment, &name).await }).await
    }

    /// Replaces or creates the document of this name. If `value` is `None`, removes the document. The change is made
    /// only if the document has the version `version`: the version that the caller has read, or 0 for an absent
    /// document. Returns the document's new version, which is 0 after a removal. If the document has a version other
    /// than `version`, returns `None` and changes nothing.
    ///
    /// The change is one transaction. The server's setting `synchronous_commit` decides its durability. If the answer
    /// is lost, the store repeats the change, and finds out whether the first attempt had its effect. The name of a
    /// removed document stays in the database with a version.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Limit`] if the name has more than 255 bytes or a zero byte, or the value more than
    /// 4 MiB. Fails with [`StoreErrorKind::Unknown`] if the answer was lost, and the store could not find out whether
    /// the change was made. Also fails if the server cannot be reached.
    pub async fn replace_document(
        &self,
        name: &str,
        version: u64,
        value: Option<&[u8]>,
    ) -> Result<Option<u64>, StoreError> {
        let change = Change::new(name, version, value)?;
        let deployment = Arc::clone(&self.deployment);
        self.deployment.pool.spawn(async move { replace(&deployment, &change).await }).await
    }
}

/// Checks the name of a document, and the length of its value.
pub(super) fn admit(name: &str, length: usize) -> Result<(), StoreError> {
    if name.contains('\0') {
        return Err(StoreError::new(StoreErrorKind::Limit, "a document under a name with a zero byte"));
    }
    SharedDocument::admit(name, length)
}

/// A replacement, creation or removal of a shared document. `version` is the version that the caller expects. Without a
/// `value`, the document is removed.
struct Change {
    name: String,
    version: i64,
    value: Option<Vec<u8>>,
    /// The version that the document gets by this change.
    fresh: i64,
}

impl Change {
    fn new(name: &str, version: u64, value: Option<&[u8]>) -> Result<Self, StoreError> {
        admit(name, value.map_or(0, <[u8]>::len))?;
        let (name, value) = (name.to_owned(), value.map(<[u8]>::to_vec));
        let fresh = SharedDocument::fresh_version().cast_signed();
        Ok(Self { name, version: version.cast_signed(), value, fresh })
    }

    /// Changes the document as `self` says, if the row of the document has the version `expected`. The version 0 stands
    /// for a name without a row.
    async fn attempt(&self, deployment: &Deployment, expected: i64) -> Result<After, Failure> {
        let mut session = deployment.pool.session_for_call().await?;
        let params: [Param<'_>; 4] = [
            (&self.name, Type::TEXT),
            (&expected, Type::INT8),
            (&self.value, Type::BYTEA),
            (&self.fresh, Type::INT8),
        ];
        let sql = "SELECT r.is_replaced, r.version_after, r.exists_after
                   FROM tourbillon.replace_document($1, $2, $3, $4) r";
        let rows = session.query(sql, &params).await?;
        let after = |row: &tokio_postgres::Row| After {
            is_replaced: row.get(0),
            version: row.get(1),
            exists: row.get(2),
        };
        Ok(rows.first().map_or_else(After::default, after))
    }
}

/// The row of a document after an attempt to change it.
#[derive(Default)]
struct After {
    /// Whether this attempt has replaced, created or removed the document.
    is_replaced: bool,
    version: i64,
    /// Whether the document exists. The row of a removed document stays, but has no value.
    exists: bool,
}

async fn read(deployment: &Deployment, name: &str) -> Result<Option<SharedDocument>, StoreError> {
    let mut session = deployment.session_for_read().await?;
    let sql =
        "SELECT d.version, d.value FROM tourbillon.document d WHERE d.name = $1 AND d.value IS NOT NULL";
    let rows = session.read(sql, &[(&name, Type::TEXT)]).await.map_err(Failure::into_error)?;
    let document = |row: &tokio_postgres::Row| SharedDocument {
        version: row.get::<_, i64>(0).cast_unsigned(),
        value: row.get(1),
    };
    Ok(rows.first().map(document))
}

async fn replace(deployment: &Deployment, change: &Change) -> Result<Option<u64>, StoreError> {
    if change.version == 0 && change.value.is_none() {
        return Ok(read(deployment, &change.name).await?.is_none().then_some(0));
    }
    let (begin, patience) = (Instant::now(), deployment.pool.patience());
    let mut expected = change.version;
    // The error of an earlier attempt that may have had its effect.
    let mut unknown = None;
    loop {
        match change.attempt(deployment, expected).await {
            // If the row has the drawn version, an earlier attempt has made the change.
            Ok(after) if after.is_replaced || after.version == change.fresh => {
                return Ok(Some(change.value.as_ref().map_or(0, |_| change.fresh.cast_unsigned())));
            }
            Ok(after) => match unknown {
                Some(error) => return Err(error),
                // The caller expects an absent document, and the document is absent. Its row has the version of the
                // removal, so the attempt is repeated with this version.
                None if change.version == 0 && !after.exists && after.version != expected => {
                    expected = after.version;
                    continue;
                }
                None => return Ok(None),
            },
            Err(Failure::Again(_) | Failure::Held(_) | Failure::Lost(_)) if begin.elapsed() < patience => {}
            // After the first lost answer the attempt is always repeated, even if the patience has ended.
            Err(Failure::Unknown(error)) if unknown.is_none() || begin.elapsed() < patience => {
                unknown = Some(error);
            }
            Err(failure) => return Err(unknown.unwrap_or_else(|| failure.into_error())),
        }
        sleep(PAUSE).await;
    }
}
