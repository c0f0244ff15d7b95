//! Finds the namespaces that a start lacks although they have timers, and makes them again, unless their loss is that
//! of all namespaces.

use super::deployment::refuse_note;
use super::open_error::OpenError;
use crate::settings::RedisSettings;
use crate::state::{ClusterStore, Namespace, Namespaces, names_with_timers};
use pollster::block_on;
use std::io;
use tourbillon_durable::store::{Counts, StoreError, StoreErrorKind, TimerStore};

/// Fails if this deployment on Redis has timers and no document of its namespaces. Each start makes the document, so
/// the servers have lost it, and with it the pauses, limits and secrets of the namespaces.
pub(super) fn refuse_lost(
    store: &dyn ClusterStore,
    namespaces: &Namespaces,
    redis: &RedisSettings,
) -> Result<(), OpenError> {
    if !namespaces.are_absent() {
        return Ok(());
    }
    let counts = block_on(store.counts()).map_err(OpenError::Store)?;
    let names = names_with_timers(&counts);
    if names.is_empty() {
        return Ok(());
    }
    // A restore stores its timers before their namespaces.
    refuse_note(store, redis)?;
    // Since the first read, another node may have made the document, and clients may have made timers.
    let failed = |error| OpenError::Store(StoreError::caused_by(StoreErrorKind::Io, error));
    block_on(namespaces.renew()).map_err(failed)?;
    if !namespaces.are_absent() {
        return Ok(());
    }
    let names = names.into_iter().map(Box::from).collect();
    Err(OpenError::LostNamespaces { deployment: redis.deployment.as_str().into(), names })
}

/// Returns the namespaces that have timers and are not made. `counts` was read before the namespaces. If a namespace is
/// missing, counts the timers once more: another node may have removed its timers and the namespace since `counts`.
pub(super) fn still_missing(
    namespaces: &Namespaces,
    counts: &Counts,
    store: &dyn TimerStore,
) -> Result<Vec<Box<str>>, StoreError> {
    let missing = namespaces.missing(counts);
    if missing.is_empty() {
        return Ok(missing);
    }
    let again = namespaces.missing(&block_on(store.counts())?);
    Ok(missing.into_iter().filter(|name| again.contains(name)).collect())
}

/// Adds the namespaces `missing`, which have stored timers, to the namespaces of the service. Also adds a notice about
/// each of them to `notices`, unless another node has made the namespace in the meantime. The notice says that the
/// namespace "is not" `stored`. So `stored` is, for example, the text "in namespaces.json".
pub(super) fn add_missing(
    namespaces: &Namespaces,
    missing: &[Box<str>],
    stored: &str,
    notices: &mut Vec<Box<str>>,
) -> io::Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let notice = |name: &str| {
        format!("the namespace {name:?} has timers and is not {stored}: it has no limits and no secrets")
            .into()
    };
    let made = namespaces.change(|stored| {
        let mut new = missing.to_vec();
        new.retain(|name| !stored.namespaces.contains_key(name));
        stored.namespaces.extend(new.iter().map(|name| (name.clone(), Namespace::default())));
        new
    })?;
    notices.extend(made.iter().map(|name| notice(name)));
    Ok(())
}
