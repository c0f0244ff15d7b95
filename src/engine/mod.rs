//! The shards together: how a timer is scheduled, cancelled and moved.
//!
//! ```text
//!  schedule                         shard                              leader or worker
//!  take a slot, write the payload
//!  arm the state word
//!  post a ticket ──► lane ──► drain ──► wheel ──► due chunk ──► claim, run the handler, vacate the slot
//!  notify the parker                                              │
//!       ▲                                                         ▼
//!       └────────────── slots flow back through the depot ────────┘
//! ```
//! Cancelling is one CAS on the state word, wherever the ticket is. Data flows in one direction.

mod anchor;
mod fire;
mod hooks;
mod local;
mod owned;
mod shutdown;

pub(crate) use anchor::Anchor;
pub(crate) use local::{Local, lend};
pub use owned::Armed;
pub(crate) use owned::{OwnedSlot, Rearmed, disarm, postpone};
pub use shutdown::Unfired;

use crate::base::counters::{Counter, Refusals};
use crate::base::error::{BatchError, Refusal, RescheduleError};
use crate::base::sync::{AtomicBool, Condvar, Mutex, OnceLock, Ordering, StdArc};
use crate::base::tick::{TickLength, Timestamp};
use crate::base::ticket::{Insertion, TimerId};
use crate::base::trace;
use crate::dispatch::{Dispatcher, Fire, Guarded};
use crate::lockfree::inbox::{Lane, Pushed};
use crate::lockfree::parker::Notified;
use crate::lockfree::sessions::Sessions;
use crate::lockfree::slab::{Slab, Slots};
use crate::lockfree::state::{self, Control};
use crate::shard::{Crew, Owner, Presence, Station, StationShared, next_id};
use crate::system::clock::{ClockReport, EngineClock};
use crate::system::forks::{self, Watch};
use anchor::Anchors;
use core::task::Waker;
use core::time::Duration;
use hooks::Hooks;

/// The number of stale tickets that may stay in the wheels, however few timers live: 1 MiB of tickets.
const STALE_SLACK: u64 = 65_536;
/// A thread checks whether a sweep is due after this many cancels of its own.
const CANCELS_PER_CHECK: u64 = 4_096;

/// A timer that fires, as the handler of a layer gets it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Due<'a, T> {
    /// The timer's id. The id of a one-shot is stale once the handler has returned.
    pub id: TimerId,
    /// The moment for which the timer was armed.
    pub deadline: Timestamp,
    /// How long after the deadline the handler began.
    pub lateness: Duration,
    /// The payload that was scheduled with the timer.
    pub payload: Payload<'a, T>,
}

/// The payload of a timer that fires.
#[derive(Debug)]
pub enum Payload<'a, T> {
    /// The payload itself: the timer has ended.
    Taken(T),
    /// A reference to the payload, which stays with its owned timer.
    Kept(&'a T),
}

/// The user's handler, as the engine calls it.
pub(crate) type Handler<T> = Box<dyn Fn(Due<'_, T>, &StdArc<Core<T>>) + Send + Sync>;

/// A vacant slot, held by the caller that reserved it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Slot(u32);

/// The outcome of a cancel.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the outcome tells whether the handler runs, and carries the payload"]
#[non_exhaustive]
pub enum Cancel<T> {
    /// The handler does not run and has not begun. This is the timer's payload.
    Cancelled(T),
    /// The handler has begun and has not ended.
    Running,
    /// The timer has fired, was cancelled or was returned by a shutdown before.
    Gone,
}

impl<T> Cancel<T> {
    /// The payload, if the cancel got it.
    #[must_use]
    pub fn payload(self) -> Option<T> {
        match self {
            Self::Cancelled(payload) => Some(payload),
            Self::Running | Self::Gone => None,
        }
    }

    /// The same outcome, with the payload mapped by `f`.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Cancel<U> {
        match self {
            Self::Cancelled(payload) => Cancel::Cancelled(f(payload)),
            Self::Running => Cancel::Running,
            Self::Gone => Cancel::Gone,
        }
    }
}

