//! Statistics: a snapshot of all counters of an engine, taken while the engine goes on.

#[cfg(feature = "metrics")]
mod facade;
mod lateness;
mod prometheus;
mod series;

pub use lateness::Lateness;
pub use prometheus::Prometheus;

use crate::base::buckets::Buckets;
use crate::base::tick::{TickLength, Timestamp};
use crate::engine::Core;
use crate::shard::{Shard, StationShared};
use crate::system::clock::ClockReport;
use core::time::Duration;

/// A snapshot of an engine's counters.
///
/// The counters are read one after the other while the engine goes on, so they may differ by the events in between.
/// While nothing happens in the engine, they are exact: `scheduled = cancelled + fired + returned + pending`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The number of timers that were scheduled. A rescheduled timer counts again.
    pub scheduled: u64,
    /// The number of timers that were cancelled, including rescheduled timers.
    pub cancelled: u64,
    /// The number of handlers that have begun.
    pub fired: u64,
    /// The number of timers that a shutdown returned or dropped.
    pub returned: u64,
    /// The number of timers that wait for their deadline or for a worker.
    pub pending: u64,
    /// The number of slots for timers. Pending timers and owned timers take slots.
    pub capacity: u64,
    /// The number of calls that found no slot left.
    pub engine_full: u64,
    /// The number of calls that found no room in the calling thread's lane (its queue to a shard). If a call waits,
    /// each of its attempts counts.
    pub lane_full: u64,
    /// The delay beyond which a shard counts as stalled: see [`Builder::stall_after`](crate::Builder::stall_after).
    pub stall_after: Duration,
    /// The number of the engine's own threads that asked for a short scheduler slice and did not get it. On Linux
    /// before 6.12, and on other systems, no thread gets a short slice.
    pub slices_refused: u64,
    /// The number of the engine's own threads that did not get the requested priority. The builder requests a nice
    /// value or a real-time priority.
    pub priorities_refused: u64,
    /// The engine's clock, and its observed error.
    pub clock: ClockReport,
    /// The counters of owned timers. The fields `scheduled` to `pending` leave owned timers out. The fields `shards`
    /// and `total` include them.
    pub owned: OwnedStats,
    /// The totals of all shards. Counters and handler times are sums over the shards. The lateness covers the handlers
    /// of all shards. Each other time is the longest time of any shard.
    pub total: ShardStats,
    /// The counters of each shard.
    pub shards: Vec<ShardStats>,
}

/// The counters of [`Timer`](crate::Timer)s. Armings are not counted: counting them would cost more than arming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnedStats {
    /// The number of owned timers that exist. A timer may be dropped while its shard checks it or a worker fires it.
    /// Then the timer counts until the shard or the worker has finished.
    pub alive: u64,
    /// The number of handlers that have begun for owned timers.
    pub fired: u64,
    /// The number of armings of owned timers that posted a ticket (a request to check a timer) to a shard.
    pub posted: u64,
    /// The number of due tickets that the shard posted again because their timers had been postponed.
    pub postponed: u64,
}

/// The counters of one engine at one shard.
///
/// If engines share the shard, [`wakes`](Self::wakes), [`takeovers`](Self::takeovers), [`stalls`](Self::stalls),
/// [`worst_stall`](Self::worst_stall), [`behind`](Self::behind), [`pins_refused`](Self::pins_refused) and
/// [`departures`](Self::departures) describe the shard itself, for all engines and since the shard was started. A sum
/// over engines counts them several times.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShardStats {
    /// The number of handlers that have begun for this shard's timers, one-shots and owned timers.
    pub fired: u64,
    /// The number of handlers that panicked.
    pub panics: u64,
    /// The number of tickets in the engine's wheel at the shard's last turn, including tickets of ended timers.
    pub tickets: u64,
    /// The number of tickets of ended timers that were dropped.
    pub stale_tickets: u64,
    /// The number of passes of the shard's loop.
    pub turns: u64,
    /// How often the shard slept and woke, by itself or because another thread woke it.
    pub wakes: u64,
    /// How often a producer, a thread that arms timers, woke the shard.
    pub unparks: u64,
    /// The number of chunks of due timers (up to 32 timers each) that no worker has begun yet. The number grows when
    /// workers fall behind.
    pub queued_chunks: u64,
    /// The number of due timers that no worker has taken yet. Some of these timers may have been cancelled after they
    /// came due. The number is zero after a shutdown.
    pub queued_timers: u64,
    /// The time for which the oldest timer of `queued_timers` has waited. The value assumes that workers take the
    /// timers in order.
    pub queue_age: Duration,
    /// The number of takeovers: a handler held up the thread that led the shard, and another thread took the shard
    /// over. Each takeover made other timers of the shard about 1.5 milliseconds late: see
    /// [`Builder::workers`](crate::Builder::workers).
    pub takeovers: u64,
    /// The number of times that the shard was late by more than [`stall_after`](Stats::stall_after).
    pub stalls: u64,
    /// The longest delay of the shard in a stall.
    pub worst_stall: Duration,
    /// The present delay of the shard: the time since the next pass of its loop should have begun, or since the present
    /// pass should have ended. The value is zero while the shard may sleep, in an engine without threads, and after a
    /// shutdown.
    pub behind: Duration,
    /// The time that all threads together spent in handlers of this shard's timers. The time includes the time to claim
    /// the timers' tickets.
    pub handler_time: Duration,
    /// The number of shards whose threads run unpinned, because the system refused to pin them to their cores.
    pub pins_refused: u64,
    /// How often the shard's thread left the core to which it was pinned, because another thread was busy there and
    /// another core was free. It comes back some seconds later, or some minutes if it finds the core busy again and
    /// again.
    pub departures: u64,
    /// How late handlers began after their deadlines. A thread records the latenesses in groups. So while a thread runs
    /// a handler, the latenesses of this handler and of up to 38 handlers before it may be missing.
    pub lateness: Lateness,
}

