//! The counters of a shard and of its stations. A station is one engine's part of a shard. Readers stop no thread, so
//! the counters of a snapshot are from slightly different moments.

use crate::base::buckets::{AtomicBuckets, Buckets, Run};
use crate::base::sync::{AtomicBool, AtomicU64, Ordering, number_of_this_thread};
use crate::base::tick::Timestamp;
use core::time::Duration;
use crossbeam_utils::CachePadded;

/// A counter to which any thread may add.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    // Ordering in this type: Relaxed. Counters order nothing.
    #[inline]
    pub(crate) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Adds `by` without a locked instruction of the processor. No other thread may add to this counter at the same
    /// time.
    #[inline]
    fn add_alone(&self, by: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Raises the counter to `value`. A counter that is higher already stays as it is.
    pub(crate) fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    fn replace(&self, value: u64) -> u64 {
        self.0.swap(value, Ordering::Relaxed)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The greatest pause between two refusals of one episode. A refusal after a longer pause starts a new episode.
pub(crate) const EPISODE: Duration = Duration::from_secs(1);

/// Counts the calls that were refused for one reason, and groups them into episodes ([`EPISODE`]).
#[derive(Debug)]
pub(crate) struct Refusals {
    count: Counter,
    /// The moment of the last refusal, in nanoseconds on the engine's clock. `u64::MAX` means that no call was refused
    /// yet.
    last: Counter,
}

impl Refusals {
    pub(crate) fn new() -> Self {
        let last = Counter::new();
        last.set(u64::MAX);
        Self { count: Counter::new(), last }
    }

    /// Counts a refusal. Returns true if the refusal starts an episode: no refusal came within [`EPISODE`] before it.
    pub(crate) fn note(&self, now: Timestamp) -> bool {
        self.count.add(1);
        let now = now.as_nanos().min(u64::MAX - 1);
        !is_within_episode(self.last.replace(now), now)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.get()
    }

    /// Returns whether a call was refused at `now`, or before it by at most [`EPISODE`].
    pub(crate) fn is_recent(&self, now: Timestamp) -> bool {
        is_within_episode(self.last.get(), now.as_nanos())
    }
}

fn is_within_episode(last: u64, now: u64) -> bool {
    last != u64::MAX && Timestamp::from_nanos(now) - Timestamp::from_nanos(last) <= EPISODE
}

/// The counters of one shard. Only the shard's leader, the thread that runs the shard at present, writes them.
#[derive(Debug)]
pub(crate) struct ShardCounters {
    pub(crate) wakes: Counter,
    pub(crate) pin_refused: Counter,
    /// The number of times that the shard's thread left its core, because another thread was busy there.
    pub(crate) departures: Counter,
    /// The moment from which the shard counts as overdue, in nanoseconds. The module `shard::stall` sets it. While the
    /// shard may sleep, this moment is in the future.
    pub(crate) overdue_since: Counter,
    pub(crate) stalls: Counter,
    /// The number of takeovers. In a takeover, a handler held up the thread that leads the shard, and another thread
    /// became the leader.
    pub(crate) takeovers: Counter,
    worst_stall_nanos: Counter,
}

impl ShardCounters {
    pub(crate) fn new() -> Self {
        let overdue_since = Counter::new();
        overdue_since.set(u64::MAX);
        Self {
            wakes: Counter::new(),
            pin_refused: Counter::new(),
            departures: Counter::new(),
            overdue_since,
            stalls: Counter::new(),
            takeovers: Counter::new(),
            worst_stall_nanos: Counter::new(),
        }
    }

    /// Records how late a stalled shard is. Only the thread that leads the shard calls this method.
    pub(crate) fn note_stall(&self, late: Duration) {
        self.worst_stall_nanos.raise(nanos(late));
    }

    pub(crate) fn worst_stall(&self) -> Duration {
        Duration::from_nanos(self.worst_stall_nanos.get())
    }

    /// Returns for how long the shard has been overdue at `now`. The result is zero if the shard is not overdue.
    pub(crate) fn behind(&self, now: Timestamp) -> Duration {
        now - Timestamp::from_nanos(self.overdue_since.get())
    }
}

/// The number of cache lines over which a station (an engine's part of a shard) distributes its counts of fired timers.
const STRIPES: usize = if cfg!(tourbillon_loom) { 1 } else { 8 };

/// The cache line on which a thread counts the timers that it fires. If all threads used one line, threads that fire at
/// the same time would pass the line to and fro with each timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stripe(usize);

impl Stripe {
    #[expect(clippy::cast_possible_truncation, reason = "below STRIPES")]
    pub(crate) fn of_this_thread() -> Self {
        Self((number_of_this_thread() % STRIPES as u64) as usize)
    }
}

/// Counts the timers that some threads have fired, on a cache line of their own.
#[derive(Debug)]
struct Firings {
    /// Whether a session holds this line. Then only that session counts here.
    is_held: AtomicBool,
    one_shots: Counter,
    /// The number of runs of owned timers' handlers.
    owned: Counter,
}

impl Firings {
    fn new() -> CachePadded<Self> {
        CachePadded::new(Self {
            is_held: AtomicBool::new(false),
            one_shots: Counter::new(),
            owned: Counter::new(),
        })
    }

    fn try_hold(&self) -> bool {
        // Ordering: Acquire [CN1]. Pairs with the drop of `Tally`: the counts of the sessions before.
        !self.is_held.swap(true, Ordering::Acquire)
    }
}

/// Counts the timers that a session fires, before their handlers begin. A session is the time in which a worker fires
/// tickets of one batch. A session that has a line to itself counts by plain stores. If other sessions have all lines,
/// the session counts by read-modify-writes, on a line for all such sessions.
///
/// # Synchronisation
/// | pair | release side    | acquire side | handed over                     | model |
/// |------|-----------------|--------------|---------------------------------|-------|
/// | CN1  | `Tally`'s drop  | `try_hold`   | the counts of the session before | `counters::sessions_count_each_firing_once` |
#[derive(Debug)]
pub(crate) struct Tally<'a> {
    firings: &'a Firings,
    is_held: bool,
}

impl Tally<'_> {
    #[inline]
    pub(crate) fn count_one_shot(&self) {
        self.add_to(&self.firings.one_shots);
    }

    /// Counts a run of an owned timer's handler.
    #[inline]
    pub(crate) fn count_owned(&self) {
        self.add_to(&self.firings.owned);
    }

    #[inline]
    fn add_to(&self, counter: &Counter) {
        if self.is_held { counter.add_alone(1) } else { counter.add(1) }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        if self.is_held {
            // Ordering: Release [CN1]. Pairs with `try_hold`.
            self.firings.is_held.store(false, Ordering::Release);
        }
    }
}

