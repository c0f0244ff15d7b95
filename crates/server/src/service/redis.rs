//! A service whose timers are in Redis, beside other nodes.
//!
//! What the nodes share is in the deployment: timers, schedules, and the namespaces with their limits and secrets. The other
//! files are each node's own: tokens, which are configuration, operations that have not ended, and the history.

use super::namespaces::Namespaces;
use super::shelf::{Shelf, block_on};
use super::{OpenError, Service, Start, of};
use crate::settings::{RedisSettings, Settings};
use core::time::Duration;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::sync::Arc;
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_redis::{Grade, RedisStore, Report, check};

/// The time between two reads of what other nodes have changed.
const RENEWED: Duration = Duration::from_secs(1);
/// The note of a restore that has begun and not ended.
pub(super) const RESTORING: &str = "restoring";

/// Checks the servers. Fails if they are refused.
pub(crate) fn checked(redis: &RedisSettings) -> Result<Report, OpenError> {
    let report = block_on(check(&redis.connect));
    let report =
        report.map_err(|error| OpenError::Store(StoreError::caused_by(StoreErrorKind::Limit, error)))?;
    match report.is_refused() {
        true if report.is_unanswered() => Err(OpenError::NoServers(report)),
        true => Err(OpenError::Servers(report)),
        false => Ok(report),
    }
}

/// Opens the deployment, and makes it if there is none.
pub(crate) fn open_store(redis: &RedisSettings) -> Result<RedisStore, StoreError> {
    let mut builder = RedisStore::builder(redis.deployment.as_str()).node(redis.node.as_str());
    if let Some(shards) = redis.shards {
        builder = builder.shards(shards);
    }
    block_on(builder.open(&redis.connect))
}

/// Takes the folder for this process, for as long as the file is open.
fn lock(data: &Path) -> Result<File, OpenError> {
    let path = data.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(of(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(data.to_owned())),
        Err(TryLockError::Error(error)) => Err(of(&path)(error)),
    }
}

impl Service {
    /// Opens a service on Redis.
    pub(super) fn open_shared(settings: Settings, redis: &RedisSettings) -> Result<Self, OpenError> {
        let folder = Some(lock(&settings.data)?);
        let report = checked(redis)?;
        let warnings = report.lines().iter().filter(|line| line.grade() == Grade::Warning);
        let mut notices: Vec<Box<str>> = warnings.map(|line| format!("Redis: {line}").into()).collect();
        for (file, what) in [("namespaces.json", "the namespaces are"), ("timers.redb", "the timers are")] {
            let path = settings.data.join(file);
            if path.exists() {
                let path = path.display();
                let name = &redis.deployment;
                notices.push(format!("{path} is not used: {what} in the deployment {name} in Redis").into());
            }
        }
        let store = Arc::new(open_store(redis).map_err(OpenError::Store)?);
        if block_on(store.note(RESTORING)).map_err(OpenError::Store)?.is_some() {
            return Err(OpenError::HalfRestoredDeployment(redis.deployment.as_str().into()));
        }
        let namespaces = Namespaces::open(Shelf::Shared(Arc::clone(&store)))
            .map_err(|error| OpenError::Store(StoreError::caused_by(StoreErrorKind::Io, error)))?;
        Self::begin_on(settings, store, namespaces, Start { notices, folder })
    }

    /// Reads again and again what other nodes have changed, until the service stops.
    pub(super) fn begin_renewing(&self) {
        if !self.namespaces().is_shared() {
            return;
        }
        let (inner, stop) = (Arc::downgrade(&self.0), self.stop().clone());
        drop(tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(RENEWED) => {}
                    () = stop.begun() => return,
                }
                let Some(service) = inner.upgrade().map(Self) else { return };
                // What is known stays while the servers do not answer.
                if service.namespaces().renew().await.unwrap_or(false) {
                    service.deliveries().look_everywhere();
                }
            }
        }));
    }
}
