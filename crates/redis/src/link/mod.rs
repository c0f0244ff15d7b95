//! Connections to Redis: one server, Sentinel or a cluster, behind the trait [`Link`].

mod cluster;
mod dial;
mod error;
mod heard;
mod listen;
mod reconnector;
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

/// The answer to a call of a [`Link`], as a future that needs no tokio runtime.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, LinkError>> + Send + 'a>>;

/// A future that ends after a set time.
pub(crate) type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A function that is called with each event of a subscription. The function must not block.
pub(crate) type Ear = Box<dyn Fn(Heard<'_>) + Send + Sync>;

/// Runs scripts on Redis servers, over connections that the link keeps.
pub(crate) trait Link: Send + Sync {
    /// Runs `script` on the server that has `keys`. The returned future ends within the connection's time limits.
    ///
    /// # Errors
    ///
    /// [`LinkError::may_have_run`] says whether the script may have taken effect.
    fn run<'a>(
        &'a self,
        script: &'static Script,
        keys: Vec<Vec<u8>>,
        arguments: Words,
    ) -> Answer<'a, redis::Value>;

    /// Runs a script like [`run`](Self::run), and also returns the [`Witness`] of the server on which the script ran.
    /// The witness is `None` if the connection's policy requires no confirmation.
    fn run_before_witness<'a>(
        &'a self,
        script: &'static Script,
        keys: Vec<Vec<u8>>,
        arguments: Words,
    ) -> Answer<'a, (redis::Value, Option<Arc<Witness>>)> {
        let answer = self.run(script, keys, arguments);
        Box::pin(async move { Ok((answer.await?, None)) })
    }

    /// Runs a script like [`run_before_witness`](Self::run_before_witness), but only on the connection that the
    /// [attempt](Self::attempt) with this number has made. If another connection is in use, the call fails and the
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

    /// Returns the number of the attempt to connect that made the present connection. Without a connection, returns the
    /// number of the attempt that is under way. In a cluster, returns 0.
    fn attempt(&self) -> u64 {
        0
    }

    /// Returns whether the connection's policy requires a confirmation of changes. If so, each answer of a script comes
    /// with a [`Witness`].
    fn has_witnesses(&self) -> bool {
        false
    }

    /// Returns a future that ends after this duration.
    fn wait(&self, _: Duration) -> Pause {
        Box::pin(core::future::pending())
    }

    /// Calls `ear` with the messages of `_channels` until the returned value is dropped. In a cluster, subscribes at
    /// the primary that has the key `_beside`, while there is a connection to it. A link without subscriptions returns
    /// `None`.
    fn listen(&self, _beside: &[u8], _channels: &[Vec<u8>], _ear: Ear) -> Option<Box<dyn Any + Send>> {
        None
    }

    /// Returns the runtime for a task that sends the calls of several callers together. Returns `None` if the link has
    /// no runtime. In that case, each caller must send its own calls.
    fn runtime(&self) -> Option<Handle> {
        None
    }

    /// Returns the longest time that a call may wait before it is sent.
    fn patience(&self) -> Duration {
        Duration::MAX
    }

    /// Returns whether the servers are a cluster, in which all keys of a script must be in one slot.
    fn is_cluster(&self) -> bool {
        false
    }
}