/// An engine, as its handles and the threads that serve it share it.
pub(crate) struct Core<T> {
    id: u64,
    slab: Slab<T>,
    /// The engine's station at each shard.
    stations: Box<[StdArc<StationShared>]>,
    clock: EngineClock,
    dispatcher: Dispatcher,
    handler: Handler<T>,
    guarded: Guarded,
    crew: StdArc<Crew>,
    /// The crew's owner, until the engine is shut down.
    owner: Mutex<Option<StdArc<Owner>>>,
    presence: StdArc<Presence>,
    /// Calls that found no slot, and calls that found no room in their lane.
    engine_full: Refusals,
    lane_full: Refusals,
    /// The number of workers that are between the start and the end of a chunk, and how far a shutdown has come.
    sessions: Sessions,
    /// Threads wait here for a handler, for the end of the last session, or for the eviction.
    quiescence: (Mutex<()>, Condvar),
    returned: Counter,
    /// The function that clones the payloads of owned timers for the handler, once there are such timers.
    clone_payload: OnceLock<fn(&T) -> T>,
    /// The function that takes the waker of a waiting task out of the payload of an owned timer, if payloads have
    /// wakers.
    waker_of: OnceLock<fn(&T) -> Option<Waker>>,
    /// The functions to call at the end.
    hooks: Hooks,
    /// The anchors by which the owned timers of each thread hold the core.
    anchors: StdArc<Anchors>,
    /// Whether this process is the child of a fork, where no thread serves the engine.
    forked: AtomicBool,
    forks: OnceLock<Watch>,
}

/// The settings of an engine, with the builder's defaults filled in.
pub(crate) struct Settings {
    pub(crate) capacity: u32,
    pub(crate) lane_capacity: u64,
    /// The threads that handlers run on.
    pub(crate) dispatcher: Dispatcher,
    pub(crate) guarded: Guarded,
}

impl Settings {
    pub(crate) const DEFAULT_CAPACITY: u32 = 1 << 24;
    pub(crate) const DEFAULT_LANE_CAPACITY: u64 = 1 << 16;

    /// The builder's defaults.
    #[cfg(feature = "async")]
    pub(crate) fn by_default(dispatcher: Dispatcher) -> Self {
        let (capacity, lane_capacity) = (Self::DEFAULT_CAPACITY, Self::DEFAULT_LANE_CAPACITY);
        Self { capacity, lane_capacity, dispatcher, guarded: Guarded::new(None) }
    }
}

