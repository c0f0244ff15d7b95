//! The crew: the threads of a set of shards. They lead shards, run handlers, and stand by.
//!
//! There is a thread for each shard, and one for each worker. At first thread `n` leads shard `n`, and the threads
//! without a shard stand by. The roles change when a handler holds a leader up:
//!
//! ```text
//!            turn, sleep                 the handlers return
//!          ┌──────────────┐          ┌────────────────────────┐
//!          ▼              │          ▼                        │
//!        lead a shard ────┴──► due: let go of it, run the handlers ── the shard was taken over ──► stand by
//!          ▲                                                                                          │
//!          └── its leader is held up by a handler ──── watch, or run jobs from the queue ◄────────────┘
//! ```

use super::leader_sleep::LeaderSleep;
use super::sleep::Next;
use super::stall::StallDetector;
use super::station::{Outlet, Station, StationShared};
use super::{Leading, Shard};
use crate::base::counters::ShardCounters;
use crate::base::fork::Generation;
use crate::base::sync::{AtomicBool, Mutex, OnceLock, Ordering, PoisonError, StdArc, thread};
use crate::base::tick::TickLength;
use crate::base::trace;
use crate::dispatch::{BatchJob, Dispatcher, Workers, survives};
use crate::lockfree::barrier;
use crate::lockfree::parker;
use crate::lockfree::roster::Roster;
use crate::lockfree::watch::Check;
use crate::system::affinity::{self, Freedom, Pin};
use crate::system::clock::EngineClock;
use crate::system::forks::{self, Watch};
use crate::system::scheduling::{Scheduling, SchedulingRefusals};
use crate::system::signals::Blocked;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The settings of a crew, which all engines on its shards share.
#[derive(Clone)]
pub(crate) struct CrewSettings {
    pub(crate) tick: TickLength,
    pub(crate) shards: usize,
    /// The core of each shard; empty if shards are not pinned.
    pub(crate) cores: Box<[usize]>,
    pub(crate) clock: EngineClock,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) roster: StdArc<Roster>,
    pub(crate) stall_after: Duration,
    pub(crate) scheduling: Scheduling,
    pub(crate) leaders: Leaders,
}

/// The leaders of the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaders {
    /// Threads of the set's own.
    Threads,
    /// Loops of the program, one for each shard.
    Loops,
    /// The program's thread, which moves the time.
    Driver,
}

/// The state that the threads of a set of shards share.
pub(crate) struct Crew {
    id: u64,
    shards: Box<[Shard]>,
    settings: CrewSettings,
    refusals: SchedulingRefusals,
    /// The threads that were not joined yet.
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    /// Whether an engine's handlers run inline: then a handler may hold a leader up.
    runs_inline: AtomicBool,
    made_in: Generation,
    forks: OnceLock<Watch>,
}

/// A handler on a thread's stack.
#[derive(Clone, Copy, Debug)]
struct Firing {
    engine: u64,
    crew: u64,
    /// Whether the crew's workers run the engine's handlers: a leader lets go of its shard for them.
    is_on_workers: bool,
}

thread_local! {
    /// The handlers and the turns of loops on this thread's stack, outermost first.
    static FIRING: RefCell<Vec<Firing>> = const { RefCell::new(Vec::new()) };
    /// The crew to which the calling thread belongs.
    static THREAD_OF: Cell<Option<u64>> = const { Cell::new(None) };
}

/// In place of an engine's number: the turn of a loop.
const TURN: u64 = u64::MAX;

/// The turn of a loop on the calling thread.
pub(super) struct TurnHere(());

impl Drop for TurnHere {
    fn drop(&mut self) {
        end_firing();
    }
}

fn end_firing() {
    let _ = FIRING.try_with(|all| all.borrow_mut().pop());
}

/// The outermost handler on this thread's stack for which `condition` holds.
fn first_firing(condition: impl Fn(&Firing) -> bool) -> Option<Firing> {
    let first = |firing: &RefCell<Vec<Firing>>| firing.borrow().iter().copied().find(condition);
    FIRING.try_with(first).ok().flatten()
}

