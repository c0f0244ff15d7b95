//! Signs of life, and what follows from those of the others.

use super::peer::{Peer, Text};
use super::{Nodes, Sight, State, rendezvous};
use crate::commit::text as text_of;
use crate::connect::is_gone;
use crate::layout::{Part, Shard};
use crate::shared::{Answered, Core};
use crate::time::{millis, moment};
use crate::values::{Values, bytes, filled, maybe_number, number};
use core::time::Duration;
use futures_util::future::try_join_all;
use std::collections::HashMap;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{Node, Shard as ShardOfNodes, StoreError, StoreErrorKind};

impl State {
    /// Computes which shards belong to this node, if other nodes are live than before.
    pub(super) fn divide(&mut self, this: u64, now: UtcMillis) {
        if !self.is_member {
            return;
        }
        let others = self.peers.iter().filter(|peer| peer.is_live(now)).map(|peer| peer.incarnation);
        let mut live: Vec<u64> = others.filter(|other| *other != this).chain([this]).collect();
        live.sort_unstable();
        if live != self.live {
            self.shards.want(|shard| rendezvous::owner(&live, shard) == Some(this));
            self.live = live;
        }
    }

    /// Notes that the messages come by another connection from now on, or by none.
    pub(super) fn hear_anew(&mut self) {
        self.hearings += 1;
        self.sights.clear();
    }

    /// The attempt to connect that has had the last sign of life.
    pub(crate) fn sign_by(&self) -> u64 {
        self.sign_by
    }

    /// Whether a sign of life is due.
    pub(super) fn is_sign_due(&self, now: UtcMillis, ttl: Duration) -> bool {
        // Before the last sign: the clock was set back.
        self.is_stirred || self.sign.is_none_or(|sign| now < sign || now - sign >= ttl / 4)
    }

    /// A shard whose server does not answer: its last answer, and what this node knows.
    fn as_known(&self, number: Shard, this: u64) -> ShardOfNodes {
        let told = self.told.get(usize::from(number)).cloned().unwrap_or_default();
        let mut shard = ShardOfNodes { number, is_silent: true, ..told };
        shard.owner = shard.owner.filter(|owner| *owner != this);
        if self.shards.is_owned(number) {
            shard.owner = Some(this);
            shard.first_due = self.shards.due(number);
        }
        shard.polled = self.shards.polled(number);
        shard
    }

    /// The time until a sign of life is due.
    pub(super) fn rest_of_sign(&self, now: UtcMillis, ttl: Duration) -> Duration {
        self.sign.map_or(Duration::ZERO, |sign| (ttl / 4).saturating_sub(now - sign))
    }
}

impl Nodes {
    fn text(&self, since: UtcMillis) -> Text {
        Text {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            since,
            ttl: self.ttl,
            has_channel: self.has_thread(),
        }
    }
}

impl Nodes {
    /// Forgets what is known of a deployment that no longer exists. The next claim enters the one in its place.
    pub(crate) fn begin_anew(&self) {
        let mut state = self.state();
        state.is_member = false;
        let _owned = state.shards.clear();
        state.live.clear();
        state.peers.clear();
        state.sights.clear();
        state.told.clear();
        (state.sign, state.sign_by, state.latest) = (None, 0, UtcMillis::ZERO);
    }
}

/// The time for which a node must be without its connection to be taken for dead: one that makes its connection anew
/// has it by then, mostly. If not, it loses its shards, which does no harm, and gives another sign.
const AWAY: Duration = Duration::from_millis(300);

/// The nodes of an answer.
fn peers(answered: &mut Answered) -> Result<Vec<Peer>, StoreError> {
    let (mut signs, mut texts) = (Values::of(answered.rest.next()?)?, Values::of(answered.rest.next()?)?);
    let mut said = HashMap::new();
    while !texts.is_empty() {
        let (node, text) = (bytes(texts.next()?)?, bytes(texts.next()?)?);
        said.insert(node, Text::read(&text.unwrap_or_default()));
    }
    let mut peers = Vec::new();
    while !signs.is_empty() {
        let (node, seen) = (bytes(signs.next()?)?, number(&signs.next()?)?);
        let incarnation = node.as_deref().and_then(|node| core::str::from_utf8(node).ok()?.parse().ok());
        let text = said.remove(&node).unwrap_or_default();
        // Another entry than a node's is none of ours.
        peers.extend(incarnation.map(|incarnation| Peer {
            incarnation,
            seen: UtcMillis::from_millis(seen),
            text,
        }));
    }
    Ok(peers)
}