/// The counters of one station, an engine's part of a shard. The thread that leads the shard writes some counters, and
/// the workers write the other counters. The workers' counters are on cache lines of their own.
#[derive(Debug)]
pub(crate) struct StationCounters {
    pub(crate) turns: Counter,
    /// The moment up to which the station has handed its timers out, in nanoseconds.
    pub(crate) reached: Counter,
    pub(crate) stale: Counter,
    /// The number of chunks (groups of due tickets) that were handed over to the workers. `handed_tickets` counts the
    /// tickets in these chunks.
    handed_over: Counter,
    handed_tickets: Counter,
    /// The moment, in nanoseconds, of the last hand-over of due tickets (requests to check timers) that found the
    /// workers' queue empty.
    queued_from: Counter,
    pub(crate) tickets: Counter,
    /// The number of due tickets that the shard holds back at present. The workers already have enough tickets.
    pub(crate) held_back: Counter,
    /// The number of due tickets that were posted again because their owned timers had been postponed.
    pub(crate) postponed: Counter,
    fired: [CachePadded<Firings>; STRIPES],
    /// The counts of sessions that found no line free.
    fired_elsewhere: CachePadded<Firings>,
    begun: CachePadded<Counter>,
    /// The moment, in nanoseconds, at which the shard handed over a chunk. Of all chunks that workers have begun, this
    /// chunk was handed over last.
    begun_from: Counter,
    pub(crate) stale_at_worker: Counter,
    /// The number of tickets that workers took without firing a timer. The worker posted the ticket again, or freed the
    /// ticket's owned timer.
    pub(crate) passed_on: Counter,
    pub(crate) panics: Counter,
    pub(crate) busy_nanos: Counter,
    lateness: AtomicBuckets,
}

impl StationCounters {
    pub(crate) fn new() -> Self {
        Self {
            turns: Counter::new(),
            reached: Counter::new(),
            stale: Counter::new(),
            handed_over: Counter::new(),
            handed_tickets: Counter::new(),
            queued_from: Counter::new(),
            tickets: Counter::new(),
            held_back: Counter::new(),
            postponed: Counter::new(),
            fired: core::array::from_fn(|_| Firings::new()),
            fired_elsewhere: Firings::new(),
            begun: CachePadded::new(Counter::new()),
            begun_from: Counter::new(),
            stale_at_worker: Counter::new(),
            passed_on: Counter::new(),
            panics: Counter::new(),
            busy_nanos: Counter::new(),
            lateness: AtomicBuckets::new(),
        }
    }

