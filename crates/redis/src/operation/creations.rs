//! Stores new timers by shared scripts. Creations that only store a timer, and that wait at the same time, share a
//! script.
//!
//! The common creation guesses that its id and its key are free, and stores a pending timer in the shard of its id. The
//! script checks each timer as the script `commit` does, and names the timers that it did not store. Each of these is
//! created again as an operation of its own, which finds out why it was not stored. All other creations are commits.
//! [`queue`](super::queue) describes how creations wait, and how they fail while the server does not answer.

use super::queue::{Creation, Made, Queue, Waiting};
use super::transact::{Start, Transactions};
use crate::deployment::{Deployment, Witnesses};
use crate::layout::{Layout, Part, Slice, count_field, key_entry, keyless_entry, member_of, place_entry};
use crate::node::{LONGEST_POLL, Node};
use crate::script::{Words, damaged};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::State;
use tourbillon_durable::store::dry_run::{Change, Changes, DryRun};
use tourbillon_durable::store::{IfPresent, Op, Outcome, StoreError, StoreErrorKind};
use tourbillon_durable::timer::Timer;

/// Stores new timers, many in each script if possible.
pub(crate) struct Creations {
    deployment: Arc<Deployment>,
    node: Arc<Node>,
    transactions: Arc<Transactions>,
    /// The creations that wait for the next script.
    queue: Queue,
}

impl Creations {
    pub(super) fn new(transactions: &Arc<Transactions>) -> Self {
        let Transactions { deployment, node, .. } = &**transactions;
        let (deployment, node) = (Arc::clone(deployment), Arc::clone(node));
        Self { deployment, node, transactions: Arc::clone(transactions), queue: Queue::default() }
    }

    /// Creates a timer, by a script that it shares with other waiting creations if possible, and otherwise by a commit
    /// of its own.
    pub(crate) async fn create(self: &Arc<Self>, op: Op) -> Result<Outcome, StoreError> {
        if let Op::Place(timer, mode) = &op
            && self.is_common(timer, mode)
            && let Some(runtime) = self.deployment.link.runtime()
        {
            let (outcome, changes) = DryRun::new(self.deployment.time.now()).apply(op.clone())?;
            if let Some(creation) = self.creation_of(&changes) {
                let (answer, made) = oneshot::channel();
                if self.queue.add(Waiting { creation, since: Instant::now(), answer }) {
                    // A task sends the script. If a caller sent it, a caller whose future is not polled any more would
                    // hold up all others.
                    let this = Arc::clone(self);
                    let _task = runtime.spawn(async move { this.store_waiting().await });
                }
                match made.await {
                    Ok(Made::Stored(witnesses)) => {
                        witnesses.pass_on();
                        return Ok(outcome);
                    }
                    Ok(Made::Refused) => {}
                    Ok(Made::Failed(kind, message)) => return Err(StoreError::new(kind, message)),
                    Err(_) => return Err(StoreError::new(StoreErrorKind::Unknown, "a creation ended")),
                }
            }
        }
        self.transactions.transact(Start::New, |draft| draft.apply(op.clone())).await
    }

    /// Returns whether a creation may share a script with other creations. In a cluster, creations share no scripts,
    /// because a shard without an answer must not delay creations in other shards. A creation that replaces a timer
    /// shares no script either: its key is usually taken, and the shared script stores only timers with free keys.
    fn is_common(&self, timer: &Timer, mode: &IfPresent) -> bool {
        let home = self.deployment.layout.home_of(timer);
        // A timer that is due soon needs a hint to the owner of its shard, which only a commit sends.
        let is_near = || timer.due < self.deployment.time.now() + LONGEST_POLL;
        !self.deployment.topology.fails_in_parts()
            && matches!(mode, IfPresent::Reject | IfPresent::Keep)
            && timer.labels.is_empty()
            && self.deployment.layout.shard_of_id(timer.id) == home
            // For a shard of its own, this node needs no hint: `Node::note` wakes the runtime of this process.
            && (!is_near() || self.node.state().shards.is_owned(home))
    }

    /// Returns the data of a creation for the script `create`, which stores the timers of many creations. Returns
    /// `None` if the changes do more than store one pending timer without labels. Also returns `None` if the changes
    /// assume something that the script does not check: the script checks only that the timer's id and key are free.
    fn creation_of(&self, changes: &Changes) -> Option<Creation> {
        let Changes { timers, absent, free, forgotten, remember, forget } = changes;
        let [Change { before: None, after: Some(timer) }] = &timers[..] else { return None };
        let is_checked = absent.iter().chain(forgotten).all(|id| *id == timer.id)
            && free.iter().all(|key| timer.key_of().as_ref() == Some(key))
            && remember.is_empty()
            && forget.is_empty()
            && timer.labels.is_empty()
            && timer.state == State::Pending;
        is_checked.then(|| Creation {
            id: timer.id,
            shard: self.deployment.layout.home_of(timer),
            member: member_of(timer),
            due: timer.due.as_millis(),
            slice: Slice::of(&timer.namespace, timer.due.as_millis()),
            field: count_field(timer),
            entry: timer.key.as_ref().map(|key| key_entry(&timer.namespace, key)),
            keyless: keyless_entry(&timer.namespace),
        })
    }

