//! Creates engines, advances them, shuts them down, and frees them.

use crate::annotate;
use crate::delivery::{Delivery, id_of, returned};
use crate::direct::Direct;
use crate::event::{Target, is_in_callback, tb_callback, tb_event};
use crate::events::Events;
use crate::handles::{self, Handle};
use crate::keys::{Keys, Unkeyed};
use crate::options::{tb_delivery, tb_options};
use crate::origin::Origin;
use crate::status::{Failure, guard, tb_status};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use tourbillon::{DrivenShards, Shards, Unfired};
use tourbillon_tasks::{TaskEngine, Tasks};

/// An engine: its wheels, its threads, and everything scheduled on them.
#[derive(Debug)]
pub struct tb_engine {
    tasks: TaskEngine,
    /// A second engine on the same shards, for one-shots by id and for timers: see [`Direct`]. `None` if the engine's
    /// own threads call the callbacks. Then one-shots and timers are on the engine `tasks`, too, and each of them has a
    /// closure.
    direct: Option<Direct>,
    keys: Keys,
    delivery: Delivery,
    origin: Origin,
    turner: Turner,
    /// A lock that a shutdown holds, so that a second shutdown waits for the first.
    shutdown: Mutex<()>,
}

/// The one-shots that had not fired when the engine was shut down.
struct Returned {
    by_id: Vec<tb_event>,
    by_key: Vec<Unkeyed>,
}

impl Returned {
    fn len(&self) -> usize {
        self.by_id.len() + self.by_key.len()
    }

    /// Returns the events of all returned one-shots. The key of an event lives as long as `self`.
    fn events(&self) -> impl Iterator<Item = &tb_event> {
        self.by_id.iter().chain(self.by_key.iter().map(|(event, _)| event))
    }
}

/// Says which code runs the engine's shards. Running a shard means taking in its new timers and firing its due timers.
#[derive(Debug)]
enum Turner {
    /// The engine's own threads run the shards, and end with the shutdown.
    Threads,
    /// Calls of `tb_engine_advance` run the shards.
    Driver(Mutex<DrivenShards>),
    /// Event loops of the C program run the shards, by calls of `tb_loop_turn`. Each loop takes one shard of this set.
    Loops(Shards),
}

impl Turner {
    /// Starts the shards of an engine. If `is_driven` is true, `tb_engine_advance` will run them. If the shards have
    /// threads, these threads run until two things have happened: the caller has dropped the returned shards, and all
    /// engines on these shards have ended.
    fn start(options: &tb_options, is_driven: bool) -> Result<(Self, Shards), Failure> {
        let (builder, loops) = (options.builder()?, options.loops()?);
        if loops != 0 && is_driven {
            return Err(Failure::new(tb_status::TB_INVALID, "a driven engine has no options.loops"));
        }
        if loops != 0 {
            // `tb_loop_create` takes the loops later.
            let (shards, _) = builder.loops(loops)?;
            return Ok((Self::Loops(shards.clone()), shards));
        }
        if is_driven {
            let driver = builder.driven_shards()?;
            let shards = driver.shards().clone();
            return Ok((Self::Driver(Mutex::new(driver)), shards));
        }
        Ok((Self::Threads, builder.start_shards()?))
    }
}

pub(crate) fn no_loops() -> Failure {
    Failure::new(tb_status::TB_WRONG_MODE, "the engine was made without options.loops")
}

impl Handle for tb_engine {
    const NAME: &'static str = "tb_engine";

    fn origin(&self) -> Origin {
        self.origin
    }
}

