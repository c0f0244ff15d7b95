//! The store.

use crate::connect::{Connect, ConnectError, Link, Session};
use crate::examine::{Plan, Report, dangers, examine};
use crate::layout::{Layout, MOST_SHARDS, Part, VERSION};
use crate::losses::WAY;
use crate::nodes::{self, MAY_LOSE, Nodes, OnSetBack, Settings, TTL};
use crate::promise::{Witnesses, kept};
use crate::shared::{Core, Deployment, run};
use crate::time::Time;
use crate::transact::Start;
use crate::values::{bytes, filled, maybe_number, number};
use core::fmt;
use core::time::Duration;
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use std::collections::HashSet;
use std::sync::Arc;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Refusal, Token};
use tourbillon_durable::store::dry_run::{RECORD_VERSION, admit};
use tourbillon_durable::store::{
    Answer, Claimant, Claimed, Counts, Cursor, Durability, Fault, Filter, Horizon, Leased, Limit, Op,
    Outcome, Page, Reaped, Reasons, Shares, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Address, KeyOf, Timer, TimerId};

/// The layouts that programs have written, each with the version of its records. Programs of two versions share a
/// deployment if both know its layout, so a row never changes: other records are a new layout.
const LAYOUTS: [(u64, u8); 4] = [(2, 2), (3, 3), (4, 3), (5, 3)];

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

/// The shards of a deployment that is created without a number of them.
pub const SHARDS: u16 = 64;

/// The pause between two looks for timers that other processes have placed.
pub const POLL: Duration = Duration::from_millis(250);

/// Changes of a batch that are made one by one and are at the server at the same time: timers that are not in the
/// shards of their ids.
const OTHERS_AT_ONCE: usize = 64;

/// How a store is opened.
#[must_use = "a builder does nothing before it opens a store"]
pub struct RedisBuilder {
    pub(crate) name: Box<str>,
    pub(crate) shards: Option<u16>,
    poll: Option<Duration>,
    node: Option<Box<str>>,
    ttl: Duration,
    may_lose: Duration,
    on_set_back: Option<OnSetBack>,
    pub(crate) clock: Option<Arc<dyn tourbillon::Clock>>,
    is_unchecked: bool,
    /// Whether a script on one server names the keys of one shard only, as in a cluster.
    #[cfg(test)]
    is_split: bool,
}

/// A store of timers on a Redis server or a Redis Cluster, for any number of processes.
///
/// Processes that open the same deployment share its timers: a timer is claimed by one of them. See the crate's
/// documentation for what a deployment is, and for what differs from a store in a file.
pub struct RedisStore {
    pub(crate) core: Arc<Core>,
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        // Ends the thread. Its shards are free at the end of their time, unless the store has left.
        self.core.nodes.bell.close();
    }
}

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, shards, poll, node, ttl, clock, .. } = self;
        f.debug_struct("RedisBuilder")
            .field("name", name)
            .field("shards", shards)
            .field("poll", poll)
            .field("node", node)
            .field("ttl", ttl)
            .field("is_on_test_clock", &clock.is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("layout", &self.core.layout).finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Opens the deployment of this name, or creates it. The name has 1 to 64 letters, digits, `-`, `_` and `.` of
    /// ASCII.
    pub fn builder(deployment: impl Into<Box<str>>) -> RedisBuilder {
        RedisBuilder {
            name: deployment.into(),
            shards: None,
            poll: Some(POLL),
            node: None,
            ttl: TTL,
            may_lose: MAY_LOSE,
            on_set_back: None,
            clock: None,
            is_unchecked: false,
            #[cfg(test)]
            is_split: false,
        }
    }
}

impl RedisStore {
    /// Calls `tell` with the reason whenever any process has parked a timer, and without one if such messages may have
    /// been missed, since the connection by which they come was made again, or if other nodes are live than before. For
    /// a process that waits for parked timers, which [`Timers::fetch`](tourbillon_durable::Timers::fetch) delivers.
    /// Called from a thread of the store, while this process is a node; it must not block.
    pub fn on_parked(&self, tell: impl Fn(Option<&str>) + Send + Sync + 'static) {
        self.core.add_on_parked(Box::new(tell));
    }

    /// The number by which this process is known among the nodes ([`Node::incarnation`]).
    ///
    /// [`Node::incarnation`]: tourbillon_durable::store::Node::incarnation
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.core.nodes.incarnation
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }
}

