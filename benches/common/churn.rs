//! A number of pending timers, of which random timers are cancelled and scheduled again.

use super::{Chance, Payload, TICKS, Timers, payload};
use std::time::{Duration, Instant};

/// The number of timers that are cancelled and scheduled between two readings of the clock. A large number makes the
/// cost of the readings negligible.
const BATCH: usize = 1_024;

/// A structure with `pending` timers. A run cancels and replaces batches of timers while the structure's time stands
/// still.
pub(crate) struct Churn<T: Timers> {
    timers: T,
    held: Vec<(T::Id, Payload)>,
    /// The order in which a run cancels the pending timers. Runs repeat the order.
    order: Vec<u32>,
    cursor: usize,
    chance: Chance,
}

/// The total time of all cancels, and the total time of all schedules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChurnTime {
    pub(crate) schedule: Duration,
    pub(crate) cancel: Duration,
}

impl<T: Timers> Churn<T> {
    /// Makes a structure with `pending` timers. With zero, a run puts each batch into an empty structure and removes
    /// the batch again.
    pub(crate) fn new(pending: usize) -> Self {
        let population = pending.max(BATCH);
        let mut chance = Chance::new(pending as u64);
        let mut timers = T::new();
        let held = (0..population as u64)
            .map(|n| (timers.schedule(chance.within(&TICKS), payload(n)), payload(n)))
            .collect();
        let order = chance.order(population);
        Self { timers, held, order, cursor: 0, chance }
    }

    /// Cancels `count` timers and schedules the same number. Returns the times of the cancels and of the schedules.
    pub(crate) fn run(&mut self, count: u64) -> ChurnTime {
        let mut time = ChurnTime::default();
        let mut left = usize::try_from(count).expect("an iteration count");
        while left > 0 {
            let batch = left.min(BATCH);
            self.turn(batch, &mut time);
            left -= batch;
        }
        assert_eq!(self.timers.len(), self.held.len());
        time
    }

    fn turn(&mut self, batch: usize, time: &mut ChurnTime) {
        if self.cursor + batch > self.order.len() {
            self.cursor = 0;
        }
        let chosen = &self.order[self.cursor..self.cursor + batch];
        self.cursor += batch;
        // The ids are collected beforehand, so that the timed code reads its input in sequence.
        let outgoing: Vec<_> = chosen.iter().map(|&at| self.held[at as usize]).collect();
        let incoming: Vec<_> =
            outgoing.iter().map(|&(_, payload)| (self.chance.within(&TICKS), payload)).collect();
        let mut ids = Vec::with_capacity(batch);

        let start = Instant::now();
        for (id, payload) in outgoing {
            assert_eq!(self.timers.cancel(id), Some(payload));
        }
        time.cancel += start.elapsed();

        let start = Instant::now();
        for (tick, payload) in incoming {
            ids.push(self.timers.schedule(tick, payload));
        }
        time.schedule += start.elapsed();

        for (&at, id) in chosen.iter().zip(ids) {
            self.held[at as usize].0 = id;
        }
    }
}
