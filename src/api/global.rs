//! The process's own shards, and the constructors that use them.

use crate::api::builder::Builder;
use crate::api::handle::{Engine, Fired};
use crate::api::shards::{Shards, entered};
use crate::base::error::BuildError;
use crate::base::fork::ForkLock;
use crate::base::sync::OnceLock;

/// The process's own shards. The cell is empty until the process starts them.
static GLOBAL: OnceLock<Shards> = OnceLock::new();
/// A lock that a thread holds while it starts the process's own shards.
static STARTING: OnceLock<ForkLock<()>> = OnceLock::new();

impl Shards {
    /// Returns the *current* shards of the calling thread, on which the thread's new engines run. If the thread has
    /// [entered](Self::enter) shards, the result is the shards that it entered last. Otherwise the result is the
    /// process's own shards. The first call that needs the process's own shards starts them.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses a thread. Fails with [`BuildError::Forked`] in the child of a fork, if a thread was
    /// starting the process's own shards at the fork.
    pub fn current() -> Result<Self, BuildError> {
        match entered() {
            Some(shards) => Ok(shards),
            None => shards().cloned(),
        }
    }
}

impl Builder {
    /// Starts the process's shards with the options of this builder, in place of the defaults. [`Shards::current`]
    /// returns these shards from now on.
    ///
    /// # Errors
    ///
    /// Fails with [`BuildError::TooLate`] if the process's shards were started before. Otherwise fails as
    /// [`start_shards`](Self::start_shards) does.
    pub fn set_global(self) -> Result<(), BuildError> {
        match start_global(|| self.start_shards())? {
            (_, true) => Ok(()),
            (_, false) => Err(BuildError::TooLate),
        }
    }
}

impl<T: Send + 'static> Engine<T> {
    /// Makes an engine on the [current](Shards::current) shards. These are the process's own shards, unless the calling
    /// thread has entered other shards. [`Shards::engine`] and [`Builder`] make engines with other options.
    ///
    /// The handlers of all engines on these shards share the workers. If as many handlers block as there are workers,
    /// the handlers of the other engines wait. A program whose handlers block gives their engine threads of its own
    /// ([`Builder::start`]).
    ///
    /// # Errors
    ///
    /// Fails if the process's shards are not started yet and the system refuses a thread. Fails with
    /// [`BuildError::Forked`] in the child of a fork if the shards were started before the fork. The child can use
    /// [`Builder::start`], which starts an engine with shards of its own.
    pub fn new(handler: impl Fn(Fired<'_, T>) + Send + Sync + 'static) -> Result<Self, BuildError> {
        Shards::current()?.engine().start(handler)
    }
}

#[inline]
pub(crate) fn shards() -> Result<&'static Shards, BuildError> {
    match GLOBAL.get() {
        Some(shards) => Ok(shards),
        None => start_global(|| Builder::new().start_shards()).map(|(shards, _)| shards),
    }
}

/// Returns the process's own shards. Calls `start` if the process's own shards do not run yet. The returned flag says
/// whether this call has started the shards.
#[cold]
fn start_global(
    start: impl FnOnce() -> Result<Shards, BuildError>,
) -> Result<(&'static Shards, bool), BuildError> {
    let starting = STARTING.get_or_init(ForkLock::default);
    let _one_at_a_time = starting.lock().ok_or(BuildError::Forked)?;
    if let Some(shards) = GLOBAL.get() {
        return Ok((shards, false));
    }
    let shards = start()?;
    Ok((GLOBAL.get_or_init(|| shards), true))
}
