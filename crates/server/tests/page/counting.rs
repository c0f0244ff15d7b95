//! A store in memory that counts what it is asked for.

use crate::forwarding::{Call, Forwarding, Guard};
use std::sync::atomic::{AtomicU64, Ordering};
use tourbillon_durable::store::Answer;

/// The store.
pub(crate) type Counting = Forwarding<Counts>;

/// What a store was asked for.
#[derive(Default)]
pub(crate) struct Counts {
    /// The calls of `list`, and the timers that they asked for.
    lists: AtomicU64,
    listed: AtomicU64,
    /// The reads of the whole store.
    whole: AtomicU64,
    /// The single timers that were read.
    gets: AtomicU64,
}

impl Counts {
    /// The work since the last call: lists, timers asked for, reads of the whole store, reads of single timers.
    pub(crate) fn work(&self) -> [u64; 4] {
        [&self.lists, &self.listed, &self.whole, &self.gets].map(|count| count.swap(0, Ordering::SeqCst))
    }
}

impl Guard for Counts {
    fn answer<'a, T: Send + 'a>(
        &'a self,
        call: Call,
        weight: u64,
        go: impl FnOnce() -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        let count = match call {
            Call::List => {
                self.listed.fetch_add(weight, Ordering::SeqCst);
                &self.lists
            }
            Call::Whole => &self.whole,
            Call::Get => &self.gets,
            Call::Change | Call::Claim | Call::Count => return go(),
        };
        count.fetch_add(1, Ordering::SeqCst);
        go()
    }
}
