//! Keeps the deliveries that are *put off*: they have not begun, and their timers are given back to the store after a
//! pause.
//!
//! The timer keeps its lease and its due moment meanwhile. So it counts as overdue, and the next claim judges by its
//! policy how late it is. A stop of the runtime ends all pauses.

use super::delivery::UnderWay;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;
use tourbillon_words::UtcMillis;

/// The greatest number of deliveries that are put off. With this number, the loop claims no timers, so that the memory
/// is bounded (invariant R7 of [`delivery_loop`](crate::runtime::delivery_loop)).
pub(crate) const MOST_PUT_OFF: usize = 65_536;

/// The pause before a timer is given back whose delivery was dropped, or whose time has passed before its beginning.
pub(super) const PUT_OFF: Duration = Duration::from_secs(1);

/// The end of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    Moment(Instant),
    /// The lane of removals with this number is open again, or tries a removal with this timer.
    Lane(u32),
}

/// The deliveries of a lane that are put off, by the due moments of their timers and their numbers.
type OfLane = BTreeMap<(UtcMillis, u64), UnderWay>;

#[derive(Debug, Default)]
pub(crate) struct PutOff {
    by_lane: HashMap<u32, OfLane>,
    by_moment: BTreeMap<(Instant, u64), UnderWay>,
    count: usize,
}

impl PutOff {
    pub(super) fn add(&mut self, delivery: UnderWay, until: Until) {
        self.count += 1;
        let (due, number) = (delivery.due, delivery.number);
        match until {
            Until::Moment(moment) => drop(self.by_moment.insert((moment, number), delivery)),
            Until::Lane(lane) => {
                drop(self.by_lane.entry(lane).or_default().insert((due, number), delivery));
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &UnderWay> {
        self.by_lane.values().flat_map(BTreeMap::values).chain(self.by_moment.values())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut UnderWay> {
        self.by_lane.values_mut().flat_map(BTreeMap::values_mut).chain(self.by_moment.values_mut())
    }

    /// Removes and returns the delivery with this number. `due` is the due moment of its timer.
    pub(super) fn remove(&mut self, number: u64, due: UtcMillis) -> Option<UnderWay> {
        let of_lane = self.by_lane.values_mut().find_map(|of_lane| of_lane.remove(&(due, number)));
        let found = of_lane.or_else(|| {
            let key = *self.by_moment.keys().find(|(_, other)| *other == number)?;
            self.by_moment.remove(&key)
        });
        self.note_taken(found.iter().len());
        found
    }

    /// Returns the earliest due moment of a timer that is put off.
    pub(crate) fn first_due(&self) -> Option<UtcMillis> {
        let of_lanes = self.by_lane.values().filter_map(|of_lane| of_lane.keys().next()).map(|(due, _)| *due);
        of_lanes.chain(self.by_moment.values().map(|delivery| delivery.due)).min()
    }

    /// Returns the moment at which the first pause of a fixed length ends.
    pub(crate) fn first_moment(&self) -> Option<Instant> {
        self.by_moment.keys().next().map(|(moment, _)| *moment)
    }

    /// Removes and returns the deliveries whose pauses of a fixed length are over.
    pub(super) fn take_over(&mut self, now: Instant) -> Vec<UnderWay> {
        let mut over = Vec::new();
        while let Some(first) = self.by_moment.first_entry().filter(|first| first.key().0 <= now) {
            over.push(first.remove());
        }
        self.note_taken(over.len());
        over
    }

    /// Removes and returns the delivery of a lane whose timer is due first.
    pub(super) fn take_first(&mut self, lane: u32) -> Option<UnderWay> {
        let (_, first) = self.by_lane.get_mut(&lane)?.pop_first()?;
        self.note_taken(1);
        Some(first)
    }

    /// Removes and returns all deliveries of a lane.
    pub(super) fn take_lane(&mut self, lane: u32) -> Vec<UnderWay> {
        let of_lane: Vec<_> = self.by_lane.remove(&lane).unwrap_or_default().into_values().collect();
        self.note_taken(of_lane.len());
        of_lane
    }

    /// Removes and returns all deliveries.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = UnderWay> + use<> {
        let Self { by_lane, by_moment, .. } = core::mem::take(self);
        by_lane.into_values().flat_map(BTreeMap::into_values).chain(by_moment.into_values())
    }

    fn note_taken(&mut self, count: usize) {
        self.count -= count;
    }
}