impl tb_engine {
    fn start(options: &tb_options, is_driven: bool) -> Result<Self, Failure> {
        let delivery = match options.delivery()? {
            tb_delivery::TB_POOL | tb_delivery::TB_INLINE => Delivery::Call,
            tb_delivery::TB_POLLED => {
                let refused = |error| Failure::new(tb_status::TB_SYSTEM, format!("no eventfd: {error}"));
                Delivery::Poll(Arc::new(Events::new().map_err(refused)?))
            }
        };
        let (turner, shards) = Turner::start(options, is_driven)?;
        let builder = || {
            let builder = options.of_an_engine(shards.engine());
            match delivery.events() {
                Some(events) => builder.executor(events.executor()),
                None => builder,
            }
        };
        let tasks = TaskEngine::start(builder())?;
        let calls_on_its_threads = matches!((&turner, &delivery), (Turner::Threads, Delivery::Call));
        let direct = if calls_on_its_threads { None } else { Some(Direct::start(builder(), &delivery)?) };
        let (keys, shutdown) = (Keys::new(&delivery), Mutex::default());
        let has_loops = matches!(turner, Turner::Loops(_));
        let origin = Origin::new(delivery.means(), has_loops);
        Ok(Self { tasks, direct, keys, delivery, origin, turner, shutdown })
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        self.tasks.handle()
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    /// Returns the engine for one-shots by id and for timers: see [`Direct`]. Returns `None` if threads of the engine
    /// call the callbacks. Then one-shots and timers are on the engine of [`tasks`](Self::tasks), too.
    #[inline]
    pub(crate) fn direct(&self) -> Option<&Direct> {
        self.direct.as_ref()
    }

    /// Returns the shards that event loops of the C program run, and the engine on these shards for one-shots by id and
    /// for timers (see [`Direct`]). Fails for an engine that was made without loops.
    pub(crate) fn loops(&self) -> Result<(&Shards, &Direct), Failure> {
        match (&self.turner, &self.direct) {
            (Turner::Loops(shards), Some(direct)) => Ok((shards, direct)),
            _ => Err(no_loops()),
        }
    }

    pub(crate) fn events(&self) -> Result<&Arc<Events>, Failure> {
        let none = || Failure::new(tb_status::TB_WRONG_MODE, "the engine was not made with TB_POLLED");
        self.delivery.events().ok_or_else(none)
    }

    /// Writes events into `room`, beginning with its first element. Returns the number of events.
    pub(crate) fn poll(&self, room: &mut [MaybeUninit<tb_event>]) -> Result<usize, Failure> {
        let (events, mut filled) = (self.events()?, 0);
        loop {
            filled += events.poll(room.get_mut(filled..).unwrap_or_default());
            // A shard holds due timers back while too many jobs wait. A driven engine has no thread that hands these
            // timers over later, so this call does it.
            let Some(mut driver) = self.driver()? else { break };
            driver.turn();
            if filled == room.len() || events.is_empty() {
                break;
            }
        }
        Ok(filled)
    }

    /// Shuts the engine down. Returns the one-shots that have not fired.
    fn shut_down(&self) -> Returned {
        // A second shutdown waits for the first. A shutdown in a callback does not wait, since the first may wait for
        // this callback.
        let _turn = (!is_in_callback()).then(|| self.shutdown.lock().unwrap_or_else(PoisonError::into_inner));
        // Waits until no `tb_engine_advance` is under way, since the shards may hand over further jobs during that
        // call.
        let _driver = if self.delivery.events().is_some() { self.driver().ok().flatten() } else { None };
        let event = |Unfired { id, deadline, payload }| {
            Some(returned(payload)?.event(id_of(id), deadline, Duration::ZERO, 1))
        };
        let direct = |Unfired { id, deadline, payload }: Unfired<Target>| {
            payload.event(id_of(id), deadline, Duration::ZERO, 1)
        };
        let mut by_id: Vec<tb_event> = self.tasks().shutdown().into_iter().filter_map(event).collect();
        by_id.extend(self.direct().into_iter().flat_map(Direct::shut_down).map(direct));
        if let Some(events) = self.delivery.events() {
            events.close();
        }
        // The engine refuses new timers by now. So a call that schedules by key either came before, or is refused. The
        // closures that were called above have given the one-shots by key back to `keys`.
        Returned { by_id, by_key: self.keys.take_unfired() }
    }

    /// Locks the driver of a driven engine. Returns `None` for any other engine. The driver may be locked already, for
    /// example while `tb_engine_advance` runs. Then this function waits for the lock if the engine's events are polled.
    /// It fails if the engine has callbacks: they run inside `tb_engine_advance`, and a callback that waits here would
    /// wait for itself.
    fn driver(&self) -> Result<Option<MutexGuard<'_, DrivenShards>>, Failure> {
        let Turner::Driver(driver) = &self.turner else { return Ok(None) };
        if self.delivery.events().is_some() {
            return Ok(Some(driver.lock().unwrap_or_else(PoisonError::into_inner)));
        }
        match driver.try_lock() {
            Ok(driver) => Ok(Some(driver)),
            Err(TryLockError::Poisoned(driver)) => Ok(Some(driver.into_inner())),
            Err(TryLockError::WouldBlock) => {
                Err(Failure::new(tb_status::TB_BUSY, "the engine is being advanced"))
            }
        }
    }
}

