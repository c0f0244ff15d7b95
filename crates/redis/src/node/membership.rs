//! Sends the signs of life of this node, and acts on the signs of the other nodes. A *sign of life* is a heartbeat: the
//! script `heartbeat` stores its time in the registry of nodes on the server.

use super::peer::{NodeRecord, Peer};
use super::this_node::{Node, Sight, State};
use super::{registry, rendezvous};
use crate::deployment::time_text;
use crate::layout::{Part, Shard};
use crate::link::is_gone;
use crate::script::decimal;
use core::time::Duration;
use std::sync::Arc;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{ServerTime, StoreError, StoreErrorKind};

impl State {
    /// If the set of live nodes has changed, computes again which shards belong to this node. `this` is the
    /// incarnation of this node (its random number).
    pub(crate) fn divide(&mut self, this: u64, now: UtcMillis) {
        if !self.is_member {
            return;
        }
        // This node always counts as live for itself, even if its own signs are lost: it keeps its shards and goes on
        // claiming.
        let others = self.peers.iter().filter(|peer| peer.is_live(now)).map(|peer| peer.incarnation);
        let mut live: Vec<u64> = others.filter(|other| *other != this).chain([this]).collect();
        // The list is sorted, so that the comparison does not depend on the order in the server's answer.
        live.sort_unstable();
        if live != self.live {
            self.shards.want(|shard| rendezvous::owner(&live, shard) == Some(this));
            self.live = live;
        }
    }

    /// Forgets which other nodes were seen connected, because this node's subscription has begun or ended. The next
    /// subscription may be at another server, which does not know these connections.
    pub(super) fn hear_anew(&mut self) {
        self.hearings += 1;
        self.sights.clear();
    }

    /// Identifies the connection on which this node sent its last sign of life, a heartbeat to the server. The result
    /// is the number of the attempt to connect that made this connection, as
    /// [`Link::attempt`](crate::link::Link::attempt) returns it.
    pub(crate) fn sign_by(&self) -> u64 {
        self.sign_by
    }

    /// Returns whether this node must send a sign of life, a heartbeat to the server, now. A sign is due a quarter
    /// of `ttl` after the last sign. It is due at once if other nodes have come or gone, if messages about them may
    /// have been lost, or if the clock was set back.
    pub(crate) fn is_sign_due(&self, now: UtcMillis, ttl: Duration) -> bool {
        // If `now` is before the last sign, the clock was set back.
        self.is_stirred || self.sign.is_none_or(|sign| now < sign || now - sign >= ttl / 4)
    }

    /// Returns the time until this node must send its next sign of life, a heartbeat to the server. Returns zero if the
    /// server has answered no sign of this node yet.
    pub(crate) fn rest_of_sign(&self, now: UtcMillis, ttl: Duration) -> Duration {
        self.sign.map_or(Duration::ZERO, |sign| (ttl / 4).saturating_sub(now - sign))
    }
}

impl Node {
    fn record(&self, since: UtcMillis) -> NodeRecord {
        NodeRecord {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            since,
            ttl: self.ttl,
            has_channel: self.has_thread(),
        }
    }
}

impl Node {
    /// Forgets all knowledge about a deployment that no longer exists. With its next claim, this process becomes a node
    /// of the new deployment.
    pub(crate) fn begin_anew(&self) {
        let mut state = self.state();
        state.is_member = false;
        // The shards of the old deployment are gone and need no release.
        let _owned = state.shards.clear();
        // With an empty list, the next `divide` assigns the shards again, even if the same nodes are live.
        state.live.clear();
        state.peers.clear();
        state.sights.clear();
        state.told.clear();
        // Compared with a moment of the old deployment, the data of the new deployment could seem to have gone back.
        (state.sign, state.sign_by, state.latest) = (None, 0, UtcMillis::ZERO);
    }
}

/// If a node has had no connection to the server for this time, other nodes declare it dead and can take its shards.
/// Most nodes that lose their connection are connected again sooner. If a living node is declared dead, it keeps the
/// leases of its timers, and its next sign of life (a heartbeat to the server) makes it live again.
const AWAY: Duration = Duration::from_millis(300);

