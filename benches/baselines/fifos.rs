//! A first-in-first-out list for each duration. Timers of one duration expire in the order in which they came.
//!
//! libevent's common timeouts are such lists, and so are the per-timeout lists of Envoy and many servers, and Lawn
//! (2019). The deadlines of the lists' first timers are in an array of their own, which an expiry scans. The earliest
//! of these deadlines is kept, so that most ticks read nothing.
//!
//! Complexity: insert O(1) and a look-up by duration; cancel O(1); expiry O(1), and O(durations) for a tick in which a
//! timer is due.
//!
//! Known limits: there are few durations, here 256 as in libevent. They count over the structure's whole life, since a
//! list is never removed. The structure is not meant for random delays from a range.

use super::keys::KeyMap;
use super::lists::{Lists, NIL};
use super::slots::SlotId;
use crate::common::{Limits, Payload, Timers};

const MOST_DURATIONS: usize = 256;
const NEVER: u64 = u64::MAX;

pub(crate) struct DurationFifos {
    position: u64,
    fifos: Lists<u64>,
    by_duration: KeyMap<u32>,
    /// The deadline of the first timer in each list. The index is the number of the list.
    firsts: Vec<u64>,
    /// The tick before which no timer is due.
    earliest: u64,
}

impl DurationFifos {
    fn fifo_for(&mut self, duration: u64) -> u32 {
        let Self { fifos, by_duration, firsts, .. } = self;
        *by_duration.entry(duration).or_insert_with(|| {
            assert!(firsts.len() < MOST_DURATIONS, "too many durations");
            fifos.add_lists(1);
            firsts.push(NEVER);
            firsts.len() as u32 - 1
        })
    }

    fn first_of(&self, fifo: u32) -> u64 {
        let first = self.fifos.first(fifo);
        if first == NIL { NEVER } else { self.fifos.key(first) }
    }
}

impl Timers for DurationFifos {
    const NAME: &'static str = "FIFO per duration";
    const LIMITS: Limits = Limits { durations: MOST_DURATIONS, ..Limits::NONE };
    type Id = SlotId;

    fn new() -> Self {
        Self {
            position: 0,
            fifos: Lists::new(0),
            by_duration: KeyMap::default(),
            firsts: Vec::new(),
            earliest: NEVER,
        }
    }

    #[inline]
    fn schedule(&mut self, tick: u64, payload: Payload) -> SlotId {
        let tick = tick.max(self.position);
        let fifo = self.fifo_for(tick - self.position);
        let first = &mut self.firsts[fifo as usize];
        *first = (*first).min(tick);
        self.earliest = self.earliest.min(tick);
        self.fifos.push(fifo, tick, payload)
    }

    #[inline]
    fn cancel(&mut self, id: SlotId) -> Option<Payload> {
        let removed = self.fifos.remove(id)?;
        if removed.key == self.firsts[removed.list as usize] {
            self.firsts[removed.list as usize] = self.first_of(removed.list);
        }
        Some(removed.payload)
    }

    fn expire(&mut self, to: u64, mut fire: impl FnMut(Payload)) {
        self.position = self.position.max(to);
        if self.earliest > to {
            return;
        }
        for fifo in 0..self.firsts.len() as u32 {
            while self.firsts[fifo as usize] <= to {
                fire(self.fifos.pop(fifo).expect("it has a first").payload);
                self.firsts[fifo as usize] = self.first_of(fifo);
            }
        }
        self.earliest = self.firsts.iter().copied().min().unwrap_or(NEVER);
    }

    fn len(&self) -> usize {
        self.fifos.len()
    }
}
