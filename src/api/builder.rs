//! The builder: every option of an engine, with its default and its bounds.

use crate::api::driven::{DrivenEngine, DrivenShards};
use crate::api::handle::{Engine, Fired};
use crate::api::loops::LoopShard;
use crate::api::shards::Shards;
use crate::base::error::BuildError;
use crate::base::sync::StdArc;
use crate::base::tick::TickLength;
use crate::dispatch::{Dispatcher, Executor, Guarded, PanicHook, Workers};
use crate::engine::{Handler, Settings};
use crate::lockfree::roster::Roster;
use crate::lockfree::slab::Slots;
use crate::shard::{Leaders, Owner, SetSettings};
use crate::system::affinity;
use crate::system::clock::{Clock, EngineClock, ManualClock, MonotonicClock};
use crate::system::scheduling::{Priority, Scheduling};
use core::any::Any;
use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;
#[cfg(feature = "rayon")]
use rayon::ThreadPool;

const TICKS: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(3_600);
const SHARDS: RangeInclusive<usize> = 1..=1_024;
const WORKERS: RangeInclusive<usize> = 1..=1_024;
const CAPACITIES: RangeInclusive<u32> = 1..=Slots::MAX_CAPACITY;
const LANE_CAPACITIES: RangeInclusive<u64> = 64..=1 << 32;
const STALLS: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(86_400);
const SLICES: RangeInclusive<Duration> = Scheduling::SHORTEST_SLICE..=Scheduling::LONGEST_SLICE;
const NICE_VALUES: RangeInclusive<i8> = -20..=19;
const REAL_TIME: RangeInclusive<u8> = 1..=99;
/// The shortest default of [`stall_after`](Builder::stall_after). On a busy machine, even a healthy thread is sometimes
/// off its core for some ten milliseconds.
const SHORTEST_DEFAULT_STALL: Duration = Duration::from_millis(100);
/// The default of [`stall_after`](Builder::stall_after) in ticks, unless that time is shorter than
/// [`SHORTEST_DEFAULT_STALL`]. A program that chose a coarse tick does not mind a delay of a few ticks.
const DEFAULT_STALL_TICKS: u32 = 10;

/// Builds an [`Engine`].
///
/// | option | default | bounds |
/// |--------|---------|--------|
/// | [`tick`](Self::tick) | 1 ms | 1 µs to 1 h |
/// | [`shards`](Self::shards) | one for each core that the process may use, or fewer by its container's quota | 1 to 1,024 |
/// | [`cores`](Self::cores), [`unpinned`](Self::unpinned) | the cores that the process may use, in order | at least one core |
/// | [`workers`](Self::workers) | as many as shards | 1 to 1,024 |
/// | [`slice`](Self::slice) | 100 µs | 100 µs to 100 ms |
/// | [`nice`](Self::nice), [`real_time`](Self::real_time) | inherited from the thread that builds the engine | -20 to 19, 1 to 99 |
/// | [`executor`](Self::executor), [`inline`](Self::inline), `rayon_pool` (feature `rayon`) | the engine's workers | |
/// | [`capacity`](Self::capacity) | 16,777,216 pending timers | 1 to 4,294,967,295 |
/// | [`lane_capacity`](Self::lane_capacity) | 65,536 tickets for each thread | 64 to 2^32 |
/// | [`clock`](Self::clock) | [`MonotonicClock`] | |
/// | [`stall_after`](Self::stall_after) | 100 ms, or 10 ticks if that is more | 1 µs to 24 h |
/// | [`on_panic`](Self::on_panic) | none: panics are counted | |
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, BuildError};
///
/// let engine = Builder::new()
///     .tick(Duration::from_micros(100))
///     .shards(2)
///     .workers(2)
///     .capacity(1 << 20)
///     .start(|timer| println!("{:?} is {:?} late", timer.payload, timer.lateness()))?;
/// engine.handle().schedule(Duration::from_secs(5), 17)?;
///
/// let error = Builder::new().tick(Duration::ZERO).start(|_: tourbillon::Fired<'_, ()>| {}).unwrap_err();
/// assert_eq!(error.to_string(), "tick is 0ns, but must be between 1µs and 3600s");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct Builder {
    tick: Duration,
    shards: Option<usize>,
    pinning: Pinning,
    workers: Option<usize>,
    scheduling: Scheduling,
    dispatch: Dispatch,
    clock: Option<Box<dyn Clock>>,
    stall_after: Option<Duration>,
    capacity: u32,
    lane_capacity: u64,
    on_panic: Option<Box<PanicHook>>,
    /// The running shards that the engine uses. `None` if the engine gets shards of its own.
    on: Option<Shards>,
    /// The name of the last set option that concerns the shards. `None` if the program has set no such option. An
    /// engine on running shards refuses options of this kind.
    shards_option: Option<&'static str>,
}

