//! Computes how many timers of each namespace a claim may take.
//!
//! A runtime delivers a limited number of timers at the same time. Each delivery under way occupies one *place*. This
//! module divides the places among the namespaces, and also the timers of each claim.
//!
//! The rule is that of *dynamic thresholds* for the shared memory of switches (Choudhury and Hahne, 1998): a namespace
//! may take one more place if the number of its places is less than three times the number of free places. So a single
//! namespace gets at most three quarters of the places. A second namespace gets three quarters of the remaining places,
//! and so on. The rule needs neither a list of the namespaces nor a limit for each namespace.
//!
//! Each namespace that does not free its places reduces the free places to a quarter. Of 1,024 places, five such
//! namespaces leave a single place, and six leave no place. So handlers need a time limit, or the runtime needs more
//! places than all namespaces together can use.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The factor in the rule for shares: a namespace may take one more place if the number of its places is less than this
/// factor times the number of free places. Each delivery under way occupies one place.
pub const SHARE: usize = 3;

/// Returns the number of further places that a namespace may take. The namespace already has `has` places, and `free`
/// places are free. Each delivery under way occupies one place.
#[must_use]
pub fn free_for(has: usize, free: usize) -> usize {
    // Places are taken one by one, and each taken place leaves one free place less. So the `n`-th place is permitted if
    // `has + n - 1 < SHARE * (free - n + 1)`.
    SHARE.saturating_mul(free).saturating_sub(has).div_ceil(SHARE + 1)
}

/// The numbers of free places and of deliveries under way in a runtime. Each delivery under way occupies one place.
/// From these numbers, a claim computes how many timers it may take from each namespace.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Shares {
    /// The number of free places: the number of further deliveries that the runtime may begin now.
    pub free: usize,
    /// The number of deliveries under way in each namespace. A namespace without deliveries has no entry.
    pub under_way: Arc<BTreeMap<Box<str>, usize>>,
    /// The limit for the late timers of each namespace: the timers whose due moments are long past. `None` means no
    /// limit.
    pub late: Option<Late>,
}

/// The limit for the late timers that a claim takes from each namespace. A timer is late if its due moment is more than
/// [`after`](Self::after) ago. After a downtime, millions of timers may be late. The limit spreads their deliveries
/// over time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Late {
    /// The time after the due moment beyond which a timer counts as late.
    pub after: Duration,
    /// The number of late timers that the claim may take from a namespace without an entry in `left`.
    pub each: usize,
    /// The number of late timers that the claim may take from a namespace, by namespace. A namespace whose late timers
    /// were not claimed recently has no entry.
    pub left: Arc<BTreeMap<Box<str>, usize>>,
}

impl Late {
    /// Makes a limit. The arguments are the values of the fields with the same names.
    #[must_use]
    pub fn new(after: Duration, each: usize, left: Arc<BTreeMap<Box<str>, usize>>) -> Self {
        Self { after, each, left }
    }

    /// Returns the number of late timers that the claim may take from a namespace: the namespace's entry in the field
    /// `left`, or `each` if it has no entry.
    #[must_use]
    pub fn left(&self, namespace: &str) -> usize {
        self.left.get(namespace).copied().unwrap_or(self.each)
    }
}

impl Shares {
    /// Makes the value that a runtime passes to a claim. The arguments are the values of the fields with the same
    /// names. The field `late` is `None`: timers whose due moments are long past have no special limit.
    #[must_use]
    pub fn new(free: usize, under_way: Arc<BTreeMap<Box<str>, usize>>) -> Self {
        Self { free, under_way, late: None }
    }

    /// Sets the field `late`, the limit for timers whose due moments are long past. `None` means no limit.
    #[must_use]
    pub fn with_late(mut self, late: Option<Late>) -> Self {
        self.late = late;
        self
    }

    /// Returns how many more timers of a namespace a claim may take before the namespace has its share of the free
    /// places. A free place is room for one delivery to begin now. The claim has already taken `taken` timers of the
    /// namespace, and `all` timers altogether.
    #[must_use]
    pub fn room(&self, namespace: &str, taken: usize, all: usize) -> usize {
        let has = self.under_way.get(namespace).copied().unwrap_or(0).saturating_add(taken);
        free_for(has, self.free.saturating_sub(all))
    }

    /// Returns the number of further timers of a namespace that a claim of at most `limit` timers takes. The claim has
    /// already taken `taken` timers of the namespace, and `all` timers altogether. Two limits apply: the namespace's
    /// share of the [free places](Self::room), and its share of the `limit` timers of this claim, by the same rule
    /// ([`SHARE`]). Without the second limit, a namespace with very short deliveries would fill every claim, because
    /// its places are free again at the next claim.
    #[must_use]
    pub fn left(&self, limit: u32, namespace: &str, taken: usize, all: usize) -> usize {
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        free_for(taken, most.saturating_sub(all)).min(self.room(namespace, taken, all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_free_as_can_be_taken_one_after_the_other() {
        for all in 0..100 {
            for others in 0..=all {
                for has in 0..=all - others {
                    let free = all - others - has;
                    let (mut taken, mut left) = (0, free);
                    while has + taken < SHARE * left {
                        (taken, left) = (taken + 1, left - 1);
                    }
                    assert_eq!(free_for(has, free), taken, "{has} of {all}, {others} are others'");
                }
            }
        }
    }
}