impl RedisBuilder {
    /// Checks the servers as [`check`](crate::check()) does, and the deployment on them: the version of its layout, and
    /// on a cluster how evenly its shards lie. Creates nothing. The future needs no runtime around it.
    ///
    /// # Errors
    ///
    /// If the settings cannot work.
    pub async fn check(&self, connect: &Connect) -> Result<Report, ConnectError> {
        let session = Session::open(connect)?;
        let keys = vec![Layout::deployment(&self.name)];
        let known = run(&session, &Time::server(), |scripts| &scripts.known, keys, []).await;
        let mut plan = Plan::default();
        // Servers that do not answer are a line of the report.
        if let Ok((mut answered, _)) = known {
            let mut stored = || maybe_number(answered.rest.next().ok()?).ok()?;
            let (version, shards) = (stored(), stored());
            let shards = shards.and_then(|shards| u16::try_from(shards).ok());
            plan.losses = self.losses(&session, shards, connect.is_cluster()).await;
            if version.is_none() && self.shards_without_key(&session, &Time::server()).await > 0 {
                plan.refusals.push(format!("the key of the deployment {} itself is lost; {WAY}", self.name));
            }
            plan.layout = Some((version, VERSION));
            let shards = shards.or(self.shards).unwrap_or(SHARDS);
            plan.tags = Layout::new(&self.name, shards.min(MOST_SHARDS)).tags().map(<[u8]>::to_vec).collect();
        }
        Ok(examine(&session, connect, &plan).await)
    }

    /// The number of shards of a deployment that is created: a power of two of at most 1,024, [`SHARDS`] by default. It
    /// stays as it is for good. A deployment that has another number is not opened.
    pub fn shards(mut self, shards: u16) -> Self {
        self.shards = Some(shards);
        self
    }

    /// The pause between two looks for timers that other processes have placed, [`POLL`] by default. While the
    /// processes get each other's hints, the pause is 1.25 s at least. `None` for a deployment that only this process
    /// uses: no thread looks then.
    pub fn poll(mut self, poll: Option<Duration>) -> Self {
        self.poll = poll;
        self
    }

    /// The name by which people know this process, in [`nodes`](TimerStore::nodes). Several processes may have the same
    /// one: nothing depends on it. At most 255 bytes; unless set, it has the number of the process.
    pub fn node(mut self, name: impl Into<Box<str>>) -> Self {
        self.node = Some(name.into());
        self
    }

    /// The time for which this process takes shards for itself, 10 seconds unless set: so long do the timers of a
    /// process wait that dies, until others take its shards over. From 100 ms to an hour.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The time by which the server's data may go back while the store is open, 10 seconds unless set, as in a failover
    /// to a replica without the last writes. If they go back further, as after a restart from an older
    /// snapshot, the store is closed for good: timers that were created would be missing, and cancelled ones would be
    /// delivered. What is seen of it is the age of the nodes' last sign of life, one each quarter of
    /// [`ttl`](Self::ttl), so the loss may be greater or less than it seems by as much as that, and that much more is
    /// permitted. A store that is opened afterwards takes the data as they are.
    pub fn may_lose(mut self, time: Duration) -> Self {
        self.may_lose = time;
        self
    }

    /// Calls a function with the time by which the data have gone back, each time that they have and the store goes on.
    /// [`nodes`](TimerStore::nodes) has the number of these.
    pub fn on_set_back(mut self, tell: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        self.on_set_back = Some(Arc::new(tell));
        self
    }

    /// A clock of the caller's, which counts from the start of 1970, in place of the server's time. A deployment is
    /// created on one kind of clock and opened only on the same kind.
    #[cfg(feature = "test-clock")]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-clock")))]
    pub fn test_clock(self, clock: impl tourbillon::Clock + 'static) -> Self {
        self.on_clock(clock)
    }

