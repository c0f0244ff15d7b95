//! A population in which random timers are cancelled and scheduled again.

use super::{Chance, Payload, TICKS, Timers, payload};
use std::time::{Duration, Instant};

/// The number of timers that are cancelled and scheduled at a time, so that the read of the clock costs nothing by
/// comparison.
const BATCH: usize = 1_024;

/// `pending` timers, of which a batch at a time is cancelled and replaced; time stands still.
pub(crate) struct Churn<T: Timers> {
    timers: T,
    held: Vec<(T::Id, Payload)>,
    /// The order in which the held timers are cancelled, over and over.
    order: Vec<u32>,
    cursor: usize,
    chance: Chance,
}

/// The times of the two halves of a churn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChurnTime {
    pub(crate) schedule: Duration,
    pub(crate) cancel: Duration,
}

impl<T: Timers> Churn<T> {
    /// Makes a population. With `pending` 0, batches come into an empty structure and leave it.
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

    /// Cancels `count` timers and schedules as many, and times each half.
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
        // The ids are gathered beforehand, so that the timed code reads its input in sequence.
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
