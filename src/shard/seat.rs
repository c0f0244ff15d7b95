//! The seat of a shard's leader.
//!
//! A shard is driven by one thread at a time, its *leader*: the thread that has the seat's lock, awake or asleep.
//! A leader that runs handlers gives the lock up for that time and tries to take it again afterwards. The thread
//! that finds the lock free leads from then on: the leader that comes back from its handlers, or a thread that
//! stands by and has seen that the leader does not come back ([`watch`](crate::watch)). The other thread finds the
//! lock taken and stands by.
//!
//! # States
//! ```text
//! led ── the leader lets go, to run handlers ──► free ── it comes back, or another thread takes over ──► led
//! ```
//!
//! # Invariants
//! L1. While the seat of a running engine is free, a thread runs handlers for its shard, and tries the lock when the
//!     handlers have returned; and a thread watches, or is wanted to (Y1 of `watch`).
//! L2. The changes that a shard's leader made are seen by the next leader: the lock hands them over.
//!
//! # Races and their legal endings
//! - The handlers return x the watcher takes over: one of the two threads gets the lock and leads; the other stands by.
//! - Two earlier leaders come back at once, or one comes back while the present leader runs handlers: one of the
//!   threads gets the lock and leads; the others stand by.
//!
//! A leader that panics, because the user's clock does, poisons the lock: no thread drives its shard any more.

use super::{Pulse, Shard};
use crate::sync::{ModelledMutex, ModelledMutexGuard, StdArc};
use core::ops::RangeInclusive;

/// The place of the thread that leads a shard.
#[derive(Debug)]
pub(crate) struct Seat {
    led: ModelledMutex<Led>,
    /// The core that leaders are pinned to.
    pub(super) core: Option<usize>,
}

/// The objects that a leader has.
#[derive(Debug)]
pub(super) struct Led {
    pub(super) shard: Shard,
    pub(super) pulse: Pulse,
    pub(super) trust: Trust,
}

/// Whether a leader may run the handlers of its shard itself. If one handler held a leader up, other handlers
/// that take as long are likely to be due soon. So handovers go to the workers for a while; the while
/// grows with each takeover.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// The number of handovers that still go to the workers.
    withheld: u32,
    /// The number of handovers that went to the workers after the last takeover.
    penalty: u32,
    /// The number of handovers that leaders ran since the penalty was last changed.
    kept: u32,
}

impl Trust {
    const PENALTIES: RangeInclusive<u32> = if cfg!(tourbillon_loom) { 0..=0 } else { 16..=1_024 };
    /// After so many handovers without a takeover the next penalty is half as hard.
    const FORGIVEN_AFTER: u32 = 256;

    /// Notes that a handler held a leader up.
    pub(super) fn lose(&mut self) {
        self.penalty = (2 * self.penalty).clamp(*Self::PENALTIES.start(), *Self::PENALTIES.end());
        (self.withheld, self.kept) = (self.penalty, 0);
    }

    /// Whether the leader runs the next handover itself.
    pub(super) fn ask(&mut self) -> bool {
        if self.withheld > 0 {
            self.withheld -= 1;
            return false;
        }
        self.kept += 1;
        if self.kept == Self::FORGIVEN_AFTER {
            (self.penalty, self.kept) = (self.penalty / 2, 0);
        }
        true
    }
}

/// The leader's hold on a seat.
pub(super) type Leading<'a> = ModelledMutexGuard<'a, Led>;

impl Seat {
    pub(crate) fn new(shard: Shard, pulse: Pulse, core: Option<usize>) -> Self {
        Self { led: ModelledMutex::new(Led { shard, pulse, trust: Trust::default() }), core }
    }

    /// Makes the calling thread the leader if the seat is free at this moment.
    pub(super) fn try_lead(&self) -> Option<Leading<'_>> {
        self.led.try_lock().ok()
    }
}

impl Led {
    pub(super) fn shared(&self) -> StdArc<super::ShardShared> {
        StdArc::clone(&self.shard.shared)
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    fn withheld(trust: &mut Trust) -> usize {
        (0..10_000).take_while(|_| !trust.ask()).count()
    }

    #[test]
    fn takeovers_in_a_row_cost_twice_as_much_each_time() {
        let mut trust = Trust::default();
        assert!(trust.ask());
        let costs: Vec<_> = (0..9)
            .map(|_| {
                trust.lose();
                withheld(&mut trust)
            })
            .collect();
        assert_eq!(costs, [16, 32, 64, 128, 256, 512, 1_024, 1_024, 1_024]);
    }

    #[test]
    fn trust_comes_back() {
        let mut trust = Trust::default();
        (0..4).for_each(|_| trust.lose());
        assert_eq!(withheld(&mut trust), 128);
        assert!((0..10 * Trust::FORGIVEN_AFTER).all(|_| trust.ask()));
        trust.lose();
        assert_eq!(withheld(&mut trust), 16);
    }
}
