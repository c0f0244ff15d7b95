//! Computes how many timers one claim may take from each lane. A lane is one of 64 groups of namespaces.
//!
//! The rules of [`Shares`] are for namespaces. This module applies them to lanes, because the script finds pending
//! timers by lane. So a claim can pass over a lane that has used up its share without reading the lane's timers. A
//! script counts the timers that it leases, and [`Turns`] adds them up over the scripts of one claim.

use crate::deployment::millis;
use crate::layout::{LANES, lane_of};
use crate::script::decimal;
use core::time::Duration;
use std::collections::BTreeMap;
use tourbillon_durable::store::{Limit, SHARE, Shares, free_for};

/// The share of each lane (one of 64 groups of namespaces) in one claim, and the timers that the claim has taken so
/// far. A share is the greatest number of timers that the claim takes from the lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turns {
    /// The number of further deliveries that the runtime may begin now.
    free: usize,
    /// The number of timers that the claim may still take, at most `free`.
    left: usize,
    /// The limit for late timers. `None` means no limit. The first value is the lateness beyond which a timer counts as
    /// late. The second value is the greatest number of late timers that the claim takes from one lane (group of
    /// namespaces). If a lane has an entry in `lanes`, the limit in that entry applies instead.
    late: Option<(Duration, usize)>,
    /// The counts of each lane (group of namespaces), by the number of the lane. A lane without an entry has no
    /// deliveries under way, and the claim has taken no timer from it.
    lanes: BTreeMap<u64, Lane>,
}

/// The counts of one lane, a group of namespaces, during a claim. All namespaces are divided into 64 lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lane {
    /// The number of deliveries under way for timers of the namespaces in this lane.
    has: usize,
    /// The number of timers that the claim has taken from this lane so far.
    taken: usize,
    /// The number of late timers that the claim may still take from this lane. [`Turns::late`] says when a timer counts
    /// as late.
    late: usize,
}

impl Turns {
    pub(crate) fn new(shares: &Shares, limit: Limit) -> Self {
        let late = shares.late.as_ref();
        let (after, each) = (late.map(|late| late.after), late.map_or(usize::MAX, |late| late.each));
        let left = usize::try_from(limit.timers).unwrap_or(usize::MAX).min(shares.free);
        let late_each = after.map(|after| (after, each));
        let mut turns = Self { free: shares.free, left, late: late_each, lanes: BTreeMap::new() };
        for (namespace, count) in &*shares.under_way {
            turns.lane(lane_of(namespace)).has += count;
        }
        for (namespace, left) in late.iter().flat_map(|late| &*late.left) {
            let lane = turns.lane(lane_of(namespace));
            // The script has one number of late timers for a lane. With the smallest number of the lane's namespaces,
            // no namespace exceeds its own limit.
            lane.late = lane.late.min(*left);
        }
        turns
    }

    fn lane(&mut self, lane: u64) -> &mut Lane {
        let late = self.late.map_or(usize::MAX, |(_, each)| each);
        self.lanes.entry(lane).or_insert(Lane { has: 0, taken: 0, late })
    }

    fn is_late(&self, lateness: Duration) -> bool {
        self.late.is_some_and(|(after, _)| lateness > after)
    }

    /// Returns whether the claim may take one more timer from the lane, with this lateness. If so, counts the timer.
    pub(crate) fn take(&mut self, lane: u64, lateness: Duration) -> bool {
        let (is_late, free, left) = (self.is_late(lateness), self.free, self.left);
        let known = *self.lane(lane);
        let has_share = free_for(known.has, free) > 0 && free_for(known.taken, left) > 0;
        let may_take = has_share && (known.late > 0 || !is_late);
        if may_take {
            self.count_in(lane, is_late);
        }
        may_take
    }

    /// Counts a timer that a script has leased, by its namespace and lateness.
    pub(crate) fn count(&mut self, namespace: &str, lateness: Duration) {
        self.count_in(lane_of(namespace), self.is_late(lateness));
    }

    fn count_in(&mut self, lane: u64, is_late: bool) {
        let lane = self.lane(lane);
        lane.has = lane.has.saturating_add(1);
        lane.taken = lane.taken.saturating_add(1);
        lane.late = lane.late.saturating_sub(usize::from(is_late));
        self.free = self.free.saturating_sub(1);
        self.left = self.left.saturating_sub(1);
    }

