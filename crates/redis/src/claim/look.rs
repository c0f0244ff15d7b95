//! Looks at shards. A *look* runs the script of a claim, which leases due timers or only lists them in its answer. The
//! node stores the state of the shards from the answer.

use super::shares::PerLane;
use crate::deployment::{Deployment, millis, time_text};
use crate::layout::{Part, Shard, Slice, token_bytes};
use crate::link::is_renewed;
use crate::node::{Look, Node, Seen};
use crate::script::{damaged, decimal};
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::StoreError;

/// The greatest number of times that the script of a claim is sent again because its connection was replaced.
const RENEWALS: u32 = 3;

/// The limits for one run of a claim's script. If [`timers`](Self::timers) is not 0, the script leases due timers.
/// Otherwise, the script leases nothing, and only lists due timers in its answer.
#[derive(Clone, Copy)]
pub(super) struct Wish<'w> {
    pub(super) token: Token,
    /// The length of the leases that the script grants. The length has no effect if the script leases nothing.
    pub(super) lease: Duration,
    /// The greatest number of timers that the script leases.
    pub(super) timers: u32,
    /// The number of payload bytes, including `taken`, at which the script leases no further timer.
    pub(super) bytes: u64,
    /// The number of payload bytes that earlier scripts of the same claim have leased.
    pub(super) taken: u64,
    /// The greatest number of due timers that the script lists in its answer without leasing them, if `timers` is 0.
    pub(super) names: u32,
    pub(super) per_lane: PerLane<'w>,
}

/// A server's answer to a look, which is one run of a claim's script.
#[derive(Default)]
pub(super) struct Looked {
    pub(super) now: UtcMillis,
    /// The records of the leased timers, each with its shard.
    pub(super) records: Vec<(Shard, Vec<u8>)>,
    /// The due timers that the script has listed without leasing them, in the order of their due moments. The list is
    /// empty if the script leases timers.
    pub(super) named: Vec<Named>,
    /// True if more timers are due than `named` lists.
    pub(super) is_cut: bool,
    /// The due moment of the first pending timer, among the shards that the script has read and the node owns. `None`
    /// without such a timer.
    pub(super) first_due: Option<UtcMillis>,
    /// The due moment of the first timer that the next claim may lease, or `None` without such a timer. Timers that
    /// are due earlier may be pending in a lane (one of 64 groups of namespaces) that has used up its share of this
    /// claim.
    pub(super) next_claim: Option<UtcMillis>,
}

/// A due timer that a script has listed in its answer without leasing the timer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Named {
    pub(super) due: u64,
    pub(super) id: Vec<u8>,
    /// The number of bytes of the timer's payload.
    pub(super) length: u64,
    pub(super) lane: u64,
}

/// Runs the script of a claim on the servers. Each run is a *look*. Its answer shows the state of the shards that the
/// script has read, and this type stores that state in the node.
pub(super) struct Looks {
    deployment: Arc<Deployment>,
    node: Arc<Node>,
    /// For each shard, the first [slices](Slice) of the shard's pending timers, as the last answer about the shard has
    /// listed them. The next script must declare the keys of these slices.
    slices: Mutex<Vec<Vec<Slice>>>,
}

impl Looks {
    pub(super) fn new(deployment: Arc<Deployment>, node: Arc<Node>) -> Self {
        let slices = Mutex::new(vec![Vec::new(); deployment.layout.shards().len()]);
        Self { deployment, node, slices }
    }

    /// Forgets the [slices](Slice) of pending timers that earlier answers have listed, because they belong to a
    /// deployment that no longer exists.
    pub(super) fn clear(&self) {
        self.slices.lock().unwrap_or_else(PoisonError::into_inner).iter_mut().for_each(Vec::clear);
    }

    /// Runs the script of a claim in `shards`, all of which one script can read. If `wish.timers` is not 0, the script
    /// leases due timers. Otherwise, the script leases nothing, and only lists due timers in its answer. The limits in
    /// `wish` apply in both cases.
    pub(super) async fn look(&self, shards: Vec<Shard>, wish: Wish<'_>) -> Result<Looked, StoreError> {
        let look = self.node.state().shards.begin_look(&shards);
        let mut answer = self.ask_server(&shards, wish, look).await;
        for _ in 0..RENEWALS {
            // The connection is new. `enter` sends a sign of life, which detects older data on the server.
            match answer {
                Err(error) if is_renewed(&error) => {
                    answer = match self.node.enter().await {
                        Ok(()) => self.ask_server(&shards, wish, look).await,
                        Err(error) => Err(error),
                    };
                }
                _ => break,
            }
        }
        match answer {
            Ok((looked, is_member)) => {
                if !is_member {
                    // The node left while the look was under way.
                    self.node.release_shards(shards).await;
                }
                Ok(looked)
            }
            Err(error) => {
                self.node.state().shards.fail_look(&shards);
                Err(error)
            }
        }
    }

