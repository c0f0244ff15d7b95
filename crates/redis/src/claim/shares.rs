//! The timers that each lane may take in a claim in turn.
//!
//! The rule of [`Shares`] is for namespaces. Here it is applied to lanes, which the directory of slices knows: a claim
//! passes over a lane that has its share with one look. The script counts the timers that it leases; between the
//! scripts of one claim, [`Turns`] counts them.

use crate::deployment::millis;
use crate::layout::{LANES, lane_of};
use crate::script::decimal;
use core::time::Duration;
use std::collections::BTreeMap;
use tourbillon_durable::store::{Shares, free_for};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turns {
    /// The free places.
    free: usize,
    /// The time after which a timer is late, and the late timers that a lane may take which is not among `lanes`.
    late: Option<(Duration, usize)>,
    lanes: BTreeMap<u64, Lane>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lane {
    /// Deliveries under way.
    has: usize,
    /// The late timers that it may take.
    late: usize,
}

impl Turns {
    pub(crate) fn new(shares: &Shares) -> Self {
        let late = shares.late.as_ref();
        let (after, each) = (late.map(|late| late.after), late.map_or(usize::MAX, |late| late.each));
        let mut turns =
            Self { free: shares.free, late: after.map(|after| (after, each)), lanes: BTreeMap::new() };
        for (namespace, count) in &*shares.under_way {
            turns.lane(lane_of(namespace)).has += count;
        }
        for (namespace, left) in late.iter().flat_map(|late| &*late.left) {
            let lane = turns.lane(lane_of(namespace));
            lane.late = lane.late.min(*left);
        }
        turns
    }

    fn lane(&mut self, lane: u64) -> &mut Lane {
        let late = self.late.map_or(usize::MAX, |(_, each)| each);
        self.lanes.entry(lane).or_insert(Lane { has: 0, late })
    }

    fn is_late(&self, lateness: Duration) -> bool {
        self.late.is_some_and(|(after, _)| lateness > after)
    }

    /// Takes a timer of a lane, if the lane may take a timer of this lateness.
    pub(crate) fn take(&mut self, lane: u64, lateness: Duration) -> bool {
        let (is_late, free) = (self.is_late(lateness), self.free);
        let lane = self.lane(lane);
        let may_take = free_for(lane.has, free) > 0 && (lane.late > 0 || !is_late);
        if may_take {
            lane.has += 1;
            lane.late -= usize::from(is_late);
            self.free -= 1;
        }
        may_take
    }

    /// Counts a timer of a namespace that was leased.
    pub(crate) fn count(&mut self, namespace: &str, lateness: Duration) {
        let is_late = self.is_late(lateness);
        let lane = self.lane(lane_of(namespace));
        lane.has = lane.has.saturating_add(1);
        lane.late = lane.late.saturating_sub(usize::from(is_late));
        self.free = self.free.saturating_sub(1);
    }
}

/// The timers that the script of a claim may take from each lane.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PerLane<'t> {
    Any,
    /// Its share.
    InTurn(&'t Turns),
    /// These numbers of timers, and of other lanes none: the groups of a cluster have a share together.
    Exactly(&'t BTreeMap<u64, u64>),
}

impl PerLane<'_> {
    /// The arguments of the script: the lanes of the layout, the free places, the limits of late timers and of timers,
    /// and the limits of single lanes.
    pub(crate) fn arguments(self) -> Vec<Vec<u8>> {
        let number = |number: usize| decimal(number as u64);
        let mut arguments = vec![decimal(LANES)];
        match self {
            Self::Any => arguments.extend([vec![], vec![], decimal(0), vec![], decimal(0)]),
            Self::InTurn(turns) => {
                let (after, each) = match turns.late {
                    Some((after, each)) => (decimal(millis(after)), each),
                    None => (vec![], 0),
                };
                arguments.extend([
                    number(turns.free),
                    after,
                    number(each),
                    vec![],
                    number(turns.lanes.len()),
                ]);
                for (lane, Lane { has, late }) in &turns.lanes {
                    arguments.extend([decimal(*lane), number(*has), number(*late), vec![]]);
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

    fn shares(free: usize, under_way: &[(&str, usize)], left: &[(&str, usize)]) -> Shares {
        let map = |counts: &[(&str, usize)]| {
            Arc::new(counts.iter().map(|(name, count)| ((*name).into(), *count)).collect())
        };
        Shares::new(free, map(under_way)).with_late(Some(Late::new(Duration::from_secs(5), 2, map(left))))
    }

    #[test]
    fn a_lane_takes_its_share_and_its_late_timers() {
        let (a, b) = (lane_of("a"), lane_of("b"));
        assert_ne!(a, b);
        let mut turns = Turns::new(&shares(4, &[("b", 3)], &[]));
        let taken = (0..10).filter(|_| turns.take(a, PROMPT)).count();
        assert_eq!(taken, free_for(0, 4));
        assert!(!turns.take(b, PROMPT), "it has three times what is free");
        let mut turns = Turns::new(&shares(100, &[], &[("b", 1)]));
        assert_eq!((0..10).filter(|_| turns.take(a, OLD)).count(), 2);
        assert_eq!((0..10).filter(|_| turns.take(b, OLD)).count(), 1);
        assert!(turns.take(b, PROMPT));
    }

    #[test]
    fn what_was_leased_leaves_less() {
        let mut turns = Turns::new(&shares(3, &[("a", 1)], &[]));
        turns.count("a", OLD);
        assert_eq!(turns, Turns::new(&shares(2, &[("a", 2)], &[("a", 1)])));
        (0..5).for_each(|_| turns.count("a", OLD));
        assert!(!turns.take(lane_of("b"), PROMPT), "nothing is free");
    }

    #[test]
    fn a_claim_without_turns_has_no_limits() {
        assert_eq!(
            PerLane::Any.arguments(),
            [decimal(LANES), vec![], vec![], decimal(0), vec![], decimal(0)]
        );
        assert_eq!(Turns::new(&Shares::new(1, Arc::default())).late, None);
    }
}