    /// Begins to count the firings of a session, whose thread counts on `stripe`.
    pub(crate) fn tally(&self, Stripe(stripe): Stripe) -> Tally<'_> {
        // Handlers that block may keep lines in use for long, so all lines are tried.
        let mut lines = (stripe..stripe + STRIPES).map(|line| &*self.fired[line % STRIPES]);
        match lines.find(|line| line.try_hold()) {
            Some(firings) => Tally { firings, is_held: true },
            None => Tally { firings: &self.fired_elsewhere, is_held: false },
        }
    }

    fn firings(&self) -> impl Iterator<Item = &Firings> {
        self.fired.iter().chain([&self.fired_elsewhere]).map(|firings| &**firings)
    }

    /// Returns the number of one-shot timers that were fired.
    pub(crate) fn fired(&self) -> u64 {
        self.firings().map(|firings| firings.one_shots.get()).sum()
    }

    /// Returns the number of runs of owned timers' handlers.
    pub(crate) fn owned_fired(&self) -> u64 {
        self.firings().map(|firings| firings.owned.get()).sum()
    }

    /// Notes the lateness of a timer, in nanoseconds, in `run`, a row of similar latenesses. The histogram counts the
    /// noted latenesses at the end of the row.
    #[inline]
    pub(crate) fn note_lateness(&self, run: &mut Run, nanos: u64) {
        run.note(nanos, &self.lateness);
    }

    pub(crate) fn count_lateness(&self, run: &mut Run) {
        run.finish(&self.lateness);
    }

    pub(crate) fn add_busy(&self, time: Duration) {
        self.busy_nanos.add(nanos(time));
    }

    pub(crate) fn hand_over(&self, chunks: u64, tickets: u64, now: Timestamp) {
        if self.waiting_tickets() == 0 {
            self.queued_from.set(now.as_nanos());
        }
        self.handed_over.add(chunks);
        self.handed_tickets.add(tickets);
    }

    /// Records that a worker begins a chunk. The shard handed the chunk over at the moment `handed_over`.
    #[inline]
    pub(crate) fn begin_chunk(&self, handed_over: Timestamp) {
        self.begun.add(1);
        self.begun_from.raise(handed_over.as_nanos());
    }

    /// Returns the number of chunks that the shard has handed over and no worker has begun.
    pub(crate) fn waiting_chunks(&self) -> u64 {
        // `begun` is read first: a chunk is handed over before it is begun.
        let begun = self.begun.get();
        self.handed_over.get().saturating_sub(begun)
    }

    /// Returns the number of due tickets that no worker has taken. The number includes tickets that the shard holds
    /// back.
    pub(crate) fn waiting_tickets(&self) -> u64 {
        // The taken tickets are counted first, for the same reason as in `waiting_chunks`.
        let taken = self.fired() + self.owned_fired() + self.stale_at_worker.get() + self.passed_on.get();
        self.handed_tickets.get().saturating_sub(taken) + self.held_back.get()
    }

    /// Returns for how long the oldest waiting ticket has waited for a worker; zero if no ticket waits. The method
    /// assumes that workers begin chunks in the order of their hand-over. If the chunk before the oldest ticket's chunk
    /// also waited, the result is too long. The error is the time between the hand-overs of the two chunks.
    pub(crate) fn waited(&self, now: Timestamp) -> Duration {
        if self.waiting_tickets() == 0 {
            return Duration::ZERO;
        }
        now - Timestamp::from_nanos(self.queued_from.get().max(self.begun_from.get()))
    }

    /// Returns by how much the station is ahead of `now`: no timer fires before the clock has caught up. The result is
    /// zero if the station is not ahead.
    pub(crate) fn ahead(&self, now: Timestamp) -> Duration {
        Timestamp::from_nanos(self.reached.get()) - now
    }

    pub(crate) fn lateness(&self) -> Buckets {
        self.lateness.load()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn an_episode_of_refusals_ends_when_none_came_for_a_while() {
        let refusals = Refusals::new();
        assert!(!refusals.is_recent(Timestamp::ZERO));
        assert!(refusals.note(Timestamp::ZERO));
        assert!(refusals.is_recent(at(1)) && !refusals.is_recent(at(1) + Duration::from_nanos(1)));
        assert_eq!(
            [1, 2, 3, 5, 5, 7].map(|second| refusals.note(at(second))),
            [false, false, false, true, false, true]
        );
        assert_eq!(refusals.count(), 7);
        assert!(refusals.note(Timestamp::MAX) && refusals.is_recent(Timestamp::MAX));
    }

    #[test]
    fn a_queue_is_as_old_as_what_waits_in_it() {
        let counters = StationCounters::new();
        assert_eq!(counters.waited(at(9)), Duration::ZERO);
        counters.hand_over(1, 2, at(10));
        counters.hand_over(1, 1, at(12));
        let seen =
            |now| (counters.waiting_chunks(), counters.waiting_tickets(), counters.waited(at(now)).as_secs());
        assert_eq!(seen(15), (2, 3, 5));
        counters.begin_chunk(at(10));
        counters.tally(Stripe::of_this_thread()).count_one_shot();
        assert_eq!(seen(15), (1, 2, 5));
        counters.stale_at_worker.add(1);
        counters.begin_chunk(at(12));
        assert_eq!(seen(15), (0, 1, 3));
        counters.tally(Stripe::of_this_thread()).count_owned();
        assert_eq!(seen(15), (0, 0, 0));
        counters.hand_over(1, 1, at(20));
        assert_eq!(seen(21), (1, 1, 1));
        counters.begin_chunk(at(20));
        counters.passed_on.add(1);
        assert_eq!(seen(30), (0, 0, 0));
    }
}
