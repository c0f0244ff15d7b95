//! What all operations of a store share: the connection, the layout, the time, and the timers that this process has
//! claimed.

use crate::connect::{Link, is_back, is_gone};
use crate::layout::{Layout, Part, Shard, Slice};
use crate::nodes::Nodes;
use crate::promise;
use crate::queue::Queue;
use crate::returned::Returning;
use crate::script::Script;
use crate::scripts::{BY_CALLER, BY_SERVER, Scripts};
use crate::stored::Found;
use crate::time::{Time, moment};
use crate::values::{Values, number};
use crate::words::{Arguments, Words};
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Instant;
use tourbillon::Timestamp;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{Counts, StoreError, StoreErrorKind};
use tourbillon_durable::timer::TimerId;

/// Claimed timers that are kept for their ends. A process with more of them asks the server for the others.
const MOST_HELD: usize = 100_000;

/// A deployment as it was opened.
pub(crate) struct Deployment {
    pub(crate) key: Vec<u8>,
    /// The hash of its notes.
    pub(crate) notes: Vec<u8>,
    /// Chosen when the deployment was created.
    id: RwLock<Vec<u8>>,
}

impl Deployment {
    pub(crate) fn new(key: Vec<u8>, notes: Vec<u8>, id: Vec<u8>) -> Self {
        Self { key, notes, id: RwLock::new(id) }
    }

    /// What tells the deployment from others of its name.
    pub(crate) fn id(&self) -> Vec<u8> {
        self.id.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Why a store is closed.
struct Lost {
    why: Box<str>,
    /// The last look whether the deployment was made again; `None` if there are no looks.
    looked: Option<Instant>,
}

/// The time between two of these looks.
const LOOKS: Duration = Duration::from_secs(1);

pub(crate) struct Core {
    /// This value, for what outlives a call.
    pub(crate) this: Weak<Self>,
    pub(crate) link: Arc<dyn Link>,
    pub(crate) deployment: Deployment,
    /// Set while the server has another deployment, or none, in the place of the one that was opened.
    lost: Mutex<Option<Lost>>,
    /// The last moment at which a part of a deployment was still there of which other parts were lost.
    pub(crate) seen: Mutex<Option<Instant>>,
    pub(crate) layout: Layout,
    /// Whether a script may name the keys of one shard only, as in a cluster.
    pub(crate) is_split: bool,
    pub(crate) time: Time,
    pub(crate) nodes: Nodes,
    /// Creations that wait for a script.
    pub(crate) queue: Queue,
    /// Answers of claims that were lost: the token, and the shards that may have leased under it.
    pub(crate) doubts: Mutex<Vec<(Token, Shard)>>,
    /// The last claim, by this process, and the length of its leases.
    pub(crate) claimed: Mutex<Option<(Timestamp, Duration)>>,
    /// The first slices of each shard, as the last claim's answer had them.
    pub(crate) slices: Mutex<Vec<Vec<Slice>>>,
    /// The numbers of timers that each group has answered last.
    pub(crate) counted: Mutex<BTreeMap<Vec<Shard>, Counts>>,
    first_due: Mutex<FirstDue>,
    held: Mutex<HashMap<TimerId, Found>>,
    /// Timers that are being stored again.
    pub(crate) returning: Returning,
    wakers: RwLock<Vec<Box<dyn Fn() + Send + Sync>>>,
    /// Called with the reasons for which timers were parked by any process; with none if some may have been missed.
    on_parked: RwLock<Vec<OnParked>>,
}

/// A function that is called for parked timers.
pub(crate) type OnParked = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// The due moment of the first pending timer, as far as this process knows.
#[derive(Default)]
struct FirstDue {
    /// As the last claim's answer had it, of those that it might have taken. `None` before the first claim.
    known: Option<UtcMillis>,
    /// The claims that are at the server, with the first due moment that was committed meanwhile: their answers may not
    /// know of it.
    claims: Vec<(u64, UtcMillis)>,
    next: u64,
}

/// The answer of a script: the time by which it decided, and the rest.
pub(crate) struct Answered {
    pub(crate) now: UtcMillis,
    pub(crate) rest: Values,
}

impl Core {
    pub(crate) fn new(
        link: Arc<dyn Link>,
        deployment: Deployment,
        layout: Layout,
        is_split: bool,
        time: Time,
        nodes: Nodes,
    ) -> Arc<Self> {
        let slices = vec![Vec::new(); layout.shards().len()];
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            link,
            deployment,
            lost: Mutex::default(),
            seen: Mutex::default(),
            layout,
            is_split,
            time,
            nodes,
            queue: Queue::default(),
            doubts: Mutex::default(),
            claimed: Mutex::default(),
            slices: Mutex::new(slices),
            counted: Mutex::default(),
            first_due: Mutex::default(),
            held: Mutex::default(),
            returning: Returning::default(),
            wakers: RwLock::default(),
            on_parked: RwLock::default(),
        })
    }

