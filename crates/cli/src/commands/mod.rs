//! The subcommands of the program.

pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod endpoints;
pub(crate) mod list;
pub(crate) mod manage;
pub(crate) mod nodes;
pub(crate) mod operation;
pub(crate) mod place;
pub(crate) mod pull;
pub(crate) mod schedule;
pub(crate) mod single;
pub(crate) mod watch;
