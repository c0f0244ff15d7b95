//! Shards that several engines share: the process's own, and others.

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

/// A set of shards and workers, for any number of engines. Clones are handles to the same set.
///
/// Each engine on the set has a wheel and an inbox of its own at each shard, and the set's threads turn all of them. So
/// engines share threads and wake-ups, and one engine's timers do not slow another engine's calls. A thread that uses
/// several engines in turn pays some nanoseconds at each change, if the process has no more than 32 engines, and some
/// tens of nanoseconds otherwise. An engine that has something to do costs its shard some hundred nanoseconds at each
/// wake-up; an engine that has nothing to do for a while costs nothing, unless loops turn the shards.
///
/// Most programs need not name a set: [`Engine::new`] and the functions of the module `future` use the process's own
/// set, which starts at the first use, with the defaults of [`Builder`]. [`Builder::set_global`] starts the process's
/// set with other options. [`Builder::start_shards`] starts another set. [`Builder::start`] starts an engine with a set
/// of its own.
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
    /// Dropped before the owner: its engine is shut down before the threads end.
    #[cfg(feature = "async")]
    layer: OnceLock<Box<Layer>>,
    owner: StdArc<Owner>,
}

/// An object of a layer that is built on shards.
#[cfg(feature = "async")]
pub(crate) type Layer = dyn Any + Send + Sync;

thread_local! {
    /// Whether `ENTERED` is not empty: an access to it is a load.
    static HAS_ENTERED: Cell<bool> = const { Cell::new(false) };
    /// The shards that the calling thread has entered, outermost first, with the numbers of the scopes.
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
    /// Has no effect on a thread whose thread-locals were destroyed.
    pub fn enter(&self) -> Entered {
        let scope = next_id();
        let begun = ENTERED.try_with(|entered| entered.borrow_mut().push((scope, self.clone())));
        HAS_ENTERED.set(begun.is_ok());
        Entered { scope, is_of_its_thread: PhantomData }
    }

    /// The number of shards.
    #[must_use]
    pub fn count(&self) -> usize {
        self.set.owner.set().shards().len()
    }

    /// The length of a tick: deadlines are rounded up to a whole tick.
    #[must_use]
    pub fn tick(&self) -> Duration {
        self.set.owner.set().settings().tick.as_duration()
    }

    /// The object of the layer for futures on these shards, made by `init` at the first call.
    #[cfg(feature = "async")]
    pub(crate) fn layer(&self, init: impl FnOnce() -> Box<Layer>) -> &Layer {
        &**self.set.layer.get_or_init(init)
    }

    pub(crate) fn owner(&self) -> &StdArc<Owner> {
        &self.set.owner
    }
}

/// The shards that the calling thread entered last.
#[inline]
pub(crate) fn entered() -> Option<Shards> {
    if HAS_ENTERED.get() { innermost() } else { None }
}

/// The shards of the innermost scope; `None` on a thread whose thread-locals were destroyed.
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

/// A scope in which the calling thread's new engines run on given shards: see [`Shards::enter`]. Where scopes overlap,
/// the scope that began last counts. Scopes may end in any order.
#[derive(Debug)]
#[must_use = "the scope ends when this is dropped"]
pub struct Entered {
    /// The number of the scope.
    scope: u64,
    /// A guard that moved to another thread would end that thread's scope.
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
        // Outside of the borrow: the last handle to a set ends its threads.
        drop(left);
    }
}