/// The number of the next engine or crew of this process.
pub(crate) fn next_id() -> u64 {
    use std::sync::atomic::AtomicU64;
    // Outside the models' reach: an id is only compared.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Crew {
    pub(crate) fn new(settings: CrewSettings) -> StdArc<Self> {
        forks::listen();
        let id = next_id();
        let shard = |index: usize| {
            let stalls = |counters: &StdArc<ShardCounters>| {
                StallDetector::new(id, index, settings.tick, settings.stall_after, StdArc::clone(counters))
            };
            Shard::new(&settings.roster, stalls, settings.cores.get(index).copied())
        };
        let shards = (0..settings.shards).map(shard).collect();
        StdArc::new(Self {
            id,
            shards,
            settings,
            refusals: SchedulingRefusals::default(),
            threads: Mutex::new(Vec::new()),
            runs_inline: AtomicBool::new(false),
            made_in: Generation::current(),
            forks: OnceLock::new(),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn settings(&self) -> &CrewSettings {
        &self.settings
    }

    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The numbers of threads that the system would not schedule as they asked.
    pub(crate) fn scheduling_refusals(&self) -> &SchedulingRefusals {
        &self.refusals
    }

    /// Whether this process is the child of a fork, and the crew was started before the fork.
    pub(crate) fn is_in_child(&self) -> bool {
        self.made_in.is_past()
    }

    /// Whether this process is the child of a fork, and the threads or loops that turn the shards are in the parent.
    pub(crate) fn is_forked(&self) -> bool {
        self.settings.leaders != Leaders::Driver && self.is_in_child()
    }

    /// Whether threads of the set's own turn the shards.
    fn has_threads(&self) -> bool {
        self.settings.leaders == Leaders::Threads && !self.is_forked()
    }

    /// Whether the shards are turned while the program does something else: by threads, or by loops.
    pub(crate) fn is_served(&self) -> bool {
        self.settings.leaders != Leaders::Driver && !self.is_forked()
    }

    /// Whether loops of the program turn the shards.
    pub(crate) fn is_of_loops(&self) -> bool {
        self.settings.leaders == Leaders::Loops
    }

    /// The reason why a loop's shard is late, for a person. `None` if threads turn the shards.
    pub(crate) fn why_loop_is_late(&self, n: usize) -> Option<&'static str> {
        let has_loop = (self.settings.leaders == Leaders::Loops).then(|| self.settings.roster.is_taken(n))?;
        Some(if has_loop { "its loop does not turn" } else { "it has no loop" })
    }

    /// The shard whose loop runs on the calling thread.
    pub(crate) fn loop_here(&self) -> Option<usize> {
        self.settings.roster.loop_here()
    }

    /// Whether handlers of some engine run inline; true also if that engine has ended.
    pub(crate) fn runs_inline(&self) -> bool {
        // Ordering: Relaxed. A hint for a person.
        self.runs_inline.load(Ordering::Relaxed)
    }

    /// Notes that handlers of an engine run inline.
    pub(crate) fn note_inline_handlers(&self) {
        // Ordering: Relaxed. See `runs_inline`.
        self.runs_inline.store(true, Ordering::Relaxed);
    }

    /// The shared part of a station for shard `n`. Where threads lead the shards, the station may rest.
    pub(crate) fn station_for(&self, n: usize, lane_capacity: u64) -> StationShared {
        let roster = &self.settings.roster;
        match self.settings.leaders {
            Leaders::Threads => self.shards[n].station_that_rests(lane_capacity, roster),
            Leaders::Loops | Leaders::Driver => StationShared::new(lane_capacity, roster),
        }
    }

    /// Adds the stations of an engine, one for each shard.
    pub(crate) fn join(&self, stations: Vec<Station>) {
        for (shard, station) in self.shards.iter().zip(stations) {
            shard.join(station);
        }
    }

    /// Drops the stations of engines that were shut down, if the crew has no threads that do so. Waits for the turns of
    /// loops, which run handlers, if the caller may wait for handlers.
    pub(crate) fn dismiss_if_without_threads(&self, may_wait: bool) {
        match self.settings.leaders {
            Leaders::Threads => {}
            Leaders::Loops if may_wait && self.may_wait_for_shards() => self.dismiss(Shard::lead),
            // A shard that is being turned dismisses at the end of the turn, or in the next one.
            Leaders::Loops | Leaders::Driver => self.dismiss(Shard::try_lead),
        }
    }

    /// Drops the stations of engines that were shut down, at the shards that `lead` leads. The drop comes after the
    /// calling thread has let go of the shard: a station's drop may drop a handler, and a thread that turns the shards
    /// waits for the lock.
    fn dismiss(&self, lead: impl Fn(&Shard) -> Option<Leading<'_>>) {
        for shard in &self.shards {
            let closed = lead(shard).map(|mut led| {
                shard.admit(&mut led);
                led.take_closed()
            });
            if closed.is_none() {
                shard.bury_if_its_leader_panicked();
            }
            drop(closed);
        }
    }

    /// Notes that the calling thread runs handlers of `engine` from now on, until [`end_firing`](Self::end_firing).
    pub(crate) fn begin_firing(&self, engine: u64, is_on_workers: bool) {
        let firing = Firing { engine, crew: self.id, is_on_workers };
        let _ = FIRING.try_with(|all| all.borrow_mut().push(firing));
    }

    pub(crate) fn end_firing(&self) {
        end_firing();
    }

    /// Whether a handler of `engine` is on the calling thread's stack.
    pub(crate) fn is_firing_here(engine: u64) -> bool {
        first_firing(|firing| firing.engine == engine).is_some()
    }

    /// Whether the calling thread is one that leads shards of this crew.
    fn is_own_thread(&self) -> bool {
        THREAD_OF.try_with(Cell::get).ok().flatten() == Some(self.id) || self.loop_here().is_some()
    }

    /// Whether the calling thread may wait for a shard. It may not if it leads a shard, nor if a shard has neither a
    /// thread nor a loop. Inside a handler that workers run, the thread leads no shard: another thread takes over its
    /// shard. The outermost handler decides, since other handlers begin inside it.
    pub(crate) fn may_wait_for_shards(&self) -> bool {
        let has_let_go =
            || first_firing(|firing| firing.crew == self.id).is_some_and(|first| first.is_on_workers);
        self.is_served() && self.settings.roster.is_full() && (!self.is_own_thread() || has_let_go())
    }

    /// Whether the calling thread leads a shard of this crew, or may: it runs no handler, or one that runs inline or in
    /// an executor's `execute`. The thread of a loop leads inside of its turns only.
    pub(crate) fn is_led_here(&self) -> bool {
        match self.settings.leaders {
            Leaders::Loops => self.is_turned_here(),
            Leaders::Threads | Leaders::Driver => self.is_own_thread() && !self.may_wait_for_shards(),
        }
    }

    /// Whether the calling thread turns a loop of this crew.
    pub(crate) fn is_turned_here(&self) -> bool {
        let is_turn = |firing: &Firing| firing.crew == self.id && firing.engine == TURN;
        self.is_of_loops() && first_firing(is_turn).is_some()
    }

    /// Notes that the calling thread turns a loop of this crew, until the result is dropped.
    pub(super) fn begin_turn_here(&self) -> TurnHere {
        self.begin_firing(TURN, false);
        TurnHere(())
    }

    fn own_workers(&self) -> Option<&Workers> {
        self.settings.dispatcher.own_workers()
    }

    /// The number of threads, if threads turn the shards.
    fn threads(&self) -> usize {
        self.shards.len() + self.own_workers().map_or(0, Workers::count)
    }

    /// Runs thread `me` until the crew is closed.
    pub(crate) fn serve(&self, me: usize) {
        THREAD_OF.set(Some(self.id));
        self.settings.roster.enter_current_thread(me);
        self.settings.scheduling.apply_here(&self.refusals);
        affinity::tighten_timer_slack();
        let freedom = Freedom::of_current_thread();
        if let Some(leading) = self.shards.get(me).and_then(Shard::try_lead) {
            self.lead(me, me, leading);
        }
        let Some(workers) = self.own_workers() else { return };
        let was_pinned = |shard: usize| self.shards.get(shard).is_some_and(|shard| shard.core.is_some());
        if was_pinned(me) {
            freedom.give_back();
        }
        while let Some((shard, leading)) = self.stand_by(me, workers) {
            self.lead(me, shard, leading);
            if was_pinned(shard) {
                freedom.give_back();
            }
        }
        workers.drop_jobs();
    }

    /// Leads shard `index` until another thread does, or the crew is closed.
    fn lead<'s>(&'s self, me: usize, index: usize, leading: Leading<'s>) {
        // A leader unwinds only if the user's clock does.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.turn_and_sleep(me, index, leading)));
        if let Err(panic) = outcome {
            self.shards[index].bury_if_its_leader_panicked();
            resume_unwind(panic);
        }
    }

    fn turn_and_sleep<'s>(&'s self, me: usize, index: usize, mut leading: Leading<'s>) {
        let shard = &self.shards[index];
        if let Some(core) = shard.core
            && affinity::pin_current_thread(core) == Pin::Refused
        {
            shard.counters.pin_refused.set(1);
            trace::pin_refused(self.id, index, core);
        }
        while !shard.parker.is_closed() {
            shard.admit_and_dismiss(&mut leading);
            let now = self.settings.clock.true_now();
            leading.stalls.begin_turn(now);
            leading.rouse_due(now);
            let mut out = Outlet::default();
            let next = leading.turn(now, &mut out);
            let due = leading.due();
            leading.stalls.end_turn(now, due);
            if let Some(job) = out.into_own() {
                let Some(still) = self.run_own(index, leading, job) else { return };
                leading = still;
                continue;
            }
            let Next::Sleep(wake) = next else { continue };
            if !shard.lay_to_rest(&mut leading, now) {
                continue;
            }
            let until = wake.map(|wake| wake.not_before);
            let CrewSettings { tick, clock, .. } = &self.settings;
            let is_nap = wake.is_some_and(|wake| wake.ends_a_nap(*tick, now, clock.as_dyn()));
            let mut sleep = LeaderSleep { shard, led: &mut leading, wake, is_nap, clock };
            let fall_asleep = if is_nap { parker::nap } else { parker::sleep };
            if fall_asleep(&mut sleep, me, until) {
                shard.counters.wakes.add(1);
            }
        }
        drop(shard.take_all(&mut leading));
        leading.stalls.end();
    }

    /// Runs a batch of the shard that the calling thread leads, and lets go of the shard meanwhile. Returns `None`
    /// if another thread leads the shard afterwards.
    fn run_own<'s>(&'s self, shard: usize, mut leading: Leading<'s>, job: BatchJob) -> Option<Leading<'s>> {
        let workers = self.own_workers().filter(|_| leading.trust.ask());
        let Some((workers, permit)) =
            workers.and_then(|workers| Some((workers, workers.permit_to_leader()?)))
        else {
            job.send();
            return Some(leading);
        };
        let wants_watcher = workers.watch().begin(shard);
        drop(leading);
        if wants_watcher {
            workers.wake_one();
        }
        // The job unwinds only if the user's clock does: that costs the batch and nothing else.
        let _survived = survives(|| job.run());
        drop(permit);
        self.take_shard(shard, workers)
    }

    fn take_shard(&self, shard: usize, workers: &Workers) -> Option<Leading<'_>> {
        let leading = self.shards[shard].try_lead()?;
        workers.watch().end(shard);
        Some(leading)
    }

    /// Stands by until there is a shard to lead. Returns that shard, or `None` if the crew was closed.
    fn stand_by(&self, me: usize, workers: &Workers) -> Option<(usize, Leading<'_>)> {
        while !workers.is_closed() {
            if workers.has_job() {
                workers.run_jobs();
            } else if !workers.watch().take() {
                workers.stand_by(me);
            } else if let Some(shard) = self.watch(me, workers) {
                return Some(shard);
            }
        }
        None
    }

    /// Watches until a shard's leader is stuck, and takes that shard over. Returns the shard, or `None` if the watcher
    /// has something else to do or nothing is left to watch.
    fn watch(&self, me: usize, workers: &Workers) -> Option<(usize, Leading<'_>)> {
        let (watch, mut checks) = (workers.watch(), workers.checks());
        let taken_over = loop {
            let stuck = core::iter::from_fn(|| checks.next_stuck(watch));
            let free = stuck.filter_map(|shard| Some((shard, self.take_shard(shard, workers)?)));
            if let Some((shard, mut leading)) = { free }.next() {
                leading.trust.lose();
                self.shards[shard].counters.takeovers.add(1);
                break Some((shard, leading));
            }
            if workers.has_job() || workers.is_closed() {
                break None;
            }
            let rest = checks.rest();
            if !rest.is_zero() {
                workers.stand_watch(me, rest);
            } else if checks.check(watch) == Check::Quiet && watch.leave() {
                return None;
            }
        };
        // The next watcher finds what this one saw.
        drop(checks);
        workers.pass_on_the_watch();
        taken_over
    }

    /// Ends the threads.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            shard.parker.close();
        }
        if let Some(workers) = self.own_workers() {
            workers.close();
        }
    }

    /// Waits until the threads have ended, if the crew was closed. Does not wait where a thread of the crew may wait
    /// for the caller: on one of these threads, and inside a handler.
    pub(crate) fn await_end(&self) {
        let is_closed = self.shards.iter().all(|shard| shard.parker.is_closed());
        let may_wait = self.has_threads()
            && !self.is_own_thread()
            && first_firing(|firing| firing.crew == self.id).is_none()
            && !self.settings.dispatcher.is_worker_here();
        if is_closed && may_wait {
            // The lock is held until the threads have ended: a second caller waits, too.
            for thread in self.lock_threads().drain(..) {
                // The panic of a user's clock was reported when it was raised.
                let _panic = thread.join();
            }
        }
    }

    fn lock_threads(&self) -> crate::base::sync::MutexGuard<'_, Vec<thread::JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the parkers, in the child of a fork. Uses atomics only, since locks may be held by threads that do not
    /// exist in the child.
    fn enter_child(&self) {
        for shard in &self.shards {
            shard.parker.close_in_child();
        }
        if let Some(workers) = self.own_workers() {
            workers.close_in_child();
        }
    }
}

