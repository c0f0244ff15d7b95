//! The state of each shard, as this node knows it.
//!
//! A *look* is a call that asks a server for the state of shards: a claim, or a poll of the background thread. A shard
//! is *sick* if its last look failed, or has no answer yet although other shards have answered.

use crate::deployment::Topology;
use crate::layout::Shard;
use core::time::Duration;
use tourbillon::Timestamp;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::ServerTime;

/// The states of all shards of the deployment.
pub(crate) struct Shards {
    each: Vec<Known>,
    /// The number of requests of the type [`Look`] that have begun, which is also the number of the latest request.
    looks: u64,
    /// The earliest end of a timer's lease that claims and polls have found. The next claim returns this moment to the
    /// runtime, and clears the field.
    first_end: Option<UtcMillis>,
    topology: Topology,
    /// True if the store has a background thread. A store without this thread expects that no other process uses the
    /// deployment. A store with the thread expects that other nodes lease timers in its shards, too, so it reads the
    /// ends of these leases again after [`ENDS`].
    has_thread: bool,
}

#[derive(Clone, Default)]
struct Known {
    /// True if the division of the shards between the live nodes assigns the shard to this node.
    is_wanted: bool,
    /// True if this node owns the shard, according to the last answer of the shard's server.
    is_owned: bool,
    /// True if the shard is sick. A shard becomes sick in two cases:
    ///
    /// - A claim or poll of the shard failed, or its answer is late.
    /// - An answer said that this node owns the shard, which the node had not known. But the claim or poll had not
    ///   asked for the earliest end of a timer's lease in the shard, so the node may not notice that a lease has
    ///   expired.
    ///
    /// The shard is no longer sick after an answer to a claim or poll that has asked for this end
    /// ([`Look::wants_end`]), or after an answer that says that this node does not own the shard. In a cluster, a store
    /// with a background thread leaves sick shards out when it claims timers or ends expired leases.
    is_sick: bool,
    /// True if the shard's server has lost the shard's data: the last answer had no deployment id. Claims leave such a
    /// shard out.
    is_lost: bool,
    /// True if the background thread must poll the shard at once.
    is_hinted: bool,
    /// True while the background thread waits for the answer to a poll or to a release of the shard.
    is_asked: bool,
    /// The number of the latest [`Look`] whose answer was stored. Answers with a lower number are ignored.
    answered: u64,
    /// The due moment of the shard's first pending timer, according to the last answer of the shard's server. `None` if
    /// the answer contained no moment.
    first_due: Option<UtcMillis>,
    /// The due moment of the shard's first timer that the next claim may lease, according to the last answer of the
    /// shard's server. `None` if the answer contained no moment. Timers that are due earlier may be pending in a
    /// group of namespaces that has used up its share of deliveries.
    next_claim: Option<UtcMillis>,
    /// The earliest due moment that a commit or a message has reported since the last claim or poll of the shard began.
    /// `None` without such a report.
    noted: Option<UtcMillis>,
    /// The moment at which the last claim or poll of the shard ended or failed, by the clock of this process.
    looked: Option<Timestamp>,
    /// The moment of the last successful claim or poll of the shard, by the server's clock.
    polled: Option<UtcMillis>,
    /// The moment at which this node last got an answer with the earliest end of a timer's lease in the shard, by the
    /// clock of this process. A claim or poll asks for this end again after [`ENDS`].
    told_end: Option<Timestamp>,
}

/// The time after which a claim or poll reads again when the first lease of a timer in its shards ends. Other nodes may
/// lease timers of these shards without a message to this node: every node can lease parked timers (timers that are set
/// aside for a reason) in any shard. If the other node dies, this node, as the owner of the shard, must end the lease.
/// So this node must know when the lease is over.
const ENDS: Duration = Duration::from_secs(5);

impl Known {
    fn due(&self) -> Option<UtcMillis> {
        self.first_due.into_iter().chain(self.noted).min()
    }

    fn has_rested(&self, pause: Duration) -> bool {
        self.looked.is_none_or(|looked| ServerTime::moment() - looked >= pause)
    }
}

/// A request that asks a server for the states of some shards: a claim, or a poll of the background thread.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    number: u64,
    /// True if the request also asks for the earliest end of a timer's lease in its shards. Without this moment, the
    /// node does not notice that the leases of a dead node have expired. The request asks in these cases:
    ///
    /// - According to the last answer, this node does not own one of the shards. So the request may take the shard, or
    ///   an earlier claim whose answer was lost may have taken it.
    /// - One of the shards is [sick](Known::is_sick): an earlier claim or poll of the shard failed, is late, or left
    ///   the earliest end unknown.
    /// - The store has a background thread, and the earliest end was last read at least [`ENDS`] ago.
    pub(crate) wants_end: bool,
}

