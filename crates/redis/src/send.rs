//! How a commit reaches the server.

use crate::commit::{Commit, Doubt};
use crate::scripts::Scripts;
use crate::shared::Core;
use crate::stored::damaged;
use crate::values::{Values, number};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::StoreError;

/// What became of a commit.
pub(crate) enum Sent {
    /// The changes were made.
    Done,
    /// A check failed, and nothing was changed.
    Refused {
        now: UtcMillis,
        doubt: Doubt,
        /// What the check found.
        found: Values,
    },
}

impl Core {
    /// Makes the changes of a commit, if its checks hold.
    pub(crate) async fn send(&self, commit: Commit<'_>) -> Result<Sent, StoreError> {
        let is_growing = commit.is_growing;
        let (keys, arguments, doubts) = commit.into_parts();
        let script = |scripts: &'static Scripts| match is_growing {
            true => &scripts.commit,
            false => &scripts.commit_kept,
        };
        let mut answered = self.run(script, keys, arguments).await?;
        if number(&answered.rest.next()?)? == 1 {
            return Ok(Sent::Done);
        }
        let place = usize::try_from(number(&answered.rest.next()?)?).unwrap_or_default();
        let doubt = place.checked_sub(1).and_then(|place| doubts.into_iter().nth(place));
        let doubt = doubt.ok_or_else(|| damaged("a commit failed at a check that it does not have"))?;
        Ok(Sent::Refused { now: answered.now, doubt, found: answered.rest })
    }
}