impl Core {
    /// Makes this store a node, if it is none. Without a thread, the claims give the signs of life as well.
    pub(crate) async fn enter(&self) -> Result<(), StoreError> {
        let now = self.time.now();
        let (is_member, is_due, is_new) = {
            let mut state = self.nodes.state();
            state.divide(self.nodes.incarnation, now);
            let is_new = state.sign_by != self.link.attempt();
            (state.is_member, state.is_sign_due(now, self.nodes.ttl), is_new)
        };
        // On a new connection the data may be older ones: the sign says so before a timer is claimed.
        if is_member && !is_new && (self.nodes.has_thread() || !is_due) {
            return Ok(());
        }
        let sign = self.give_sign(!is_member).await;
        if !is_member {
            match sign {
                // The nodes' registry is lost, and this node's shards are not.
                Err(error) if is_gone(&error) => {
                    let mut state = self.nodes.state();
                    state.is_member = true;
                    state.divide(self.nodes.incarnation, now);
                }
                sign => sign?,
            }
            self.listen();
            self.nodes.bell.ring();
        } else if let Err(error) = sign {
            // The data may not be those of before.
            if is_new && !is_gone(&error) {
                return Err(error);
            }
        } else {
            let unwanted = self.nodes.state().shards.unwanted();
            self.release_shards(unwanted).await;
        }
        Ok(())
    }

    /// Gives a sign of life, and takes what it answers. `enters` makes a node of a store that is none.
    pub(super) async fn give_sign(&self, enters: bool) -> Result<(), StoreError> {
        let nodes = &self.nodes;
        let (since, was_stirred) = {
            let mut state = nodes.state();
            if enters {
                state.since = self.time.now();
            }
            (state.since, core::mem::take(&mut state.is_stirred))
        };
        let keys = vec![self.deployment.key.clone(), nodes.keys.signs.clone(), nodes.keys.texts.clone()];
        let text = nodes.text(since).write();
        let known = nodes.state().latest;
        let sign_by = self.link.attempt();
        let arguments = [
            self.deployment.id(),
            nodes.node.clone(),
            text,
            nodes.keys.channel.clone(),
            text_of(known.as_millis()),
            // The last sign may be lost with the last moment, and the one before is older by the time between them.
            time_text(nodes.may_lose.saturating_add(nodes.ttl / 4)),
        ];
        let answered = self.run(|scripts| &scripts.beat, keys, arguments).await;
        let mut answered = answered.inspect_err(|error| {
            let mut state = nodes.state();
            state.is_stirred |= was_stirred;
            if is_gone(error) {
                // Of a registry that is lost, nobody can say how old it was.
                state.sign_by = sign_by;
            }
        })?;
        let peers = peers(&mut answered)?;
        let latest = UtcMillis::from_millis(number(&answered.rest.next()?)?);
        let set_back = Some(known - latest).filter(|_| latest < known);
        let (has_left, has_changed) = {
            let mut state = nodes.state();
            state.sign_by = sign_by;
            state.latest = state.latest.max(latest).max(answered.now);
            if set_back.is_some() {
                // The others' signs of after that moment are lost, too.
                state.latest = latest.max(answered.now);
                state.set_backs += 1;
            }
            state.is_member |= enters;
            (state.peers, state.sign) = (peers, Some(answered.now));
            let live = state.live.clone();
            state.divide(nodes.incarnation, answered.now);
            (!state.is_member, live != state.live)
        };
        if has_changed {
            // Shards come, and with them timers that were parked by others.
            self.tell_parked(None);
        }
        if let (Some(time), Some(tell)) = (set_back, &nodes.on_set_back) {
            tell(time);
        }
        if has_left {
            // The store left while the sign was on its way.
            self.quit().await?;
        }
        Ok(())
    }