    /// Returns whether any lane (group of namespaces) must wait for the next claim. Such a lane has used up its share
    /// of this claim, but not its share of the runtime's deliveries.
    pub(crate) fn leaves(&self) -> bool {
        let leaves = |lane: &Lane| free_for(lane.taken, self.left) == 0 && free_for(lane.has, self.free) > 0;
        self.lanes.values().any(leaves)
    }

    /// Computes the number that the claim's script uses as the number of deliveries under way in the lane. It may
    /// differ from the real number, because the script has only one rule where the claim has two. By the claim's rules,
    /// a further timer of the lane may be taken if both conditions hold:
    ///
    /// - The lane has not used up its share of the runtime's deliveries: `SHARE * self.free > lane.has`.
    /// - The lane has not used up its share of this claim: `SHARE * self.left > lane.taken`.
    ///
    /// The script takes a further timer if `SHARE * self.left > argument`. With the argument `lane.taken`, this is the
    /// second condition. With the argument `lane.has - SHARE * (self.free - self.left)`, it is the first condition. The
    /// result is the greater of these two arguments, so the script takes a timer only if both conditions hold. After
    /// each timer, the script itself subtracts 1 from its copy of `self.left`, and adds 1 to the argument of the
    /// timer's lane. So the result stays right for the whole script.
    fn argument(&self, lane: &Lane) -> usize {
        let beyond = SHARE.saturating_mul(self.free - self.left.min(self.free));
        lane.taken.max(lane.has.saturating_sub(beyond))
    }
}

