//! Connections to Redis: one server, Sentinel or a cluster, behind the trait [`Link`].

mod cluster;
mod dial;
mod error;
mod heard;
mod listen;
mod primary;
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

pub(crate) use error::{LinkError, is_back, is_gone, is_renewed, is_wrong_type};
pub(crate) use heard::Heard;
pub(crate) use session::Session;
pub use settings::{Connect, ConnectError, SyncPolicy, Tls};
pub(crate) use witness::Witness;

/// A script with its keys and arguments, ready to be sent.
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    /// The keys of the script. In a cluster, all of them must be in one slot.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) arguments: Words,
    /// The number of an attempt to connect, as [`Link::attempt`] returns it. If set, the script is sent only on the
    /// connection that this attempt has made, and the call fails if another connection is in use. `None` permits any
    /// connection. A cluster also permits any connection.
    pub(crate) attempt: Option<u64>,
}

/// The value that a script has returned, and the [`Witness`] of the server on which the script ran. The witness is
/// `None` if the connection's policy requires no confirmation.
pub(crate) type Reply = (redis::Value, Option<Arc<Witness>>);

/// The answer to a call of a [`Link`], as a future that needs no tokio runtime.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, LinkError>> + Send + 'a>>;

/// A future that ends after a set time.
pub(crate) type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A function that is called with each event of a subscription. The function must not block.
pub(crate) type Ear = Box<dyn Fn(Heard<'_>) + Send + Sync>;

/// Runs scripts on Redis servers, over connections that the link keeps open.
pub(crate) trait Link: Send + Sync {
    /// Runs a script on the server that has its keys. The returned future ends within the connection's time limits.
    ///
    /// # Errors
    ///
    /// [`LinkError::may_have_run`] says whether the script may have taken effect.
    fn run(&self, call: Call) -> Answer<'_, Reply>;

    /// Returns the number of the attempt to connect that made the present connection. Without a connection, returns the
    /// number of the attempt that is under way. In a cluster, returns 0.
    fn attempt(&self) -> u64;

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