    /// Looks which of the others have lost their connections since they were last seen to have them. A node without its
    /// connection at two looks is dead, and its shards are free for others at once.
    pub(super) async fn look_for_dead(&self) -> Result<(), StoreError> {
        let nodes = &self.nodes;
        let (others, hearings): (Vec<(u64, Duration)>, u64) = {
            let (mut state, now) = (nodes.state(), self.time.now());
            let State { peers, sights, hearings, .. } = &mut *state;
            let is_other = |peer: &&Peer| {
                peer.incarnation != nodes.incarnation && peer.text.has_channel && peer.is_live(now)
            };
            let others: Vec<_> =
                peers.iter().filter(is_other).map(|peer| (peer.incarnation, peer.text.ttl)).collect();
            sights.retain(|node, _| others.iter().any(|(other, _)| other == node));
            (others, *hearings)
        };
        if others.is_empty() {
            return Ok(());
        }
        let asked = others.iter().map(|(node, _)| *node).chain([nodes.incarnation]);
        let channels: Vec<Vec<u8>> = asked.map(|node| nodes.channel_of(node)).collect();
        let keys = vec![self.deployment.key.clone()];
        let mut answered = self.run(|scripts| &scripts.present_nodes, keys, channels).await?;
        let mut counts = Vec::new();
        let mut answers = Values::of(answered.rest.next()?)?;
        while !answers.is_empty() {
            counts.push(number(&answers.next()?)?);
        }
        if nodes.state().hearings != hearings {
            // The answer is perhaps of the server before.
            return Ok(());
        }
        if counts.pop().is_none_or(|own| own == 0) {
            // This server does not have the connections: the slot of the deployment has another primary than before.
            nodes.state().sights.clear();
            return Ok(());
        }
        let mut dead = Vec::new();
        for ((node, ttl), count) in others.into_iter().zip(counts) {
            let is_there = count > 0;
            let mut state = nodes.state();
            match (is_there, state.sights.get_mut(&node)) {
                (true, _) => _ = state.sights.insert(node, Sight::There),
                // It has not been seen with its connection, or was away when this node's own connection ended.
                (false, None) => {}
                (false, Some(sight @ Sight::There)) => *sight = Sight::Away(moment()),
                (false, Some(Sight::Away(since))) if moment() - *since >= AWAY => dead.push((node, ttl)),
                (false, Some(Sight::Away(_))) => {}
            }
        }
        for (node, ttl) in dead {
            self.bury(node, ttl).await?;
        }
        Ok(())
    }

    /// Ends the time of a node whose connection has ended, and then that of its shards. All nodes learn of both by
    /// messages.
    async fn bury(&self, node: u64, ttl: Duration) -> Result<(), StoreError> {
        let nodes = &self.nodes;
        let keys = vec![self.deployment.key.clone(), nodes.keys.signs.clone()];
        let (name, channel) = (node.to_string().into_bytes(), nodes.channel_of(node));
        let hints = nodes.keys.channel.clone();
        let arguments = [self.deployment.id(), name.clone(), channel, hints.clone(), time_text(ttl)];
        let answered = self.run(|scripts| &scripts.bury, keys, arguments).await;
        let is_dead = match answered {
            Ok(mut answered) => number(&answered.rest.next()?)? == 1,
            // If it was buried, nobody buries it again, and a node that lives loses a part of its shards at most.
            Err(error) if error.kind() == StoreErrorKind::Unknown => true,
            Err(error) => return Err(error),
        };
        nodes.state().sights.remove(&node);
        if is_dead {
            let calls = self.groups_of(self.layout.shards()).into_iter().map(|group| {
                let keys = self.parts(&group, [Part::Meta]);
                (group, self.run(|scripts| &scripts.expire, keys, [name.clone(), hints.clone()]))
            });
            // A shard whose server does not answer is free when its time is over.
            let _failed = self.gather(calls.collect::<Vec<_>>()).await;
        }
        Ok(())
    }

    /// Releases shards of this node. A shard whose server does not answer is free when its time is over.
    pub(crate) async fn release_shards(&self, shards: Vec<Shard>) {
        let calls = self.groups_of(shards).into_iter().map(|group| {
            let keys = self.parts(&group, [Part::Meta]);
            let arguments = [self.nodes.node.clone(), self.nodes.keys.channel.clone()];
            (group, self.run(|scripts| &scripts.release, keys, arguments))
        });
        for (group, _) in self.gather(calls.collect::<Vec<_>>()).await.answers {
            let mut state = self.nodes.state();
            group.into_iter().for_each(|shard| state.shards.released(shard));
        }
    }

    async fn quit(&self) -> Result<(), StoreError> {
        let nodes = &self.nodes;
        let keys = vec![nodes.keys.signs.clone(), nodes.keys.texts.clone()];
        let arguments = [nodes.node.clone(), nodes.keys.channel.clone()];
        self.run(|scripts| &scripts.quit, keys, arguments).await.map(drop)
    }

    /// Gives all shards up, and ends this store's life as a node until its next claim.
    pub(crate) async fn leave(&self) -> Result<(), StoreError> {
        let (was_member, owned) = {
            let mut state = self.nodes.state();
            let was_member = core::mem::take(&mut state.is_member);
            state.live.clear();
            (state.sign, state.listening) = (None, None);
            (was_member, state.shards.clear())
        };
        if !was_member {
            return Ok(());
        }
        self.nodes.deaf();
        self.release_shards(owned).await;
        match self.quit().await {
            // There is nothing to leave.
            Err(error) if error.kind() == StoreErrorKind::Closed => Ok(()),
            result => result,
        }
    }

