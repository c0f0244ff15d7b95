//! A deployment that is open: it runs scripts, and refuses to once the deployment is lost.

use super::alarm::Alarm;
use super::call::{Answered, Call, send};
use super::time::Time;
use super::topology::Topology;
use crate::layout::{Layout, Part, Shard};
use crate::link::{Link, is_back, is_gone};
use crate::script::{Arguments, Script, Scripts};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;
use tourbillon_durable::store::{StoreError, StoreErrorKind};

/// The pause between two looks whether people have made a lost deployment again.
const LOOKS: Duration = Duration::from_secs(1);

/// A deployment, and the connection to its servers.
pub(crate) struct Deployment {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) layout: Layout,
    pub(crate) topology: Topology,
    pub(crate) time: Time,
    pub(crate) alarm: Alarm,
    /// The key of the deployment itself.
    pub(crate) key: Vec<u8>,
    /// The hash of its shared documents.
    pub(crate) documents: Vec<u8>,
    /// Drawn when the deployment was created. It tells the deployment from others of the same name.
    id: RwLock<Vec<u8>>,
    /// Set while the server has lost the deployment, or has another deployment in its place.
    closed: Mutex<Option<Closed>>,
    /// The last moment at which a part of the deployment was still there although other parts were lost.
    pub(super) seen: Mutex<Option<Instant>>,
    forget: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Why a store is closed.
struct Closed {
    reason: Box<str>,
    /// The last look whether the deployment was made again; `None` if the store stays closed.
    looked: Option<Instant>,
}

impl Deployment {
    /// The deployment of this name and this id.
    pub(crate) fn new(
        name: &str,
        id: Vec<u8>,
        layout: Layout,
        topology: Topology,
        link: Arc<dyn Link>,
        time: Time,
    ) -> Self {
        Self {
            link,
            layout,
            topology,
            time,
            alarm: Alarm::default(),
            key: Layout::deployment(name),
            documents: Layout::documents(name),
            id: RwLock::new(id),
            closed: Mutex::default(),
            seen: Mutex::default(),
            forget: OnceLock::new(),
        }
    }

    /// Sets the function by which the parts of the store forget their knowledge, when the deployment was made anew. It
    /// is set once, when the store is assembled.
    pub(crate) fn on_anew(&self, forget: impl Fn() + Send + Sync + 'static) {
        let _first = self.forget.set(Box::new(forget));
    }

    /// The deployment's id.
    pub(crate) fn id(&self) -> Vec<u8> {
        self.id.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The keys of some parts of some shards, for scripts that look at many shards of one server.
    pub(crate) fn keys<const N: usize>(&self, shards: &[Shard], parts: [Part; N]) -> Vec<Vec<u8>> {
        shards.iter().flat_map(|shard| self.layout.keys(*shard, parts)).collect()
    }

    /// All shards, by the scripts that may name their keys.
    pub(crate) fn all_groups(&self) -> Vec<Vec<Shard>> {
        self.topology.groups(self.layout.shards())
    }

    /// Runs a script. Fails once a call has found that the deployment is lost, until it is made again: new data would
    /// be in shards that belong to no deployment.
    pub(crate) async fn run(
        &self,
        script: impl Fn(&'static Scripts) -> &'static Script,
        keys: Vec<Vec<u8>>,
        arguments: impl Arguments,
    ) -> Result<Answered, StoreError> {
        self.send(Call { script, keys, attempt: None }, arguments).await
    }

    /// Runs a script on the connection that this attempt has made. On another connection the script is not sent.
    pub(crate) async fn run_on(
        &self,
        attempt: Option<u64>,
        script: impl Fn(&'static Scripts) -> &'static Script,
        keys: Vec<Vec<u8>>,
        arguments: impl Arguments,
    ) -> Result<Answered, StoreError> {
        self.send(Call { script, keys, attempt }, arguments).await
    }

    async fn send(
        &self,
        call: Call<impl Fn(&'static Scripts) -> &'static Script>,
        arguments: impl Arguments,
    ) -> Result<Answered, StoreError> {
        if let Some(error) = self.error_if_closed().await {
            return Err(error);
        }
        let mut result = send(&*self.link, &self.time, call, arguments).await;
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
            // By the new time, more timers may be due than the runtime knows of.
            self.alarm.wake();
        }
        Ok(answered)
    }

    fn closed(&self) -> MutexGuard<'_, Option<Closed>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the store. Returns the error of the call that has found out why, and of all calls that follow until the
    /// deployment is made again.
    pub(super) fn close(&self, reason: &str) -> StoreError {
        let error = StoreError::new(StoreErrorKind::Closed, reason);
        self.note_closed(&error);
        error
    }

    fn note_closed(&self, error: &StoreError) {
        // Data that have gone back are refused for good.
        let looked = Some(Instant::now()).filter(|_| !is_back(error));
        self.closed().get_or_insert_with(|| Closed { reason: error.to_string().into(), looked });
    }

    /// The error of a store that is closed. Looks from time to time whether people have made the deployment again.
    async fn error_if_closed(&self) -> Option<StoreError> {
        let (reason, is_look_due) = {
            let mut closed = self.closed();
            let closed = closed.as_mut()?;
            let is_look_due = closed.looked.is_some_and(|at| at.elapsed() >= LOOKS);
            if is_look_due {
                closed.looked = Some(Instant::now());
            }
            (closed.reason.clone(), is_look_due)
        };
        let error = StoreError::new(StoreErrorKind::Closed, reason);
        if !is_look_due {
            return Some(error);
        }
        let Some(id) = self.made_again().await else { return Some(error) };
        if self.id() != id {
            *self.id.write().unwrap_or_else(PoisonError::into_inner) = id;
            self.alarm.clear();
            if let Some(forget) = self.forget.get() {
                forget();
            }
        }
        *self.closed() = None;
        self.alarm.wake();
        None
    }
}
