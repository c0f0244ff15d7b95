//! An open deployment. It runs scripts, and refuses to run them once the servers have lost the deployment's data.
//!
//! | state of the store | begins with | ends with |
//! |---|---|---|
//! | open | the opening; a check | an error of a script: closed, or closed for good |
//! | closed | the data are gone, or are another deployment's | a check finds the deployment again: open; the data have gone back: closed for good |
//! | closed for good | the data have gone back | |
//!
//! A check begins in a call to a closed store, at most once a second, and makes several calls itself. So two checks may
//! be under way. The later check may open the store, and the store may be closed again before the earlier check ends. A
//! check opens the store only if the store is still closed as it was when the check began.

use super::call::{Answered, prepare, send};
use super::parkings::Parkings;
use super::topology::Topology;
use crate::layout::{Layout, Part, Shard};
use crate::link::{Call, Link, is_back, is_gone};
use crate::script::{Arguments, Script, Scripts};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{Alarm, ServerTime, StoreError, StoreErrorKind};

/// The shortest time between two checks whether the deployment of a closed store was restored or recreated.
const LOOKS: Duration = Duration::from_secs(1);

/// A deployment that this process has open, with the connection to its servers.
pub(crate) struct Deployment {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) layout: Layout,
    pub(crate) topology: Topology,
    pub(crate) time: ServerTime,
    pub(crate) alarm: Alarm,
    pub(crate) parkings: Parkings,
    /// The key under which the deployment's own settings are stored.
    pub(crate) key: Vec<u8>,
    /// The key of the hash that stores the deployment's shared documents ([`SharedDocument`](crate::SharedDocument)).
    pub(crate) documents: Vec<u8>,
    /// The id that the deployment got at its creation. It names the version of the layout, and has a random text, which
    /// distinguishes deployments of the same name.
    id: RwLock<Vec<u8>>,
    /// The reason why the store refuses calls: the servers have lost the deployment's data, have the data of another
    /// deployment in its place, or have older data than before. `None` while the store is open.
    closed: Mutex<Option<Closed>>,
    /// The moment at which [`gone`](Self::gone) last found out that the servers still have a part of the deployment.
    /// `None` if that has not happened yet.
    pub(super) seen: Mutex<Option<Instant>>,
    forget: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// The moment from which servers refuse this store's scripts on shards, in milliseconds. `u64::MAX` permits any
    /// moment.
    until: AtomicU64,
}

/// The state of a store that refuses all calls.
struct Closed {
    /// The reason. Each closing has an `Arc` of its own, so a check can distinguish closings with the same text.
    reason: Arc<str>,
    /// The moment at which the closed store last asked the servers whether the deployment was restored or
    /// recreated, or else the moment of the closing. `None` if the store never asks, because it stays closed for
    /// good.
    looked: Option<Instant>,
}

impl Deployment {
    pub(crate) fn new(
        name: &str,
        id: Vec<u8>,
        layout: Layout,
        topology: Topology,
        link: Arc<dyn Link>,
        time: ServerTime,
    ) -> Self {
        Self {
            link,
            layout,
            topology,
            time,
            alarm: Alarm::default(),
            parkings: Parkings::default(),
            key: Layout::deployment(name),
            documents: Layout::documents(name),
            id: RwLock::new(id),
            closed: Mutex::default(),
            seen: Mutex::default(),
            forget: OnceLock::new(),
            until: AtomicU64::new(u64::MAX),
        }
    }

    /// Sets the function that makes the store forget all that it knows about the deployment. The function is called
    /// after an operator has recreated the deployment. Only the first call of this method has an effect.
    pub(crate) fn on_anew(&self, forget: impl Fn() + Send + Sync + 'static) {
        let _first = self.forget.set(Box::new(forget));
    }

