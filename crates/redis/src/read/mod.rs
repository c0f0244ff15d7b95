//! Reads from the servers: timers by id and by key, indexes, lists, counts, copies of shards, and the check of the
//! structure.

mod check;
mod counts;
mod dump;
mod find;
mod horizon;
mod index;
mod lists;
mod reasons;

pub(crate) use check::check;
pub(crate) use counts::Counter;
pub(crate) use dump::dump;
pub(crate) use find::{find, find_id, find_key, look, read_found, records, timers_of};
pub(crate) use horizon::horizon;
pub(crate) use index::{Index, IndexEntry, Stretch, Walk};
pub(crate) use lists::list;
pub(crate) use reasons::reasons;
