//! What a server has lost of a deployment: a shard's mark, or the key of the deployment itself.
//!
//! Each shard has a mark, the deployment's id, in its hash `meta`. A server that comes back without its data, or
//! without a part of it, has shards without marks.
//!
//! | found | means | follows |
//! |---|---|---|
//! | a shard has no mark | it is lost | the shard is closed: nobody looks at its timers, and it takes no new ones. The others go on. |
//! | the key of the deployment is gone, and shards have their marks | the registry is lost | the nodes go on with what they know of each other; nobody can open the deployment, and notes are errors |
//! | the key and all marks are gone | the deployment is lost | the store is closed until the deployment is there again, or is made anew by people |
//! | a mark, or the key, has another id | the deployment was created anew | the store is closed, and goes on with the new one only if people say so |
//!
//! [`mend`](crate::RedisBuilder::mend) gives lost shards their marks again, and makes the key of the deployment anew.
//! What was in a lost shard is gone, or is there as far as the server has it: the mark says nothing about that. Nobody
//! mends by itself: whether a backup is to be restored before, people decide.

use crate::connect::Link;
use crate::layout::{Layout, Part, Shard, VERSION};
use crate::shared::{Core, run};
use crate::time::Time;
use crate::values::{Values, bytes, filled, maybe_number};
use core::time::Duration;
use futures_util::future::join_all;
use std::sync::PoisonError;
use std::time::Instant;
use tourbillon_durable::store::{Fault, StoreError, StoreErrorKind};

/// What people can do about a loss.
pub(crate) const WAY: &str = "`tourbillond mend`, or `RedisBuilder::mend`, brings it back";

/// The time for which the answer counts that a part of the deployment is still there.
const MEMORY: Duration = Duration::from_secs(5);

/// The marks of some shards; an error for each group whose server fails.
pub(crate) type Marks = Vec<(Shard, Result<Option<Vec<u8>>, StoreError>)>;

/// Reads the marks of all shards, all groups at the same time.
pub(crate) async fn marks_of(
    link: &dyn Link,
    time: &Time,
    layout: &Layout,
    groups: Vec<Vec<Shard>>,
) -> Marks {
    let calls = groups.into_iter().map(async |group| {
        let keys = group.iter().map(|shard| layout.key(*shard, Part::Meta)).collect();
        let asked = async {
            let (mut answered, _) = run(link, time, |scripts| &scripts.marks, keys, []).await?;
            let mut marks = Values::of(answered.rest.next()?)?;
            group.iter().map(|_| filled(marks.next()?)).collect::<Result<Vec<_>, StoreError>>()
        };
        match asked.await {
            Ok(marks) => group.into_iter().zip(marks.into_iter().map(Ok)).collect::<Marks>(),
            Err(error) => group.into_iter().map(|shard| (shard, Err(error.clone()))).collect(),
        }
    });
    let mut marks: Marks = join_all(calls).await.into_iter().flatten().collect();
    marks.sort_by_key(|(shard, _)| *shard);
    marks
}

/// Some shards, for people.
pub(crate) fn listed(shards: &[Shard]) -> String {
    const MOST: usize = 20;
    let numbers = shards.iter().take(MOST).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let word = if shards.len() == 1 { "shard" } else { "shards" };
    match shards.len() {
        count if count > MOST => format!("{word} {numbers} and {} others", count - MOST),
        _ => format!("{word} {numbers}"),
    }
}

impl Core {
    /// The error of an operation on a shard that has not the deployment's mark, but what was found in its place.
    pub(crate) fn lost_shard(&self, shard: Shard, found: &mut Values) -> StoreError {
        match found.next().and_then(filled) {
            Ok(Some(_)) => self.close("a shard is another deployment's: the deployment was created anew"),
            _ => {
                let message =
                    format!("shard {shard} is lost: its server has not the mark of the deployment; {WAY}");
                StoreError::new(StoreErrorKind::Io, message)
            }
        }
    }

    /// The error of a deployment of which nothing is left, if that is so. Then the store is closed for good.
    pub(crate) async fn gone(&self) -> Option<StoreError> {
        let is_known = {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.is_some_and(|seen| seen.elapsed() < MEMORY)
        };
        if is_known {
            return None;
        }
        let keys = vec![self.deployment.key.clone()];
        let key = run(&*self.link, &self.time, |scripts| &scripts.known, keys, []).await;
        // A server that does not answer has the rest perhaps.
        let version = key.and_then(|(mut answered, _)| maybe_number(answered.rest.next()?));
        let mut is_there = !matches!(version, Ok(None));
        if !is_there {
            let groups = self.groups_of(self.layout.shards());
            let marks = marks_of(&*self.link, &self.time, &self.layout, groups).await;
            let is_own = |mark: &Result<Option<Vec<u8>>, _>| match mark {
                Ok(mark) => mark.as_ref() == Some(&self.deployment.id()),
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

    /// The id of the deployment, if it is there again, or was made anew for the stores that have it open.
    pub(crate) async fn made_again(&self) -> Option<Vec<u8>> {
        let keys = vec![self.deployment.key.clone()];
        let (mut answered, _) =
            run(&*self.link, &self.time, |scripts| &scripts.known, keys, []).await.ok()?;
        let mut next = || answered.rest.next().ok();
        let (version, shards) = (maybe_number(next()?).ok()??, maybe_number(next()?).ok()??);
        let (id, is_anew) = (bytes(next()?).ok()??, maybe_number(next()?).ok()?.is_some());
        if version != VERSION
            || shards != u64::from(self.layout.shards().end)
            || !is_anew && id != self.deployment.id()
        {
            return None;
        }
        let groups = self.groups_of(self.layout.shards());
        let marks = marks_of(&*self.link, &self.time, &self.layout, groups).await;
        let is_other = |mark: &Option<Vec<u8>>| mark.as_ref().is_some_and(|mark| *mark != id);
        let is_mixed = marks.iter().any(|(_, mark)| mark.as_ref().is_ok_and(is_other));
        (!is_mixed).then_some(id)
    }

    /// The faults of a check: shards that are lost, and the key of the deployment.
    pub(crate) async fn losses(&self) -> Result<Vec<Fault>, StoreError> {
        let mut faults = Vec::new();
        let keys = vec![self.deployment.key.clone()];
        let mut key = self.run(|scripts| &scripts.known, keys, []).await?;
        if maybe_number(key.rest.next()?)?.is_none() {
            let fault = format!("the key of the deployment itself is lost; {WAY}");
            faults.push(Fault::new("deployment", None, fault));
        }
        let groups = self.groups_of(self.layout.shards());
        for (shard, mark) in marks_of(&*self.link, &self.time, &self.layout, groups).await {
            match mark? {
                Some(mark) if mark == self.deployment.id() => {}
                Some(_) => {
                    let fault = format!("shard {shard} is another deployment's");
                    faults.push(Fault::new("shards", None, fault));
                }
                None => {
                    let fault = format!("shard {shard} is lost: it has no mark, and its timers wait; {WAY}");
                    faults.push(Fault::new("shards", None, fault));
                }
            }
        }
        Ok(faults)
    }
}