    #[cfg(any(test, feature = "test-clock"))]
    pub(crate) fn on_clock(mut self, clock: impl tourbillon::Clock + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Uses one server as if it were a cluster.
    #[cfg(test)]
    pub(crate) fn split(mut self) -> Self {
        self.is_split = true;
        self
    }

    /// Opens the deployment without a look at its servers: at their version, at what they do when memory is full, and
    /// at their clocks.
    pub fn unchecked(mut self) -> Self {
        self.is_unchecked = true;
        self
    }

    /// Opens the deployment on these servers. The future needs no runtime around it.
    ///
    /// The servers are looked at before. A server on which timers would be unsafe is refused, unless
    /// [`unchecked`](Self::unchecked) is set: an old version, a `maxmemory-policy` that evicts, a clock that differs
    /// from this machine's by a second. A server that does not answer is not looked at. [`check`](Self::check) looks at
    /// more, and says all that it has found.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Limit`] if a server is refused, if the name or the number of shards is none, if the
    /// deployment has another number of shards or another kind of clock; with [`StoreErrorKind::NewerSchema`] or
    /// [`StoreErrorKind::OlderSchema`] if a version with another layout has created the deployment; and if the server
    /// cannot be reached.
    pub async fn open(self, connect: &Connect) -> Result<RedisStore, StoreError> {
        let session =
            Session::open(connect).map_err(|error| StoreError::caused_by(StoreErrorKind::Io, error))?;
        if !self.is_unchecked {
            let dangers = match dangers(&session, connect, self.clock.is_none()).await {
                Ok(dangers) => dangers,
                // The opening itself says whether the servers answer.
                Err(error) if error.code().is_none() => Vec::new(),
                Err(error) => return Err(error.into()),
            };
            if !dangers.is_empty() {
                let message = format!("the servers are refused: {}", dangers.join("; "));
                return Err(StoreError::new(StoreErrorKind::Limit, message));
            }
        }
        self.open_on(Arc::new(session)).await
    }

    /// Whether the key of the deployment is not there, although shards of it are. A new deployment would not be theirs.
    async fn has_lost_key(&self, link: &dyn Link, time: &Time) -> Result<bool, StoreError> {
        let is_known = async || {
            let keys = vec![Layout::deployment(&self.name)];
            let (mut answered, _) = run(link, time, |scripts| &scripts.known, keys, []).await?;
            Ok::<_, StoreError>(maybe_number(answered.rest.next()?)?.is_some())
        };
        // Again after the shards: another process may have created the deployment meanwhile.
        Ok(!is_known().await? && self.shards_without_key(link, time).await > 0 && !is_known().await?)
    }

    /// Opens the deployment on a connection. Waits for the server's answer.
    pub(crate) async fn open_on(self, link: Arc<dyn Link>) -> Result<RedisStore, StoreError> {
        let limit = |message: String| StoreError::new(StoreErrorKind::Limit, message);
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=64).contains(&self.name.len()) || !self.name.bytes().all(is_fit) {
            let message =
                format!("{:?} is no name of a deployment: 1 to 64 of A-Z, a-z, 0-9, -, _ and .", self.name);
            return Err(limit(message));
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
        let time = self.clock.clone().map_or_else(Time::server, Time::Test);
        if self.has_lost_key(&*link, &time).await? {
            let message = format!(
                "the key of the deployment {} itself is lost, and shards of it are there; {WAY}",
                self.name
            );
            return Err(StoreError::new(StoreErrorKind::Corrupt, message));
        }
        let kind = if self.clock.is_some() { "test" } else { "server" };
        let keys = vec![Layout::deployment(&self.name)];
        let id = TimerId::fresh().to_string();
        let mut arguments =
            [VERSION.to_string(), shards.to_string(), kind.to_owned(), id].map(String::into_bytes).to_vec();
        arguments.push(Layout::channel(&self.name));
        let (answered, _) = run(&*link, &time, |scripts| &scripts.open, keys, arguments).await?;
        let mut rest = answered.rest;
        let version = number(&rest.next()?)?;
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
        let stored = number(&rest.next()?)?;
        if stored == 0 || stored > u64::from(MOST_SHARDS) || !stored.is_power_of_two() {
            let message = format!("the deployment has {stored} shards");
            return Err(StoreError::new(StoreErrorKind::Corrupt, message));
        }
        if self.shards.is_some() && stored != u64::from(shards) {
            return Err(limit(format!(
                "the deployment was created with {stored} shards, and not with {shards}"
            )));
        }
        let clock = bytes(rest.next()?)?.unwrap_or_default();
        if clock != kind.as_bytes() {
            let clock = String::from_utf8_lossy(&clock);
            return Err(limit(format!("the deployment is on the clock {clock:?}, and not on {kind:?}")));
        }
        let id = bytes(rest.next()?)?.unwrap_or_default();
        let deployment = Deployment::new(Layout::deployment(&self.name), Layout::notes(&self.name), id);
        let is_ready = filled(rest.next()?)?.is_some();
        let layout = Layout::new(&self.name, u16::try_from(stored).unwrap_or(SHARDS));
        let is_split = link.is_cluster();
        #[cfg(test)]
        let is_split = is_split || self.is_split;
        let nodes = Nodes::new(&self.name, settings, layout.shards().len());
        let core = Core::new(link, deployment, layout, is_split, time, nodes);
        if !is_ready {
            core.mark_shards().await?;
        }
        if let Some(clock) = self.clock {
            let on_step = Arc::downgrade(&core);
            let stepped = |core: &Arc<Core>| {
                core.nodes.bell.ring();
                core.wake();
            };
            clock.subscribe(Box::new(move || on_step.upgrade().inspect(stepped).is_some()));
        }
        if self.poll.is_some() {
            nodes::start(&core)?;
        }
        Ok(RedisStore { core })
    }
}

/// What two operations of one batch must not share if they are sent at the same time.
#[derive(PartialEq, Eq, Hash)]
enum Touched {
    Id(TimerId),
    Key(KeyOf),
}

/// The timer and the token of the end of a delivery.
fn end_of(op: &Op) -> Option<(TimerId, Token)> {
    match op {
        Op::Ack(id, token)
        | Op::Skip(id, token)
        | Op::Fail(id, token, _)
        | Op::Snooze(id, token, _)
        | Op::Release(id, token)
        | Op::Park(id, token, _) => Some((*id, *token)),
        _ => None,
    }
}

impl Core {
    /// Marks all shards as the deployment's, and notes that this is done.
    async fn mark_shards(&self) -> Result<(), StoreError> {
        let id = self.deployment.id();
        let marks = self.groups_of(self.layout.shards()).into_iter().map(|group| {
            let keys = self.parts(&group, [Part::Meta]);
            self.run(|scripts| &scripts.found, keys, [id.clone()])
        });
        drop(try_join_all(marks.collect::<Vec<_>>()).await?);
        self.run(|scripts| &scripts.ready, vec![self.deployment.key.clone()], [id.clone()]).await.map(drop)
    }

