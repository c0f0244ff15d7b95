//! Snapshots of an engine's counters.

use crate::engine::tb_engine;
use crate::event::nanos;
use crate::handles;
use crate::status::{Failure, guard, tb_status};
use tourbillon::Stats;

/// A snapshot of an engine's counters. The counters are read one after the other while the engine runs. So a one-shot
/// that fires between two reads may be in two of the counters, or in none. While the engine is at rest, the counters
/// are exact: scheduled = cancelled + fired + returned + pending.
///
/// An engine with `TB_POLLED`, with `options.loops`, or from `tb_engine_create_driven` has two groups of timers:
/// one-shots by key together with periodic tasks, and everything else. On such an engine, each percentile of the
/// lateness is measured for each group by itself, and the snapshot has the larger of the two values. The same holds for
/// the largest lateness.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tb_stats {
    /// `sizeof(tb_stats)`, set by the caller: later versions may add fields.
    pub size: usize,
    /// One-shots scheduled, by id or by key. A rescheduled one-shot counts again.
    pub scheduled: u64,
    /// One-shots that were cancelled, rescheduled or replaced.
    pub cancelled: u64,
    /// One-shots that fired.
    pub fired: u64,
    /// One-shots that had not fired, and that `tb_engine_shutdown` has returned to the program.
    pub returned: u64,
    /// One-shots that have not fired: they wait for their deadline, for a worker or for a poll.
    pub pending: u64,
    /// Timers and periodic tasks that exist.
    pub timers_alive: u64,
    /// Firings of timers and periodic tasks.
    pub timers_fired: u64,
    /// Armings that sent a message to a shard. Such a message is a ticket: it asks the shard to check the timer.
    pub timers_posted: u64,
    /// Tickets in the timing wheels of the shards. Each ticket asks its shard to check a one-shot, a timer or a task at
    /// some moment. Tickets of ended timers are included.
    pub tickets: u64,
    /// How often a shard slept and woke.
    pub wakes: u64,
    /// Chunks of due timers (up to 32 timers each) that wait because no worker and no poll has begun to fire them. The
    /// number grows when the workers or polls fall behind.
    pub queued_chunks: u64,
    /// The median lateness. A lateness is the time from the deadline to the start of the callback, or to the poll.
    pub lateness_p50_ns: u64,
    /// The 99th percentile of the lateness.
    pub lateness_p99_ns: u64,
    /// The 99.9th percentile of the lateness.
    pub lateness_p999_ns: u64,
    /// The largest lateness.
    pub lateness_max_ns: u64,
}

impl tb_stats {
    fn of(stats: &Stats, size: usize) -> Self {
        let lateness = stats.total.lateness;
        Self {
            size,
            scheduled: stats.scheduled,
            cancelled: stats.cancelled,
            fired: stats.fired,
            returned: stats.returned,
            pending: stats.pending,
            timers_alive: stats.owned.alive,
            timers_fired: stats.owned.fired,
            timers_posted: stats.owned.posted,
            tickets: stats.total.tickets,
            wakes: stats.total.wakes,
            queued_chunks: stats.total.queued_chunks,
            lateness_p50_ns: nanos(lateness.p50),
            lateness_p99_ns: nanos(lateness.p99),
            lateness_p999_ns: nanos(lateness.p999),
            lateness_max_ns: nanos(lateness.max),
        }
    }

    /// Adds the snapshots of an engine's two groups of timers (see [`tb_stats`]). Inside this library, each group is an
    /// engine of its own, and both engines run on the same shards.
    fn plus(&self, other: &Self) -> Self {
        Self {
            size: self.size,
            scheduled: self.scheduled + other.scheduled,
            cancelled: self.cancelled + other.cancelled,
            fired: self.fired + other.fired,
            returned: self.returned + other.returned,
            pending: self.pending + other.pending,
            timers_alive: self.timers_alive + other.timers_alive,
            timers_fired: self.timers_fired + other.timers_fired,
            timers_posted: self.timers_posted + other.timers_posted,
            tickets: self.tickets + other.tickets,
            // Both engines count the sleeps of the same shards.
            wakes: self.wakes.max(other.wakes),
            queued_chunks: self.queued_chunks + other.queued_chunks,
            lateness_p50_ns: self.lateness_p50_ns.max(other.lateness_p50_ns),
            lateness_p99_ns: self.lateness_p99_ns.max(other.lateness_p99_ns),
            lateness_p999_ns: self.lateness_p999_ns.max(other.lateness_p999_ns),
            lateness_max_ns: self.lateness_max_ns.max(other.lateness_max_ns),
        }
    }
}

/// Fills `stats`, whose `size` the caller has set. Bytes beyond the fields that this version knows are left as they
/// were.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_engine_stats(engine: *const tb_engine, stats: *mut tb_stats) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        if stats.is_null() {
            return Err(Failure::null("stats"));
        }
        // SAFETY: the contract.
        let size = unsafe { stats.cast::<usize>().read() };
        if size < size_of::<usize>() {
            let message = format!("stats.size is {size}, but must be sizeof(tb_stats)");
            return Err(Failure::new(tb_status::TB_INVALID, message));
        }
        let mut snapshot = tb_stats::of(&engine.tasks().stats(), size);
        if let Some(direct) = engine.direct() {
            snapshot = snapshot.plus(&tb_stats::of(&direct.handle().stats(), size));
        }
        let withdrawn = engine.keys().withdrawn().min(snapshot.cancelled);
        snapshot.cancelled -= withdrawn;
        snapshot.returned += withdrawn;
        let known = size.min(size_of::<tb_stats>());
        // SAFETY: the contract: `stats` has room for `size` bytes, and the snapshot has at least `known` bytes.
        unsafe { stats.cast::<u8>().copy_from_nonoverlapping((&raw const snapshot).cast::<u8>(), known) };
        Ok(())
    })
}
