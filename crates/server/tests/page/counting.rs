//! Provides a store in memory that counts the calls to it.

use std::sync::atomic::{AtomicU64, Ordering};
use tourbillon_durable::store::{Call, Hook, Hooked, StoreFuture};

/// A store in memory that counts the service's calls to it.
pub(crate) type Counting = Hooked<Counts>;

/// The numbers of calls to a store, by their kind.
#[derive(Default)]
pub(crate) struct Counts {
    /// The number of calls that read a list of timers.
    lists: AtomicU64,
    /// The number of timers for which the list calls asked.
    listed: AtomicU64,
    /// The number of calls that read the whole store.
    whole: AtomicU64,
    /// The number of calls that read a single timer.
    gets: AtomicU64,
}

impl Counts {
    /// Returns the counts of the calls to the store, and sets them to zero. The order is: lists of timers, timers for
    /// which the lists asked, reads of the whole store, reads of single timers.
    pub(crate) fn work(&self) -> [u64; 4] {
        [&self.lists, &self.listed, &self.whole, &self.gets].map(|count| count.swap(0, Ordering::SeqCst))
    }
}

impl Hook for Counts {
    type Seen = ();

    fn see(&self, call: Call<'_>) {
        let count = match call {
            Call::List(limit) => {
                self.listed.fetch_add(limit.into(), Ordering::SeqCst);
                &self.lists
            }
            Call::Check | Call::Export => &self.whole,
            Call::Get => &self.gets,
            _ => return,
        };
        count.fetch_add(1, Ordering::SeqCst);
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        (): (),
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        pass_on()
    }
}
