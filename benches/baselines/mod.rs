//! The classic structures with which our structures are compared.
#![allow(dead_code, unused_imports, unused_macros, reason = "each bench takes what it needs")]
#![allow(clippy::cast_possible_truncation, reason = "indices of 32 bits, digits of ticks")]

mod bounded;
mod cascading;
mod delay_queue;
mod fifos;
mod heap;
mod index_heap;
mod keys;
mod linux;
mod lists;
mod locked;
mod queue;
mod rounds;
mod sharded;
mod slots;
mod sorted_list;
mod tree;

pub(crate) use bounded::BoundedWheel;
pub(crate) use cascading::{CascadingWheel, Step as CascadingStep};
pub(crate) use delay_queue::DelayQueueWheel;
pub(crate) use fifos::DurationFifos;
pub(crate) use heap::LazyHeap;
pub(crate) use index_heap::IndexHeap;
pub(crate) use linux::LinuxWheel;
pub(crate) use locked::Locked;
pub(crate) use queue::{Queue, fire_all};
pub(crate) use rounds::RoundsWheel;
pub(crate) use sharded::ShardedWheel;
pub(crate) use sorted_list::SortedList;
pub(crate) use tree::Tree;

/// Makes an array of `$function::<T>`, in which `T` is each single-threaded timer structure. Our structure comes first.
macro_rules! for_each_structure {
    ($function:ident) => {
        [
            $function::<$crate::common::Wheel256>,
            $function::<$crate::common::Wheel64>,
            $function::<$crate::baselines::RoundsWheel>,
            $function::<$crate::baselines::BoundedWheel>,
            $function::<$crate::baselines::CascadingWheel>,
            $function::<$crate::baselines::LinuxWheel>,
            $function::<$crate::baselines::DelayQueueWheel>,
            $function::<$crate::baselines::LazyHeap>,
            $function::<$crate::baselines::IndexHeap<2>>,
            $function::<$crate::baselines::IndexHeap<4>>,
            $function::<$crate::baselines::Tree>,
            $function::<$crate::baselines::SortedList>,
            $function::<$crate::baselines::DurationFifos>,
        ]
    };
}
pub(crate) use for_each_structure;
