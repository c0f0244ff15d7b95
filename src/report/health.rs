//! The health of an engine: its condition at this moment, as a single word.

use crate::base::counters::EPISODE;
use crate::engine::Core;
use crate::system::clock::ClockReport;
use core::fmt;
use core::time::Duration;

/// The percentage of slots in use above which an engine counts as full.
const FULL_PERCENT: u64 = 90;

/// The condition of an engine: healthy, or the problem that it has. `Display` prints the word.
///
/// Several conditions may hold at a time. Then the engine reports the first of them in this order:
/// [`Forked`](Self::Forked), [`ShutDown`](Self::ShutDown), [`Late`](Self::Late),
/// [`WorkersBehind`](Self::WorkersBehind), [`Full`](Self::Full). Each condition may be the cause of the conditions
/// after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Condition {
    /// `healthy`: no other variant of this enum applies.
    Healthy,
    /// `full`: pending timers and owned timers use more than 90 % of the capacity. The condition also holds for a
    /// second after a call that found no slot, or no room in its lane (a thread's queue to a shard).
    Full,
    /// `workers-behind`: at some shard, a due timer has waited for a worker for longer than
    /// [`stall_after`](crate::Builder::stall_after).
    WorkersBehind,
    /// `late`: some shard is late with a turn (a pass of its loop) by more than
    /// [`stall_after`](crate::Builder::stall_after). Either the shard has not begun the turn, or the shard has not
    /// ended the turn. The condition also holds if a loop has turned its shard for a moment that is more than this time
    /// in the future: no timer of the engine fires at the shard before that moment.
    Late,
    /// `shut-down`: no timer fires any more.
    ShutDown,
    /// `forked`: this process is the child of a fork, and no timer fires in it.
    Forked,
}

impl Condition {
    /// Returns the word for this condition, for example `workers-behind`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Full => "full",
            Self::WorkersBehind => "workers-behind",
            Self::Late => "late",
            Self::ShutDown => "shut-down",
            Self::Forked => "forked",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The state of an engine at one moment: see [`Handle::health`](crate::Handle::health). `Display` prints the word and
/// the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The condition, in one word.
    pub condition: Condition,
    /// The reason for the condition with its figures, for a person to read.
    pub why: String,
    /// The engine's clock, and its observed error.
    pub clock: ClockReport,
}

impl Health {
    /// Returns whether the condition is [`Condition::Healthy`].
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.condition == Condition::Healthy
    }

    pub(crate) fn of<T: Send + 'static>(core: &Core<T>) -> Self {
        let (condition, why) = if core.membership().is_forked() {
            (Condition::Forked, "the engine's threads are in the parent process".to_owned())
        } else if core.admission().is_shut_down() {
            (Condition::ShutDown, "the engine was shut down".to_owned())
        } else {
            late(core)
                .or_else(|| ahead(core))
                .map(|why| (Condition::Late, why))
                .or_else(|| workers_behind(core).map(|why| (Condition::WorkersBehind, why)))
                .unwrap_or_else(|| fullness(core))
        };
        Self { condition, why, clock: core.clock().report() }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.condition, self.why)?;
        let ClockReport { source, ahead, behind, steps } = self.clock;
        if steps > 0 || behind > Duration::ZERO {
            write!(
                f,
                "; the clock ({source}) stepped {steps} times, seen {behind:.1?} behind and {ahead:.1?} ahead"
            )?;
        }
        Ok(())
    }
}

/// Returns the number of the shard with the longest of `times`, and that longest time. Returns `None` unless that time
/// exceeds the threshold for stalls.
fn worst<T: Send + 'static>(
    core: &Core<T>,
    times: impl Iterator<Item = Duration>,
) -> Option<(usize, Duration)> {
    let worst = times.enumerate().max_by_key(|&(_, time)| time);
    worst.filter(|&(_, time)| time > core.set().settings().stall_after)
}

fn late<T: Send + 'static>(core: &Core<T>) -> Option<String> {
    let now = core.clock().now();
    let shards = core.set().shards();
    let pairs = shards.iter().zip(core.admission().stations().all());
    let (shard, behind) = worst(core, pairs.map(|(shard, station)| shard.behind(station, core.tick(), now)))?;
    let ticks = core.tick().whole_ticks(behind);
    let cause = if let Some(cause) = core.set().why_loop_is_late(shard) {
        cause
    } else if core.set().runs_inline() {
        "a handler holds it up, or its core is busy"
    } else {
        "its core is busy"
    };
    Some(format!("shard {shard} is {behind:.1?} behind, {ticks} ticks: {cause}"))
}

fn ahead<T: Send + 'static>(core: &Core<T>) -> Option<String> {
    let now = core.clock().now();
    let stations = core.admission().stations().all();
    let (shard, ahead) = worst(core, stations.iter().map(|station| station.counters.ahead(now)))?;
    Some(format!(
        "shard {shard} has turned for a moment that is {ahead:.1?} ahead, and fires no timer before it"
    ))
}

fn workers_behind<T: Send + 'static>(core: &Core<T>) -> Option<String> {
    let now = core.clock().now();
    let stations = core.admission().stations().all();
    let (shard, waited) = worst(core, stations.iter().map(|station| station.counters.waited(now)))?;
    let timers: u64 = stations.iter().map(|station| station.counters.waiting_tickets()).sum();
    let workers = match core.membership().workers() {
        0 => "a worker".to_owned(),
        1 => "the only worker".to_owned(),
        workers => format!("one of {workers} workers"),
    };
    Some(format!("due timers that wait for {workers}: {timers}, the first of shard {shard} for {waited:.1?}"))
}

fn fullness<T: Send + 'static>(core: &Core<T>) -> (Condition, String) {
    let (now, admission) = (core.clock().now(), core.admission());
    let (totals, capacity) = (admission.stations().totals(), admission.slots().capacity());
    let in_use = totals.pending() + totals.owned();
    let refused = |refusals: &crate::base::counters::Refusals, resource: &str| {
        let told = || format!("{resource} within the last {EPISODE:?}, {} times in all", refusals.count());
        refusals.is_recent(now).then(told)
    };
    let in_use_of = format!("{in_use} of {capacity} slots are in use");
    let full = (in_use * 100 > u64::from(capacity) * FULL_PERCENT).then(|| in_use_of.clone());
    let why = full
        .or_else(|| refused(admission.engine_full(), "no slot was left"))
        .or_else(|| refused(admission.lane_full(), "a lane was full"));
    match why {
        Some(why) => (Condition::Full, why),
        None => (Condition::Healthy, in_use_of),
    }
}
