//! Records which cache lines move between cores in this simulation. Its atomics and cells record their accesses.
//!
//! A core keeps a line that it has read until another core writes to the line. It keeps a line that it has written
//! until another core reads or writes. An access to a line that another core has taken is a *transfer*. So is a write
//! to a line of which other cores have copies. This is the MESI protocol, with caches of any size, and all cores see
//! all accesses in one order. The simulation does not see accesses that do not go through these types: reference
//! counts, locks, allocators, and the memory of one thread.

use core::cell::Cell;
use core::mem;
use core::panic::Location;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// The length of a cache line, in bytes.
const LINE: usize = 64;

/// The largest number of cores in the simulation: enough for 64 producers and 64 shards.
pub(crate) const MOST_CORES: u32 = u128::BITS;

/// The number of transfers of cache lines from core to core. The key is the file and line of the source that made the
/// access.
pub(crate) type Transfers = BTreeMap<(&'static str, u32), u64>;

thread_local! {
    /// The simulated core on which the thread runs. `None` for a thread whose accesses are not recorded.
    static CORE: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The cores that have each cache line, and the transfers of cache lines so far. `None` before the first access.
static RECORD: Mutex<Option<(HashMap<usize, u128>, Transfers)>> = Mutex::new(None);

/// The number of atomic read-modify-writes on all cores after the last call of [`take_updates`].
static UPDATES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// An atomic read-modify-write. On x86 this is a locked instruction.
    Update,
}

/// Runs the calling thread on the simulated core `core`.
pub(crate) fn run_on(core: u32) {
    assert!(core < MOST_CORES, "{core} is no core of the simulation");
    CORE.set(Some(core));
}

/// Returns the transfers of cache lines after the last call of this function.
pub(crate) fn take_transfers() -> Transfers {
    let mut record = RECORD.lock().unwrap_or_else(PoisonError::into_inner);
    record.as_mut().map(|(_, transfers)| mem::take(transfers)).unwrap_or_default()
}

/// Forgets all transfers, and the cores that have each cache line. The next test may use memory that this test has
/// freed.
pub(crate) fn forget() {
    *RECORD.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Returns the number of atomic read-modify-writes after the last call of this function.
pub(crate) fn take_updates() -> u64 {
    UPDATES.swap(0, Ordering::Relaxed)
}

/// Records an access to the `size` bytes at `address` by the calling thread's core.
#[track_caller]
pub(crate) fn record(address: usize, size: usize, access: Access) {
    let Some(core) = CORE.try_with(Cell::get).ok().flatten() else { return };
    if access == Access::Update {
        UPDATES.fetch_add(1, Ordering::Relaxed);
    }
    let mut record = RECORD.lock().unwrap_or_else(PoisonError::into_inner);
    let (lines, transfers) = record.get_or_insert_default();
    for line in address / LINE..=(address + size.max(1) - 1) / LINE {
        let holders = lines.entry(line).or_default();
        let this = 1 << core;
        let is_at_hand = match access {
            Access::Read => *holders & this != 0,
            Access::Write | Access::Update => *holders == this,
        };
        // The first access to a line finds it in memory, which is not a transfer.
        if !is_at_hand && *holders != 0 {
            let at = Location::caller();
            *transfers.entry((at.file(), at.line())).or_default() += 1;
        }
        *holders = if access == Access::Read { *holders | this } else { this };
    }
}

/// Defines an atomic of the standard library that records each access.
macro_rules! recorded {
    ($($name:ident $(<$parameter:ident>)? => $value:ty;)*) => {$(
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub(crate) struct $name$(<$parameter>)?(std::sync::atomic::$name$(<$parameter>)?);

        #[allow(dead_code, reason = "not every type is used in all ways")]
        impl$(<$parameter>)? $name$(<$parameter>)? {
            pub(crate) const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }

            #[track_caller]
            fn note(&self, access: Access) {
                record(core::ptr::from_ref(self).addr(), size_of::<Self>(), access);
            }

            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.note(Access::Read);
                self.0.load(order)
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.note(Access::Write);
                self.0.store(value, order);
            }

            #[track_caller]
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                self.note(Access::Update);
                self.0.swap(value, order)
            }

            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.note(Access::Update);
                self.0.compare_exchange(old, new, success, failure)
            }

            #[track_caller]
            pub(crate) fn compare_exchange_weak(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(old, new, success, failure)
            }

            #[track_caller]
            pub(crate) fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                self.note(Access::Update);
                self.0.fetch_update(success, failure, change)
            }

            pub(crate) fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
        }
    )*};
}

/// Defines the atomic read-modify-writes of number types, such as `fetch_add`.
macro_rules! counted {
    ($($name:ident => $value:ty: $($change:ident)*;)*) => {$(
        #[allow(dead_code, reason = "not every type is used in all ways")]
        impl $name {$(
            #[track_caller]
            pub(crate) fn $change(&self, by: $value, order: Ordering) -> $value {
                self.note(Access::Update);
                self.0.$change(by, order)
            }
        )*}
    )*};
}

recorded! {
    AtomicBool => bool;
    AtomicU32 => u32;
    AtomicU64 => u64;
    AtomicPtr<T> => *mut T;
}

counted! {
    AtomicU32 => u32: fetch_add fetch_sub fetch_and fetch_or fetch_max;
    AtomicU64 => u64: fetch_add fetch_sub fetch_and fetch_or fetch_max;
}

/// A cell that records accesses. A closure's access counts as one access to the whole cell.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[track_caller]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        record(self.0.get().addr(), size_of::<T>(), Access::Read);
        f(self.0.get())
    }

    #[track_caller]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        record(self.0.get().addr(), size_of::<T>(), Access::Write);
        f(self.0.get())
    }
}
