//! Connections to a server: settings, a pool, sessions, and the meaning of errors.

mod connect;
mod ear;
mod error;
mod pool;
mod session;
mod shelf;

pub use connect::{Connect, ConnectError};
pub(crate) use ear::listen;
pub(crate) use error::{Failure, io};
pub(crate) use pool::Pool;
pub(crate) use session::{Param, Session};