/// The state of one shard in the answer to a [`Look`].
pub(crate) struct Seen {
    pub(crate) shard: Shard,
    pub(crate) is_owned: bool,
    pub(crate) is_lost: bool,
    pub(crate) first_due: Option<UtcMillis>,
    pub(crate) next_claim: Option<UtcMillis>,
}

impl Shards {
    pub(super) fn new(count: usize, topology: Topology, has_thread: bool) -> Self {
        Self { each: vec![Known::default(); count], looks: 0, first_end: None, topology, has_thread }
    }

    fn of(&mut self, shard: Shard) -> Option<&mut Known> {
        self.each.get_mut(usize::from(shard))
    }

    fn those(&self, is_meant: impl Fn(&Known) -> bool) -> Vec<Shard> {
        let numbered = (0..).zip(&self.each);
        numbered.filter(|(_, known)| is_meant(known)).map(|(shard, _)| shard).collect()
    }

    pub(crate) fn is_wanted(&self, shard: Shard) -> bool {
        self.each.get(usize::from(shard)).is_some_and(|known| known.is_wanted)
    }

    pub(crate) fn is_owned(&self, shard: Shard) -> bool {
        self.each.get(usize::from(shard)).is_some_and(|known| known.is_owned)
    }

    /// Returns whether the shard is assigned to this node and is not [sick](Known::is_sick).
    pub(crate) fn is_healthy(&self, shard: Shard) -> bool {
        self.each.get(usize::from(shard)).is_some_and(|known| known.is_wanted && !known.is_sick)
    }

    /// Returns whether at least one shard is assigned to this node, and the servers have lost the data of all these
    /// shards.
    pub(crate) fn are_lost(&self) -> bool {
        let mut wanted = self.each.iter().filter(|known| known.is_wanted).peekable();
        wanted.peek().is_some() && wanted.all(|known| known.is_lost)
    }

    pub(crate) fn wanted(&self) -> Vec<Shard> {
        self.those(|known| known.is_wanted)
    }

    pub(crate) fn owned(&self) -> Vec<Shard> {
        self.those(|known| known.is_owned)
    }

    /// Returns the shards in which this node ends expired leases. In a cluster, a store with a background thread leaves
    /// out [sick](Known::is_sick) shards.
    pub(crate) fn for_reap(&self) -> Vec<Shard> {
        let leaves_out_sick = self.topology.fails_in_parts() && self.has_thread;
        self.those(|known| known.is_owned && !(leaves_out_sick && known.is_sick))
    }

    /// Returns the shards that this node owns and must release, because they are no longer assigned to this node.
    /// Leaves out shards for which a poll or a release has no answer yet.
    pub(crate) fn unwanted(&self) -> Vec<Shard> {
        self.those(|known| known.is_owned && !known.is_wanted && !known.is_asked)
    }

