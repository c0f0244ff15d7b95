//! Divides the timers of a claim between the groups of a cluster. A *group* is the shards that one script can read. A
//! *lane* is one of 64 groups of namespaces.

use super::look::{Looked, Named, Wish};
use super::shares::PerLane;
use crate::layout::Shard;
use std::collections::{BTreeMap, BTreeSet};
use tourbillon_durable::UtcMillis;

/// The number of timers that a claim leases from one group of shards, in all and from each lane (group of namespaces).
#[derive(Debug, Default)]
pub(super) struct Portion {
    pub(super) timers: u32,
    pub(super) by_lane: BTreeMap<u64, u64>,
}

/// Computes how many timers to lease from each group of shards. Chooses the timers that have been due for longest.
/// `wish.per_lane` limits the number of timers from each lane (group of namespaces).
///
/// If a group has many due timers, its answer lists only the first of them. The next timers of this group may be due
/// right after its last listed timer. So the function ignores all timers, in all groups, that are due later than this
/// last listed timer.
pub(super) fn portions(looked: Vec<(Vec<Shard>, Looked)>, wish: Wish<'_>) -> Vec<(Vec<Shard>, Portion)> {
    let ends =
        looked.iter().filter(|(_, looked)| looked.is_cut).map(|(_, looked)| match looked.named.last() {
            Some(last) => (last.due, last.id.clone()),
            // The answer lists no timer, because the script did not have the keys of the first due slices. The empty id
            // sorts before all ids, so timers of other groups that are due at the same moment wait as well.
            None => (looked.next_claim.unwrap_or_default().as_millis(), Vec::new()),
        });
    let end = ends.min();
    let (mut portions, mut named) = (Vec::new(), Vec::new());
    for (place, (group, looked)) in looked.into_iter().enumerate() {
        portions.push((group, Portion::default()));
        // The script of a group decides by its own server's time which timers are late. So the plan uses the same time.
        named.extend(looked.named.into_iter().map(|named| (named, looked.now, place)));
    }
    named.sort_unstable();
    let (mut timers, mut taken) = (0, wish.taken);
    let mut closed = BTreeSet::new();
    // The claim itself counts only the timers that a script has leased. So this plan counts in a copy.
    let mut turns = match wish.per_lane {
        PerLane::InTurn(turns) => Some(turns.clone()),
        _ => None,
    };
    for (Named { due, id, length, lane }, now, place) in named {
        // The limit of bytes never stops a claim before its first payload, as in the script.
        let is_full = timers >= wish.timers || taken > 0 && taken >= wish.bytes;
        if is_full || end.as_ref().is_some_and(|end| (due, id) > *end) {
            break;
        }
        // Each group has counted only its own timers. So the lanes' shares are counted again here. A script leases the
        // timers of a lane in order. So once a timer is passed over, later timers of the same lane and group are passed
        // over, too.
        let lateness = now - UtcMillis::from_millis(due);
        if !closed.contains(&(place, lane)) && turns.as_mut().is_none_or(|turns| turns.take(lane, lateness)) {
            (timers, taken) = (timers + 1, taken + length);
            let (_, portion) = &mut portions[place];
            portion.timers += 1;
            *portion.by_lane.entry(lane).or_default() += 1;
        } else {
            closed.insert((place, lane));
        }
    }
    portions.retain(|(_, portion)| portion.timers > 0);
    portions
}
