//! The stations of a shard that rest. The leader visits a resting station only when the station calls, or when its next
//! ticket is due.

use super::sleep::Wake;
use super::station::Station;
use crate::base::tick::Timestamp;
use std::collections::BTreeMap;

/// The stations (engines' parts of the shard) that rest, by the numbers of their calls and by the ends of their rests.
#[derive(Debug, Default)]
pub(super) struct Resting {
    stations: BTreeMap<usize, Rest>,
    /// The moments at which the rests of stations end by themselves. Each moment has the number of the station's call.
    /// The value is the first deadline that is due at the moment (`Wake::not_before`).
    ends: BTreeMap<(Timestamp, usize), Timestamp>,
}

#[derive(Debug)]
struct Rest {
    station: Box<Station>,
    wake: Option<Wake>,
}

impl Resting {
    /// Puts a station to rest until `wake`.
    pub(super) fn put(&mut self, number: usize, station: Box<Station>, wake: Option<Wake>) {
        if let Some(Wake { at, not_before }) = wake {
            self.ends.insert((at, number), not_before);
        }
        self.stations.insert(number, Rest { station, wake });
    }

    /// Takes out the resting station whose call has this number. Returns `None` if that station does not rest.
    pub(super) fn take(&mut self, number: usize) -> Option<Box<Station>> {
        let Rest { station, wake } = self.stations.remove(&number)?;
        if let Some(wake) = wake {
            self.ends.remove(&(wake.at, number));
        }
        Some(station)
    }

    /// Takes out a station whose rest has ended by `now`.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<Box<Station>> {
        let (&(at, number), _) = self.ends.first_key_value()?;
        if at > now { None } else { self.take(number) }
    }

    /// Returns the end of the rest that ends first; `None` if no rest ends by itself.
    pub(super) fn first_end(&self) -> Option<Wake> {
        let (&(at, _), &not_before) = self.ends.first_key_value()?;
        Some(Wake { at, not_before })
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Box<Station>> {
        let Self { stations, ends } = core::mem::take(self);
        drop(ends);
        stations.into_values().map(|rest| rest.station)
    }
}