impl Node {
    /// Makes this store a node of the deployment if it is not a node yet. If the store is a node already and its
    /// connection to the server is new, sends a sign of life, a heartbeat to the server. The answer shows whether the
    /// server has lost data. A node without a background thread also sends its sign of life here when the sign is due.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<(), StoreError> {
        let now = self.deployment.time.now();
        let (is_member, is_due, is_new) = {
            let mut state = self.state();
            // A live node may have become silent since the last answer.
            state.divide(self.incarnation, now);
            let is_new = state.sign_by != self.deployment.link.attempt();
            (state.is_member, state.is_sign_due(now, self.ttl), is_new)
        };
        // The server behind a new connection may have older data. The sign of life detects that before a timer is
        // claimed.
        if is_member && !is_new && (self.has_thread() || !is_due) {
            return Ok(());
        }
        let sign = self.give_sign(!is_member).await;
        if !is_member {
            match sign {
                // The server has lost the nodes' registry, but not the shards of this node. So the node goes on.
                Err(error) if is_gone(&error) => {
                    let mut state = self.state();
                    state.is_member = true;
                    state.divide(self.incarnation, now);
                }
                sign => sign?,
            }
            // The thread may be asleep for a whole pause, because it has no duties in a store that is not a node.
            self.listen();
            self.bell.ring();
        } else if let Err(error) = sign {
            // The server behind a new connection may have other data than before. On the old connection, the claim goes
            // on after a failed sign: a node keeps its shards until their time is over.
            if is_new && !is_gone(&error) {
                return Err(error);
            }
        } else {
            // A node without a thread releases unwanted shards only here.
            let unwanted = self.state().shards.unwanted();
            self.release_shards(unwanted).await;
        }
        Ok(())
    }

    /// Sends a sign of life, a heartbeat to the server, and stores the list of nodes from the server's answer. If
    /// `enters` is true, the answer makes this store a node of the deployment, so that the node gets a part of the
    /// shards.
    pub(crate) async fn give_sign(&self, enters: bool) -> Result<(), StoreError> {
        let (since, was_stirred) = {
            let mut state = self.state();
            if enters {
                state.since = self.deployment.time.now();
            }
            // The flag is cleared before the request. A message that arrives during the request sets it again, because
            // the answer may not have the change that the message reports.
            (state.since, core::mem::take(&mut state.is_stirred))
        };
        let keys = vec![self.deployment.key.clone(), self.keys.signs.clone(), self.keys.records.clone()];
        let record = self.record(since).write();
        let known = self.state().latest;
        // The number is read before the request. If the connection is replaced in between, the sign counts for the old
        // connection, and the next claim sends another sign.
        let sign_by = self.deployment.link.attempt();
        let arguments = [
            self.deployment.id(),
            self.id.clone(),
            record,
            self.keys.channel.clone(),
            decimal(known.as_millis()),
            // The server measures the loss by the last sign. Signs are a quarter of `ttl` apart, so this time is added.
            time_text(self.may_lose.saturating_add(self.ttl / 4)),
        ];
        let answered = self.deployment.run(|scripts| &scripts.heartbeat, keys, arguments).await;
        let mut answered = answered.inspect_err(|error| {
            let mut state = self.state();
            // No answer has named the nodes, so the sign stays due.
            state.is_stirred |= was_stirred;
            if is_gone(error) {
                // Without a registry, the age of the server's data is unknown. The sign counts as sent on this
                // connection, so that claims go on.
                state.sign_by = sign_by;
            }
        })?;
        let peers = registry::peers(&mut answered)?;
        let latest = UtcMillis::from_millis(answered.rest.number()?);
        let set_back = Some(known - latest).filter(|_| latest < known);
        let (has_left, has_changed) = {
            let mut state = self.state();
            state.sign_by = sign_by;
            // Another sign of this node may have been answered during this request, so the moment is never set back
            // here.
            state.latest = state.latest.max(latest).max(answered.now);
            if set_back.is_some() {
                // The server has lost the signs that other nodes sent after `latest`. So this node forgets them, too.
                state.latest = latest.max(answered.now);
                state.set_backs += 1;
            }
            state.is_member |= enters;
            (state.peers, state.sign) = (peers, Some(answered.now));
            let live = state.live.clone();
            state.divide(self.incarnation, answered.now);
            (!state.is_member, live != state.live)
        };
        if has_changed {
            // This node may get shards in which other nodes have parked timers.
            self.deployment.parkings.tell(None);
        }
        if let (Some(time), Some(tell)) = (set_back, &self.on_set_back) {
            tell(time);
        }
        if has_left {
            // The store left while the sign was on its way.
            self.quit().await?;
        }
        Ok(())
    }

    /// Asks the server which other nodes are connected. Declares a node dead if it was connected before and has had no
    /// connection for [`AWAY`]. Other nodes can take the shards of a dead node at once.
    pub(crate) async fn look_for_dead(&self) -> Result<(), StoreError> {
        let (others, hearings): (Vec<(u64, Duration)>, u64) = {
            let (mut state, now) = (self.state(), self.deployment.time.now());
            let State { peers, sights, hearings, .. } = &mut *state;
            let is_other = |peer: &&Peer| {
                peer.incarnation != self.incarnation && peer.record.has_channel && peer.is_live(now)
            };
            let others: Vec<_> =
                peers.iter().filter(is_other).map(|peer| (peer.incarnation, peer.record.ttl)).collect();
            // A node that was silent must be seen connected again before it can be declared dead.
            sights.retain(|node, _| others.iter().any(|(other, _)| other == node));
            (others, *hearings)
        };
        if others.is_empty() {
            return Ok(());
        }
        let asked = others.iter().map(|(node, _)| *node).chain([self.incarnation]);
        let channels: Vec<Vec<u8>> = asked.map(|node| self.channel_of(node)).collect();
        let keys = vec![self.deployment.key.clone()];
        let mut answered = self.deployment.run(|scripts| &scripts.are_connected, keys, channels).await?;
        let mut counts = Vec::new();
        let mut answers = answered.rest.list()?;
        while !answers.is_empty() {
            counts.push(answers.number()?);
        }
        if self.state().hearings != hearings {
            // The answer may come from the server of the previous connection.
            return Ok(());
        }
        if counts.pop().is_none_or(|own| own == 0) {
            // This server does not have the connections: the deployment's slot has moved to another primary.
            self.state().sights.clear();
            return Ok(());
        }
        let mut dead = Vec::new();
        for ((node, ttl), count) in others.into_iter().zip(counts) {
            let is_there = count > 0;
            let mut state = self.state();
            match (is_there, state.sights.get_mut(&node)) {
                (true, _) => _ = state.sights.insert(node, Sight::There),
                // This node has not seen the other node connected since its own connection began, so nothing is known.
                (false, None) => {}
                (false, Some(sight @ Sight::There)) => *sight = Sight::Away(ServerTime::moment()),
                (false, Some(Sight::Away(since))) if ServerTime::moment() - *since >= AWAY => {
                    dead.push((node, ttl));
                }
                (false, Some(Sight::Away(_))) => {}
            }
        }
        for (node, ttl) in dead {
            self.bury(node, ttl).await?;
        }
        Ok(())
    }

    /// Declares a node dead because its connection to the server has ended. Also ends the node's ownership of its
    /// shards, so that other nodes can take them at once. The scripts that make these changes publish them to all
    /// nodes.
    async fn bury(&self, node: u64, ttl: Duration) -> Result<(), StoreError> {
        let keys = vec![self.deployment.key.clone(), self.keys.signs.clone()];
        let (name, channel) = (node.to_string().into_bytes(), self.channel_of(node));
        let hints = self.keys.channel.clone();
        let arguments = [self.deployment.id(), name.clone(), channel, hints.clone(), time_text(ttl)];
        let answered = self.deployment.run(|scripts| &scripts.bury, keys, arguments).await;
        let is_dead = match answered {
            Ok(mut answered) => answered.rest.number()? == 1,
            // The outcome is unknown. If the script has run, no later check declares the node dead, so its shards are
            // expired now. If the node lives after all, it loses at most a part of its shards.
            Err(error) if error.kind() == StoreErrorKind::Unknown => true,
            Err(error) => return Err(error),
        };
        // Without this entry, the node is not buried again until a later look has seen it connected.
        self.state().sights.remove(&node);
        if is_dead {
            let calls = self.deployment.all_groups().into_iter().map(|group| {
                let keys = self.deployment.keys(&group, [Part::Meta]);
                (group, self.deployment.run(|scripts| &scripts.expire, keys, [name.clone(), hints.clone()]))
            });
            // If a server does not answer, its shards become free when their `ttl` is over.
            let _failed = self.deployment.gather(calls.collect::<Vec<_>>()).await;
        }
        Ok(())
    }

    /// Releases `shards`, which this node owns, so that other nodes can take them. If the server of a shard does not
    /// answer, other nodes can take the shard when this node's ownership expires, at most `ttl` after the last claim.
    pub(crate) async fn release_shards(&self, shards: Vec<Shard>) {
        let calls = self.deployment.topology.groups(shards).into_iter().map(|group| {
            let keys = self.deployment.keys(&group, [Part::Meta]);
            let arguments = [self.id.clone(), self.keys.channel.clone()];
            (group, self.deployment.run(|scripts| &scripts.release, keys, arguments))
        });
        for (group, _) in self.deployment.gather(calls.collect::<Vec<_>>()).await.answers {
            let mut state = self.state();
            group.into_iter().for_each(|shard| state.shards.released(shard));
        }
    }

    async fn quit(&self) -> Result<(), StoreError> {
        let keys = vec![self.keys.signs.clone(), self.keys.records.clone()];
        let arguments = [self.id.clone(), self.keys.channel.clone()];
        self.deployment.run(|scripts| &scripts.quit, keys, arguments).await.map(drop)
    }

    /// Releases all shards of this node, and removes the node from the registry on the server. The store becomes a node
    /// again with its next claim.
    pub(crate) async fn leave(&self) -> Result<(), StoreError> {
        let (was_member, owned) = {
            let mut state = self.state();
            // The node stops being a member before it releases its shards. So a claim that is answered later sees this,
            // and releases the shards that it has taken.
            let was_member = core::mem::take(&mut state.is_member);
            // With an empty list, the next `divide` assigns the shards again, even if the same nodes are live.
            state.live.clear();
            (state.sign, state.listening) = (None, None);
            (was_member, state.shards.clear())
        };
        if !was_member {
            return Ok(());
        }
        // The task of the subscription ends a moment later, and reports its end only then.
        self.deaf();
        self.release_shards(owned).await;
        match self.quit().await {
            // The deployment is gone, so there is nothing to leave.
            Err(error) if error.kind() == StoreErrorKind::Closed => Ok(()),
            result => result,
        }
    }
}
