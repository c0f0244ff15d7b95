//! The knowledge of a node about the shards.

use crate::deployment::{Topology, moment};
use crate::layout::Shard;
use core::time::Duration;
use tourbillon::Timestamp;
use tourbillon_durable::UtcMillis;

/// The state of all shards of a deployment, as this node knows it.
pub(crate) struct Shards {
    each: Vec<Known>,
    /// The number of the last look.
    looks: u64,
    /// The end of the first lease in shards that were taken from others, or were sick, until a claim has answered it.
    first_end: Option<UtcMillis>,
    topology: Topology,
    /// A thread looks at the shards, and other nodes may lease in them, too.
    has_thread: bool,
}

#[derive(Clone, Default)]
struct Known {
    /// The shard is assigned to this node.
    is_wanted: bool,
    /// This node owns the shard, by the last answer.
    is_owned: bool,
    /// The last look failed, or has no answer yet while other groups have theirs. The answer of a later look ends the
    /// state.
    is_sick: bool,
    /// Its server has lost it: the last answer found no mark. Nobody looks at its timers.
    is_lost: bool,
    /// A look is due at once.
    is_hinted: bool,
    /// A look of the thread has no answer yet.
    is_asked: bool,
    /// The number of the look whose answer is known.
    answered: u64,
    first_due: Option<UtcMillis>,
    /// The due moment of the first timer that the last claim might have taken, if it had had room.
    next_claim: Option<UtcMillis>,
    /// The first due moment that became known after the last look began, from a commit or a hint.
    noted: Option<UtcMillis>,
    /// The end of the last look, by the clock of this process.
    looked: Option<Timestamp>,
    /// The server's time of the last successful look.
    polled: Option<UtcMillis>,
    /// The time of the last answer with the end of the first lease, by the clock of this process.
    told_end: Option<Timestamp>,
}

/// The time after which a look asks again when the first lease ends: other nodes lease parked timers of any shard, and
/// only the shard's owner ends the leases of nodes that die.
const ENDS: Duration = Duration::from_secs(5);

impl Known {
    fn due(&self) -> Option<UtcMillis> {
        self.first_due.into_iter().chain(self.noted).min()
    }

    fn has_rested(&self, pause: Duration) -> bool {
        self.looked.is_none_or(|looked| moment() - looked >= pause)
    }
}

/// A look at some shards.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    number: u64,
    /// The end of the first lease is wanted. A shard may be this node's by a claim whose answer was lost, and reaps
    /// leave a sick shard out: nothing else says when the leases of a dead node end there.
    pub(crate) wants_end: bool,
}

