//! Detects losses of a deployment's data: the mark of a shard, or the key of the deployment itself.
//!
//! Each shard has a mark, the deployment's id, in its hash `meta`. A server that comes back without its data, or
//! without a part of them, has shards without marks.
//!
//! | found | meaning | consequence |
//! |---|---|---|
//! | a shard has no mark | the shard is *lost*: its server has lost the shard's data, or a part of them | the shard is closed: nobody looks at its timers, and it takes no new timers. The other shards go on. |
//! | the key of the deployment is gone, and shards have their marks | the registry is lost | the nodes go on with the nodes that they know. Nobody can open the deployment, and calls for shared documents fail. |
//! | the key and all marks are gone | the servers have lost all data of the deployment | the store is closed until the deployment is there again, or is made anew by people |
//! | a mark, or the key, has another id | the deployment was created anew | the store is closed, and goes on with the new deployment only if people say so |
//!
//! [`mend`](crate::RedisBuilder::mend) gives lost shards their marks again, and recreates the key of the deployment.
//! The mark does not show how much of its data a lost shard still has. No process mends by itself, since people decide
//! whether to restore a backup first.

use super::call::run;
use super::handle::Deployment;
use super::marks::{REMEDY, marks_of};
use crate::layout::{Shard, VERSION};
use crate::script::{Values, bytes, filled, maybe_number};
use core::time::Duration;
use std::sync::PoisonError;
use std::time::Instant;
use tourbillon_durable::store::{Fault, StoreError, StoreErrorKind};

/// The time for which a deployment counts as present after a check has found a part of it.
const MEMORY: Duration = Duration::from_secs(5);

impl Deployment {
    /// Returns the error of an operation on a shard whose mark is missing or wrong. The mark of a shard is the id
    /// of its deployment. The next value of `found` is the value that the shard stores in place of the mark. If
    /// this value is the id of another deployment, closes the store.
    pub(crate) fn lost_shard(&self, shard: Shard, found: &mut Values) -> StoreError {
        match found.next().and_then(filled) {
            Ok(Some(_)) => self.close("a shard is another deployment's: the deployment was created anew"),
            _ => {
                let message =
                    format!("shard {shard} is lost: its server has not the mark of the deployment; {REMEDY}");
                StoreError::new(StoreErrorKind::Io, message)
            }
        }
    }

    /// Checks whether the servers have lost all data of the deployment. If so, closes the store and returns the error.
    /// Otherwise, returns `None`.
    pub(crate) async fn gone(&self) -> Option<StoreError> {
        // While all shards of a node are lost, each claim and each poll of the node calls this method. Without the
        // memory, each call would ask all servers.
        let is_known = {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.is_some_and(|seen| seen.elapsed() < MEMORY)
        };
        if is_known {
            return None;
        }
        let keys = vec![self.key.clone()];
        // The method `Deployment::run` itself calls this check, so the check uses the function `run`.
        let key = run(&*self.link, &self.time, |scripts| &scripts.deployment, keys, []).await;
        // A server that does not answer may still have a part of the deployment.
        let version = key.and_then(|(mut answered, _)| maybe_number(answered.rest.next()?));
        let mut is_there = !matches!(version, Ok(None));
        if !is_there {
            let groups = self.topology.groups(self.layout.shards());
            let marks = marks_of(&*self.link, &self.time, &self.layout, groups).await;
            let is_own = |mark: &Result<Option<Vec<u8>>, _>| match mark {
                Ok(mark) => mark.as_ref() == Some(&self.id()),
                Err(_) => true,
            };
            is_there = marks.iter().any(|(_, mark)| is_own(mark));
        }
        if is_there {
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            return None;
        }
        Some(self.close("the deployment is gone: its server has lost it; restore a backup, or make it again, empty, by `tourbillond mend --anew`, or `RedisBuilder::make_anew`"))
    }

    /// Returns the id of the deployment if it exists again, and `None` otherwise. The id differs from the store's id
    /// only if people have recreated the deployment with [`make_anew`](crate::RedisBuilder::make_anew).
    pub(crate) async fn made_again(&self) -> Option<Vec<u8>> {
        let keys = vec![self.key.clone()];
        // The method `Deployment::run` refuses all calls while the store is closed, so this check uses the function
        // `run`.
        let (mut answered, _) =
            run(&*self.link, &self.time, |scripts| &scripts.deployment, keys, []).await.ok()?;
        let mut next = || answered.rest.next().ok();
        let (version, shards) = (maybe_number(next()?).ok()??, maybe_number(next()?).ok()??);
        let (id, is_anew) = (bytes(next()?).ok()??, maybe_number(next()?).ok()?.is_some());
        // Callers were promised that the timers of the old deployment are stored. So the store goes on with another
        // deployment only if people have recreated it (`is_anew`), and not if a process has created it by opening it.
        if version != VERSION || shards != u64::from(self.layout.shards().end) || !is_anew && id != self.id()
        {
            return None;
        }
        let groups = self.topology.groups(self.layout.shards());
        let marks = marks_of(&*self.link, &self.time, &self.layout, groups).await;
        // A shard with another id would close the store again at the next claim. A shard without a mark closes only
        // itself.
        let is_other = |mark: &Option<Vec<u8>>| mark.as_ref().is_some_and(|mark| *mark != id);
        let is_mixed = marks.iter().any(|(_, mark)| mark.as_ref().is_ok_and(is_other));
        (!is_mixed).then_some(id)
    }

    /// Returns a fault for each shard whose data its server has lost, and a fault for the key of the deployment if the
    /// key is lost.
    pub(crate) async fn losses(&self) -> Result<Vec<Fault>, StoreError> {
        let mut faults = Vec::new();
        let keys = vec![self.key.clone()];
        let mut key = self.run(|scripts| &scripts.deployment, keys, []).await?;
        if key.rest.maybe_number()?.is_none() {
            let fault = format!("the key of the deployment itself is lost; {REMEDY}");
            faults.push(Fault::new("deployment", None, fault));
        }
        let groups = self.topology.groups(self.layout.shards());
        for (shard, mark) in marks_of(&*self.link, &self.time, &self.layout, groups).await {
            match mark? {
                Some(mark) if mark == self.id() => {}
                Some(_) => {
                    let fault = format!("shard {shard} is another deployment's");
                    faults.push(Fault::new("shards", None, fault));
                }
                None => {
                    let fault =
                        format!("shard {shard} is lost: it has no mark, and its timers wait; {REMEDY}");
                    faults.push(Fault::new("shards", None, fault));
                }
            }
        }
        Ok(faults)
    }
}
