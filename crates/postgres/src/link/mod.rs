//! Connections to a server: settings, TLS, a pool, sessions, and the classification of errors.

mod address;
mod cancel;
mod connect;
mod dial;
mod ear;
mod error;
mod pool;
mod session;
mod shelf;
mod tls;

pub use connect::{Connect, ConnectError};
pub(crate) use ear::listen;
pub(crate) use error::{Failure, io};
pub(crate) use pool::Pool;
pub(crate) use session::{LockWait, Param, Session};
pub use tls::Tls;
