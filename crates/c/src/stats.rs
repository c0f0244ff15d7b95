//! An engine's counters.

use crate::delivery::nanos;
use crate::engine::tb_engine;
use crate::handles;
use crate::status::{Failure, guard, tb_status};
use tourbillon::Stats;

/// A snapshot of an engine's counters. Counters are read one after the other while the engine goes on, so they may disagree by
/// what happened meanwhile. At rest they are exact: scheduled = cancelled + fired + returned + pending.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tb_stats {
    /// `sizeof(tb_stats)`, set by the caller: later versions may add fields.
    pub size: usize,
    /// One-shots scheduled, rescheduled ones again; those by key among them.
    pub scheduled: u64,
    /// One-shots cancelled, rescheduled and replaced ones included.
    pub cancelled: u64,
    /// One-shots that fired.
    pub fired: u64,
    /// One-shots returned by the shutdown.
    pub returned: u64,
    /// One-shots that wait for their deadline or for a worker.
    pub pending: u64,
    /// Timers and periodic tasks that there are.
    pub timers_alive: u64,
    /// How often they fired.
    pub timers_fired: u64,
    /// Armings that posted a ticket to a shard.
    pub timers_posted: u64,
    /// Tickets in the wheels, those of ended timers included.
    pub tickets: u64,
    /// Times that a shard slept and woke.
    pub wakes: u64,
    /// Chunks of due timers that no worker has begun: grows when workers fall behind.
    pub queued_chunks: u64,
    /// How long after their deadlines half of the callbacks began, or events were queued.
    pub lateness_p50_ns: u64,
    /// 99 of 100.
    pub lateness_p99_ns: u64,
    /// 999 of 1,000.
    pub lateness_p999_ns: u64,
    /// All of them.
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
}

/// Fills `stats`, whose `size` the caller has set; what this version does not know is left as it was.
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
        let snapshot = tb_stats::of(&engine.tasks().stats(), size);
        let known = size.min(size_of::<tb_stats>());
        // SAFETY: the contract: there is room for `size` bytes, and a snapshot has as many as are known.
        unsafe { stats.cast::<u8>().copy_from_nonoverlapping((&raw const snapshot).cast::<u8>(), known) };
        Ok(())
    })
}