    /// Stores waiting creations, script after script, until none waits.
    async fn store_waiting(&self) {
        let mut task = self.queue.task();
        loop {
            let mut group = task.take();
            if group.is_empty() {
                return;
            }
            group.sort_unstable_by_key(|waiting| waiting.creation.shard);
            // A caller that needs a durable change asks these witnesses itself.
            let witnesses = Witnesses::default();
            match witnesses.collect(self.store_some(&group)).await {
                Ok(stored) => {
                    for (Waiting { creation, answer, .. }, is_stored) in group.into_iter().zip(stored) {
                        if is_stored {
                            let due = UtcMillis::from_millis(creation.due);
                            let note = || self.node.note(creation.shard, due);
                            // A subscriber may panic, but the other creations must still get their answers. The
                            // payload is leaked, since its drop may panic, too.
                            let _noted = catch_unwind(AssertUnwindSafe(note)).map_err(Box::leak);
                        }
                        // The caller may be gone.
                        let made = || Made::Stored(witnesses.clone());
                        let _sent = answer.send(if is_stored { made() } else { Made::Refused });
                    }
                }
                Err(error) => {
                    fail(group, error.kind(), &error.to_string());
                    let late = task.take_late(self.deployment.link.patience());
                    fail(
                        late,
                        StoreErrorKind::Io,
                        &format!("the creation was not sent, because an earlier creation failed: {error}"),
                    );
                }
            }
        }
    }

    /// Runs the script that stores the timers of the creations in `group`. Returns a flag for each creation, true if
    /// its timer was stored.
    async fn store_some(&self, group: &[Waiting]) -> Result<Vec<bool>, StoreError> {
        let (keys, arguments) = keys_and_arguments(&self.deployment.layout, &self.deployment.id(), group);
        let mut answered = self.deployment.run(|scripts| &scripts.create, keys, arguments).await?;
        let (mut refused, mut stored) = (answered.rest.list()?, vec![true; group.len()]);
        while !refused.is_empty() {
            let place = refused.index()?.and_then(|place| stored.get_mut(place));
            *place.ok_or_else(|| damaged("a script answered a timer that it was not given"))? = false;
        }
        Ok(stored)
    }
}

/// Answers the creations in `group` with an error, because their script has failed or they were not sent.
fn fail(group: Vec<Waiting>, kind: StoreErrorKind, message: &str) {
    let made = Made::Failed(kind, message.into());
    group.into_iter().for_each(|waiting| drop(waiting.answer.send(made.clone())));
}

/// Builds the keys and the arguments of the script that stores the timers of the creations in `group`, which must be
/// sorted by shard. `id` is the id of the deployment.
fn keys_and_arguments(layout: &Layout, id: &[u8], group: &[Waiting]) -> (Vec<Vec<u8>>, Words) {
    let (mut keys, mut arguments) = (Vec::new(), Words::default());
    arguments.push(id);
    for of_shard in group.chunk_by(|one, other| one.creation.shard == other.creation.shard) {
        let creations = || of_shard.iter().map(|waiting| &waiting.creation);
        let Some(Creation { shard, .. }) = creations().next() else { continue };
        let parts = [Part::Records, Part::Recent, Part::Slices, Part::Counts, Part::Places, Part::Meta];
        keys.extend(layout.keys(*shard, parts));
        let mut places = Vec::new();
        for creation in creations() {
            let set = match &creation.entry {
                Some(entry) => layout.key_set(entry),
                None => layout.keyless_set(creation.id),
            };
            places.push(place_entry(creation.entry.as_ref().unwrap_or(&creation.keyless), set));
            let slice = Part::Slice(creation.slice);
            keys.extend(layout.keys(*shard, [Layout::redirects_of(creation.id), slice, Part::Keys(set)]));
        }
        arguments.push_number(creations().count() as u64);
        creations().for_each(|creation| arguments.push(&creation.member));
        creations().for_each(|creation| arguments.push_number(creation.due));
        creations().for_each(|creation| arguments.push_number(creation.slice.number()));
        creations().for_each(|creation| arguments.push(&creation.field));
        creations().for_each(|creation| {
            arguments.push(&match &creation.entry {
                Some(entry) => [b"k", &entry[..]].concat(),
                None => [b"n", &creation.keyless[..]].concat(),
            });
        });
        places.iter().for_each(|place| arguments.push(place));
    }
    (keys, arguments)
}
