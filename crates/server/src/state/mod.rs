//! Keeps the state that all parts of the service share: namespaces, tokens, events and counters. Modules of this folder
//! must not use the service or the deliveries, which build on this state.

mod cluster;
mod counters;
mod events;
pub(crate) mod files;
mod namespace;
mod namespace_storage;
mod namespaces;
mod principal;
mod removal;
mod stop;
mod stored_namespaces;
mod token_file;
mod tokens;
mod trace;

pub(crate) use cluster::ClusterStore;
#[cfg(test)]
pub(crate) use cluster::double;
pub(crate) use counters::{Counter, Counters};
pub(crate) use events::{Events, Subscription, event, schedules_of};
pub(crate) use namespace::{
    ALL, DEFAULT, Namespace, ROTATION, SigningSecret, allows_host, canonical, in_rotation,
};
pub(crate) use namespace_storage::{NAMESPACES, NamespaceStorage, is_lost};
pub(crate) use namespaces::{Namespaces, VIEW, names_with_timers};
pub use principal::Principal;
pub(crate) use removal::{STALE, end_removals, mark, present, remove_marked, unmark};
pub(crate) use stop::Stop;
pub(crate) use stored_namespaces::{Copies, StoredNamespaces, limits_in};
pub(crate) use token_file::{
    LONGEST_TOKEN_NAME, NewToken, Stored, TokenFile, TokenHash, hash, id_of_token, role_name,
};
pub(crate) use tokens::Tokens;
pub(crate) use trace::Trace;
