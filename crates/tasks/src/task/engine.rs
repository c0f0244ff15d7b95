//! Engines that run tasks: with threads, or driven by explicit calls.

use super::core::TaskCore;
use super::job::{Job, do_job};
use super::tasks::Tasks;
use super::wall::Wall;
use core::fmt;
use core::time::Duration;
use std::time::SystemTime;
use tourbillon::extend::Base;
use tourbillon::{BuildError, Builder, DrivenEngine, Engine, ManualClock, Shards, Timestamp};

/// A running engine for tasks. The engine owns its tasks.
///
/// A program uses the engine through its [`handle`](Self::handle). Dropping the engine shuts it down: no closure begins
/// any more, and closures that have not run are dropped.
#[must_use = "dropping an engine shuts it down"]
pub struct TaskEngine {
    engine: Engine<Job>,
    tasks: Tasks,
}

impl TaskEngine {
    /// Makes an engine on the [current](Shards::current) shards. The engine shares the threads of these shards with
    /// other engines and with futures. The current shards are the process's own shards, unless the calling thread has
    /// entered other shards.
    ///
    /// # Errors
    ///
    /// Fails as [`Engine::new`] does.
    pub fn new() -> Result<Self, BuildError> {
        Self::start(Shards::current()?.engine())
    }

    /// Starts an engine with the builder's settings. The engine has threads of its own, or runs on the shards that were
    /// passed to [`Builder::on`]. Closures run on the workers. With [`inline`](Builder::inline) they run on the shards'
    /// threads, where they should do no more than wake or enqueue.
    ///
    /// # Errors
    ///
    /// See [`Builder::start`].
    pub fn start(builder: Builder) -> Result<Self, BuildError> {
        let (engine, base) = Base::start(builder, do_job)?;
        Ok(Self { engine, tasks: Tasks::new(TaskCore::new(base, Wall::System)) })
    }

    /// Returns the engine's handle, which other threads may clone. The handle does not keep the engine alive: once the
    /// engine is dropped, its handles refuse tasks.
    #[inline]
    #[must_use]
    pub fn handle(&self) -> &Tasks {
        &self.tasks
    }
}

/// A task engine that has no threads. Its time moves only by explicit calls: see [`DrivenEngine`].
#[must_use = "dropping an engine shuts it down"]
pub struct DrivenTasks {
    engine: DrivenEngine<Job>,
    tasks: Tasks,
}

impl DrivenTasks {
    /// Makes an engine without threads, with the default settings of [`Builder`]. The engine's manual clock starts at
    /// the wall-clock time 1970-01-01.
    ///
    /// # Errors
    ///
    /// See [`start`](Self::start).
    pub fn new() -> Result<Self, BuildError> {
        Self::start(Builder::new())
    }

    /// Works as [`new`](Self::new), with the builder's settings: see [`Builder::driven`].
    ///
    /// # Errors
    ///
    /// See [`Builder::driven`].
    pub fn start(builder: Builder) -> Result<Self, BuildError> {
        Self::start_at(builder, SystemTime::UNIX_EPOCH)
    }

    /// Works as [`start`](Self::start), but the engine's manual clock starts at the wall-clock time `time`.
    ///
    /// # Errors
    ///
    /// See [`Builder::driven`].
    pub fn start_at(builder: Builder, time: SystemTime) -> Result<Self, BuildError> {
        let (engine, base) = Base::driven(builder, do_job)?;
        Ok(Self { engine, tasks: Tasks::new(TaskCore::new(base, Wall::Since(time))) })
    }

    /// Returns the engine's handle, which does not keep the engine alive: see [`TaskEngine::handle`].
    #[inline]
    #[must_use]
    pub fn handle(&self) -> &Tasks {
        &self.tasks
    }

    /// Moves time forward by `by`, and runs the closures that come due: see [`DrivenEngine::advance`].
    pub fn advance(&mut self, by: Duration) {
        self.engine.advance(by);
    }

    /// Moves time forward to `target`, and runs the closures that come due: see [`DrivenEngine::advance_to`].
    pub fn advance_to(&mut self, target: Timestamp) {
        self.engine.advance_to(target);
    }

    /// Runs the closures that are due now, without moving the time: see [`DrivenEngine::turn`].
    pub fn turn(&mut self) {
        self.engine.turn();
    }

    /// Returns the moment at which the next timer is due: see [`DrivenEngine::next_expiry`].
    pub fn next_expiry(&mut self) -> Option<Timestamp> {
        self.engine.next_expiry()
    }

    /// Returns the clock that drives the engine.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        self.engine.clock()
    }
}

impl fmt::Debug for TaskEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskEngine").field("engine", &self.engine).finish()
    }
}

impl fmt::Debug for DrivenTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrivenTasks").field("engine", &self.engine).finish()
    }
}