    /// The nodes and the shards, as the servers have them. Of a cluster's servers some may not answer: then the nodes,
    /// and the shards there, are as they were known here before.
    pub(crate) async fn nodes(&self) -> Result<tourbillon_durable::store::Nodes, StoreError> {
        let groups = self.groups_of(self.layout.shards()).into_iter().map(Some);
        let calls = [None].into_iter().chain(groups).map(|group| ((), self.tell(group)));
        let calls: Vec<_> = calls.collect();
        let told: Vec<Told> = match self.is_split {
            true => self.gather(calls).await.any()?.answers.into_iter().map(|((), told)| told).collect(),
            false => try_join_all(calls.into_iter().map(|(_, call)| call)).await?,
        };
        let this = self.nodes.incarnation;
        let mut state = self.nodes.state();
        let (mut now, mut registered) = (None, None);
        let mut shards: Vec<_> = self.layout.shards().map(|shard| state.as_known(shard, this)).collect();
        for told in told {
            let (then, answered) = match told {
                Told::Registry(then, peers) => {
                    registered = Some(peers);
                    (then, Vec::new())
                }
                Told::Shards(then, shards) => (then, shards),
            };
            now = now.max(Some(then));
            for shard in answered {
                let polled = state.shards.polled(shard.number);
                if let Some(of) = shards.get_mut(usize::from(shard.number)) {
                    *of = ShardOfNodes { polled, ..shard };
                }
            }
        }
        state.told.clone_from(&shards);
        let is_silent = registered.as_ref().is_none_or(Vec::is_empty);
        let now = now.unwrap_or_else(|| self.time.now());
        let of = |peer: Peer| Node {
            incarnation: peer.incarnation,
            seen: peer.seen,
            // This node lives, if no sign of it can be stored.
            is_live: peer.is_live(now) || is_silent && state.is_member && peer.incarnation == this,
            is_this: peer.incarnation == this,
            name: peer.text.name,
            version: peer.text.version,
            since: peer.text.since,
        };
        // A server that has lost the registry has no node, and this one is there.
        let registered = registered.filter(|peers| !peers.is_empty() || !state.is_member);
        let peers = registered.unwrap_or_else(|| state.peers.clone());
        let mut nodes: Vec<Node> = peers.into_iter().map(of).collect();
        nodes.sort_by_key(|node| (node.since, node.incarnation));
        let set_backs = state.set_backs;
        Ok(tourbillon_durable::store::Nodes { now, nodes, shards, set_backs })
    }

    /// Asks for the shards of a group, or for the nodes.
    async fn tell(&self, group: Option<Vec<Shard>>) -> Result<Told, StoreError> {
        let Some(group) = group else {
            let keys = vec![self.nodes.keys.signs.clone(), self.nodes.keys.texts.clone()];
            let mut answered = self.run(|scripts| &scripts.nodes, keys, []).await?;
            return Ok(Told::Registry(answered.now, peers(&mut answered)?));
        };
        let keys = self.parts(&group, [Part::Meta, Part::Slices]);
        let mut answered = self.run(|scripts| &scripts.owners, keys, []).await?;
        let mut values = Values::of(answered.rest.next()?)?;
        let shards: Result<_, StoreError> =
            group.into_iter().map(|number| shard_of(number, &mut values)).collect();
        Ok(Told::Shards(answered.now, shards?))
    }
}

/// The answer of a server about the nodes or the shards.
enum Told {
    /// The moment, and the nodes.
    Registry(UtcMillis, Vec<Peer>),
    /// The moment, and the shards of a group.
    Shards(UtcMillis, Vec<ShardOfNodes>),
}

fn shard_of(number: Shard, values: &mut Values) -> Result<ShardOfNodes, StoreError> {
    let owner = filled(values.next()?)?;
    let mut next = || maybe_number(values.next()?);
    let mut shard = ShardOfNodes {
        number,
        owner: owner.and_then(|owner| core::str::from_utf8(&owner).ok()?.parse().ok()),
        polled: None,
        epoch: next()?.unwrap_or_default(),
        takeovers: next()?.unwrap_or_default(),
        taken_over: next()?.map(UtcMillis::from_millis),
        first_due: next()?.map(UtcMillis::from_millis),
        is_silent: false,
        is_lost: false,
    };
    shard.is_lost = filled(values.next()?)?.is_none();
    Ok(shard)
}

/// A time as an argument of a script.
pub(crate) fn time_text(time: Duration) -> Vec<u8> {
    text_of(millis(time))
}
