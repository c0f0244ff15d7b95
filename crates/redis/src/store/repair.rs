//! Repairs a deployment after a server has lost a part of its data.

use super::builder::{RedisBuilder, SHARDS};
use super::opening::refuse_other_layout;
use crate::deployment::{Marks, REMEDY, Topology, listed, marks_of, run};
use crate::layout::{Layout, MOST_SHARDS, Part, Shard, VERSION, fresh_deployment_id, version_in};
use crate::link::{Connect, Link, Session};
use crate::script::bytes;
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use tourbillon_durable::store::{ServerTime, StoreError, StoreErrorKind};

/// The result of [`RedisBuilder::mend`] or [`RedisBuilder::make_anew`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mended {
    /// The number of shards of the deployment.
    pub shards: u16,
    /// The shards that were lost and belong to the deployment again.
    pub marked: Vec<u16>,
    /// True if the Redis key with the properties of the deployment was lost and has been recreated. The shared
    /// documents and the list of the nodes have keys of their own on the same server, so they may be lost as well.
    pub has_made_key: bool,
    /// The shards whose servers have not answered.
    pub silent: Vec<u16>,
}

impl RedisBuilder {
    /// Brings lost shards of the deployment back, and recreates the deployment's key if it is lost. This Redis key
    /// stores the properties of the deployment, such as its number of shards.
    ///
    /// Each shard stores the id of the deployment. A shard is lost if this id is missing, for example because its
    /// server was restarted without its data. After this call, the shards take timers again, and still have all data
    /// that their servers have kept. The nodes find the shards at their next poll. The call changes nothing if nothing
    /// is lost, and never removes data. The future can be polled without a runtime.
    ///
    /// The call does not bring lost data back. If the server has a backup, restore it before this call.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Limit`] if the deployment does not exist, or if no connection can work with the
    /// settings. Fails with [`StoreErrorKind::Corrupt`] if the shards have the ids of different deployments. Fails with
    /// [`StoreErrorKind::NewerSchema`] or [`StoreErrorKind::OlderSchema`] if a version with another layout has created
    /// the deployment. Also fails if no server answers.
    pub async fn mend(&self, connect: &Connect) -> Result<Mended, StoreError> {
        let session =
            Session::open(connect).map_err(|error| StoreError::caused_by(StoreErrorKind::Limit, error))?;
        let time = self.clock.clone().map_or_else(ServerTime::new, ServerTime::of_test);
        let key = Layout::deployment(&self.name);
        let (mut known, _) = run(&session, &time, |scripts| &scripts.deployment, vec![key], []).await?;
        let version = known.rest.maybe_number()?;
        let (count, id) = (known.rest.maybe_number()?, bytes(known.rest.next()?)?);
        let count = count.and_then(|count| u16::try_from(count).ok());
        let topology = Topology::new(connect.is_cluster());
        // The key has the number of shards. Without the key, each possible number of shards is tried, and the number
        // with which most marks are found counts.
        let counts = count.map_or_else(|| self.counts(), |count| vec![count]);
        let mut best: Option<(usize, Layout, Marks)> = None;
        for count in counts {
            // The stored number may be damaged, and this call does not check the number in the builder.
            let layout = Layout::new(&self.name, count.clamp(1, MOST_SHARDS));
            let marks = marks_of(&session, &time, &layout, topology.groups(layout.shards())).await;
            let found = marks.iter().filter(|(_, mark)| matches!(mark, Ok(Some(_)))).count();
            if best.as_ref().is_none_or(|(most, ..)| found > *most) {
                best = Some((found, layout, marks));
            }
        }
        let Some((_, layout, marks)) = best else {
            // `counts` is never empty, so this does not happen.
            return Err(StoreError::new(StoreErrorKind::Limit, "there are no shards"));
        };
        let mut ids: BTreeMap<&[u8], usize> = BTreeMap::new();
        for (_, mark) in &marks {
            if let Ok(Some(mark)) = mark {
                *ids.entry(mark.as_slice()).or_default() += 1;
            }
        }
        let id = match (id.filter(|id| !id.is_empty()), ids.len()) {
            (Some(id), _) => id,
            (None, 1) => ids.keys().map(|id| id.to_vec()).next().unwrap_or_default(),
            (None, 0) => {
                let message = format!(
                    "no server that answers has a shard of the deployment {}: if all of it is lost, `tourbillond mend \
                     --anew`, or `RedisBuilder::make_anew`, makes it again, empty",
                    self.name
                );
                return Err(StoreError::new(StoreErrorKind::Limit, message));
            }
            (None, _) => {
                let message =
                    "the key of the deployment is lost, and its shards have marks of several deployments";
                return Err(StoreError::new(StoreErrorKind::Corrupt, message));
            }
        };
        // All marks are compared before the first write. In a cluster each shard is marked by a script of its own, so a
        // later refusal would leave some of the shards marked.
        if ids.keys().any(|other| *other != id) {
            let message = "some shards have the mark of another deployment of this name";
            return Err(StoreError::new(StoreErrorKind::Corrupt, message));
        }
        // This program does not know the parts of another layout. A key that is there names the version, even if the id
        // does not.
        let Some(version) = version.or_else(|| version_in(&id)) else {
            let message = "the key of the deployment is lost, and the ids in its shards do not name the version of the \
                           layout, so an older version has created it: restore a backup of the server";
            return Err(StoreError::new(StoreErrorKind::OlderSchema, message));
        };
        refuse_other_layout(version)?;
        let mut mended = Mended { shards: layout.shards().end, ..Mended::default() };
        // A server that does not answer may still have its marks, so its shards do not count as lost.
        let silent = marks.iter().filter(|(_, mark)| mark.is_err());
        mended.silent = silent.map(|(shard, _)| *shard).collect();
        let lost: BTreeSet<Shard> =
            marks.iter().filter(|(_, mark)| matches!(mark, Ok(None))).map(|(shard, _)| *shard).collect();
        mark(&session, &time, &layout, topology, &lost, &id).await?;
        if count.is_none() {
            // Open stores know this id, so they go on without the field `anew`.
            self.make_key(&session, &time, &layout, &id, false).await?;
            mended.has_made_key = true;
        }
        mended.marked = lost.into_iter().collect();
        Ok(mended)
    }