    async fn apply(&self, ops: Vec<Op>, durability: Durability) -> Result<Vec<Outcome>, StoreError> {
        ops.iter().try_for_each(admit)?;
        let (count, returns) = (ops.len(), self.begin_returns(&ops));
        let result = match durability {
            // What was stored before without a promise has one from now on.
            Durability::PowerLoss if count == 0 => {
                Witnesses::of(self.link.witnesses()).confirm().await.map(|()| Vec::new())
            }
            Durability::PowerLoss => kept(self.apply_all(ops)).await,
            _ => self.apply_all(ops).await,
        };
        self.end_returns(returns, count, result.as_ref().err());
        if result.as_ref().is_ok_and(|outcomes| outcomes.iter().any(is_of_before)) {
            self.wake_unless_polled();
        }
        self.wake_if_unknown(result)
    }

    async fn apply_all(&self, ops: Vec<Op>) -> Result<Vec<Outcome>, StoreError> {
        let count = ops.len();
        let ops = match <[Op; 1]>::try_from(ops) {
            Ok([op]) => return Ok(vec![self.operate(op).await?]),
            Err(ops) => ops,
        };
        let mut outcomes = Vec::with_capacity(count);
        let mut ops = ops.into_iter().peekable();
        while ops.peek().is_some() {
            let (mut wave, mut touched, mut kind) = (Vec::new(), HashSet::new(), None);
            while let Some(op) = ops.next_if(|op| self.fits(op, &mut touched, &mut kind)) {
                wave.push(op);
            }
            let results = match kind {
                Some("end") if wave.len() > 1 => self.end_wave(wave).await,
                Some("change") if wave.len() > 1 => self.change_wave(wave).await,
                _ => try_join_all(wave.into_iter().map(|op| self.operate(op))).await,
            };
            outcomes.extend(results.map_err(|error| partial(error, count))?);
        }
        Ok(outcomes)
    }