    /// Assigns to this node the shards for which `belongs` is true. Makes the background thread poll each new shard at
    /// once.
    pub(super) fn want(&mut self, belongs: impl Fn(Shard) -> bool) {
        for (shard, known) in (0..).zip(&mut self.each) {
            let was_wanted = core::mem::replace(&mut known.is_wanted, belongs(shard));
            if known.is_wanted != was_wanted {
                // The facts about the server and the requests under way do not depend on the division. All other facts
                // may be old, since a node looks only at shards that belong to it. The hint makes the thread ask for
                // them.
                let (is_wanted, is_owned) = (known.is_wanted, known.is_owned);
                let (is_sick, is_asked, answered) = (known.is_sick, known.is_asked, known.answered);
                let is_lost = known.is_lost;
                *known = Known {
                    is_wanted,
                    is_owned,
                    is_sick,
                    is_lost,
                    is_asked,
                    answered,
                    is_hinted: is_wanted,
                    ..Known::default()
                };
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn want_all(&mut self) {
        self.want(|_| true);
    }

    /// Forgets the state of all shards, because the node leaves. Returns the shards that the node owned.
    pub(super) fn clear(&mut self) -> Vec<Shard> {
        let owned = self.owned();
        for known in &mut self.each {
            // Requests may still be under way. Their ends reset `is_asked`, and `answered` keeps an older answer from
            // replacing a later one.
            *known = Known { is_asked: known.is_asked, answered: known.answered, ..Known::default() };
        }
        self.first_end = None;
        owned
    }

    pub(super) fn released(&mut self, shard: Shard) {
        if let Some(known) = self.of(shard) {
            known.is_owned = false;
        }
    }

    /// Returns the shards of this node in which the next claim looks for due timers. In a store without a background
    /// thread, these are all shards of the node. In a store with a thread, these are the shards that may have a due
    /// timer, without lost shards and, in a cluster, without [sick](Known::is_sick) shards. If all shards would
    /// be left out, returns all shards of the node.
    pub(crate) fn for_claim(&self, now: UtcMillis, pause: Duration) -> Vec<Shard> {
        let is_out = |known: &Known| self.is_left_out(known) || known.is_lost;
        if !self.has_thread || !self.each.iter().any(|known| known.is_wanted && !is_out(known)) {
            // If all shards were left out, the claim would ask no server. It would succeed, and hide that no server
            // answers.
            return self.wanted();
        }
        self.those(|known| {
            let may_have = known.is_hinted
                || known.due().is_some_and(|due| due <= now)
                // While a poll of the thread is under way, its answer wakes the runtime if a timer is due.
                || !known.is_asked && known.has_rested(pause);
            known.is_wanted && !is_out(known) && may_have
        })
    }

    /// Returns the shards that the background thread must poll now. On one server, one script polls all shards, so the
    /// result is all shards of this node or none.
    pub(crate) fn for_poll(&self, pause: Duration) -> Vec<Shard> {
        // A hint does not shorten the pause of a sick shard.
        let is_due = |known: &Known| {
            known.is_wanted
                && !known.is_asked
                && (known.is_hinted && !known.is_sick || known.has_rested(pause))
        };
        let due = self.those(is_due);
        match self.topology.fails_in_parts() || due.is_empty() {
            true => due,
            false => self.those(|known| known.is_wanted && !known.is_asked),
        }
    }

    /// Returns the time until the background thread must poll a shard again. `pause` is the time between two polls of a
    /// shard.
    pub(crate) fn rest(&self, pause: Duration) -> Duration {
        let now = ServerTime::moment();
        let rests = self.each.iter().filter(|known| known.is_wanted && !known.is_asked);
        let rest =
            |known: &Known| known.looked.map_or(Duration::ZERO, |looked| pause.saturating_sub(now - looked));
        rests.map(rest).min().unwrap_or(pause)
    }

    /// Records whether the background thread waits for the answer to a poll or to a release of `shards`.
    pub(crate) fn set_asked(&mut self, shards: &[Shard], is_asked: bool) {
        for shard in shards {
            if let Some(known) = self.of(*shard) {
                known.is_asked = is_asked;
            }
        }
    }

    /// Begins a claim or a poll of `shards`. Decides whether the request also asks for the earliest end of a timer's
    /// lease in `shards`.
    pub(crate) fn begin_look(&mut self, shards: &[Shard]) -> Look {
        self.looks += 1;
        let (mut wants_end, has_others) = (false, self.has_thread);
        for shard in shards {
            if let Some(known) = self.of(*shard) {
                // These fields are cleared before the request is sent. A timer that is noted during the request may be
                // missing in the answer, so its moment must stay.
                (known.noted, known.is_hinted) = (None, false);
                wants_end |= !known.is_owned || known.is_sick;
                wants_end |=
                    has_others && known.told_end.is_none_or(|told| ServerTime::moment() - told >= ENDS);
            }
        }
        Look { number: self.looks, wants_end }
    }

    /// Stores the answer to a claim or poll. If a shard already has the answer to a later request, ignores this answer
    /// for the shard.
    pub(crate) fn end_look(&mut self, look: Look, now: UtcMillis, seen: &[Seen]) {
        let looked = Some(ServerTime::moment());
        for Seen { shard, is_owned, is_lost, first_due, next_claim } in seen {
            let Some(known) = self.of(*shard).filter(|known| known.answered < look.number) else { continue };
            known.answered = look.number;
            // If this look has taken the shard, or the shard was sick, the look had to ask for the earliest end of
            // a lease. If it did not ask, the shard counts as sick, so that the next look asks.
            let lacks_end = !look.wants_end && (!known.is_owned || known.is_sick);
            known.is_sick = *is_owned && lacks_end;
            (known.is_owned, known.is_lost) = (*is_owned, *is_lost);
            (known.first_due, known.next_claim) = (*first_due, *next_claim);
            if *is_lost {
                known.noted = None;
            }
            (known.looked, known.polled) = (looked, Some(now));
            if look.wants_end {
                known.told_end = looked;
            }
        }
    }

    /// Marks `shards` as [sick](Known::is_sick), because a claim or poll of them failed or is late.
    pub(crate) fn fail_look(&mut self, shards: &[Shard]) {
        let looked = Some(ServerTime::moment());
        for shard in shards {
            if let Some(known) = self.of(*shard) {
                // `begin_look` has cleared the hint and the noted moment, and no answer has taken their place. So the
                // shard is hinted again.
                (known.is_sick, known.is_hinted, known.looked) = (true, true, looked);
            }
        }
    }

    /// Records that a timer of this shard is due at `due`, as a commit of this process or a message of another node has
    /// reported.
    pub(super) fn note(&mut self, shard: Shard, due: UtcMillis) {
        if let Some(known) = self.of(shard) {
            known.noted = Some(known.noted.map_or(due, |noted| noted.min(due)));
        }
    }

    /// Makes the background thread poll all shards of this node at once.
    pub(super) fn hint_all(&mut self) {
        for known in &mut self.each {
            known.is_hinted |= known.is_wanted;
        }
    }

    /// Makes the background thread poll some shards at once: the shards that are assigned to this node, but that it
    /// does not own yet. The last answers of the shards' servers have shown who owns them.
    pub(super) fn hint_missing(&mut self) {
        for known in &mut self.each {
            known.is_hinted |= known.is_wanted && !known.is_owned;
        }
    }

    /// Returns the due moment of the first timer in the shards from which this node claims timers, or `None` if no
    /// timer is known.
    pub(crate) fn next_due(&self) -> Option<UtcMillis> {
        self.claimed().filter_map(Known::due).min()
    }

    /// Returns the due moment of the first timer that the next claim may take, or `None` if no timer is known.
    /// Timers that are due earlier may be pending in namespaces that have used up their share of deliveries.
    pub(crate) fn next_claim(&self) -> Option<UtcMillis> {
        self.claimed().filter_map(|known| known.next_claim.into_iter().chain(known.noted).min()).min()
    }

    /// Iterates over the shards from which this node claims timers. These are the shards that the division between the
    /// live nodes assigns to this node, and that this node owns already. In a cluster, claims skip
    /// [sick](Known::is_sick) shards.
    fn claimed(&self) -> impl Iterator<Item = &Known> {
        let counts = |known: &&Known| known.is_wanted && known.is_owned && !self.is_left_out(known);
        self.each.iter().filter(counts)
    }

    /// Returns whether claims leave this shard out because it is [sick](Known::is_sick). Claims leave sick shards out
    /// only in a cluster, because the other shards may be on other servers there. Without a cluster, one server stores
    /// all shards.
    fn is_left_out(&self, known: &Known) -> bool {
        self.topology.fails_in_parts() && known.is_sick
    }

    /// Remembers the earliest end of a timer's lease that a claim or poll has found, if `end` is earlier than the
    /// remembered moment. The next claim returns the remembered moment.
    pub(crate) fn keep_first_end(&mut self, end: Option<UtcMillis>) {
        self.first_end = self.first_end.into_iter().chain(end).min();
    }

    pub(crate) fn has_first_end(&self) -> bool {
        self.first_end.is_some()
    }

    pub(crate) fn take_first_end(&mut self) -> Option<UtcMillis> {
        self.first_end.take()
    }

    /// Returns the due moment of the shard's first timer, or `None` if this node knows no timer there.
    pub(super) fn due(&self, shard: Shard) -> Option<UtcMillis> {
        self.each.get(usize::from(shard))?.due()
    }

    pub(super) fn polled(&self, shard: Shard) -> Option<UtcMillis> {
        self.each.get(usize::from(shard)).filter(|known| known.is_wanted)?.polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_sick_until_a_look_has_asked_when_its_leases_end() {
        let mut shards = Shards::new(1, Topology::Cluster, true);
        let end = |shards: &mut Shards, look| {
            let seen = Seen { shard: 0, is_owned: true, is_lost: false, first_due: None, next_claim: None };
            shards.end_look(look, UtcMillis::ZERO, &[seen]);
            shards.begin_look(&[0])
        };
        let first = shards.begin_look(&[0]);
        assert!(first.wants_end, "the shard may have been taken before");
        let second = end(&mut shards, first);
        assert!(!second.wants_end);
        // A later look fails before this look is answered, and a reap leaves the shard out.
        shards.fail_look(&[0]);
        let third = end(&mut shards, second);
        assert!(third.wants_end);
        let fourth = end(&mut shards, third);
        assert!(!fourth.wants_end);
        // A release that was sent earlier is answered only now.
        shards.released(0);
        let fifth = end(&mut shards, fourth);
        assert!(fifth.wants_end && !end(&mut shards, fifth).wants_end);
    }
}