enum Pinning {
    ToAllowed,
    To(Vec<usize>),
    Off,
}

enum Dispatch {
    OwnWorkers,
    Given(Dispatcher),
}

impl Dispatch {
    /// Returns the threads on which handlers run if the set of shards starts no threads. With an executor, handlers run
    /// on the executor's threads. Without an executor, handlers run on the thread that turns the shards.
    fn without_threads(self) -> Dispatcher {
        match self {
            Self::Given(executor @ Dispatcher::Executor(_)) => executor,
            Self::OwnWorkers | Self::Given(_) => Dispatcher::Inline,
        }
    }
}

impl Builder {
    /// Makes a builder with all options at their defaults.
    pub fn new() -> Self {
        Self {
            tick: Duration::from_millis(1),
            shards: None,
            pinning: Pinning::ToAllowed,
            workers: None,
            scheduling: Scheduling::default(),
            dispatch: Dispatch::OwnWorkers,
            clock: None,
            stall_after: None,
            capacity: Settings::DEFAULT_CAPACITY,
            lane_capacity: Settings::DEFAULT_LANE_CAPACITY,
            on_panic: None,
            on: None,
            shards_option: None,
        }
    }

    /// Sets the length of a tick: the resolution of deadlines. Shards wake when something is due, not at every tick.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.shards_option = Some("tick");
        self.tick = tick;
        self
    }

    /// Sets the number of shards. A shard is a thread with a wheel for each engine. The default is the number of cores
    /// on which the calling thread may run. On Linux the default is lower if the process's control group grants less
    /// processor time.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards_option = Some("shards");
        self.shards = Some(shards);
        self
    }

    /// Sets the cores to which shards are pinned, in turn. By default, shards are pinned to the cores that the process
    /// may use. A shard's thread leaves such a core for some seconds or minutes if another thread is busy there: see
    /// [`departures`](crate::ShardStats::departures). A thread never leaves a core that this method set.
    ///
    /// If the system refuses to pin a shard, [`Stats`](crate::Stats) counts the refusal in
    /// [`pins_refused`](crate::ShardStats::pins_refused), and an event reports it. The thread then runs unpinned. The
    /// builder accepts the number of a core that does not exist, because cores may come and go. The system then refuses
    /// to pin the shard.
    pub fn cores(mut self, cores: impl IntoIterator<Item = usize>) -> Self {
        self.shards_option = Some("cores");
        self.pinning = Pinning::To(cores.into_iter().collect());
        self
    }

    /// Leaves the shards' threads unpinned: the system's scheduler places them. If the program's own threads keep a
    /// core busy while another core is idle, the scheduler may move a shard's thread to the idle core. This mode is for
    /// machines on which other threads are always busy. The tables of `busy` in `benches/results/firing.md` show the
    /// lateness of both modes.
    pub fn unpinned(mut self) -> Self {
        self.shards_option = Some("unpinned");
        self.pinning = Pinning::Off;
        self
    }

    /// Runs handlers on the engine's own threads, as by default, and sets the number of workers. At most `workers`
    /// handlers run at a time. They run on the threads of the shards and of the workers.
    ///
    /// A handler that blocks delays the other timers of its shard. 1.25 to 1.5 milliseconds after the handlers of a
    /// turn began, and after the wake-ups of two threads, a worker takes the shard over. The delay is longer only if as
    /// many handlers block as there are workers, or if the machine has no core for the other threads.
    /// [`Stats`](crate::Stats) counts the takeovers. On Linux the alarms for this take a file descriptor for each
    /// shard, and one more. If the process has none left, the engine does without.
    ///
    /// Unless the shards are [`unpinned`](Self::unpinned), a handler may run on a thread that is pinned to a core.
    /// Threads that it starts inherit the pinning, so a program should start its threads and pools elsewhere.
    ///
    /// Work that a handler gives to rayon's global pool must not wait for handlers of this engine: see `rayon_pool`
    /// (feature `rayon`).
    pub fn workers(mut self, workers: usize) -> Self {
        self.shards_option = Some("workers");
        self.workers = Some(workers);
        self.dispatch = Dispatch::OwnWorkers;
        self
    }

    /// Sets the scheduler slice of the engine's threads: the time for which a thread asks to run without a break. On a
    /// busy machine, a thread that asks for a short slice gets its core sooner. So the default is the shortest slice.
    /// `None` leaves the slice to the system.
    ///
    /// The slice needs Linux 6.12 or later and no privilege. A refusal is counted in [`Stats`](crate::Stats) and has no
    /// other effect. Threads that a handler starts do not inherit the slice.
    pub fn slice(mut self, slice: Option<Duration>) -> Self {
        self.shards_option = Some("slice");
        self.scheduling.slice = slice;
        self
    }

    /// Sets the nice value of the engine's threads, from -20 (urgent) to 19. Values below the thread's present nice
    /// value need a privilege. A refusal is counted in [`Stats`](crate::Stats) and has no other effect.
    pub fn nice(mut self, nice: i8) -> Self {
        self.shards_option = Some("nice");
        self.scheduling.priority = Priority::Nice(nice);
        self
    }

    /// Makes the engine's threads real-time threads of this priority, from 1 to 99 (urgent). They take turns with other
    /// threads of the same priority (`SCHED_RR`). The priority needs a privilege. A refusal is counted in
    /// [`Stats`](crate::Stats) and has no other effect. A handler that does not return keeps all ordinary threads off
    /// its core. So this setting is for handlers that only wake or enqueue something.
    pub fn real_time(mut self, priority: u8) -> Self {
        self.shards_option = Some("real_time");
        self.scheduling.priority = Priority::RealTime(priority);
        self
    }

    /// Runs handlers on the caller's rayon pool.
    #[cfg(feature = "rayon")]
    pub fn rayon_pool(mut self, pool: StdArc<ThreadPool>) -> Self {
        self.dispatch = Dispatch::Given(Dispatcher::Rayon(pool));
        self
    }

    /// Runs handlers on the caller's own executor.
    pub fn executor(mut self, executor: impl Executor + 'static) -> Self {
        self.dispatch = Dispatch::Given(Dispatcher::Executor(StdArc::new(executor)));
        self
    }

    /// Runs handlers on the shards' own threads. This is for handlers that only wake or enqueue something: a slow
    /// handler holds up its whole shard.
    pub fn inline(mut self) -> Self {
        self.dispatch = Dispatch::Given(Dispatcher::Inline);
        self
    }

    /// Sets the number of slots for timers that are pending or running.
    ///
    /// Each thread keeps some vacant slots in reserve, which other threads cannot use: up to 512, and at most 1/32 of
    /// the capacity. A thread that only schedules keeps fewer: it takes 256 slots at a time, at most 1/64 of the
    /// capacity. Once less than half of the capacity is left, a thread takes 1/256 of the remaining slots, at least
    /// one. So 900 threads can have a timer each in a capacity of 4,096.
    ///
    /// If other threads have the remaining slots in reserve, a call may find no slot although fewer timers than the
    /// capacity are pending. Then the call is refused. The refusal counts in
    /// [`Stats::engine_full`](crate::Stats::engine_full), and `health` reports `full`.
    ///
    /// Memory is allocated as it is needed, and kept until the engine is dropped: 16 bytes and the payload for each
    /// slot, 16 more for the slot of a [`Timer`](crate::Timer), 8 bytes for each ticket, which is the entry of a timer
    /// in a wheel. A ticket that is more than 2^25 ticks ahead takes 16 bytes. The ticket of a cancelled timer stays
    /// until its shard looks at it. The wheels hold at most about twice as many tickets as there are pending and owned
    /// timers, plus 65,536. Each thread that cancels or drops timers, or arms them for earlier deadlines, may add
    /// 4,096.
    pub fn capacity(mut self, capacity: u32) -> Self {
        self.capacity = capacity;
        self
    }

    /// Sets the capacity of a lane, a thread's queue to a shard. The capacity is the number of tickets (timers to
    /// check) that a thread may post before its shard takes them. If the lane is full, the thread's calls wait or are
    /// refused. A lane consists of blocks of 64 tickets, and the capacity is checked once for each block.
    pub fn lane_capacity(mut self, tickets: u64) -> Self {
        self.lane_capacity = tickets;
        self
    }

    /// Sets the clock by which the engine measures time.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.shards_option = Some("clock");
        self.clock = Some(Box::new(clock));
        self
    }

    /// Sets the threshold for delays. If a shard, or a due timer in the workers' queue, is late by more than this time,
    /// the engine reports a problem.
    ///
    /// A shard *stalls* if it begins a turn (a pass of its loop) more than this time too late. A turn should begin when
    /// a timer is due. If a turn has left work, the next turn should begin at once. A turn that takes longer than this
    /// time, for example in a handler that runs inline, is a stall, too. A stall is counted in [`Stats`](crate::Stats),
    /// and is an event with the feature `tracing`. While a stall lasts, [`Handle::health`](crate::Handle::health)
    /// reports `late`.
    ///
    /// The default is 100 ms, or 10 ticks if they are longer. The scheduler of a healthy system does not cause a delay
    /// of 100 ms.
    pub fn stall_after(mut self, time: Duration) -> Self {
        self.shards_option = Some("stall_after");
        self.stall_after = Some(time);
        self
    }

    /// Sets a hook that is called when a handler panics. The hook gets the value of the panic, on the thread that ran
    /// the handler. A panic of the hook is ignored.
    pub fn on_panic(mut self, hook: impl Fn(&(dyn Any + Send)) + Send + Sync + 'static) -> Self {
        self.on_panic = Some(Box::new(hook));
        self
    }

    /// Starts an engine that calls `handler` for each timer that fires.
    ///
    /// # Errors
    ///
    /// Fails if an option is out of bounds, or if the system refuses a thread.
    pub fn start<T: Send + 'static>(
        self,
        handler: impl Fn(Fired<'_, T>) + Send + Sync + 'static,
    ) -> Result<Engine<T>, BuildError> {
        self.build_with(Box::new(move |due, core| handler(Fired::new(due, core))))
    }

    pub(crate) fn build_with<T: Send + 'static>(
        mut self,
        handler: Handler<T>,
    ) -> Result<Engine<T>, BuildError> {
        let (owner, settings) = match self.on.take() {
            Some(shards) => (StdArc::clone(shards.owner()), self.settle_on(&shards)?),
            None => self.start_set()?,
        };
        Ok(Engine::start(&owner, settings, handler))
    }

    /// Makes the builder build the engine on running shards, which the engine shares with other engines. No thread is
    /// started.
    ///
    /// Only these options of the builder apply: [`capacity`](Self::capacity), [`lane_capacity`](Self::lane_capacity),
    /// [`on_panic`](Self::on_panic), [`executor`](Self::executor), [`inline`](Self::inline). [`start`](Self::start)
    /// fails with [`BuildError::NotOfAnEngine`] if another option was set. [`start`](Self::start) fails with
    /// [`BuildError::Forked`] in the child of a fork if the shards were started before the fork.
    pub fn on(mut self, shards: &Shards) -> Self {
        self.on = Some(shards.clone());
        self
    }

    fn settle_on(self, shards: &Shards) -> Result<Settings, BuildError> {
        self.refuse_shards_options()?;
        let set = shards.owner().set();
        if set.is_forked() {
            return Err(BuildError::Forked);
        }
        let dispatcher = match self.dispatch {
            Dispatch::OwnWorkers => set.settings().dispatcher.clone(),
            Dispatch::Given(dispatcher) if set.settings().leaders != Leaders::Driver => dispatcher,
            given @ Dispatch::Given(_) => given.without_threads(),
        };
        engine_settings(self.capacity, self.lane_capacity, self.on_panic, dispatcher)
    }

    fn refuse_other_shards(&self) -> Result<(), BuildError> {
        self.on.as_ref().map_or(Ok(()), |_| Err(BuildError::NotOfAnEngine { option: "shards of its own" }))
    }

    fn refuse_shards_options(&self) -> Result<(), BuildError> {
        self.shards_option.map_or(Ok(()), |option| Err(BuildError::NotOfAnEngine { option }))
    }

    /// Starts shards and workers without an engine. Several engines can then share the shards and workers.
    ///
    /// The builder's settings of [`capacity`](Self::capacity), [`lane_capacity`](Self::lane_capacity) and
    /// [`on_panic`](Self::on_panic) belong to an engine, and do not apply.
    ///
    /// # Errors
    ///
    /// Fails if an option is out of bounds, or if the system refuses a thread.
    pub fn start_shards(self) -> Result<Shards, BuildError> {
        Ok(Shards::new(self.start_set()?.0))
    }

    /// Makes shards without threads, on a manual clock that starts at zero, and without an engine. Several engines can
    /// then share the shards. See [`driven`](Self::driven).
    ///
    /// # Errors
    ///
    /// Fails if an option is out of bounds.
    pub fn driven_shards(self) -> Result<DrivenShards, BuildError> {
        Ok(self.drive()?.0)
    }

    /// Makes a set of shards for the event loops of a program, without an engine. The set has a [`LoopShard`] for each
    /// of `loops` loops. Handlers run in the loops' turns, unless an engine has an [`executor`](Self::executor). The
    /// builder's settings of shards, cores, workers and scheduling do not apply, because a loop's thread belongs to the
    /// program. With the system's default slice, other threads of the machine may hold the loop up for some
    /// milliseconds.
    ///
    /// # Errors
    ///
    /// Fails if an option is out of bounds. The number of loops has the bounds of [`shards`](Self::shards).
    pub fn loops(mut self, loops: usize) -> Result<(Shards, Vec<LoopShard>), BuildError> {
        self.refuse_other_shards()?;
        self.dispatch = Dispatch::Given(Dispatcher::Inline);
        self.pinning = Pinning::Off;
        check("loops", loops, &SHARDS)?;
        self.shards = Some(loops);
        let clock = self.take_clock();
        let (set, _) = self.settle(clock, Leaders::Loops)?;
        let shards = Shards::new(Owner::start(set).map_err(BuildError::Thread)?);
        let loops = shards.take_loops();
        Ok((shards, loops))
    }

    fn take_clock(&mut self) -> EngineClock {
        match self.clock.take() {
            Some(clock) => EngineClock::Custom(clock.into()),
            None => EngineClock::Monotonic(MonotonicClock::new()),
        }
    }

    fn start_set(mut self) -> Result<(StdArc<Owner>, Settings), BuildError> {
        self.refuse_other_shards()?;
        let clock = self.take_clock();
        let (set, settings) = self.settle(clock, Leaders::Threads)?;
        Ok((Owner::start(set).map_err(BuildError::Thread)?, settings))
    }

    fn drive(mut self) -> Result<(DrivenShards, Settings), BuildError> {
        self.refuse_other_shards()?;
        let clock = ManualClock::new();
        self.dispatch = Dispatch::Given(self.dispatch.without_threads());
        self.pinning = Pinning::Off;
        self.shards.get_or_insert(1);
        let (set, settings) =
            self.settle(EngineClock::Custom(StdArc::new(clock.clone())), Leaders::Driver)?;
        let owner = Owner::start(set).map_err(BuildError::Thread)?;
        Ok((DrivenShards::new(Shards::new(owner), clock), settings))
    }

    /// Makes an engine without threads, on a manual clock that starts at zero. Handlers run inside
    /// [`advance`](DrivenEngine::advance), unless the builder has an [`executor`](Self::executor). The engine has one
    /// shard unless the builder sets another number. Timers go to the first shard unless
    /// [`use_shard`](crate::Handle::use_shard) chooses another shard. The builder's settings of clock, cores, workers
    /// and rayon pool do not apply.
    ///
    /// # Errors
    ///
    /// Fails if an option is out of bounds.
    pub fn driven<T: Send + 'static>(
        self,
        handler: impl Fn(Fired<'_, T>) + Send + Sync + 'static,
    ) -> Result<DrivenEngine<T>, BuildError> {
        self.build_driven_with(Box::new(move |due, core| handler(Fired::new(due, core))))
    }

    pub(crate) fn build_driven_with<T: Send + 'static>(
        self,
        handler: Handler<T>,
    ) -> Result<DrivenEngine<T>, BuildError> {
        let (driver, settings) = self.drive()?;
        let engine = Engine::start(driver.shards().owner(), settings, handler);
        Ok(DrivenEngine::new(engine, driver))
    }

    /// Checks the builder's options. Returns the settings for a set of shards, and the settings for an engine on that
    /// set.
    fn settle(self, clock: EngineClock, leaders: Leaders) -> Result<(SetSettings, Settings), BuildError> {
        let cores = self.settle_cores()?;
        let shards = self.shards.unwrap_or_else(affinity::parallelism);
        let workers = self.workers.unwrap_or(shards);
        let default_stall = SHORTEST_DEFAULT_STALL.max(self.tick.saturating_mul(DEFAULT_STALL_TICKS));
        let stall_after = self.stall_after.unwrap_or(default_stall);
        check("tick", self.tick, &TICKS)?;
        check("shards", shards, &SHARDS)?;
        check("workers", workers, &WORKERS)?;
        check("stall_after", stall_after, &STALLS)?;
        check_scheduling(self.scheduling)?;
        let (dispatcher, roster) = match self.dispatch {
            Dispatch::OwnWorkers => {
                let roster = Roster::new(shards + workers);
                let workers = Workers::new(workers, shards, StdArc::clone(&roster));
                (Dispatcher::Own(StdArc::new(workers)), roster)
            }
            Dispatch::Given(dispatcher) if leaders == Leaders::Loops => {
                (dispatcher, Roster::of_loops(shards))
            }
            Dispatch::Given(dispatcher) => (dispatcher, Roster::new(shards)),
        };
        let settings = engine_settings(self.capacity, self.lane_capacity, self.on_panic, dispatcher.clone())?;
        let nanos = u64::try_from(self.tick.as_nanos()).unwrap_or(u64::MAX);
        let set = SetSettings {
            tick: TickLength::from_nanos(nanos),
            shards,
            cores: cores.iter().copied().cycle().take(if cores.is_empty() { 0 } else { shards }).collect(),
            may_leave_cores: matches!(self.pinning, Pinning::ToAllowed),
            clock,
            dispatcher,
            roster,
            stall_after,
            scheduling: self.scheduling,
            leaders,
        };
        Ok((set, settings))
    }

    /// Returns the cores to which shards are pinned, in turn. The list is empty if shards are not pinned.
    fn settle_cores(&self) -> Result<Vec<usize>, BuildError> {
        match &self.pinning {
            Pinning::ToAllowed => Ok(affinity::allowed_cores()),
            Pinning::Off => Ok(Vec::new()),
            Pinning::To(cores) if cores.is_empty() => {
                Err(out_of_bounds("cores", "an empty list", "at least one core"))
            }
            Pinning::To(cores) => Ok(cores.clone()),
        }
    }
}

