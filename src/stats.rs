//! What an engine has done so far: one snapshot over all counters, taken without stopping anything.

use crate::engine::Core;
use crate::shard::ShardShared;
use core::time::Duration;
use histogram::{Histogram, Quantile};

/// A snapshot of an engine's counters.
///
/// Counters are read one after the other while the engine goes on, so they may disagree by what happened meanwhile.
/// At rest they are exact: `scheduled = cancelled + fired + returned + pending`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Timers scheduled, rescheduled ones again.
    pub scheduled: u64,
    /// Timers cancelled, rescheduled ones included.
    pub cancelled: u64,
    /// Handlers begun.
    pub fired: u64,
    /// Timers returned or dropped by a shutdown.
    pub returned: u64,
    /// Timers that wait for their deadline or for a worker.
    pub pending: u64,
    /// Timers that are owned by handles, of which nothing else here but the totals of the shards tells.
    pub owned: OwnedStats,
    /// The sum over the shards of what each counts; lateness over all of them.
    pub total: ShardStats,
    /// Each shard by itself.
    pub shards: Vec<ShardStats>,
}

/// What became of [`Timer`](crate::Timer)s. How often they were armed nobody counts: that would cost more than arming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnedStats {
    /// Timers that there are; one that was dropped while its shard or a worker had it, until that is done with it.
    pub alive: u64,
    /// Handlers begun for them.
    pub fired: u64,
    /// Armings that posted a ticket to a shard.
    pub posted: u64,
    /// Tickets that came due after their timer had been put off, and were posted again by their shard.
    pub put_off: u64,
}

/// The counters of one shard.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShardStats {
    /// Handlers begun for this shard's timers, of either kind.
    pub fired: u64,
    /// Handlers that panicked.
    pub panics: u64,
    /// Tickets in the wheel, at the last turn; those of ended timers included.
    pub tickets: u64,
    /// Tickets of ended timers dropped so far.
    pub stale_tickets: u64,
    /// Passes of the shard's loop.
    pub turns: u64,
    /// Times the shard slept and woke, by itself or woken.
    pub wakes: u64,
    /// Times a producer woke it.
    pub unparks: u64,
    /// Due chunks that no worker has begun yet: grows when workers fall behind.
    pub queued_chunks: u64,
    /// Time that workers spent in handlers.
    pub handler_time: Duration,
    /// Shards whose thread the system would not pin.
    pub pins_refused: u64,
    /// How long after their deadlines handlers began.
    pub lateness: Lateness,
}

/// A distribution of latenesses. Percentiles are exact to 3 %, rounded up; nothing beyond 73 minutes is told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lateness {
    /// Half of the handlers began within this time.
    pub p50: Duration,
    /// 99 of 100.
    pub p99: Duration,
    /// 999 of 1,000.
    pub p999: Duration,
    /// All of them.
    pub max: Duration,
}

impl Lateness {
    fn of(histogram: &Histogram) -> Self {
        let [median, p99, p999] = [0.5, 0.99, 0.999].map(|q| Quantile::new(q).expect("between 0 and 1"));
        let Ok(Some(result)) = histogram.quantiles(&[0.5, 0.99, 0.999]) else { return Self::default() };
        let at = |quantile| result.get(&quantile).map_or(Duration::ZERO, |b| Duration::from_nanos(b.end()));
        Self { p50: at(median), p99: at(p99), p999: at(p999), max: Duration::from_nanos(result.max().end()) }
    }
}

impl ShardStats {
    fn of(shard: &ShardShared, lateness: &Histogram) -> Self {
        let counters = &shard.counters;
        // Begun first: a chunk is handed over before it is begun.
        let begun = counters.begun.get();
        Self {
            fired: counters.fired.get() + counters.owned_fired.get(),
            panics: counters.panics.get(),
            tickets: counters.tickets.get(),
            stale_tickets: counters.stale.get() + counters.stale_at_worker.get(),
            turns: counters.turns.get(),
            wakes: counters.wakes.get(),
            unparks: shard.parker.unparks(),
            queued_chunks: counters.handed_over.get().saturating_sub(begun),
            handler_time: Duration::from_nanos(counters.busy_nanos.get()),
            pins_refused: counters.pin_refused.get(),
            lateness: Lateness::of(lateness),
        }
    }

    fn sum(shards: &[Self], lateness: &Histogram) -> Self {
        let sum = |count: fn(&Self) -> u64| shards.iter().map(count).sum();
        Self {
            fired: sum(|shard| shard.fired),
            panics: sum(|shard| shard.panics),
            tickets: sum(|shard| shard.tickets),
            stale_tickets: sum(|shard| shard.stale_tickets),
            turns: sum(|shard| shard.turns),
            wakes: sum(|shard| shard.wakes),
            unparks: sum(|shard| shard.unparks),
            queued_chunks: sum(|shard| shard.queued_chunks),
            handler_time: shards.iter().map(|shard| shard.handler_time).sum(),
            pins_refused: sum(|shard| shard.pins_refused),
            lateness: Lateness::of(lateness),
        }
    }
}

impl Stats {
    pub(crate) fn of<T: Send + 'static>(core: &Core<T>) -> Self {
        let totals = core.totals();
        let histograms: Vec<Histogram> =
            core.shards().iter().map(|shard| shard.counters.lateness()).collect();
        let shards: Vec<ShardStats> = core
            .shards()
            .iter()
            .zip(&histograms)
            .map(|(shard, lateness)| ShardStats::of(shard, lateness))
            .collect();
        let all = Histogram::checked_sum(&histograms.iter().collect::<Vec<_>>());
        let all = all.unwrap_or_else(|_| histograms[0].clone());
        Self {
            scheduled: totals.scheduled,
            cancelled: totals.cancelled,
            fired: totals.fired,
            returned: totals.returned,
            pending: totals.pending(),
            owned: OwnedStats {
                alive: totals.owned(),
                fired: core.shards().iter().map(|shard| shard.counters.owned_fired.get()).sum(),
                posted: core.posted_arms(),
                put_off: core.shards().iter().map(|shard| shard.counters.put_off.get()).sum(),
            },
            total: ShardStats::sum(&shards, &all),
            shards,
        }
    }
}