    pub(crate) fn id(&self) -> Vec<u8> {
        self.id.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the names of the Redis keys that store `parts` of each shard in `shards`, shard by shard.
    pub(crate) fn keys<const N: usize>(&self, shards: &[Shard], parts: [Part; N]) -> Vec<Vec<u8>> {
        shards.iter().flat_map(|shard| self.layout.keys(*shard, parts)).collect()
    }

    /// Returns all shards, divided into groups of shards that one script can read.
    pub(crate) fn all_groups(&self) -> Vec<Vec<Shard>> {
        self.topology.groups(self.layout.shards())
    }

    /// Runs a script. Fails while the store is closed: in this case the servers have lost the deployment's data, have
    /// the data of another deployment in its place, or have older data than before. So nothing new is written to such
    /// servers.
    pub(crate) fn run(
        &self,
        script: impl Fn(&'static Scripts) -> &'static Script,
        keys: Vec<Vec<u8>>,
        arguments: impl Arguments,
    ) -> impl Future<Output = Result<Answered, StoreError>> {
        self.run_on(None, script, keys, arguments)
    }

    /// Runs a script. `attempt` is the number of an attempt to connect. If it is set, the script is sent only on the
    /// connection that this attempt has made.
    pub(crate) fn run_on(
        &self,
        attempt: Option<u64>,
        script: impl Fn(&'static Scripts) -> &'static Script,
        keys: Vec<Vec<u8>>,
        arguments: impl Arguments,
    ) -> impl Future<Output = Result<Answered, StoreError>> {
        let until = self.until.load(Ordering::Relaxed);
        // The limit is for the timers. The key of the deployment belongs to no shard.
        let is_limited = until != u64::MAX && keys.first() != Some(&self.key);
        let until = is_limited.then_some(UtcMillis::from_millis(until));
        self.send(Call { attempt, ..prepare(&self.time, until, script, keys, arguments) })
    }

    /// Sets the moment from which servers refuse this store's scripts on shards. `None` permits any moment.
    pub(crate) fn work_until(&self, until: Option<UtcMillis>) {
        self.until.store(until.map_or(u64::MAX, UtcMillis::as_millis), Ordering::Relaxed);
    }

    async fn send(&self, call: Call) -> Result<Answered, StoreError> {
        if let Some(error) = self.error_if_closed().await {
            return Err(error);
        }
        let mut result = send(&*self.link, &self.time, call).await;
        // `GONE` may also mean that a single shard or the deployment's key is lost. The store is closed only if nothing
        // of the deployment is left.
        if result.as_ref().is_err_and(is_gone)
            && let Some(gone) = self.gone().await
        {
            result = Err(gone);
        }
        if let Err(error) = &result
            && error.kind() == StoreErrorKind::Closed
        {
            self.note_closed(error);
        }
        let (answered, is_step) = result?;
        if is_step {
            // By the new time, more timers may be due than the runtime knows.
            self.alarm.wake();
        }
        Ok(answered)
    }

    fn closed(&self) -> MutexGuard<'_, Option<Closed>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the store for this reason, and returns the error. Later calls fail with this error until the deployment
    /// is restored or recreated.
    pub(super) fn close(&self, reason: &str) -> StoreError {
        let error = StoreError::new(StoreErrorKind::Closed, reason);
        self.note_closed(&error);
        error
    }

    fn note_closed(&self, error: &StoreError) {
        // If the server's data have gone back in time, the store stays closed for good.
        let looked = Some(Instant::now()).filter(|_| !is_back(error));
        let mut closed = self.closed();
        if closed.is_none() || looked.is_none() {
            *closed = Some(Closed { reason: error.to_string().into(), looked });
        }
    }

    /// Returns the error of a closed store, or `None` while the store is open. At most once a second, asks whether the
    /// deployment was restored or recreated, and reopens the store if so.
    async fn error_if_closed(&self) -> Option<StoreError> {
        let (reason, is_look_due) = {
            let mut closed = self.closed();
            let closed = closed.as_mut()?;
            let is_look_due = closed.looked.is_some_and(|at| at.elapsed() >= LOOKS);
            if is_look_due {
                // The moment is stored before the check, so that other calls do not check at the same time.
                closed.looked = Some(Instant::now());
            }
            (closed.reason.clone(), is_look_due)
        };
        let error = StoreError::new(StoreErrorKind::Closed, &*reason);
        if !is_look_due {
            return Some(error);
        }
        let Some(id) = self.made_again().await else { return Some(error) };
        {
            let mut closed = self.closed();
            // During this check, a later check may have opened the store, and the store may have been closed again.
            let present = &closed.as_ref()?.reason;
            if !Arc::ptr_eq(present, &reason) {
                return Some(StoreError::new(StoreErrorKind::Closed, &**present));
            }
            if self.id() != id {
                *self.id.write().unwrap_or_else(PoisonError::into_inner) = id;
                self.alarm.clear();
                if let Some(forget) = self.forget.get() {
                    forget();
                }
            }
            // The store opens only now, so that no call combines the new id with knowledge about the old deployment.
            *closed = None;
        }
        // While the store was closed, timers may have become due without a claim.
        self.alarm.wake();
        None
    }
}