/// Checks the builder's capacities. Returns the settings of an engine with the capacities and with this panic hook.
fn engine_settings(
    capacity: u32,
    lane_capacity: u64,
    on_panic: Option<Box<PanicHook>>,
    dispatcher: Dispatcher,
) -> Result<Settings, BuildError> {
    check("capacity", capacity, &CAPACITIES)?;
    check("lane_capacity", lane_capacity, &LANE_CAPACITIES)?;
    Ok(Settings { capacity, lane_capacity, dispatcher, guarded: Guarded::new(on_panic) })
}

fn check_scheduling(scheduling: Scheduling) -> Result<(), BuildError> {
    if let Some(slice) = scheduling.slice {
        check("slice", slice, &SLICES)?;
    }
    match scheduling.priority {
        Priority::Inherited => Ok(()),
        Priority::Nice(nice) => check("nice", nice, &NICE_VALUES),
        Priority::RealTime(priority) => check("real_time", priority, &REAL_TIME),
    }
}

fn check<V: PartialOrd + fmt::Debug>(
    option: &'static str,
    value: V,
    bounds: &RangeInclusive<V>,
) -> Result<(), BuildError> {
    if bounds.contains(&value) {
        return Ok(());
    }
    let bound = format_args!("between {:?} and {:?}", bounds.start(), bounds.end()).to_string();
    Err(out_of_bounds(option, format_args!("{value:?}"), bound))
}

fn out_of_bounds(option: &'static str, value: impl fmt::Display, bound: impl fmt::Display) -> BuildError {
    BuildError::OutOfBounds { option, value: value.to_string(), bound: bound.to_string() }
}

impl Shards {
    /// Returns a builder for an engine on these shards: see [`Builder::on`].
    pub fn engine(&self) -> Builder {
        Builder::new().on(self)
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("tick", &self.tick)
            .field("shards", &self.shards)
            .field("workers", &self.workers)
            .field("capacity", &self.capacity)
            .field("lane_capacity", &self.lane_capacity)
            .field("stall_after", &self.stall_after)
            .finish_non_exhaustive()
    }
}