    /// Recreates the deployment, empty, after the servers have lost all data of the deployment. The deployment gets the
    /// number of shards that is set, or [`SHARDS`](crate::SHARDS). Stores that had the former deployment open go on
    /// with the new deployment within seconds, if the numbers of shards are equal. Another process may open the
    /// deployment before this call, and so create it. In that case this call creates nothing, and the stores go on with
    /// that deployment.
    ///
    /// The stored timers remain lost. If the server has a backup, restore it instead of this call. The future can be
    /// polled without a runtime.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Limit`] if a part of a deployment of this name still exists. [`mend`](Self::mend)
    /// brings such a deployment back. Fails with the same kind if no connection can work with the settings. Also fails
    /// if a server does not answer, because that server may have a part of the deployment.
    pub async fn make_anew(&self, connect: &Connect) -> Result<Mended, StoreError> {
        let limit = |message: String| StoreError::new(StoreErrorKind::Limit, message);
        let session =
            Session::open(connect).map_err(|error| StoreError::caused_by(StoreErrorKind::Limit, error))?;
        let time = self.clock.clone().map_or_else(ServerTime::new, ServerTime::of_test);
        let key = Layout::deployment(&self.name);
        let (mut known, _) =
            run(&session, &time, |scripts| &scripts.deployment, vec![key.clone()], []).await?;
        let _version = known.rest.next()?;
        let (count, known) = (known.rest.maybe_number()?, bytes(known.rest.next()?)?);
        let shards = count.and_then(|count| u16::try_from(count).ok()).or(self.shards).unwrap_or(SHARDS);
        if !shards.is_power_of_two() || shards > MOST_SHARDS {
            return Err(limit(format!("{shards} shards are not a power of two of at most {MOST_SHARDS}")));
        }
        let (layout, topology) = (Layout::new(&self.name, shards), Topology::new(connect.is_cluster()));
        // Without its key, a deployment may be there with another number of shards.
        let counts = if count.is_some() { vec![shards] } else { self.counts() };
        let mut is_whole = true;
        for count in counts {
            let layout = Layout::new(&self.name, count);
            for (_, mark) in marks_of(&session, &time, &layout, topology.groups(layout.shards())).await {
                is_whole &= mark? == known;
            }
        }
        if !is_whole {
            return Err(limit(format!("a part of the deployment {} is there: {REMEDY}", self.name)));
        }
        let mut made = Mended { shards, ..Mended::default() };
        if let Some(id) = known {
            // The deployment is whole, for example because another process has created it by opening it. The argument
            // `1` sets the field `anew`, without which the stores of the former deployment stay closed.
            let _noted =
                run(&session, &time, |scripts| &scripts.ready, vec![key], [id, b"1".to_vec()]).await?;
            return Ok(made);
        }
        let (id, all) = (fresh_deployment_id(), layout.shards().collect());
        mark(&session, &time, &layout, topology, &all, &id).await?;
        self.make_key(&session, &time, &layout, &id, true).await?;
        (made.marked, made.has_made_key) = (all.into_iter().collect(), true);
        Ok(made)
    }

