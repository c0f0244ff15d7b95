//! A service whose timers are in Redis, beside other nodes.
//!
//! What the nodes share is in the deployment: timers, schedules, and the namespaces with their limits and secrets. The
//! other files are each node's own: tokens, which are configuration, operations that have not ended, and the history.

use super::deployment::{RESTORING, checked, open_store};
use super::namespaces::Namespaces;
use super::open_error::{OpenError, of};
use super::shelf::Shelf;
use super::takeovers::Takeovers;
use super::{Service, Start};
use crate::settings::{RedisSettings, Settings};
use core::time::Duration;
use pollster::block_on;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::sync::Arc;
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_redis::Grade;

/// The time between two reads of what other nodes have changed.
const RENEWED: Duration = Duration::from_secs(1);

/// The number of these times between two looks for operations of nodes that are gone.
const TURNS_OF_OPERATIONS: u32 = 3;

/// The number of these times between two looks for shards that this node has taken over.
const TURNS_OF_TAKEOVERS: u32 = 5;

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
        if block_on(store.document(RESTORING)).map_err(OpenError::Store)?.is_some() {
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
            let mut takeovers = Takeovers::default();
            for turn in 0_u32.. {
                tokio::select! {
                    () = tokio::time::sleep(RENEWED) => {}
                    () = stop.begun() => return,
                }
                let Some(service) = inner.upgrade().map(Self) else { return };
                if turn % TURNS_OF_OPERATIONS == 0 {
                    service.take_operations_over().await;
                }
                if turn % TURNS_OF_TAKEOVERS == 0
                    && let Ok(Some(nodes)) = service.stored_nodes().await
                {
                    takeovers.look(&nodes);
                }
                let before = service.namespaces().all();
                // What is known stays while the servers do not answer.
                if service.namespaces().renew().await.unwrap_or(false) {
                    let now = service.namespaces().all();
                    now.keys()
                        .filter(|name| !before.contains_key(*name))
                        .for_each(|name| service.flights().forget(name));
                    service.deliveries().look_everywhere();
                }
            }
        }));
    }
}
