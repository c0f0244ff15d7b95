//! Sets of shards that several engines share: the process's own set, and other sets.

#[cfg(feature = "async")]
use crate::base::sync::OnceLock;
use crate::base::sync::StdArc;
use crate::shard::{Owner, next_id};
#[cfg(feature = "async")]
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

/// A handle to a set of shards and workers, for any number of engines. Clones are handles to the same set.
///
/// Each engine on the set has a wheel and an inbox of its own at each shard, and the set's threads serve all engines.
/// So engines share threads and wake-ups, and one engine's timers do not slow another engine's calls.
///
/// A thread's call on another engine than before costs some nanoseconds more. If the process has more than 32 engines,
/// it costs some tens of nanoseconds more. An engine that has something to do costs its shard some hundred nanoseconds
/// at each wake-up. An engine that has nothing to do for a while costs nothing, except where loops turn the shards.
///
/// Most programs need not name a set: [`Engine::new`] and the functions of the module `future` use the process's own
/// set. That set starts at the first use, with the defaults of [`Builder`]. [`Builder::set_global`] starts the
/// process's set with other options. [`Builder::start_shards`] starts another set. [`Builder::start`] starts an engine
/// with a set of its own.
///
/// [`Engine::new`]: crate::Engine::new
/// [`Builder`]: crate::Builder
/// [`Builder::set_global`]: crate::Builder::set_global
/// [`Builder::start_shards`]: crate::Builder::start_shards
/// [`Builder::start`]: crate::Builder::start
///
/// The threads end when the last handle to the set has been dropped and the last engine on it has been shut down.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon::{Builder, Fired};
///
/// let shards = Builder::new().shards(2).workers(2).start_shards()?;
/// let (fired, log) = mpsc::channel();
/// let connections = shards.engine().capacity(1 << 20).start(|_: Fired<'_, u64>| {})?;
/// let requests = shards.engine().start(move |timer: Fired<'_, &str>| fired.send(timer.payload).unwrap())?;
/// connections.handle().schedule(Duration::from_secs(60), 17)?;
/// requests.handle().schedule(Duration::from_millis(1), "request timed out")?;
/// assert_eq!(log.recv()?, "request timed out");
/// // The other engine goes on.
/// drop(requests);
/// assert_eq!(connections.handle().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Shards {
    set: StdArc<Set>,
}

struct Set {
    /// The engine for futures on these shards. The engine is dropped before the field `owner`, and so shut down before
    /// the threads end.
    #[cfg(feature = "async")]
    layer: OnceLock<Box<Layer>>,
    owner: StdArc<Owner>,
}

/// The type of the engine for futures that a set of shards stores.
#[cfg(feature = "async")]
pub(crate) type Layer = dyn Any + Send + Sync;

thread_local! {
    /// Whether the calling thread has entered any shards, so that `ENTERED` has entries. Reading this flag is a plain
    /// load.
    static HAS_ENTERED: Cell<bool> = const { Cell::new(false) };
    /// The shards that the calling thread has entered, each with the number of its scope. The outermost scope is first.
    static ENTERED: RefCell<Vec<(u64, Shards)>> = const { RefCell::new(Vec::new()) };
}

impl Shards {
    pub(crate) fn new(owner: StdArc<Owner>) -> Self {
        Self {
            set: StdArc::new(Set {
                #[cfg(feature = "async")]
                layer: OnceLock::new(),
                owner,
            }),
        }
    }

    /// Makes these shards the calling thread's [current](Self::current) shards, until the returned guard is dropped.
    /// Has no effect on a thread that is ending and has destroyed its thread-locals.
    pub fn enter(&self) -> Entered {
        let scope = next_id();
        let begun = ENTERED.try_with(|entered| entered.borrow_mut().push((scope, self.clone())));
        HAS_ENTERED.set(begun.is_ok());
        Entered { scope, is_of_its_thread: PhantomData }
    }

    /// Returns the number of shards.
    #[must_use]
    pub fn count(&self) -> usize {
        self.set.owner.set().shards().len()
    }

    /// Returns the length of a tick. Deadlines are rounded up to a whole tick.
    #[must_use]
    pub fn tick(&self) -> Duration {
        self.set.owner.set().settings().tick.as_duration()
    }

    /// Returns the engine for futures on these shards. The first call makes that engine by `init`.
    #[cfg(feature = "async")]
    pub(crate) fn layer(&self, init: impl FnOnce() -> Box<Layer>) -> &Layer {
        &**self.set.layer.get_or_init(init)
    }

    pub(crate) fn owner(&self) -> &StdArc<Owner> {
        &self.set.owner
    }
}

/// Returns the shards that the calling thread entered last. Returns `None` if it has entered no shards.
#[inline]
pub(crate) fn entered() -> Option<Shards> {
    if HAS_ENTERED.get() { innermost() } else { None }
}

/// Returns the shards that the calling thread entered last. Returns `None` if it has left all scopes, or if its
/// thread-locals were destroyed.
fn innermost() -> Option<Shards> {
    let last = |entered: &RefCell<Vec<(u64, Shards)>>| Some(entered.borrow().last()?.1.clone());
    ENTERED.try_with(last).ok().flatten()
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards")
            .field("count", &self.count())
            .field("tick", &self.tick())
            .finish_non_exhaustive()
    }
}

/// A scope in which the calling thread's new engines run on given shards: see [`Shards::enter`]. If scopes overlap, the
/// scope that began last counts. Scopes may end in any order.
#[derive(Debug)]
#[must_use = "the scope ends when this is dropped"]
pub struct Entered {
    /// The number of the scope. A thread tells its overlapping scopes apart by their numbers.
    scope: u64,
    /// A marker that keeps the guard on its thread. On another thread, the guard's drop would not find the scope.
    is_of_its_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let left = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            let at = entered.iter().rposition(|&(scope, _)| scope == self.scope)?;
            let left = entered.remove(at);
            HAS_ENTERED.set(!entered.is_empty());
            Some(left)
        });
        // The shards are dropped outside of the borrow, since dropping the last handle to a set ends the set's threads.
        drop(left);
    }
}
