//! Lets a scheduler outside of the process start the program, or call it, when a timer is due.
//!
//! A runtime keeps its timers in its store. An alarm in the runtime's process rings when the first timer is due. A
//! program that does not run all the time uses an [`ExternalScheduler`] in place of this alarm. Examples are a systemd
//! timer and the scheduler of a cloud. The scheduler knows nothing of the timers' states. It may call too early, too
//! late, or twice: the store decides which timers are due.
//!
//! ```
//! use std::sync::mpsc;
//! use std::time::Duration;
//! use tourbillon_durable::external::{ExternalScheduler, hand_over};
//! use tourbillon_durable::store::MemoryStore;
//! use tourbillon_durable::{Durable, Kind, Spec, UtcMillis};
//!
//! #[derive(Debug, serde::Serialize, serde::Deserialize)]
//! struct Remind(String);
//!
//! impl Kind for Remind {
//!     const NAME: &'static str = "remind";
//! }
//!
//! struct Cloud(mpsc::Sender<Option<UtcMillis>>);
//!
//! impl ExternalScheduler for Cloud {
//!     fn wake_at(&self, due: Option<UtcMillis>) {
//!         self.0.send(due).unwrap();
//!     }
//! }
//!
//! let (sender, asked) = mpsc::channel();
//! let durable = Durable::builder(MemoryStore::default()).handler(async |_: Remind, _| {}).start()?;
//! let timers = durable.handle();
//! let placed = timers.schedule_blocking(Spec::new(Remind("pay".into())).after(Duration::from_secs(3_600)))?;
//! // Before the program ends, it hands its timers over to the scheduler, which starts it again.
//! hand_over(&*timers.timer_store(), &Cloud(sender))?;
//! assert!(asked.recv()?.is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::executor::block_on;
use crate::store::{StoreError, TimerStore};
use tourbillon_words::UtcMillis;

/// A scheduler outside of the process that wakes the program.
pub trait ExternalScheduler {
    /// Asks the scheduler to wake the program at the moment `due`, when the program's first timer is due. To wake the
    /// program, the scheduler starts it, or makes the running program call [`Timers::look`](crate::Timers::look). A new
    /// request replaces the earlier request. `None` means that no timer is pending, and withdraws the earlier request.
    fn wake_at(&self, due: Option<UtcMillis>);
}

/// Asks an external scheduler to wake the program when the store's first timer is due. The calling thread waits for the
/// store.
///
/// # Errors
///
/// Fails if the store fails.
///
/// # Examples
///
/// ```
/// use std::cell::Cell;
/// use tourbillon_durable::UtcMillis;
/// use tourbillon_durable::external::{ExternalScheduler, hand_over};
/// use tourbillon_durable::store::MemoryStore;
///
/// struct Alarm(Cell<Option<UtcMillis>>);
///
/// impl ExternalScheduler for Alarm {
///     fn wake_at(&self, due: Option<UtcMillis>) {
///         self.0.set(due);
///     }
/// }
///
/// let alarm = Alarm(Cell::new(Some(UtcMillis::ZERO)));
/// hand_over(&MemoryStore::default(), &alarm)?;
/// assert_eq!(alarm.0.get(), None, "nothing is pending");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn hand_over(store: &dyn TimerStore, scheduler: &impl ExternalScheduler) -> Result<(), StoreError> {
    let first = block_on(store.upcoming(UtcMillis::ZERO, UtcMillis::MAX, 1))?;
    scheduler.wake_at(first.first().map(|(due, _)| *due));
    Ok(())
}
