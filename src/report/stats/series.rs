//! The list of series that `Stats::prometheus` prints and `Stats::record` publishes.

use super::{Lateness, ShardStats, Stats};
use core::time::Duration;

/// A series of samples. It has one sample for the engine, or a sample for each shard.
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) read: Read,
}

/// The function that reads the samples of a series from the statistics.
pub(super) enum Read {
    Engine(fn(&Stats) -> Value),
    /// A single sample, whose text becomes the label `source`.
    Source(fn(&Stats) -> &'static str),
    Shard(fn(&ShardStats) -> Value),
    Lateness(fn(&ShardStats) -> &Lateness),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Count(u64),
    /// A span of time. Prometheus' page shows it in seconds.
    Time(Duration),
}

use Read::{Engine, Shard};
use Value::{Count, Time};

impl Series {
    const fn new(name: &'static str, help: &'static str, read: Read) -> Self {
        Self { name, help, read }
    }

    pub(super) fn is_counter(&self) -> bool {
        self.name.ends_with("_total")
    }

    /// Returns whether the series is measured in seconds.
    #[cfg(feature = "metrics")]
    pub(super) fn is_time(&self) -> bool {
        self.name.trim_end_matches("_total").ends_with("_seconds")
    }
}

/// All series. A series whose name ends in `_total` is a counter.
pub(super) const SERIES: [Series; 35] = [
    Series::new(
        "tourbillon_engine_scheduled_total",
        "Timers scheduled; each rescheduling counts again.",
        Engine(|stats| Count(stats.scheduled)),
    ),
    Series::new(
        "tourbillon_engine_cancelled_total",
        "Timers cancelled; each rescheduling counts as well.",
        Engine(|stats| Count(stats.cancelled)),
    ),
    Series::new(
        "tourbillon_engine_returned_total",
        "Timers returned or dropped by a shutdown.",
        Engine(|stats| Count(stats.returned)),
    ),
    Series::new(
        "tourbillon_engine_pending",
        "Timers that wait for their deadline or for a worker.",
        Engine(|stats| Count(stats.pending)),
    ),
    Series::new(
        "tourbillon_engine_capacity",
        "Slots for timers, pending and owned.",
        Engine(|stats| Count(stats.capacity)),
    ),
    Series::new(
        "tourbillon_engine_full_total",
        "Calls that found no slot left.",
        Engine(|stats| Count(stats.engine_full)),
    ),
    Series::new(
        "tourbillon_engine_lane_full_total",
        "Calls that found their lane full. Each attempt of a call that waits counts.",
        Engine(|stats| Count(stats.lane_full)),
    ),
    Series::new(
        "tourbillon_engine_owned",
        "Timers that are owned by handles.",
        Engine(|stats| Count(stats.owned.alive)),
    ),
    Series::new(
        "tourbillon_engine_owned_fired_total",
        "Handlers begun for owned timers.",
        Engine(|stats| Count(stats.owned.fired)),
    ),
    Series::new(
        "tourbillon_engine_owned_posted_total",
        "Armings of owned timers that posted a ticket to a shard.",
        Engine(|stats| Count(stats.owned.posted)),
    ),
    Series::new(
        "tourbillon_engine_owned_postponed_total",
        "Due tickets of owned timers that were postponed.",
        Engine(|stats| Count(stats.owned.postponed)),
    ),
    Series::new(
        "tourbillon_engine_stall_after_seconds",
        "A shard that is later than this stalls.",
        Engine(|stats| Time(stats.stall_after)),
    ),
    Series::new(
        "tourbillon_engine_slices_refused",
        "Threads that asked for a short scheduler slice and did not get it.",
        Engine(|stats| Count(stats.slices_refused)),
    ),
    Series::new(
        "tourbillon_engine_priorities_refused",
        "Threads that did not get the priority that was asked for.",
        Engine(|stats| Count(stats.priorities_refused)),
    ),
    Series::new("tourbillon_engine_clock", "The clock in use.", Read::Source(|stats| stats.clock.source)),
    Series::new(
        "tourbillon_engine_clock_ahead_seconds",
        "The most that the clock was seen ahead of the true time.",
        Engine(|stats| Time(stats.clock.ahead)),
    ),
    Series::new(
        "tourbillon_engine_clock_behind_seconds",
        "The largest lag that was seen. A timer may have fired early by this time.",
        Engine(|stats| Time(stats.clock.behind)),
    ),
    Series::new(
        "tourbillon_engine_clock_steps_total",
        "Steps of the processor's counter that were noticed.",
        Engine(|stats| Count(stats.clock.steps)),
    ),
    Series::new(
        "tourbillon_engine_fired_total",
        "Handlers begun, for timers of either kind.",
        Shard(|shard| Count(shard.fired)),
    ),
    Series::new(
        "tourbillon_engine_panics_total",
        "Handlers and executors that panicked.",
        Shard(|shard| Count(shard.panics)),
    ),
    Series::new("tourbillon_engine_tickets", "Tickets in the wheel.", Shard(|shard| Count(shard.tickets))),
    Series::new(
        "tourbillon_engine_stale_tickets_total",
        "Tickets of ended timers dropped.",
        Shard(|shard| Count(shard.stale_tickets)),
    ),
    Series::new(
        "tourbillon_engine_turns_total",
        "Passes of the shard's loop.",
        Shard(|shard| Count(shard.turns)),
    ),
    Series::new(
        "tourbillon_engine_wakes_total",
        "Times the shard slept and woke.",
        Shard(|shard| Count(shard.wakes)),
    ),
    Series::new(
        "tourbillon_engine_unparks_total",
        "Times a producer woke the shard.",
        Shard(|shard| Count(shard.unparks)),
    ),
    Series::new(
        "tourbillon_engine_takeovers_total",
        "Times another thread took the shard over, because a handler held up the shard's thread.",
        Shard(|shard| Count(shard.takeovers)),
    ),
    Series::new(
        "tourbillon_engine_stalls_total",
        "Times the shard was late by more than the stall threshold.",
        Shard(|shard| Count(shard.stalls)),
    ),
    Series::new(
        "tourbillon_engine_worst_stall_seconds",
        "The longest that the shard was ever late in a stall.",
        Shard(|shard| Time(shard.worst_stall)),
    ),
    Series::new(
        "tourbillon_engine_behind_seconds",
        "How late the shard is at this moment.",
        Shard(|shard| Time(shard.behind)),
    ),
    Series::new(
        "tourbillon_engine_queued_timers",
        "Due timers that no worker has taken.",
        Shard(|shard| Count(shard.queued_timers)),
    ),
    Series::new(
        "tourbillon_engine_queue_age_seconds",
        "How long the first of them has waited.",
        Shard(|shard| Time(shard.queue_age)),
    ),
    Series::new(
        "tourbillon_engine_handler_seconds_total",
        "Time that threads spent in handlers, with the claims of their tickets.",
        Shard(|shard| Time(shard.handler_time)),
    ),
    Series::new(
        "tourbillon_engine_pin_refused",
        "Whether the system would not pin the shard's thread.",
        Shard(|shard| Count(shard.pins_refused)),
    ),
    Series::new(
        "tourbillon_engine_departures_total",
        "How often the shard's thread left its core, because that core was busy.",
        Shard(|shard| Count(shard.departures)),
    ),
    Series::new(
        "tourbillon_engine_lateness_seconds",
        "How long after their deadlines handlers began.",
        Read::Lateness(|shard| &shard.lateness),
    ),
];