impl Drop for tb_engine {
    fn drop(&mut self) {
        drop(self.shut_down());
    }
}

/// # Safety
///
/// The [contract](crate#contract).
unsafe fn create(options: *const tb_options, engine: *mut *mut tb_engine, is_driven: bool) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let place = unsafe { handles::place(engine, "engine") }?;
        // SAFETY: the contract.
        let options = unsafe { tb_options::read(options) }?;
        place.write(handles::give(tb_engine::start(&options, is_driven)?));
        Ok(())
    })
}

/// Creates an engine and starts its threads, which get the calling thread's signal mask. If `options` is NULL, every
/// option has its default.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_engine_create(
    options: *const tb_options,
    engine: *mut *mut tb_engine,
) -> tb_status {
    // SAFETY: the contract.
    unsafe { create(options, engine, false) }
}

/// Creates an engine without threads, for tests (a driven engine). Its clock starts at 0, and moves only while the
/// program calls `tb_engine_advance`. Callbacks run inside `tb_engine_advance`, on the calling thread.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_engine_create_driven(
    options: *const tb_options,
    engine: *mut *mut tb_engine,
) -> tb_status {
    // SAFETY: the contract.
    unsafe { create(options, engine, true) }
}

/// Advances the clock of an engine from `tb_engine_create_driven` by `by_ns`. The clock stops at each tick at which a
/// timer is due, and the timer fires at that tick.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_engine_advance(engine: *const tb_engine, by_ns: u64) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        let not_driven =
            || Failure::new(tb_status::TB_WRONG_MODE, "the engine runs on a clock of the system");
        let mut driver = engine.driver()?.ok_or_else(not_driven)?;
        driver.advance(Duration::from_nanos(by_ns));
        Ok(())
    })
}

/// Reads the engine's clock. The clock of an engine from `tb_engine_create_driven` starts at 0. The clocks of all other
/// engines of the process count from the same origin.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_now(engine: *const tb_engine, now_ns: *mut u64) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        // SAFETY: the contract.
        unsafe { handles::place(now_ns, "now_ns") }?.write(engine.tasks().now().as_nanos());
        Ok(())
    })
}

/// Shuts an engine down: refuses new timers, waits for running callbacks, and returns each one-shot that has not fired,
/// with or without a key. A one-shot whose event has not been polled is also returned.
///
/// For each returned one-shot, the shutdown calls `unfired` on this thread, with the one-shot's `user` and an event
/// that has its callback. `unfired` may be NULL. `count` gets the number of returned one-shots, and may be NULL.
///
/// Afterwards no event waits, and timers and tasks no longer fire. Their handles must still be freed. A second shutdown
/// waits for the first and returns nothing. This does not hold if a callback makes one of the two shutdowns: they may
/// run at the same time, and each of them may return some of the one-shots.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_engine_shutdown(
    engine: *const tb_engine,
    unfired: tb_callback,
    count: *mut u64,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        let returned = engine.shut_down();
        annotate::waited_for_callbacks();
        // SAFETY: the contract.
        unsafe { handles::put_if_wanted(count, returned.len() as u64) };
        for event in returned.events() {
            Target { callback: unfired, user: event.user }.call(event);
        }
        Ok(())
    })
}

/// Shuts an engine down, if it was not shut down before, and frees it. One-shots that had not fired are dropped. The
/// descriptor of `tb_event_fd` is closed once the engine's timers and tasks are freed too. Must not be called while
/// another thread uses the engine, nor in a callback of `tb_engine_advance`. Timers and tasks of the engine may be
/// freed afterwards. In the child of a fork, nothing is freed.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_engine_free(engine: *mut tb_engine) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        match unsafe { handles::lend(engine) } {
            Ok(engine) => drop(engine.driver()?),
            Err(failure) if failure.status == tb_status::TB_FORKED => {}
            Err(failure) => return Err(failure),
        }
        // SAFETY: the contract.
        drop(unsafe { handles::take(engine) }?);
        annotate::waited_for_callbacks();
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_may_be_used_on_any_thread() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<tb_engine>();
        is_shared::<crate::tb_timer>();
        is_shared::<crate::tb_task>();
    }
}