impl core::fmt::Debug for Crew {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Crew")
            .field("id", &self.id)
            .field("shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}

/// The owner of a crew's threads: they end when it is dropped.
#[derive(Debug)]
pub(crate) struct Owner {
    crew: StdArc<Crew>,
}

impl Owner {
    /// Starts a thread for each shard and each worker, unless the crew is driven.
    pub(crate) fn start(settings: CrewSettings) -> io::Result<StdArc<Self>> {
        let owner = Self { crew: Crew::new(settings) };
        match owner.crew.settings.leaders {
            Leaders::Threads => owner.start_threads()?,
            Leaders::Loops => owner.expect_loops(),
            Leaders::Driver => {}
        }
        Ok(StdArc::new(owner))
    }

    /// Prepares the process for threads that turn the shards.
    fn prepare(&self) {
        let crew = StdArc::downgrade(&self.crew);
        let action = move || drop(crew.upgrade().inspect(|crew| crew.enter_child()));
        self.crew.forks.get_or_init(|| forks::watch(Box::new(action)));
        if barrier::wants_registration() {
            // Without the registration the light sides go on fencing, which is slower and as correct.
            let _no_signals = Blocked::new();
            let _refused = thread::Builder::new().name("tb-barrier".to_owned()).spawn(barrier::register);
        }
    }

    /// Prepares the shards for loops, which are late if they do not turn.
    fn expect_loops(&self) {
        self.prepare();
        let now = self.crew.settings.clock.true_now();
        for mut leading in self.crew.shards.iter().filter_map(Shard::lead) {
            leading.stalls.expect_turn(now);
        }
        self.be_woken_by_steps();
    }

    /// From now on a clock that moves in steps wakes the shards after each step.
    fn be_woken_by_steps(&self) {
        let crew = StdArc::downgrade(&self.crew);
        self.crew.settings.clock.as_dyn().subscribe(Box::new(move || {
            let wake_all =
                |crew: &StdArc<Crew>| crew.shards.iter().for_each(|shard| shard.parker.wake_if_asleep());
            crew.upgrade().inspect(wake_all).is_some()
        }));
    }

    fn start_threads(&self) -> io::Result<()> {
        // The first reading of a process sets its origin of time: here, and not on several threads at once.
        let _origin = self.crew.settings.clock.true_now();
        self.prepare();
        let _no_signals = Blocked::new();
        for me in 0..self.crew.threads() {
            let name = match me.checked_sub(self.crew.shards.len()) {
                None => format!("tb-shard-{me}"),
                Some(worker) => format!("tb-worker-{worker}"),
            };
            let crew = StdArc::clone(&self.crew);
            let thread = thread::Builder::new().name(name).spawn(move || crew.serve(me))?;
            self.crew.lock_threads().push(thread);
        }
        self.be_woken_by_steps();
        Ok(())
    }

    pub(crate) fn crew(&self) -> &StdArc<Crew> {
        &self.crew
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.crew.is_forked() {
            return;
        }
        self.crew.close();
        if self.crew.settings.leaders != Leaders::Threads {
            // All engines have ended, and no thread turns the shards any more: the last stations go.
            self.crew.dismiss(Shard::lead);
        }
        self.crew.await_end();
    }
}