/// The answer to a look at a shard.
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

    /// Whether the shard belongs to this node, and its server has answered the last look.
    pub(crate) fn is_healthy(&self, shard: Shard) -> bool {
        self.each.get(usize::from(shard)).is_some_and(|known| known.is_wanted && !known.is_sick)
    }

    /// Whether this node has shards, and their servers have lost all of them.
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

    /// The shards whose leases are reaped. In a cluster, shards whose servers failed are left out.
    pub(crate) fn for_reap(&self) -> Vec<Shard> {
        let leaves_out_sick = self.topology.fails_in_parts() && self.has_thread;
        self.those(|known| known.is_owned && !(leaves_out_sick && known.is_sick))
    }

    /// The shards that this node must release.
    pub(crate) fn unwanted(&self) -> Vec<Shard> {
        self.those(|known| known.is_owned && !known.is_wanted && !known.is_asked)
    }

    /// Assigns shards to this node. A look at the new shards is due at once.
    pub(super) fn want(&mut self, belongs: impl Fn(Shard) -> bool) {
        for (shard, known) in (0..).zip(&mut self.each) {
            let was_wanted = core::mem::replace(&mut known.is_wanted, belongs(shard));
            if known.is_wanted != was_wanted {
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

    /// Assigns all shards to this node.
    #[cfg(test)]
    pub(crate) fn want_all(&mut self) {
        self.want(|_| true);
    }

    /// Forgets everything, since the node has left. Returns the shards that it owned.
    pub(super) fn clear(&mut self) -> Vec<Shard> {
        let owned = self.owned();
        for known in &mut self.each {
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

    /// The shards that a claim looks at: those that may have a due timer. In a cluster, shards whose servers failed are
    /// left out. Without a thread, which would look at the others, the claim looks at all assigned shards.
    pub(crate) fn for_claim(&self, now: UtcMillis, pause: Duration) -> Vec<Shard> {
        let is_out = |known: &Known| self.is_left_out(known) || known.is_lost;
        if !self.has_thread || !self.each.iter().any(|known| known.is_wanted && !is_out(known)) {
            return self.wanted();
        }
        self.those(|known| {
            let may_have = known.is_hinted
                || known.due().is_some_and(|due| due <= now)
                || !known.is_asked && known.has_rested(pause);
            known.is_wanted && !is_out(known) && may_have
        })
    }

    /// The shards that the thread looks at. On one server, one script looks at all shards, so a look at one of them is
    /// a look at all.
    pub(crate) fn for_poll(&self, pause: Duration) -> Vec<Shard> {
        // A sick shard's hint waits for the pause.
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

    /// The time until the next shard is due for a look.
    pub(crate) fn rest(&self, pause: Duration) -> Duration {
        let now = moment();
        let rests = self.each.iter().filter(|known| known.is_wanted && !known.is_asked);
        let rest =
            |known: &Known| known.looked.map_or(Duration::ZERO, |looked| pause.saturating_sub(now - looked));
        rests.map(rest).min().unwrap_or(pause)
    }

    /// Notes whether a look of the thread is at the server.
    pub(crate) fn set_asked(&mut self, shards: &[Shard], is_asked: bool) {
        for shard in shards {
            if let Some(known) = self.of(*shard) {
                known.is_asked = is_asked;
            }
        }
    }

    /// Begins a look at some shards.
    pub(crate) fn begin_look(&mut self, shards: &[Shard]) -> Look {
        self.looks += 1;
        let (mut wants_end, has_others) = (false, self.has_thread);
        for shard in shards {
            if let Some(known) = self.of(*shard) {
                (known.noted, known.is_hinted) = (None, false);
                wants_end |= !known.is_owned || known.is_sick;
                wants_end |= has_others && known.told_end.is_none_or(|told| moment() - told >= ENDS);
            }
        }
        Look { number: self.looks, wants_end }
    }

    /// Takes the answer to a look.
    pub(crate) fn end_look(&mut self, look: Look, now: UtcMillis, seen: &[Seen]) {
        let looked = Some(moment());
        for Seen { shard, is_owned, is_lost, first_due, next_claim } in seen {
            let Some(known) = self.of(*shard).filter(|known| known.answered < look.number) else { continue };
            known.answered = look.number;
            // A look that was sent before does not ask when the first lease ends. The next look does.
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

    /// Notes that a look failed, or is late.
    pub(crate) fn fail_look(&mut self, shards: &[Shard]) {
        let looked = Some(moment());
        for shard in shards {
            if let Some(known) = self.of(*shard) {
                (known.is_sick, known.is_hinted, known.looked) = (true, true, looked);
            }
        }
    }

    /// Notes a timer that was committed, or of which a hint has arrived.
    pub(super) fn note(&mut self, shard: Shard, due: UtcMillis) {
        if let Some(known) = self.of(shard) {
            known.noted = Some(known.noted.map_or(due, |noted| noted.min(due)));
        }
    }

    /// Requests an immediate look at all assigned shards.
    pub(super) fn hint_all(&mut self) {
        for known in &mut self.each {
            known.is_hinted |= known.is_wanted;
        }
    }

    /// Requests an immediate look at assigned shards that this node does not own yet.
    pub(super) fn hint_missing(&mut self) {
        for known in &mut self.each {
            known.is_hinted |= known.is_wanted && !known.is_owned;
        }
    }

    /// The due moment of the first timer in the shards that claims look at.
    pub(crate) fn next_due(&self) -> Option<UtcMillis> {
        self.claimed().filter_map(Known::due).min()
    }

    /// The due moment of the first timer that the next claim may take. The claim passes over due timers of lanes that
    /// have their share.
    pub(crate) fn next_claim(&self) -> Option<UtcMillis> {
        self.claimed().filter_map(|known| known.next_claim.into_iter().chain(known.noted).min()).min()
    }

    /// The shards that claims look at.
    fn claimed(&self) -> impl Iterator<Item = &Known> {
        let counts = |known: &&Known| known.is_wanted && known.is_owned && !self.is_left_out(known);
        self.each.iter().filter(counts)
    }

    /// Whether claims leave a shard out until a look of the thread has an answer: its server fails, and those of other
    /// shards may answer.
    fn is_left_out(&self, known: &Known) -> bool {
        self.topology.fails_in_parts() && known.is_sick
    }

    /// Keeps the end of a lease that another holder has, for the next claim's answer.
    pub(crate) fn keep_first_end(&mut self, end: Option<UtcMillis>) {
        self.first_end = self.first_end.into_iter().chain(end).min();
    }

    pub(crate) fn has_first_end(&self) -> bool {
        self.first_end.is_some()
    }

    pub(crate) fn take_first_end(&mut self) -> Option<UtcMillis> {
        self.first_end.take()
    }

    /// The due moment of the first timer, as far as it is known.
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
        // Another look fails before this look is answered, and a reap leaves the shard out.
        shards.fail_look(&[0]);
        let third = end(&mut shards, second);
        assert!(third.wants_end);
        let fourth = end(&mut shards, third);
        assert!(!fourth.wants_end);
        // A release that was sent before is answered only now.
        shards.released(0);
        let fifth = end(&mut shards, fourth);
        assert!(fifth.wants_end && !end(&mut shards, fifth).wants_end);
    }
}