    /// Whether an operation may be sent together with those that touch this much. The operations of one wave name
    /// different timers and keys, so their order makes no difference.
    fn fits(&self, op: &Op, touched: &mut HashSet<Touched>, kind: &mut Option<&'static str>) -> bool {
        let (its, names) = match op {
            Op::Place(timer, _) => {
                let key = timer.key_of().map(Touched::Key);
                ("place", [Some(Touched::Id(timer.id)), key])
            }
            _ => match end_of(op) {
                // The end of an occurrence stores the next one, which may meet the others.
                Some((id, _)) if self.holds_alone(id) => ("end", [Some(Touched::Id(id)), None]),
                _ => match changed_by_id(op) {
                    Some(id) => ("change", [Some(Touched::Id(id)), None]),
                    None => ("alone", [None, None]),
                },
            },
        };
        let fits = match *kind {
            None => true,
            Some(kind) => {
                kind == its && its != "alone" && names.iter().flatten().all(|name| !touched.contains(name))
            }
        };
        if fits {
            *kind = Some(its);
            touched.extend(names.into_iter().flatten());
        }
        fits
    }

    /// Ends deliveries of different timers that this process has claimed.
    async fn end_wave(&self, wave: Vec<Op>) -> Result<Vec<Outcome>, StoreError> {
        let ends = wave.iter().filter_map(|op| Some((end_of(op)?.0, op))).collect::<Vec<_>>();
        let mut made = self.end_many(&ends).await?;
        let outcomes = wave.into_iter().enumerate().map(|(place, op)| {
            let made = made.remove(&place);
            async move {
                match made {
                    Some(outcome) => Ok(outcome),
                    None => self.operate(op).await,
                }
            }
        });
        try_join_all(outcomes).await
    }

    /// Changes different timers that are named by their ids. Of two dead timers with one key that are replayed, the
    /// commit of the second timer finds the key taken.
    async fn change_wave(&self, wave: Vec<Op>) -> Result<Vec<Outcome>, StoreError> {
        let changes = wave.iter().filter_map(|op| Some((changed_by_id(op)?, op))).collect::<Vec<_>>();
        let mut made = self.change_by_ids(&changes).await?;
        let outcomes = wave.into_iter().enumerate().map(|(place, op)| {
            let made = made.remove(&place);
            async move {
                match made {
                    Some(outcome) => Ok(outcome),
                    None => self.operate(op).await,
                }
            }
        });
        stream::iter(outcomes.collect::<Vec<_>>()).buffered(OTHERS_AT_ONCE).try_collect().await
    }

    async fn operate(&self, op: Op) -> Result<Outcome, StoreError> {
        let start = match &op {
            Op::Place(..) => return self.create(op).await,
            Op::Return(timer, token) => return self.store_again(timer, *token).await,
            Op::CancelLabelled { namespace, label, limit } => {
                return self
                    .cancel_labelled(namespace, label, *limit)
                    .await
                    .map_err(|error| partial(error, 2));
            }
            Op::Unpark(reason, limit) => {
                let all = self.layout.shards().collect();
                return self.unpark(reason, *limit, all).await.map_err(|error| partial(error, 2));
            }
            Op::Replay(id) => Start::At(Address::Id(*id)),
            Op::Cancel(at, _) | Op::Move(at, _) | Op::Pause(at) | Op::Resume(at) | Op::Fire(at) => {
                Start::At(at.clone())
            }
            op => match end_of(op) {
                Some((id, _)) => Start::Held(id),
                None => {
                    let message = format!("this store does not know the operation {op:?} yet");
                    return Err(StoreError::new(StoreErrorKind::Limit, message));
                }
            },
        };
        self.transact(start, |draft| draft.apply(op.clone())).await
    }
}

/// The timer of a change that is named by its id alone, and stores no other timer.
fn changed_by_id(op: &Op) -> Option<TimerId> {
    match op {
        Op::Replay(id) | Op::Cancel(Address::Id(id), _) | Op::Move(Address::Id(id), _) => Some(*id),
        _ => None,
    }
}

/// Whether an operation may have had its effect by an attempt whose answer was lost.
fn is_of_before(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Repeated(_) | Outcome::Refused(Refusal::Stale))
}

/// The error of a batch of which other operations may have had their effect.
fn partial(error: StoreError, count: usize) -> StoreError {
    if count > 1 && error.is_transient() {
        let message = format!("an operation of {count} failed, and others had their effect perhaps: {error}");
        return StoreError::new(StoreErrorKind::Unknown, message);
    }
    error
}

impl TimerStore for RedisStore {
    fn now(&self) -> UtcMillis {
        self.core.time.now()
    }

    fn fresh_id(&self, namespace: &str, key: Option<&str>) -> TimerId {
        key.map_or_else(TimerId::fresh, |key| self.core.layout.fresh_id(namespace, key))
    }