    fn lost(&self) -> MutexGuard<'_, Option<Lost>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the store. Returns the error of the call that has found out why, and of all that follow until the
    /// deployment is made again.
    pub(crate) fn close(&self, why: &str) -> StoreError {
        let error = StoreError::new(StoreErrorKind::Closed, why);
        self.note_lost(&error);
        error
    }

    fn note_lost(&self, error: &StoreError) {
        // Data that have gone back are refused for good.
        let looked = Some(Instant::now()).filter(|_| !is_back(error));
        self.lost().get_or_insert_with(|| Lost { why: error.to_string().into(), looked });
    }

    /// The error of a store that is closed. Looks from time to time whether people have made the deployment again.
    async fn closed(&self) -> Option<StoreError> {
        let (why, is_due) = {
            let mut lost = self.lost();
            let lost = lost.as_mut()?;
            let is_due = lost.looked.is_some_and(|at| at.elapsed() >= LOOKS);
            if is_due {
                lost.looked = Some(Instant::now());
            }
            (lost.why.clone(), is_due)
        };
        let error = StoreError::new(StoreErrorKind::Closed, why);
        if !is_due {
            return Some(error);
        }
        let Some(id) = self.made_again().await else { return Some(error) };
        let is_new = self.deployment.id() != id;
        if is_new {
            *self.deployment.id.write().unwrap_or_else(PoisonError::into_inner) = id;
            self.begin_anew();
        }
        *self.lost() = None;
        self.wake();
        None
    }

    /// Forgets what is known of a deployment that no longer exists.
    fn begin_anew(&self) {
        self.nodes.begin_anew();
        self.slices.lock().unwrap_or_else(PoisonError::into_inner).iter_mut().for_each(Vec::clear);
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.first_due().known = None;
        self.lock().clear();
    }