/// Limits how many timers the script of a claim may take from each lane (one of 64 groups of namespaces).
#[derive(Clone, Copy, Debug)]
pub(crate) enum PerLane<'t> {
    /// The script may take any number of timers from each lane.
    Any,
    /// From each lane, the script may take the lane's share of the claim, which [`Turns`] computes.
    InTurn(&'t Turns),
    /// The key of this map is the number of a lane, and the value is the number of timers that the script may take from
    /// that lane. The script takes no timers from a lane without an entry. In a cluster, the lanes' shares are divided
    /// among the groups of shards, and each group gets such a map.
    Exactly(&'t BTreeMap<u64, u64>),
}

impl PerLane<'_> {
    /// Encodes the limits as arguments of the claim's script, in this order:
    ///
    /// - the number of lanes
    /// - the greatest number of timers that the claim may still take; empty without a limit
    /// - the lateness in milliseconds beyond which a timer counts as late; empty if no timer counts as late
    /// - the greatest number of late timers from each lane without limits of its own
    /// - the greatest number of timers from each lane without limits of its own; empty without a limit
    /// - the number of lanes with limits of their own
    /// - for each of these lanes, four arguments:
    ///   - the number of the lane
    ///   - the number of the lane's deliveries under way, as `Turns::argument` computes it
    ///   - the greatest number of late timers from the lane
    ///   - the greatest number of timers from the lane; empty without a limit
    pub(crate) fn arguments(self) -> Vec<Vec<u8>> {
        let number = |number: usize| decimal(number as u64);
        let mut arguments = vec![decimal(LANES)];
        match self {
            // If the first two arguments are empty, the script ignores the numbers of deliveries and of late timers. So
            // these numbers are 0, here and in `Exactly`.
            Self::Any => arguments.extend([vec![], vec![], decimal(0), vec![], decimal(0)]),
            Self::InTurn(turns) => {
                let (after, each) = match turns.late {
                    Some((after, each)) => (decimal(millis(after)), each),
                    None => (vec![], 0),
                };
                arguments.extend([
                    number(turns.left),
                    after,
                    number(each),
                    vec![],
                    number(turns.lanes.len()),
                ]);
                for (lane, known) in &turns.lanes {
                    let (has, late) = (turns.argument(known), known.late);
                    arguments.extend([decimal(*lane), number(has), number(late), vec![]]);
                }
            }
            Self::Exactly(counts) => {
                arguments.extend([vec![], vec![], decimal(0), decimal(0), number(counts.len())]);
                for (lane, count) in counts {
                    arguments.extend([decimal(*lane), decimal(0), decimal(0), decimal(*count)]);
                }
            }
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tourbillon_durable::store::Late;

    const PROMPT: Duration = Duration::ZERO;
    const OLD: Duration = Duration::from_secs(6);
    const ALL: Limit = Limit { timers: 1_000, bytes: u64::MAX };

    fn shares(free: usize, under_way: &[(&str, usize)], left: &[(&str, usize)]) -> Shares {
        let map = |counts: &[(&str, usize)]| {
            Arc::new(counts.iter().map(|(name, count)| ((*name).into(), *count)).collect())
        };
        Shares::new(free, map(under_way)).with_late(Some(Late::new(Duration::from_secs(5), 2, map(left))))
    }

    fn turns_of(shares: &Shares) -> Turns {
        Turns::new(shares, ALL)
    }

    #[test]
    fn a_lane_takes_its_share_and_its_late_timers() {
        let (a, b) = (lane_of("a"), lane_of("b"));
        assert_ne!(a, b);
        let mut turns = turns_of(&shares(4, &[("b", 3)], &[]));
        let taken = (0..10).filter(|_| turns.take(a, PROMPT)).count();
        assert_eq!(taken, free_for(0, 4));
        assert!(!turns.take(b, PROMPT), "it has three times what is free");
        let mut turns = turns_of(&shares(100, &[], &[("b", 1)]));
        assert_eq!((0..10).filter(|_| turns.take(a, OLD)).count(), 2);
        assert_eq!((0..10).filter(|_| turns.take(b, OLD)).count(), 1);
        assert!(turns.take(b, PROMPT));
    }

    #[test]
    fn what_was_leased_leaves_less() {
        let mut turns = turns_of(&shares(3, &[("a", 1)], &[]));
        turns.count("a", OLD);
        let fewer = turns_of(&shares(2, &[("a", 2)], &[("a", 1)]));
        assert_eq!(PerLane::InTurn(&turns).arguments(), PerLane::InTurn(&fewer).arguments());
        (0..5).for_each(|_| turns.count("a", OLD));
        assert!(!turns.take(lane_of("b"), PROMPT), "nothing is free");
    }

    #[test]
    fn a_claim_without_turns_has_no_limits() {
        assert_eq!(
            PerLane::Any.arguments(),
            [decimal(LANES), vec![], vec![], decimal(0), vec![], decimal(0)]
        );
        assert_eq!(turns_of(&Shares::new(1, Arc::default())).late, None);
    }

    /// Imitates the script `claim.lua` for due timers whose lanes (groups of namespaces) are `asked`. The script takes
    /// a timer if three times the number of timers that the claim may still take is greater than the number of
    /// deliveries of the lane. This number starts at [`Turns::argument`], and each taken timer adds one. Returns the
    /// lane of each taken timer.
    fn script_takes(turns: &Turns, asked: &[u64]) -> Vec<u64> {
        let argument = |lane: &u64| turns.lanes.get(lane).map_or(0, |known| turns.argument(known));
        let mut has: BTreeMap<u64, usize> = asked.iter().map(|lane| (*lane, argument(lane))).collect();
        let (mut left, mut taken) = (turns.left, Vec::new());
        for lane in asked {
            let lane_has = has.get_mut(lane).unwrap();
            if 3 * left > *lane_has {
                (*lane_has, left) = (*lane_has + 1, left - 1);
                taken.push(*lane);
            }
        }
        taken
    }

    #[test]
    fn the_script_takes_by_one_rule_what_two_rules_permit() {
        let lanes = [lane_of("a"), lane_of("b"), lane_of("c")];
        for free in 0..12 {
            for timers in 0..12 {
                for has in 0..40 {
                    let shares = shares(free, &[("a", has), ("b", has / 3)], &[]);
                    let mut turns = Turns::new(&shares, Limit { timers, ..ALL });
                    for round in 0..3 {
                        let asked: Vec<u64> = (0..30).map(|nth| lanes[(nth / 3 + round) % 3]).collect();
                        let taken = script_takes(&turns, &asked);
                        let wanted: Vec<u64> =
                            asked.into_iter().filter(|lane| turns.take(*lane, PROMPT)).collect();
                        assert_eq!(taken, wanted, "{free} free, {timers} of a claim, {has} under way");
                    }
                }
            }
        }
    }

    #[test]
    fn a_lane_has_a_share_of_each_claim_though_it_has_room_for_more() {
        let mut turns = Turns::new(&shares(1_000, &[], &[]), Limit { timers: 100, ..ALL });
        let (a, b) = (lane_of("a"), lane_of("b"));
        assert_eq!((0..100).filter(|_| turns.take(a, PROMPT)).count(), 75);
        assert!(turns.leaves(), "the next claim takes more");
        assert!(turns.take(b, PROMPT));
        let mut turns = Turns::new(&shares(100, &[], &[]), Limit { timers: 100, ..ALL });
        assert_eq!((0..100).filter(|_| turns.take(a, PROMPT)).count(), 75);
        assert!(!turns.leaves(), "it has its share of the room");
    }
}
