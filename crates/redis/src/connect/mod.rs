//! Connections to Redis: one server, Sentinel or a cluster, behind the trait [`Link`].

mod dial;
mod error;
mod keeper;
mod session;
mod settings;
#[cfg(test)]
mod tests;

use crate::script::Script;
use core::pin::Pin;

pub(crate) use error::LinkError;
pub(crate) use session::Session;
pub use settings::{Connect, ConnectError, SyncPolicy, Tls};

/// What a call of [`Link`] gives later. The future needs no tokio runtime around it.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, LinkError>> + Send + 'a>>;

/// A way to the server that runs scripts.
pub(crate) trait Link: Send + Sync {
    /// Runs `script` on the server that has `keys`. The future ends within the time limit of the connection.
    ///
    /// # Errors
    ///
    /// [`LinkError::may_have_run`] says whether the script may have had its effect.
    fn run<'a>(
        &'a self,
        script: &'static Script,
        keys: Vec<Vec<u8>>,
        arguments: Vec<Vec<u8>>,
    ) -> Answer<'a, redis::Value>;

    /// Whether the servers are a cluster, in which a script's keys must be in one slot.
    fn is_cluster(&self) -> bool {
        false
    }
}
