//! Connections to Redis: one server, Sentinel or a cluster, behind the trait [`Link`].

mod cluster;
mod dial;
mod error;
mod heard;
mod keeper;
mod listen;
mod roles;
mod route;
mod routes;
mod sentinel;
mod session;
mod settings;
mod slots;
mod witness;

use crate::script::Script;
use crate::script::Words;
use core::any::Any;
use core::pin::Pin;
use core::time::Duration;
use std::sync::Arc;
use tokio::runtime::Handle;

pub(crate) use error::{LinkError, is_back, is_gone, is_renewed};
pub(crate) use heard::Heard;
pub(crate) use session::Session;
pub use settings::{Connect, ConnectError, SyncPolicy, Tls};
pub(crate) use witness::Witness;

/// The answer to a call of [`Link`]. The future needs no tokio runtime around it.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, LinkError>> + Send + 'a>>;

/// Ends after a time.
pub(crate) type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Called with the events of a subscription. It must not block.
pub(crate) type Ear = Box<dyn Fn(Heard<'_>) + Send + Sync>;

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
        arguments: Words,
    ) -> Answer<'a, redis::Value>;

    /// The same, with the witness of the server that has run the script, if a policy asks for safer changes than the
    /// server makes by itself.
    fn run_before_witness<'a>(
        &'a self,
        script: &'static Script,
        keys: Vec<Vec<u8>>,
        arguments: Words,
    ) -> Answer<'a, (redis::Value, Option<Arc<Witness>>)> {
        let answer = self.run(script, keys, arguments);
        Box::pin(async move { Ok((answer.await?, None)) })
    }

    /// The same on the connection that this [attempt](Self::attempt) has made. If another connection is in use, the
    /// script is not sent.
    fn run_on<'a>(
        &'a self,
        _attempt: u64,
        script: &'static Script,
        keys: Vec<Vec<u8>>,
        arguments: Words,
    ) -> Answer<'a, (redis::Value, Option<Arc<Witness>>)> {
        self.run_before_witness(script, keys, arguments)
    }

    /// The number of the attempt to connect whose connection is in use, or that is under way. Always the same in a
    /// cluster.
    fn attempt(&self) -> u64 {
        0
    }

    /// The witnesses of all servers to which there are connections.
    fn witnesses(&self) -> Vec<Arc<Witness>> {
        Vec::new()
    }

    /// Ends after a time.
    fn wait(&self, _: Duration) -> Pause {
        Box::pin(core::future::pending())
    }

    /// Calls `ear` with the messages of some channels, until the value that it returns is dropped. In a cluster the
    /// subscription is at the primary that has the key, as long as there is a connection to that primary. A link
    /// without subscriptions calls nothing.
    fn listen(&self, _beside: &[u8], _channels: &[Vec<u8>], _ear: Ear) -> Option<Box<dyn Any + Send>> {
        None
    }

    /// The runtime for tasks that several callers share; none if each caller sends its own calls.
    fn runtime(&self) -> Option<Handle> {
        None
    }

    /// The time for which a call may wait before it is sent.
    fn patience(&self) -> Duration {
        Duration::MAX
    }

    /// Whether the servers are a cluster, in which a script's keys must be in one slot.
    fn is_cluster(&self) -> bool {
        false
    }
}