impl ShardStats {
    /// Reads the counters of an engine's station (its part of a shard). `now` is the moment of the snapshot, or `None`
    /// if the engine is shut down.
    fn of(
        shard: &Shard,
        station: &StationShared,
        tick: TickLength,
        now: Option<Timestamp>,
        lateness: &Buckets,
    ) -> Self {
        let (counters, leader) = (&station.counters, &shard.counters);
        Self {
            fired: counters.fired() + counters.owned_fired(),
            panics: counters.panics.get(),
            tickets: counters.tickets.get(),
            stale_tickets: counters.stale.get() + counters.stale_at_worker.get(),
            turns: counters.turns.get(),
            wakes: leader.wakes.get(),
            unparks: station.parker.unparks(),
            queued_chunks: counters.waiting_chunks(),
            queued_timers: now.map_or(0, |_| counters.waiting_tickets()),
            queue_age: now.map_or(Duration::ZERO, |now| counters.waited(now)),
            takeovers: leader.takeovers.get(),
            stalls: leader.stalls.get(),
            worst_stall: leader.worst_stall(),
            behind: now.map_or(Duration::ZERO, |now| shard.behind(station, tick, now)),
            handler_time: Duration::from_nanos(counters.busy_nanos.get()),
            pins_refused: leader.pin_refused.get(),
            departures: leader.departures.get(),
            lateness: Lateness::of(lateness),
        }
    }

    fn sum(shards: &[Self], lateness: &Buckets) -> Self {
        let sum = |count: fn(&Self) -> u64| shards.iter().map(count).sum();
        let worst = |time: fn(&Self) -> Duration| shards.iter().map(time).max().unwrap_or_default();
        Self {
            fired: sum(|shard| shard.fired),
            panics: sum(|shard| shard.panics),
            tickets: sum(|shard| shard.tickets),
            stale_tickets: sum(|shard| shard.stale_tickets),
            turns: sum(|shard| shard.turns),
            wakes: sum(|shard| shard.wakes),
            unparks: sum(|shard| shard.unparks),
            queued_chunks: sum(|shard| shard.queued_chunks),
            queued_timers: sum(|shard| shard.queued_timers),
            queue_age: worst(|shard| shard.queue_age),
            takeovers: sum(|shard| shard.takeovers),
            stalls: sum(|shard| shard.stalls),
            worst_stall: worst(|shard| shard.worst_stall),
            behind: worst(|shard| shard.behind),
            handler_time: shards.iter().map(|shard| shard.handler_time).sum(),
            pins_refused: sum(|shard| shard.pins_refused),
            departures: sum(|shard| shard.departures),
            lateness: Lateness::of(lateness),
        }
    }
}

impl Stats {
    pub(crate) fn of<T: Send + 'static>(core: &Core<T>) -> Self {
        let (admission, set) = (core.admission(), core.set());
        let totals = admission.stations().totals();
        let now = (!admission.is_shut_down()).then(|| core.clock().now());
        let stations = admission.stations().all();
        let lateness: Vec<Buckets> = stations.iter().map(|station| station.counters.lateness()).collect();
        let shards: Vec<ShardStats> = stations
            .iter()
            .zip(set.shards())
            .zip(&lateness)
            .map(|((station, shard), lateness)| ShardStats::of(shard, station, core.tick(), now, lateness))
            .collect();
        let mut all = Buckets::empty();
        lateness.iter().for_each(|shard| all.add(shard));
        Self {
            scheduled: totals.scheduled,
            cancelled: totals.cancelled,
            fired: totals.fired,
            returned: totals.returned,
            pending: totals.pending(),
            capacity: u64::from(admission.slots().capacity()),
            engine_full: admission.engine_full().count(),
            lane_full: admission.lane_full().count(),
            stall_after: set.settings().stall_after,
            slices_refused: set.scheduling_refusals().slices.get(),
            priorities_refused: set.scheduling_refusals().priorities.get(),
            clock: core.clock().report(),
            owned: OwnedStats {
                alive: totals.owned(),
                fired: stations.iter().map(|station| station.counters.owned_fired()).sum(),
                posted: admission.stations().posted_arms(),
                postponed: stations.iter().map(|station| station.counters.postponed.get()).sum(),
            },
            total: ShardStats::sum(&shards, &all),
            shards,
        }
    }
}
