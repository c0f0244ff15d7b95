//! Opens a deployment, or creates it.

use super::builder::{RedisBuilder, SHARDS};
use super::redis_store::RedisStore;
use crate::deployment::{Deployment, REMEDY, Topology, run};
use crate::examine::{Plan, Report, dangers, examine, unless_misfit};
use crate::layout::{Layout, MOST_SHARDS, Part, VERSION, fresh_deployment_id};
use crate::link::{Connect, ConnectError, Link, Session};
use crate::node::{Node, Settings};
use crate::script::maybe_number;
use crate::upkeep::start;
use futures_util::future::try_join_all;
use std::sync::Arc;
use tourbillon_durable::store::dry_run::RECORD_VERSION;
use tourbillon_durable::store::{ServerTime, StoreError, StoreErrorKind};

/// All versions of the layout, each with the version of its records. Programs of two versions can share a deployment if
/// they have the same layout. So an existing row never changes: a new version of the records needs a new layout, in a
/// new row.
const LAYOUTS: [(u64, u8); 5] = [(2, 2), (3, 3), (4, 3), (5, 3), (6, 4)];

const _: () = {
    let mut row = 1;
    while row < LAYOUTS.len() {
        assert!(LAYOUTS[row - 1].0 < LAYOUTS[row].0, "each layout has one row");
        row += 1;
    }
    let (layout, records) = LAYOUTS[LAYOUTS.len() - 1];
    assert!(
        layout == VERSION && records == RECORD_VERSION,
        "other records, or another layout, are a new row"
    );
};

impl RedisBuilder {
    /// Checks the servers as [`check`](crate::check()) does, and also the deployment on them: the version of its
    /// layout, lost data, and how evenly its shards lie on a cluster. Creates nothing. The future can be polled without
    /// a runtime.
    ///
    /// # Errors
    ///
    /// Fails if no connection can work with the settings.
    pub async fn check(&self, connect: &Connect) -> Result<Report, ConnectError> {
        let session = Session::open(connect)?;
        let report = unless_misfit(&session, self.report(&session, connect)).await;
        Ok(report.unwrap_or_else(Report::of_misfit))
    }

    async fn report(&self, session: &Session, connect: &Connect) -> Report {
        let keys = vec![Layout::deployment(&self.name)];
        // The scripts of this check only return stored values. So they work for a deployment on a test clock, too.
        let known = run(session, &ServerTime::new(), |scripts| &scripts.deployment, keys, []).await;
        let mut plan = Plan::default();
        // If the servers do not answer, the report says so in a line.
        if let Ok((mut answered, _)) = known {
            let mut stored = || maybe_number(answered.rest.next().ok()?).ok()?;
            let (version, shards) = (stored(), stored());
            let shards = shards.and_then(|shards| u16::try_from(shards).ok());
            plan.losses = self.losses(session, shards, Topology::new(connect.is_cluster())).await;
            if version.is_none() && self.has_marked_shard(session, &ServerTime::new()).await {
                plan.refusals
                    .push(format!("the key of the deployment {} itself is lost; {REMEDY}", self.name));
            }
            plan.layout = Some((version, VERSION));
            let shards = shards.or(self.shards).unwrap_or(SHARDS);
            // The stored number of shards may be damaged.
            plan.tags = Layout::new(&self.name, shards.min(MOST_SHARDS)).tags().map(<[u8]>::to_vec).collect();
        }
        examine(session, connect, &plan).await
    }

    /// Opens the deployment on the servers that `connect` names. The future can be polled without a runtime.
    ///
    /// The servers are checked first. A server on which timers would be unsafe is refused. Such a server has an old
    /// version, a `maxmemory-policy` that evicts, or a clock that differs from this machine's by a second, for example.
    /// With [`unchecked`](Self::unchecked), no such server is refused. A server that does not answer is not checked.
    /// Servers that do not fit the settings are always refused, such as a single server that is named as a cluster.
    /// [`check`](Self::check) checks more, and reports all that it finds.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Limit`] if a server is refused, if the name or the number of shards is invalid, or
    /// if the deployment has a different number of shards or kind of clock. Fails with [`StoreErrorKind::NewerSchema`]
    /// or [`StoreErrorKind::OlderSchema`] if a version with another layout has created the deployment. Also fails if
    /// the server cannot be reached.
    pub async fn open(self, connect: &Connect) -> Result<RedisStore, StoreError> {
        let session =
            Session::open(connect).map_err(|error| StoreError::caused_by(StoreErrorKind::Io, error))?;
        let session = Arc::new(session);
        let opening = self.open_checked(Arc::clone(&session), connect);
        unless_misfit(&session, opening).await.unwrap_or_else(|reason| Err(limit(reason)))
    }