    fn apply(&self, ops: Vec<Op>, durability: Durability) -> Answer<'_, Vec<Outcome>> {
        Box::pin(self.core.apply(ops, durability))
    }

    fn claim(&self, by: Claimant, claim: u64, limit: Limit) -> Answer<'_, Claimed> {
        Box::pin(self.core.claim(by, claim, limit, None))
    }

    fn claim_in_turn(&self, by: Claimant, claim: u64, limit: Limit, shares: Shares) -> Answer<'_, Claimed> {
        Box::pin(self.core.claim(by, claim, limit, Some(shares)))
    }

    fn claim_parked(
        &self,
        by: Claimant,
        claim: u64,
        reason: Box<str>,
        wanted: u32,
        limit: Limit,
    ) -> Answer<'_, Option<Claimed>> {
        Box::pin(async move { self.core.fetch(by, claim, &reason, wanted, limit).await.map(Some) })
    }

    fn recover(&self, by: Claimant, claim: u64) -> Answer<'_, Vec<Leased>> {
        Box::pin(self.core.recover(by, claim))
    }

    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> Answer<'_, Vec<TimerId>> {
        Box::pin(self.core.renew(by, leases))
    }

    fn reap(&self, limit: u32) -> Answer<'_, Reaped> {
        Box::pin(async move { self.core.wake_if_unknown(self.core.reap(limit).await) })
    }

    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> Answer<'_, Vec<(UtcMillis, TimerId)>> {
        Box::pin(self.core.upcoming(from, until, limit))
    }

    fn get(&self, at: Address) -> Answer<'_, Option<Timer>> {
        Box::pin(async move { Ok(self.core.find(&at).await?.map(|found| found.timer)) })
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> Answer<'_, Page> {
        Box::pin(async move { self.core.list(&filter, cursor, limit).await })
    }

    fn reasons(&self, after: Option<Cursor>, limit: u32) -> Answer<'_, Reasons> {
        Box::pin(self.core.reasons(after, limit))
    }

    fn put_back(&self, reason: Box<str>, limit: u32) -> Answer<'_, u32> {
        Box::pin(async move {
            let result = self.core.unpark(&reason, limit, self.core.shards_here()).await;
            let outcome = self.core.wake_if_unknown(result.map_err(|error| partial(error, 2)))?;
            Ok(if let Outcome::Unparked(found) = outcome { found } else { 0 })
        })
    }

    fn counts(&self) -> Answer<'_, Counts> {
        Box::pin(self.core.counts())
    }

    fn horizon(&self) -> Answer<'_, Horizon> {
        Box::pin(self.core.horizon())
    }

    fn check(&self) -> Answer<'_, Vec<Fault>> {
        Box::pin(self.core.check())
    }

    fn export<'a>(&'a self, mut each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> Answer<'a, ()> {
        Box::pin(async move {
            for shard in self.core.layout.shards() {
                for timer in self.core.dump(shard).await? {
                    if !each(&timer) {
                        return Ok(());
                    }
                }
            }
            Ok(())
        })
    }

    fn import(&self, timers: Vec<Timer>) -> Answer<'_, ()> {
        Box::pin(async move { self.core.wake_if_unknown(kept(self.core.import(timers)).await) })
    }

    fn leave(&self) -> Answer<'_, ()> {
        Box::pin(self.core.leave())
    }

    fn nodes(&self) -> Answer<'_, Option<tourbillon_durable::store::Nodes>> {
        Box::pin(async { self.core.nodes().await.map(Some) })
    }

    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.core.add_waker(wake);
    }

    fn is_transactional(&self) -> bool {
        false
    }

    /// On one server all ends are one part, and go beside the claims. In a cluster an end needs the shard of its timer
    /// and that of its timer's id, and each two shards are a part.
    fn parts(&self) -> u32 {
        let shards = u32::try_from(self.core.layout.shards().len()).unwrap_or(u32::from(MOST_SHARDS));
        if self.core.is_split { shards * shards } else { 1 }
    }

    fn part_of(&self, id: TimerId) -> u32 {
        if !self.core.is_split {
            return 0;
        }
        let shards = u32::try_from(self.core.layout.shards().len()).unwrap_or(u32::from(MOST_SHARDS));
        let of_id = self.core.layout.shard_of_id(id);
        let home = self.core.shard_of_held(id).unwrap_or(of_id);
        u32::from(home) * shards + u32::from(of_id)
    }
}
