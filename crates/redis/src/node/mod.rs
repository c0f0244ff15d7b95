//! The nodes of a deployment, and the shards that each of them serves.
//!
//! A *node* is a store that claims timers. Its *incarnation* identifies it: a random number that is drawn when the
//! store is opened. Names are only for people. A store that only creates timers is not a node. The nodes divide the
//! shards between them, and only the node that *owns* a shard asks the server for its timers. Ownership saves work and
//! decides nothing: the token of a lease decides who delivers a timer. So two nodes that both regard themselves as the
//! owner of a shard do no harm.
//!
//! # A shard
//!
//! | state | the hash `meta` of the shard | left by |
//! |---|---|---|
//! | free | no `owner` | a claim of the node that wants the shard: owned |
//! | owned | `owner`, and `until` is ahead by at most `ttl` | a claim of the owner, which moves `until`; a release: free; time: expired |
//! | expired | `owner`, and `until` is past; or `until` is ahead by more than `ttl`, because the clock was set back | a claim of the owner: owned; a claim of another node that wants the shard: owned by the other node, and a *takeover* is counted |
//!
//! `epoch` counts the changes of owner. Like names, it is for people: after a failover that lost writes it steps back,
//! and two nodes may have owned a shard in the same epoch. `id` is the id of the deployment. If a shard has no id, its
//! server has lost the shard's data. Nobody serves the shard until it is mended; the file `deployment/losses.rs` has
//! the cases. A shard with another id belongs to a deployment that was created anew. Then the store is closed, so that
//! it does not mix the two deployments.
//!
//! # A node
//!
//! | state | begins with | ends with |
//! |---|---|---|
//! | outside | the opening; `leave`; a step back | a claim: the node gives a sign of life, and is live |
//! | live | a sign of life, one each quarter of `ttl` | no sign for `ttl`: silent; no connection at two looks of another node: buried |
//! | buried | another node makes the last sign of this node as old as that of a silent node, and then expires the shards of this node | a sign, if it lives after all: live |
//! | silent | | a sign: live; an hour: forgotten |
//!
//! *Death by connection.* A node listens to a channel of its own, on the same connection as to the messages of all
//! nodes. Twice a second each node asks the server which channels have a listener; this is a *look* for the dead. If a
//! channel had a listener and has none at two looks, its node has lost its connection: the process has died, or its
//! network has failed. Another node then *buries* the dead node by a script, which asks the server once more. A node
//! that merely sleeps (SIGSTOP, a paused machine) keeps its connection, and so keeps its shards until its `ttl` is
//! over.
//!
//! Only a node that has seen the other node connected, and has kept its own connection since, may bury it. So after a
//! restart of the server, nobody is buried before it was seen again. Old programs, and stores without a thread, have no
//! channel. The servers of a cluster know only their own listeners. So all nodes of a cluster listen at the primary
//! that has the key of the deployment, and the looks ask that primary. If a look does not find its own node there, the
//! primary is new, and the look says nothing about the other nodes.
//!
//! Every node computes by rendezvous hashing (`rendezvous.rs`) which live node a shard belongs to. A node *wants* the
//! shards that belong to it. It claims these shards, and releases those that it owns and does not want. So the nodes
//! need no leader, and they agree as soon as they know of the same live nodes.
//!
//! A node *steps back* if its runtime has not claimed for `ttl` although a timer of its shards is due, for example
//! because all handlers are busy. It gives up its shards, since other nodes may have room. Its next claim makes it a
//! node again.
//!
//! # Races
//!
//! - *Two nodes take a shard.* The script of a claim takes the shard: the second script finds an owner.
//! - *A node is paused for longer than `ttl` and comes back.* Its shards have other owners. The timers that it had
//!   claimed are leased under its tokens. If the lease of a timer is over and the timer was claimed again, the server
//!   refuses to end the delivery under the old token. The answer to its next claim says that the shards are not its
//!   own.
//! - *A node starts.* The other nodes get its message. Each of them gives a sign within 1.25 s, for any `ttl` and any
//!   pause of the poll. The answer to that sign names the new node. If the sign fails, the node gives it again.
//! - *A living node is buried:* it was without its connection for some time and connects again. Its shards have other
//!   owners, and the answer to its next claim says so. Its next sign makes it live again. It keeps its leases.
//! - *Two nodes bury a third node.* The second script finds that the third node is silent already.
//! - *A node dies after it has buried another node, but before it has expired that node's shards.* The shards become
//!   free when their `ttl` is over.
//! - *A node gives a sign between the look and the burial.* The script checks the listener, and not the sign. A node
//!   without its connection is buried all the same, and its next sign makes it live.
//! - *A sign of life is lost.* The node gives another sign after the pause of a poll. It keeps its shards until their
//!   time is over, even if other nodes regard it as silent, and its claims go on moving that time.
//! - *The server of the nodes' registry is out, and other servers of the cluster are not.* The nodes go on with the
//!   live nodes that they knew: each counts as live for `ttl` after its last known sign. A node may then wrongly regard
//!   another node as silent and want its shards. The answer to its claim says that they are owned.
//! - *A failover loses the last writes.* A shard may again be owned by its previous owner. Both nodes claim, but the
//!   script lets only the owner lease. The other node takes the shard back once the shard is released or expired. Each
//!   lease has the token of its own claim, so a node cannot end a delivery of the other node.
//! - *A server loses its data, or a part of them.* See `id` above.
//! - *The key of the deployment is lost, and its shards are not.* Signs of life fail. A node goes on with the live
//!   nodes that it knew, and regards itself as live.
//! - *A claim is answered after the node has left.* The shards that the claim took are released again.
//! - *The answer of the claim that took a shard is lost, or a release fails, or a release is answered after a later
//!   claim.* The node then does not know that it owns the shard. Its next look at the shard asks when the first lease
//!   there ends, as a claim that takes a shard does anyway. The runtime ends overdue leases at that moment, since a
//!   dead node may have leased there.
//!
//! # Data that go back
//!
//! A server that was started from an older snapshot has older data than before, and so has a replica that took over
//! without the last writes. The key of the deployment has the moment of the latest sign of life of any node. That
//! moment never goes back by itself. Each sign carries the latest moment that its node knows, so that the script can
//! compare the two.
//!
//! If the stored moment has gone back by more than `may_lose`, the sign fails and changes nothing, and the store is
//! closed for good: created timers would be missing, and cancelled timers would be delivered. A quarter of `ttl` is
//! added to `may_lose`, since the last sign may be lost as well. If the stored moment has gone back by less, the node
//! goes on and counts the event. A node whose connection was made again gives its sign before it claims. A node that is
//! started again has no earlier moment to compare, and accepts the data as they are. In a cluster, only the server of
//! the nodes' registry is seen to go back.
//!
//! # The thread
//!
//! A store with a poll has a thread (`upkeep/thread.rs`). The thread gives the signs of life and releases shards. Once
//! in a pause it *looks* at each shard of the node, by a claim that leases nothing. If a timer is due that the runtime
//! does not know, the thread wakes the runtime. Errors and panics do not end the thread. It waits for a server only
//! until its next duty is due: a call without an answer stays at its server, and the thread looks at the other groups
//! of shards.
//!
//! The thread also takes a step of the sweep once in 20 pauses of the poll. The sweep (`upkeep/sweep.rs`) repairs
//! stored data.
//!
//! *Hints* make polls rare. A commit that stores the first timer of a shard publishes a message (`messages.rs`) if the
//! timer is due before the next poll and another node owns the shard. A node polls every 1.25 s while messages reach
//! it, and otherwise every 250 ms. If a hint is lost, its timer is late by a poll at most.
//!
//! # Groups
//!
//! A *group* is the shards that one script may read. On one server, it has all shards of a node. In a cluster, each
//! shard is a group of its own. A group is *sick* if its server fails, or does not answer within a moment after the
//! others. The claims of the runtime leave a sick group out. The thread goes on asking it, and its first answer makes
//! it healthy. A claim fails only if no group has answered it. Reaps, which end overdue leases, leave sick groups out,
//! too: the look that finds a group healthy also asks when its first lease ends. A group that fails at a reap is asked
//! again after a second.
//!
//! A group is in *doubt* if a claim may have leased there and the claim's answer was lost. The next claim of the
//! runtime asks for these leases once the group is healthy. The thread wakes the runtime for that claim.

mod bell;
mod membership;
mod messages;
mod peer;
mod registry;
mod rendezvous;
mod shards;
mod this_node;

pub(crate) use messages::{due_message, parked_message};
pub(crate) use shards::{Look, Seen};
pub(crate) use this_node::{LONGEST_POLL, MAY_LOSE, Node, OnSetBack, Settings, TTL};