    /// Runs a script. Fails once a call has found that the deployment is lost, until it is made again: what this
    /// process stored then would be in the shards of a deployment that there is not.
    pub(crate) async fn run(
        &self,
        which: impl Fn(&'static Scripts) -> &'static Script,
        keys: Vec<Vec<u8>>,
        arguments: impl Arguments,
    ) -> Result<Answered, StoreError> {
        self.run_on(None, which, keys, arguments).await
    }

    /// The same, if the connection is the one that this attempt has made. Otherwise the script is not sent.
    pub(crate) async fn run_on(
        &self,
        attempt: Option<u64>,
        which: impl Fn(&'static Scripts) -> &'static Script,
        keys: Vec<Vec<u8>>,
        arguments: impl Arguments,
    ) -> Result<Answered, StoreError> {
        if let Some(error) = self.closed().await {
            return Err(error);
        }
        let mut result = run_on(&*self.link, &self.time, attempt, which, keys, arguments).await;
        if result.as_ref().is_err_and(is_gone)
            && let Some(gone) = self.gone().await
        {
            result = Err(gone);
        }
        if let Err(error) = &result
            && error.kind() == StoreErrorKind::Closed
        {
            self.note_lost(error);
        }
        let (answered, is_step) = result?;
        if is_step {
            self.wake();
        }
        Ok(answered)
    }

    /// Some parts of some shards, for scripts that look at many shards of one server.
    pub(crate) fn parts<const N: usize>(&self, shards: &[Shard], parts: [Part; N]) -> Vec<Vec<u8>> {
        shards.iter().flat_map(|shard| self.layout.keys(*shard, parts)).collect()
    }

    /// The groups of some shards; none of no shards.
    pub(crate) fn groups_of(&self, shards: impl IntoIterator<Item = Shard>) -> Vec<Vec<Shard>> {
        let mut groups = self.groups(shards);
        groups.retain(|group| !group.is_empty());
        groups
    }

    /// The shards whose keys one script may name: all of them on one server, and each alone in a cluster.
    pub(crate) fn groups(&self, shards: impl IntoIterator<Item = Shard>) -> Vec<Vec<Shard>> {
        match self.is_split {
            true => shards.into_iter().map(|shard| vec![shard]).collect(),
            false => vec![shards.into_iter().collect()],
        }
    }

    /// The places of things that one script may name, by the shards in which they are. Each group has at least one.
    pub(crate) fn grouped(&self, shards: impl IntoIterator<Item = Shard>) -> Vec<Vec<usize>> {
        let mut groups: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
        for (place, shard) in shards.into_iter().enumerate() {
            groups.entry(if self.is_split { shard } else { 0 }).or_default().push(place);
        }
        groups.into_values().collect()
    }

    pub(crate) fn add_waker(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.wakers.write().unwrap_or_else(PoisonError::into_inner).push(wake);
    }

    pub(crate) fn wake(&self) {
        for wake in &*self.wakers.read().unwrap_or_else(PoisonError::into_inner) {
            wake();
        }
    }

    pub(crate) fn add_on_parked(&self, on_parked: OnParked) {
        self.on_parked.write().unwrap_or_else(PoisonError::into_inner).push(on_parked);
    }

    pub(crate) fn tell_parked(&self, reason: Option<&str>) {
        for tell in &*self.on_parked.read().unwrap_or_else(PoisonError::into_inner) {
            tell(reason);
        }
    }

    /// Wakes the subscribers for a timer that may be stored and of which no note was taken. A thread finds it without
    /// that.
    pub(crate) fn wake_unless_polled(&self) {
        if !self.nodes.has_thread() {
            self.wake();
        }
    }

    /// The same, if the outcome of a change is not known.
    pub(crate) fn wake_if_unknown<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        result.inspect_err(|error| {
            if error.kind() == StoreErrorKind::Unknown {
                self.wake_unless_polled();
            }
        })
    }

    fn first_due(&self) -> MutexGuard<'_, FirstDue> {
        self.first_due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a claim is at the server. Returns its number.
    pub(crate) fn begin_claim(&self) -> u64 {
        let mut first = self.first_due();
        first.next += 1;
        let number = first.next;
        first.claims.push((number, UtcMillis::MAX));
        number
    }

    /// Notes the end of a claim, with the first due moment of its answer if there is an answer. Wakes the subscribers
    /// if a commit meanwhile has made a timer due earlier.
    pub(crate) fn end_claim(&self, number: u64, answer: Option<Option<UtcMillis>>) {
        let is_earlier = {
            let mut first = self.first_due();
            let place = first.claims.iter().position(|(of, _)| *of == number);
            let meanwhile = place.map_or(UtcMillis::MAX, |place| first.claims.swap_remove(place).1);
            match answer {
                None => true,
                Some(answer) => {
                    let due = answer.unwrap_or(UtcMillis::MAX);
                    first.known = Some(due);
                    meanwhile < due
                }
            }
        };
        if is_earlier {
            self.wake();
        }
    }

    /// Wakes the subscribers if no claim's answer knows of a timer that is due so early.
    pub(crate) fn wake_for(&self, due: UtcMillis) {
        let is_earlier = {
            let mut first = self.first_due();
            first.claims.iter_mut().for_each(|(_, meanwhile)| *meanwhile = due.min(*meanwhile));
            first.known.is_none_or(|known| due < known)
        };
        if is_earlier {
            self.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TimerId, Found>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a claimed timer for its end.
    pub(crate) fn hold(&self, found: &Found) {
        let mut held = self.lock();
        if held.len() < MOST_HELD {
            held.insert(found.id(), found.clone());
        }
    }

    /// A claimed timer as it was claimed. It may have changed since.
    pub(crate) fn held(&self, id: TimerId) -> Option<Found> {
        self.lock().get(&id).cloned()
    }

    /// Whether a timer was claimed here that is an occurrence of no series.
    pub(crate) fn holds_alone(&self, id: TimerId) -> bool {
        self.lock().get(&id).is_some_and(|found| found.timer.series.is_none())
    }

    /// The shard of a claimed timer.
    pub(crate) fn shard_of_held(&self, id: TimerId) -> Option<Shard> {
        self.lock().get(&id).map(|found| found.shard)
    }

    pub(crate) fn let_go(&self, id: TimerId) {
        self.lock().remove(&id);
    }
}

/// Runs a script. Returns its answer, and whether the server's clock has been set.
pub(crate) async fn run(
    link: &dyn Link,
    time: &Time,
    which: impl Fn(&'static Scripts) -> &'static Script,
    keys: Vec<Vec<u8>>,
    arguments: impl Arguments,
) -> Result<(Answered, bool), StoreError> {
    run_on(link, time, None, which, keys, arguments).await
}

/// The same, on the connection of one attempt.
async fn run_on(
    link: &dyn Link,
    time: &Time,
    attempt: Option<u64>,
    which: impl Fn(&'static Scripts) -> &'static Script,
    mut keys: Vec<Vec<u8>>,
    arguments: impl Arguments,
) -> Result<(Answered, bool), StoreError> {
    keys.extend(keys.first().map(|key| Layout::absent(key)));
    let script = match time {
        Time::Server(_) => which(&BY_SERVER),
        Time::Test(_) => which(&BY_CALLER),
    };
    let mut words = Words::default();
    words.push(&time.argument());
    arguments.add_to(&mut words);
    let sent = moment();
    let call = match attempt {
        Some(attempt) => link.run_on(attempt, script, keys, words),
        None => link.run_before_witness(script, keys, words),
    };
    let (answer, witness) = call.await?;
    promise::note(witness);
    let mut rest = Values::of(answer)?;
    let now = UtcMillis::from_millis(number(&rest.next()?)?);
    let is_step = time.learn(sent, now);
    Ok((Answered { now, rest }, is_step))
}
