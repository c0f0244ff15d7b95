//! Notes: small values that the processes of a deployment share, such as the limits of a service. They are in one hash,
//! whose key has the braces of the deployment itself. A change compares the version of what it was computed from.
//! Versions are drawn at random: a counter would step back with a failover that loses writes, and a value that was lost
//! would have the version of another one.

use crate::commit::text;
use crate::promise::kept;
use crate::shared::Core;
use crate::store::RedisStore;
use crate::values::{bytes, number};
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_durable::timer::TimerId;

/// The longest name of a note, in bytes.
const LONGEST_NAME: usize = 255;
/// The greatest value of a note, in bytes: the server does nothing else while it is read.
const MOST: usize = 4 << 20;

/// A small value that the processes of a deployment share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The version. Each change gives the note another one, which no note of the deployment has had before.
    pub version: u64,
    /// The value.
    pub value: Vec<u8>,
}

impl RedisStore {
    /// A note; `None` if the deployment has none with this name.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, or has lost the deployment.
    pub async fn note(&self, name: &str) -> Result<Option<Note>, StoreError> {
        self.core().read_note(name).await
    }

    /// Replaces a note, or makes it, if it has this version: that of the note which was read, or 0 if there was none.
    /// Removes it if there is no new value. Returns false, and changes nothing, if another process has changed the note
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Limit`] if the name has more than 255 bytes or the value more than 4 MiB, with
    /// [`StoreErrorKind::Unknown`] if the answer was lost: the change may have been made; and if the server cannot be
    /// reached, or has lost the deployment.
    pub async fn replace_note(
        &self,
        name: &str,
        version: u64,
        value: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        kept(self.core().write_note(name, version, value)).await
    }
}

/// A version that no note has had. Never 0, which stands for no note.
fn fresh_version() -> u64 {
    let bytes = TimerId::fresh().as_u128().to_be_bytes();
    let number = bytes.last_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    // The bits at the top are the same in all ids.
    (number & (u64::MAX >> 2)).max(1)
}

impl Core {
    async fn read_note(&self, name: &str) -> Result<Option<Note>, StoreError> {
        let arguments = [self.deployment.id(), name.as_bytes().to_vec()];
        let keys = vec![self.deployment.key.clone(), self.deployment.notes.clone()];
        let mut answered = self.run(|scripts| &scripts.note, keys, arguments).await?;
        let version = answered.rest.next()?;
        if bytes(version.clone())?.is_none_or(|version| version.is_empty()) {
            return Ok(None);
        }
        let value = bytes(answered.rest.next()?)?.unwrap_or_default();
        Ok(Some(Note { version: number(&version)?, value }))
    }

    async fn write_note(&self, name: &str, version: u64, value: Option<&[u8]>) -> Result<bool, StoreError> {
        let length = value.map_or(0, <[u8]>::len);
        if name.len() > LONGEST_NAME || length > MOST {
            let message = format!("a note of {length} bytes under a name of {} bytes", name.len());
            return Err(StoreError::new(StoreErrorKind::Limit, message));
        }
        let arguments = [
            self.deployment.id(),
            name.as_bytes().to_vec(),
            text(version),
            text(u64::from(value.is_some())),
            value.unwrap_or_default().to_vec(),
            text(fresh_version()),
        ];
        let keys = vec![self.deployment.key.clone(), self.deployment.notes.clone()];
        let mut answered = self.run(|scripts| &scripts.replace_note, keys, arguments).await?;
        Ok(number(&answered.rest.next()?)? == 1)
    }
}
