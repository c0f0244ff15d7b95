//! The nodes of a deployment, and the shards that each of them serves.
//!
//! A *node* is a store that claims. An incarnation identifies it, which it draws when it is opened; names are for
//! people. A store that only places timers is not a node. The nodes divide the shards between them: each shard is
//! looked at by one node. Ownership spares work and decides nothing: the token of a lease decides who delivers a timer.
//! So two nodes that both take themselves for the owner of a shard do no harm.
//!
//! # A shard
//!
//! | state | the hash `meta` of the shard | left by |
//! |---|---|---|
//! | free | no `owner` | a claim of the node that wants the shard: owned |
//! | owned | `owner`, and `until` is ahead by at most `ttl` | a claim of the owner, which moves `until`; a release: free; time: expired |
//! | expired | `owner`, and `until` is past, or further ahead than `ttl`, which a clock that was set back leaves | a claim of the owner: owned; a claim of another node that wants the shard: owned by the other node, and a *takeover* is counted |
//!
//! `epoch` counts the changes of owner, for people as well. After a failover that lost writes it steps back, and two
//! nodes may have owned a shard in the same epoch. `id` is the deployment's. A shard without an id was lost by its
//! server. Nobody serves it until it is mended; the file `deployment/losses.rs` has the cases. A shard with another id
//! belongs to a deployment that was created anew. Then the store is closed, so that it does not mix the two.
//!
//! # A node
//!
//! | state | begins with | ends with |
//! |---|---|---|
//! | outside | the opening; `leave`; a step back | a claim: the node gives a sign of life, and is live |
//! | live | a sign of life, one each quarter of `ttl` | no sign for `ttl`: silent; no connection at two looks of another node: buried |
//! | buried | its last sign is made as old as that of a silent node, then its shards are expired | a sign, if it lives after all: live |
//! | silent | | a sign: live; an hour: forgotten |
//!
//! *Death by connection.* A node listens to a channel of its own, on the connection by which it gets the others'
//! messages. Twice a second each node asks the server which channels have a listener. A node whose channel had a
//! listener, and has none at two looks, has lost its connection: its process has died, or its network has. Another node
//! buries it by a script that asks the server once more. A node that merely sleeps (SIGSTOP, a paused machine) keeps
//! its connection, and so its shards until its `ttl` is over.
//!
//! A node is buried only by a node that has seen it with its connection, and that has kept its own connection since:
//! after a restart of the server, nobody is buried before it was seen again. Old programs, and stores without a thread,
//! have no channel. The servers of a cluster know only of their own listeners. So all nodes of a cluster listen at the
//! primary that has the key of the deployment, and the looks ask that primary. If a look does not find its own node
//! there, the primary is new and the look says nothing about the other nodes.
//!
//! Every node computes by rendezvous hashing (`rendezvous.rs`) to which live node a shard belongs. A node *wants* the
//! shards that belong to it. It claims these, and releases those that it owns and does not want. So the nodes need no
//! leader, and nodes with different knowledge agree as soon as their knowledge is the same.
//!
//! A node *steps back* if its runtime has not claimed for `ttl` although a timer of its shards is due, for example
//! because all handlers are busy: other nodes may have room. The next claim enters again.
//!
//! # Races
//!
//! - *Two nodes take a shard.* The script of the claim takes it: the second script finds an owner.
//! - *A node is paused for longer than `ttl` and comes back.* Its shards have other owners. Timers that it had claimed
//!   are leased under its tokens: an end is refused if the lease is over and the timer claimed again. Its next claim
//!   answers that the shards are not its own.
//! - *A node comes.* The others get its message, and give a sign at once or 1.25 s after their last sign, for any `ttl`
//!   and any pause of the poll. The answer to the sign has the new node. If that sign fails, it is given again.
//! - *A living node is buried:* it was without its connection for some time and connects again. Its shards have other
//!   owners, its next claim is answered so, and its next sign makes it live again. It keeps its leases.
//! - *Two nodes bury a third node.* The second script finds no sign.
//! - *A node dies between a burial and the end of the buried node's shards.* The shards are free when their time is
//!   over.
//! - *A node gives a sign between the look and the burial.* The script checks the listener, and not the sign. A node
//!   without its connection is buried all the same, and its next sign makes it live.
//! - *A sign of life is lost.* The node gives another sign after the pause of a poll. The shards are the node's until
//!   their time is over, even if other nodes take it for silent, and its claims go on moving that time.
//! - *The server of the nodes' registry is out, and other servers of the cluster are not.* The nodes go on with the
//!   live nodes that they knew: each counts as live for `ttl` after its last known sign. A node that wants shards of a
//!   node which it wrongly takes for silent is answered that they are owned.
//! - *A failover loses the last writes.* A shard may again be owned by its previous owner. Both nodes claim, but the
//!   script lets only the owner lease. The other node takes the shard back once it is released or expired. Tokens
//!   differ, so no end of one node is taken for an end of the other.
//! - *A server loses its data, or a part of them.* See `id` above.
//! - *The key of the deployment is lost, and its shards are not.* Signs of life fail. A node goes on with the live
//!   nodes that it knew, and takes itself for live.
//! - *A claim is answered after the node has left.* The shards that it took are released again.
//! - *The answer of the claim that took a shard is lost, a release fails, or its answer comes after a later claim's.*
//!   The node does not take the shard for its own in that case, and its next look asks when the first lease there ends.
//!   A claim that takes a shard answers the same by itself. The runtime reaps at that moment, since a dead node may
//!   have leased there.
//!
//! # Data that go back
//!
//! A server that was started from an older snapshot, and a replica that took over without the last writes, have older
//! data. The key of the deployment has the moment of the latest sign of life of any node, which never goes back by
//! itself. A sign carries the latest moment that its node knows.
//!
//! If the moment has gone back by more than `may_lose`, the sign fails and changes nothing, and the store is closed for
//! good: created timers would be missing, and cancelled timers would be delivered. A quarter of `ttl` is added to
//! `may_lose`, since the last sign may be lost with the last moment. If the moment has gone back by less, the node goes
//! on and counts it. A node whose connection was made again gives its sign before it claims. A node that is started
//! again has no earlier moment to compare, and takes the data as they are. In a cluster only the server of the nodes'
//! registry is seen to go back.
//!
//! # The thread
//!
//! A store with a poll has a thread (`upkeep/thread.rs`). It gives the signs of life, releases, and looks at
//! each shard of the node once in a pause: by a claim that leases nothing. If a timer is due that the runtime does not
//! know of, the thread wakes it. Errors and panics do not end the thread. It waits for a server at most until its next
//! duty. A call without an answer stays at its server, and the thread looks at the other groups of shards.
//!
//! The thread also takes a step of the sweep in 20 pauses of the poll.
//!
//! *Hints* make polls rare. A commit that stores the first timer of a shard publishes a message if the timer is due
//! before the next poll and another node owns the shard (`messages.rs`). While such messages reach a node, it polls
//! every 1.25 s, and otherwise every 250 ms. A hint that is lost makes a timer late by a poll at most.
//!
//! # Groups
//!
//! On one server one script looks at all shards of a node. In a cluster each shard has a script of its own. A group
//! whose server fails, or does not answer within a moment after the others, is *sick*: the claims of the runtime leave
//! it out, the thread goes on asking, and its first answer makes it healthy. A claim fails only if no group has
//! answered it. Reaps leave sick groups out, too: the look that finds a group healthy asks when its first lease ends. A
//! group that fails at a reap is asked again after a second.
//!
//! A group is in *doubt* if a claim may have leased there, and its answer was lost. The next claim of the runtime asks
//! for these leases once the group is healthy, and the thread wakes the runtime for it.

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