    async fn open_checked(self, session: Arc<Session>, connect: &Connect) -> Result<RedisStore, StoreError> {
        if !self.is_unchecked {
            let dangers = match dangers(&session, connect, self.clock.is_none()).await {
                Ok(dangers) => dangers,
                // If the servers do not answer here, the opening itself returns the error.
                Err(error) if error.code().is_none() => Vec::new(),
                Err(error) => return Err(error.into()),
            };
            if !dangers.is_empty() {
                let message = format!("the servers are refused: {}", dangers.join("; "));
                return Err(StoreError::new(StoreErrorKind::Limit, message));
            }
        }
        self.open_on(session).await
    }

    /// Returns whether the key of the deployment is lost although shards of it exist. If so, no new deployment may be
    /// created, because the old shards would not belong to it.
    async fn has_lost_key(&self, link: &dyn Link, time: &ServerTime) -> Result<bool, StoreError> {
        let is_known = async || {
            let keys = vec![Layout::deployment(&self.name)];
            let (mut answered, _) = run(link, time, |scripts| &scripts.deployment, keys, []).await?;
            Ok::<_, StoreError>(answered.rest.maybe_number()?.is_some())
        };
        // The key is read again after the shards, since another process may have created the deployment since the first
        // read.
        Ok(!is_known().await? && self.has_marked_shard(link, time).await && !is_known().await?)
    }

    /// Opens the deployment on this connection. Waits until the server has answered.
    pub(crate) async fn open_on(self, link: Arc<dyn Link>) -> Result<RedisStore, StoreError> {
        let settings = self.admit()?;
        let time = self.clock.clone().map_or_else(ServerTime::new, ServerTime::of_test);
        // `open_key` would create the missing key, so this check comes first.
        if self.has_lost_key(&*link, &time).await? {
            let message = format!(
                "the key of the deployment {} itself is lost, and shards of it are there; {REMEDY}",
                self.name
            );
            return Err(StoreError::new(StoreErrorKind::Corrupt, message));
        }
        let Opened { shards, id, is_ready } = self.open_key(&*link, &time).await?;
        let layout = Layout::new(&self.name, shards);
        #[cfg(test)]
        let layout = match self.key_sets {
            Some(key_sets) => layout.with_key_sets(key_sets),
            None => layout,
        };
        let topology = Topology::new(link.is_cluster());
        #[cfg(test)]
        let topology = if self.is_split { Topology::Cluster } else { topology };
        let deployment = Arc::new(Deployment::new(&self.name, id, layout, topology, link, time));
        if !is_ready {
            // The shards lack the deployment's id. This process has just created the deployment, or another process has
            // stopped before it wrote all ids.
            mark_shards(&deployment).await?;
        }
        let node = Arc::new(Node::new(Arc::clone(&deployment), &self.name, settings));
        let store = RedisStore::assemble(deployment, node);
        if let Some(clock) = self.clock {
            // The clock may outlive the store, so it must not keep the node alive. The result `false` unsubscribes the
            // function.
            let on_step = Arc::downgrade(&store.node);
            let stepped = |node: &Arc<Node>| {
                node.bell.ring();
                node.wake();
            };
            clock.subscribe(Box::new(move || on_step.upgrade().inspect(stepped).is_some()));
        }
        if self.poll.is_some() {
            start(&store.upkeep)?;
        }
        Ok(store)
    }