    /// Creates the key of the deployment. The shards already have the deployment's id. So a process that finds the key
    /// also finds this id in the shards. The deployment has this program's layout.
    async fn make_key(
        &self,
        session: &Session,
        time: &ServerTime,
        layout: &Layout,
        id: &[u8],
        is_anew: bool,
    ) -> Result<(), StoreError> {
        let kind = if self.clock.is_some() { "test" } else { "server" };
        let key = Layout::deployment(&self.name);
        let mut words = [VERSION.to_string(), layout.shards().end.to_string(), kind.to_owned()]
            .map(String::into_bytes)
            .to_vec();
        words.extend([id.to_vec(), Layout::channel(&self.name)]);
        words.extend(is_anew.then(|| b"1".to_vec()));
        // The answer is not needed: if another process has created the key with another id, `ready` fails. Without
        // `ready`, the next process that opens the deployment would mark all shards, and so bring back lost shards
        // unasked.
        let _made = run(session, time, |scripts| &scripts.open, vec![key.clone()], words).await?;
        run(session, time, |scripts| &scripts.ready, vec![key], [id.to_vec()]).await.map(drop)
    }

    /// Returns a line for each loss of the deployment's data. `count` is the deployment's number of shards, if it is
    /// known.
    pub(crate) async fn losses(
        &self,
        session: &Session,
        count: Option<u16>,
        topology: Topology,
    ) -> Vec<String> {
        let count = count.or(self.shards).unwrap_or(SHARDS);
        // The script only returns stored values, so the kind of clock makes no difference.
        let (layout, time) = (Layout::new(&self.name, count.clamp(1, MOST_SHARDS)), ServerTime::new());
        let marks = marks_of(session, &time, &layout, topology.groups(layout.shards())).await;
        let those = |is_meant: &dyn Fn(&Option<Vec<u8>>) -> bool| -> Vec<Shard> {
            let known = marks.iter().filter_map(|(shard, mark)| Some((*shard, mark.as_ref().ok()?)));
            known.filter(|(_, mark)| is_meant(mark)).map(|(shard, _)| shard).collect()
        };
        let (lost, there) = (those(&|mark| mark.is_none()), those(&|mark| mark.is_some()));
        let mut lines = Vec::new();
        // A deployment that was not created yet has no marks either. So without any mark, no shard counts as lost.
        if !lost.is_empty() && !there.is_empty() {
            lines.push(format!(
                "{} of {count}: lost by the server; timers there are not delivered, and new timers are refused; {REMEDY}",
                listed(&lost)
            ));
        }
        lines
    }

    /// Returns whether any shard has the id of a deployment with this name. If the deployment's key is missing although
    /// there is such a shard, the servers have lost the key.
    pub(crate) async fn has_marked_shard(&self, link: &dyn Link, time: &ServerTime) -> bool {
        let topology = Topology::new(link.is_cluster());
        let reads = self.counts().into_iter().map(async |count| {
            let layout = Layout::new(&self.name, count);
            marks_of(link, time, &layout, topology.groups(layout.shards())).await
        });
        let marks = join_all(reads).await;
        marks.into_iter().flatten().any(|(_, mark)| matches!(mark, Ok(Some(_))))
    }

    /// Returns the numbers of shards that a deployment of this name may have if its key does not say the number: the
    /// number that is set, or else all possible numbers.
    fn counts(&self) -> Vec<u16> {
        match self.shards {
            Some(count) => vec![count.clamp(1, MOST_SHARDS)],
            None => (0..=MOST_SHARDS.ilog2()).map(|power| 1 << power).collect(),
        }
    }
}

/// Writes the deployment's id into the shards in `lost`, so that they belong to the deployment again.
async fn mark(
    session: &Session,
    time: &ServerTime,
    layout: &Layout,
    topology: Topology,
    lost: &BTreeSet<Shard>,
    id: &[u8],
) -> Result<(), StoreError> {
    for group in topology.groups(layout.shards()) {
        let keys: Vec<_> = group
            .into_iter()
            .filter(|shard| lost.contains(shard))
            .map(|shard| layout.key(shard, Part::Meta))
            .collect();
        if !keys.is_empty() {
            let _marked = run(session, time, |scripts| &scripts.mark_shards, keys, [id.to_vec()]).await?;
        }
    }
    Ok(())
}
