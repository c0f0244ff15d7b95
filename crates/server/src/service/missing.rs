//! Finds namespaces that have stored timers but no entry among the stored namespaces, and creates them again. If the
//! entries of all namespaces are lost, the start fails instead.

use super::deployment::refuse_note;
use super::open_error::OpenError;
use crate::state::{ClusterStore, Namespace, Namespaces, names_with_timers};
use pollster::block_on;
use std::io;
use tourbillon_durable::store::{Counts, StoreError, StoreErrorKind, TimerStore};

/// Fails if this deployment on Redis or in PostgreSQL has timers but no document of its namespaces. Each start creates
/// the document if it is missing. So the servers have lost it, with the pauses, limits and secrets of the namespaces.
/// `deployment` is the name of the deployment or of the schema.
pub(super) fn refuse_lost(
    store: &dyn ClusterStore,
    namespaces: &Namespaces,
    deployment: &str,
) -> Result<(), OpenError> {
    if !namespaces.are_absent() {
        return Ok(());
    }
    let counts = block_on(store.counts()).map_err(OpenError::Store)?;
    let names = names_with_timers(&counts);
    if names.is_empty() {
        return Ok(());
    }
    // A restore stores its timers before their namespaces, so an unfinished restore explains the missing document.
    refuse_note(store, deployment)?;
    // Since the first read, another node may have made the document, and clients may have created timers.
    let failed = |error| OpenError::Store(StoreError::caused_by(StoreErrorKind::Io, error));
    block_on(namespaces.renew()).map_err(failed)?;
    if !namespaces.are_absent() {
        return Ok(());
    }
    let names = names.into_iter().map(Box::from).collect();
    Err(OpenError::LostNamespaces { deployment: deployment.into(), names })
}

/// Returns the namespaces that have timers but do not exist. `counts` must be older than this node's copy of the
/// namespaces. If a namespace is missing, counts the timers once more: since `counts`, another node may have removed
/// the timers of the namespace and then the namespace.
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

/// Creates the namespaces `missing`, which have stored timers, without limits. Adds a notice about each namespace to
/// `notices`, unless another node has just created the namespace. The notice says that the namespace "is not" `stored`,
/// for example "in namespaces.json".
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