    /// Checks all settings of the builder, and returns the settings of the node.
    fn admit(&self) -> Result<Settings, StoreError> {
        // The name is a part of the hash tags of all keys. A brace in the name would end a tag early.
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=64).contains(&self.name.len()) || !self.name.bytes().all(is_fit) {
            return Err(limit(format!(
                "{:?} cannot be the name of a deployment: 1 to 64 of A-Z, a-z, 0-9, -, _ and .",
                self.name
            )));
        }
        let shards = self.shards.unwrap_or(SHARDS);
        if !shards.is_power_of_two() || shards > MOST_SHARDS {
            return Err(limit(format!("{shards} shards are not a power of two of at most {MOST_SHARDS}")));
        }
        let settings = Settings {
            name: self.node.clone(),
            ttl: self.ttl,
            poll: self.poll,
            may_lose: self.may_lose,
            on_set_back: self.on_set_back.clone(),
        };
        settings.admit()?;
        Ok(settings)
    }

    /// Reads the key of the deployment, or creates it. Fails if the deployment does not fit the settings.
    async fn open_key(&self, link: &dyn Link, time: &ServerTime) -> Result<Opened, StoreError> {
        let shards = self.shards.unwrap_or(SHARDS);
        let kind = if self.clock.is_some() { "test" } else { "server" };
        // The script uses the first four values only if it creates the deployment. It publishes a message on the
        // channel first, so that a user without this permission is refused before anything is stored.
        let mut arguments =
            [VERSION.to_string(), shards.to_string(), kind.to_owned()].map(String::into_bytes).to_vec();
        arguments.extend([fresh_deployment_id(), Layout::channel(&self.name)]);
        let keys = vec![Layout::deployment(&self.name)];
        let (answered, _) = run(link, time, |scripts| &scripts.open, keys, arguments).await?;
        let mut rest = answered.rest;
        let version = rest.number()?;
        refuse_other_layout(version)?;
        let stored = rest.number()?;
        if stored == 0 || stored > u64::from(MOST_SHARDS) || !stored.is_power_of_two() {
            let message = format!("the deployment has {stored} shards");
            return Err(StoreError::new(StoreErrorKind::Corrupt, message));
        }
        if self.shards.is_some() && stored != u64::from(shards) {
            return Err(limit(format!(
                "the deployment was created with {stored} shards, and not with {shards}"
            )));
        }
        let clock = rest.bytes()?;
        if clock != kind.as_bytes() {
            let clock = String::from_utf8_lossy(&clock);
            return Err(limit(format!("the deployment is on the clock {clock:?}, and not on {kind:?}")));
        }
        let (id, is_ready) = (rest.bytes()?, rest.filled()?.is_some());
        // The number is at most `MOST_SHARDS`, so the conversion does not fail.
        Ok(Opened { shards: u16::try_from(stored).unwrap_or(SHARDS), id, is_ready })
    }
}

/// The properties of a deployment, as the server stores them under the deployment's own key.
struct Opened {
    shards: u16,
    id: Vec<u8>,
    /// True if all shards have the deployment's id. Otherwise, the process that opens the deployment writes the ids.
    is_ready: bool,
}

/// Fails if a program with another version of the layout has created the deployment. `version` is that version.
pub(super) fn refuse_other_layout(version: u64) -> Result<(), StoreError> {
    if version > VERSION {
        let message = format!("the layout has version {version}, and {VERSION} is known here");
        return Err(StoreError::new(StoreErrorKind::NewerSchema, message));
    }
    if version < VERSION {
        let message = format!(
            "the layout has version {version}, and {VERSION} is needed here: make a backup with the program of \
             before, and restore it into another deployment"
        );
        return Err(StoreError::new(StoreErrorKind::OlderSchema, message));
    }
    Ok(())
}

fn limit(message: String) -> StoreError {
    StoreError::new(StoreErrorKind::Limit, message)
}

/// Writes the deployment's id into all shards, and then notes in the deployment's key that every shard has the id.
async fn mark_shards(deployment: &Deployment) -> Result<(), StoreError> {
    let id = deployment.id();
    let marks = deployment.all_groups().into_iter().map(|group| {
        let keys = deployment.keys(&group, [Part::Meta]);
        deployment.run(|scripts| &scripts.mark_shards, keys, [id.clone()])
    });
    drop(try_join_all(marks.collect::<Vec<_>>()).await?);
    deployment.run(|scripts| &scripts.ready, vec![deployment.key.clone()], [id.clone()]).await.map(drop)
}