impl<T: Send + 'static> Core<T> {
    /// Makes an engine on a crew's shards, and adds its stations to them.
    pub(crate) fn start(owner: &StdArc<Owner>, settings: Settings, handler: Handler<T>) -> StdArc<Self> {
        let core = StdArc::new(Self::new(StdArc::clone(owner.crew()), settings, handler));
        *ignore_poison(core.owner.lock()) = Some(StdArc::clone(owner));
        if core.crew.has_threads() {
            let child = StdArc::downgrade(&core);
            let action = move || drop(child.upgrade().inspect(|core| core.enter_child()));
            core.forks.get_or_init(|| forks::watch(Box::new(action)));
        }
        if core.dispatcher.is_inline() {
            core.crew.note_inline_handlers();
        }
        core.crew.join(core.make_stations());
        if core.crew.is_forked() {
            core.enter_child();
        }
        core
    }

    pub(crate) fn new(crew: StdArc<Crew>, settings: Settings, handler: Handler<T>) -> Self {
        let clock = crew.settings().clock.clone();
        let station = |_| StdArc::new(StationShared::new(settings.lane_capacity, &crew.settings().roster));
        Self {
            id: next_id(),
            slab: Slab::new(settings.capacity, clock.now()),
            stations: (0..crew.shards().len()).map(station).collect(),
            clock,
            dispatcher: settings.dispatcher,
            handler,
            guarded: settings.guarded,
            presence: Presence::of(crew.shards().len()),
            crew,
            owner: Mutex::new(None),
            engine_full: Refusals::new(),
            lane_full: Refusals::new(),
            sessions: Sessions::new(),
            quiescence: (Mutex::new(()), Condvar::new()),
            returned: Counter::new(),
            clone_payload: OnceLock::new(),
            waker_of: OnceLock::new(),
            hooks: Hooks::new(),
            anchors: Anchors::new(),
            forked: AtomicBool::new(false),
            forks: OnceLock::new(),
        }
    }

    fn make_stations(self: &StdArc<Self>) -> Vec<Station> {
        let time = (self.tick(), self.clock.true_now());
        let station = |(shard, shared): (usize, &StdArc<StationShared>)| {
            let engine: StdArc<dyn Fire> = StdArc::<Self>::clone(self);
            let slots = StdArc::clone(self.slab.slots());
            Station::new(shard, (engine, &self.presence), StdArc::clone(shared), slots, time)
        };
        self.stations.iter().enumerate().map(station).collect()
    }

    /// The present moment from which deadlines are counted.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The present moment that decides whether a deadline has come.
    pub(crate) fn true_now(&self) -> Timestamp {
        self.clock.true_now()
    }

    /// Whether `deadline` has come. The fast clock is read first: a deadline that has not come by the fast clock has
    /// not come.
    #[inline]
    pub(crate) fn has_come(&self, deadline: Timestamp) -> bool {
        self.clock.now() >= deadline && self.clock.true_now() >= deadline
    }

    pub(crate) fn clock_report(&self) -> ClockReport {
        self.clock.as_dyn().report()
    }

    pub(crate) fn tick(&self) -> TickLength {
        self.crew.settings().tick
    }

    /// The shards and the threads that serve the engine.
    pub(crate) fn crew(&self) -> &Crew {
        &self.crew
    }

    /// The engine's stations, in the order of the shards.
    pub(crate) fn stations(&self) -> &[StdArc<StationShared>] {
        &self.stations
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The number of workers that run handlers; zero where the shards run them, or where the number is unknown.
    pub(crate) fn workers(&self) -> usize {
        self.dispatcher.workers()
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.slots().capacity()
    }

    /// Calls that found no slot.
    pub(crate) fn engine_full(&self) -> &Refusals {
        &self.engine_full
    }

    /// Calls that found no room in their lane.
    pub(crate) fn lane_full(&self) -> &Refusals {
        &self.lane_full
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.stations[0].parker.is_closed()
    }

    /// Whether this process is the child of a fork, and the engine was built before the fork.
    pub(crate) fn is_forked(&self) -> bool {
        // Ordering: Relaxed. Set while the child has one thread.
        self.forked.load(Ordering::Relaxed)
    }

    /// Makes the engine refuse everything from now on, in the child of a fork. Uses atomics only, since locks may be
    /// held by threads that do not exist in the child.
    fn enter_child(&self) {
        // Ordering: Relaxed. There is one thread.
        self.forked.store(true, Ordering::Relaxed);
        for station in &self.stations {
            station.parker.close_in_child();
        }
        if self.totals().owned() > 0 {
            self.shut_owned_in_child();
        }
    }

    /// The reason why a closed engine refuses.
    fn why_closed(&self) -> Refusal {
        if self.is_forked() { Refusal::Forked } else { Refusal::ShutDown }
    }

    pub(crate) fn slots(&self) -> &Slots {
        self.slab.slots()
    }

    /// Takes a slot for a timer that `local` is about to schedule.
    #[inline(always)]
    pub(crate) fn reserve(&self, local: &mut Local) -> Result<Slot, Refusal> {
        if !local.lane.has_room() {
            return Err(self.refuse_for_want_of_room(local));
        }
        match local.magazines.take(self.slots()) {
            Some(index) => Ok(Slot(index)),
            None => Err(self.refuse_for_want_of_a_slot()),
        }
    }

    /// Schedules a timer in a reserved slot. Returns the payload if the engine is shut down.
    #[inline(always)]
    pub(crate) fn schedule(
        &self,
        local: &mut Local,
        Slot(index): Slot,
        deadline: Timestamp,
        payload: T,
    ) -> Result<TimerId, T> {
        // SAFETY: I3: the magazine gave us the vacant slot.
        unsafe { self.slab.write(index, payload) };
        self.arm(local, index, deadline)
    }

    /// Arms a slot that the caller holds, whose payload is written, and sends its ticket.
    #[inline(always)]
    fn arm(&self, local: &mut Local, index: u32, deadline: Timestamp) -> Result<TimerId, T> {
        let (id, stamp) = self.slots().control(index).arm(index, deadline);
        let pushed = local.lane.push(Insertion { deadline, index, stamp });
        if self.notify(local, pushed, deadline) == Notified::Closed
            && let Some(payload) = self.withdraw(local, id)
        {
            local.lane.lane().count_not_scheduled();
            return Err(payload);
        }
        Ok(id)
    }

    /// Schedules many timers with one publication and at most one wake. Returns the refused timers, in order, with the
    /// reason. One batch may fill the lane beyond its capacity.
    pub(crate) fn schedule_batch(
        &self,
        local: &mut Local,
        items: Vec<(Timestamp, T)>,
    ) -> Result<Vec<TimerId>, BatchError<T>> {
        if !local.lane.has_room() {
            let kind = self.refuse_for_want_of_room(local);
            return Err(BatchError { kind, scheduled: Vec::new(), refused: items });
        }
        let mut armed = Vec::with_capacity(items.len());
        let mut insertions = Vec::with_capacity(items.len());
        let mut items = items.into_iter();
        let mut refused = Vec::new();
        let mut kind = Refusal::EngineFull;
        for (deadline, payload) in &mut items {
            let Some(index) = local.magazines.take(self.slots()) else {
                refused.push((deadline, payload));
                kind = self.refuse_for_want_of_a_slot();
                break;
            };
            // SAFETY: I3: the magazine gave us the vacant slot.
            unsafe { self.slab.write(index, payload) };
            let (id, stamp) = self.slots().control(index).arm(index, deadline);
            armed.push((id, deadline));
            insertions.push(Insertion { deadline, index, stamp });
        }
        let earliest = armed.iter().map(|&(_, deadline)| deadline).min().unwrap_or(Timestamp::MAX);
        let pushed = local.lane.push_all(&insertions);
        let mut ids = Vec::with_capacity(armed.len());
        if self.notify(local, pushed, earliest) == Notified::Open {
            ids.extend(armed.into_iter().map(|(id, _)| id));
        } else {
            kind = self.why_closed();
            for (id, deadline) in armed {
                match self.withdraw(local, id) {
                    Some(payload) => {
                        local.lane.lane().count_not_scheduled();
                        refused.push((deadline, payload));
                    }
                    None => ids.push(id),
                }
            }
        }
        refused.extend(items);
        if refused.is_empty() { Ok(ids) } else { Err(BatchError { kind, scheduled: ids, refused }) }
    }

    #[inline]
    fn notify(&self, local: &Local, pushed: Pushed, deadline: Timestamp) -> Notified {
        let deadline = if pushed == Pushed::Crowding { Timestamp::ZERO } else { deadline };
        self.stations[local.home].parker.notify(deadline)
    }

    /// Refuses a timer because the lane is full. Wakes a sleeping shard, so that the shard drains the lane.
    #[cold]
    fn refuse_for_want_of_room(&self, local: &Local) -> Refusal {
        self.stations[local.home].parker.wake_if_asleep();
        if self.is_shut_down() {
            return self.why_closed();
        }
        if self.lane_full.note(self.now()) {
            trace::lane_full(self.id, local.home, local.lane.lane().capacity());
        }
        Refusal::LaneFull
    }

    /// Refuses a timer because every slot is in use, or kept in reserve by other threads.
    #[cold]
    fn refuse_for_want_of_a_slot(&self) -> Refusal {
        if self.is_shut_down() {
            return self.why_closed();
        }
        if self.engine_full.note(self.now()) {
            trace::engine_full(self.id, self.slots().capacity());
        }
        Refusal::EngineFull
    }

    /// Takes back a timer that was armed while the engine was being shut down; `None` if the shutdown returns the
    /// timer.
    #[cold]
    fn withdraw(&self, local: &mut Local, id: TimerId) -> Option<T> {
        self.take_back(local, id).ok()
    }

    /// Takes a timer out of the armed state, and returns its payload or the reason why this failed. The payload is
    /// taken before the slot goes back, since the slot's next holder writes to the slot.
    #[inline(always)]
    fn take_back(&self, local: &mut Local, id: TimerId) -> Result<T, state::Cancel> {
        let Some(control) = self.control(id) else { return Err(state::Cancel::Gone) };
        match control.cancel(id) {
            state::Cancel::Won => {
                // SAFETY: I3: we took the timer out of `queued`, and its slot is in no magazine yet.
                let payload = unsafe { self.slab.take(id.index()) };
                local.magazines.put(self.slots(), id.index());
                Ok(payload)
            }
            otherwise => Err(otherwise),
        }
    }

    #[inline(always)]
    pub(crate) fn cancel(&self, local: &mut Local, id: TimerId) -> Cancel<T> {
        match self.take_back(local, id) {
            Ok(payload) => {
                self.count_cancel(local);
                Cancel::Cancelled(payload)
            }
            Err(state::Cancel::Running) => Cancel::Running,
            Err(_) => Cancel::Gone,
        }
    }

    #[inline(always)]
    fn count_cancel(&self, local: &Local) {
        if local.lane.lane().count_cancelled().is_multiple_of(CANCELS_PER_CHECK) {
            self.consider_a_sweep();
        }
    }

    /// Waits until the handler of `id`, if it runs, has ended.
    pub(crate) fn wait_for_end(&self, id: TimerId) {
        let Some(control) = self.slots().get(id.index()) else { return };
        if !control.await_end(id) {
            return;
        }
        let (lock, changed) = &self.quiescence;
        let mut guard = ignore_poison(lock.lock());
        while !control.has_ended(id) {
            guard = ignore_poison(changed.wait(guard));
        }
    }

    /// Moves a pending timer: cancels it and schedules its payload again in the same slot, under a new id.
    /// Does not wait for room in the lane.
    pub(crate) fn reschedule(
        &self,
        local: &mut Local,
        id: TimerId,
        deadline: Timestamp,
    ) -> Result<TimerId, RescheduleError<T>> {
        if !local.lane.has_room() {
            return Err(match self.refuse_for_want_of_room(local) {
                // A shutdown is under way, and returns the timer.
                Refusal::ShutDown => RescheduleError::Gone,
                Refusal::EngineFull | Refusal::LaneFull | Refusal::Forked => RescheduleError::LaneFull,
            });
        }
        let Some(control) = self.control(id) else { return Err(RescheduleError::Gone) };
        match control.cancel(id) {
            state::Cancel::Won => {}
            state::Cancel::Running => return Err(RescheduleError::Running),
            state::Cancel::Gone => return Err(RescheduleError::Gone),
        }
        self.count_cancel(local);
        // The slot is ours and its payload stays where it is.
        self.arm(local, id.index(), deadline).map_err(|payload| match self.why_closed() {
            Refusal::Forked => RescheduleError::Forked(payload),
            _ => RescheduleError::ShutDown(payload),
        })
    }

    /// The deadline of a pending timer.
    pub(crate) fn deadline(&self, id: TimerId) -> Option<Timestamp> {
        self.control(id)?.deadline(id)
    }

    fn control(&self, id: TimerId) -> Option<&Control> {
        self.slots().get(id.index())
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.stations.iter().flat_map(|station| station.inbox.lanes())
    }

    /// Armings of owned timers that posted a ticket.
    pub(crate) fn posted_arms(&self) -> u64 {
        self.lanes().map(Lane::posted_arms).sum()
    }

    /// The numbers of scheduled, cancelled and fired timers so far, over all threads. Later events are read first, so
    /// that no difference is negative because the counters are read at different instants.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals { returned: self.returned.get(), ..Totals::default() };
        for station in &self.stations {
            totals.fired += station.counters.fired.get();
        }
        for lane in self.lanes() {
            let (created, destroyed) = lane.created_and_destroyed();
            totals.created += created;
            totals.destroyed += destroyed;
        }
        totals.cancelled = self.lanes().map(Lane::cancelled).sum();
        totals.scheduled = self.lanes().map(Lane::scheduled).sum();
        totals
    }

    /// Asks the shards to sweep when stale tickets outnumber the live timers.
    #[cold]
    fn consider_a_sweep(&self) {
        let tickets: u64 = self.stations.iter().map(|station| station.counters.tickets.get()).sum();
        let totals = self.totals();
        if tickets > 2 * (totals.pending() + totals.owned()) + STALE_SLACK {
            for station in &self.stations {
                station.want_sweep();
            }
        }
    }
}

/// The totals of an engine's timers, by what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) scheduled: u64,
    pub(crate) cancelled: u64,
    pub(crate) fired: u64,
    pub(crate) returned: u64,
    pub(crate) created: u64,
    pub(crate) destroyed: u64,
}

impl Totals {
    /// The number of owned timers that exist.
    pub(crate) fn owned(self) -> u64 {
        self.created.saturating_sub(self.destroyed)
    }

    pub(crate) fn pending(self) -> u64 {
        self.scheduled.saturating_sub(self.cancelled + self.fired + self.returned)
    }
}

/// Ignores a lock's poison: the engine's locks guard no data that a panic could leave half-changed.
pub(crate) fn ignore_poison<G>(result: Result<G, crate::base::sync::PoisonError<G>>) -> G {
    result.unwrap_or_else(crate::base::sync::PoisonError::into_inner)
}

impl<T> core::fmt::Debug for Core<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Core").field("id", &self.id).finish_non_exhaustive()
    }
}