    async fn ask_server(
        &self,
        shards: &[Shard],
        wish: Wish<'_>,
        look: Look,
    ) -> Result<(Looked, bool), StoreError> {
        let (keys, slices) = self.keys_of_claim(shards);
        let Wish { token, lease, timers, bytes: most, taken, names, per_lane } = wish;
        let mut arguments = vec![
            token_bytes(token),
            decimal(millis(lease)),
            decimal(timers.into()),
            decimal(most),
            decimal(taken),
        ];
        arguments.extend([self.deployment.id(), self.node.id.clone(), time_text(self.node.ttl)]);
        arguments.push(decimal(names.into()));
        arguments.push(decimal(u64::from(look.wants_end)));
        arguments.extend(per_lane.arguments());
        arguments.extend(slices);
        // The server of a new connection may have old data. A claim must not lease timers from old data. A look that
        // leases nothing may run on any connection.
        let attempt = Some(self.node.state().sign_by()).filter(|_| timers > 0);
        let mut answered = self.deployment.run_on(attempt, |scripts| &scripts.claim, keys, arguments).await?;
        let rest = &mut answered.rest;
        let (mut leased, mut slices) = (rest.list()?, rest.list()?);
        let (mut dues, mut nexts, mut owned) = (rest.list()?, rest.list()?, rest.list()?);
        let first_end = rest.moment()?;
        let mut named = rest.list()?;
        let mut looked = Looked { now: answered.now, is_cut: rest.number()? == 1, ..Looked::default() };
        while !leased.is_empty() {
            let shard = leased.index()?.and_then(|place| shards.get(place)).copied();
            let shard = shard.ok_or_else(|| damaged("a claim answered a shard that there is not"))?;
            looked.records.push((shard, leased.bytes()?));
        }
        while !named.is_empty() {
            let (due, id) = (named.number()?, named.bytes()?);
            let (length, lane) = (named.number()?, named.number()?);
            looked.named.push(Named { due, id, length, lane });
        }
        let mut seen = Vec::new();
        for shard in shards {
            let first_due = dues.moment()?;
            let next_claim = nexts.moment()?;
            let owned = owned.number()?;
            let (is_owned, is_lost) = (owned == 1, owned == 2);
            looked.first_due = looked.first_due.into_iter().chain(first_due).min();
            looked.next_claim = looked.next_claim.into_iter().chain(next_claim).min();
            seen.push(Seen { shard: *shard, is_owned, is_lost, first_due, next_claim });
            let (mut names, mut first) = (slices.list()?, Vec::new());
            while !names.is_empty() {
                first.extend(Slice::named(&names.bytes()?));
            }
            let mut all = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = all.get_mut(usize::from(*shard)) {
                *known = first;
            }
        }
        let (is_member, are_lost) = {
            let mut state = self.node.state();
            state.shards.end_look(look, answered.now, &seen);
            state.shards.keep_first_end(first_end);
            (state.is_member, state.shards.are_lost())
        };
        // If the servers have lost all shards of this node, they may have lost the whole deployment. The store must
        // then be closed.
        if are_lost && let Some(gone) = self.deployment.gone().await {
            return Err(gone);
        }
        Ok((looked, is_member))
    }

    /// Returns the Redis keys of a claim's script for `shards`, and the last arguments of the script. The keys of a
    /// shard include one key for each [slice](Slice) of pending timers that the last answer about the shard has listed.
    /// The arguments tell the script which keys belong to slices.
    fn keys_of_claim(&self, shards: &[Shard]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let parts = [Part::Meta, Part::Slices, Part::Records, Part::Tokens, Part::Leases, Part::Counts];
        let (mut keys, mut names) = (Vec::new(), Vec::new());
        let all = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        for shard in shards {
            let slices = all.get(usize::from(*shard)).map_or(&[][..], |slices| slices);
            // The script `claim.lua` expects the keys and the slices of each shard in this order.
            keys.extend(self.deployment.layout.keys(*shard, parts));
            keys.extend(slices.iter().map(|slice| self.deployment.layout.key(*shard, Part::Slice(*slice))));
            names.push(decimal(slices.len() as u64));
            names.extend(slices.iter().map(|slice| decimal(slice.number())));
        }
        (keys, names)
    }
}
