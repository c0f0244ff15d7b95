//! Keeps pools of permits that namespaces share, and limits the part of a pool that each namespace may take.

use crate::delivery::reason::Reason;
use crate::share::free_for;
use core::time::Duration;
use std::collections::VecDeque;

/// The longest time for a quick answer. After a slower answer, the host counts as slow: each further delivery to it
/// also needs one of the permits for slow and unknown hosts.
pub(super) const QUICK: Duration = Duration::from_secs(2);
/// The longest time for a prompt answer. While a namespace uses all permits that it may have at a host, each prompt
/// answer adds a permit for the host, up to a limit.
pub(super) const PROMPT: Duration = Duration::from_millis(100);

/// How fast a host answered: within [`PROMPT`], within [`QUICK`], or more slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Took {
    Prompt,
    Quick,
    Slow,
}

/// The name of a pool: a set of permits that all namespaces share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum PoolName {
    /// The permits of the whole service.
    All,
    /// The permits for hosts that are slow or unknown.
    Slow,
    /// The permits for this host.
    Host(Box<str>),
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    /// For the pool of a host, the greatest number of permits that a single namespace can have at the same time. The
    /// number of additional permits, which the host has gained by prompt answers, is in `grown`. For other pools, the
    /// number of permits in the pool.
    pub(super) limit: usize,
    pub(super) running: usize,
    /// Whether the host answered its last delivery quickly. Deliveries of all namespaces count.
    pub(super) is_quick: bool,
    /// The number of permits that the host has gained by prompt answers.
    pub(super) grown: usize,
    /// The limiters that found no free permit in this pool. Each limiter is listed once.
    pub(super) starved: VecDeque<Reason>,
}

impl PoolName {
    /// Returns the pool from which the limiter `reason` draws its permits, or `None` if the limiter shares no permits.
    pub(super) fn of(reason: &Reason) -> Option<Self> {
        match reason {
            Reason::Share(_) => Some(Self::All),
            Reason::Slow(_) => Some(Self::Slow),
            Reason::Host(_, host) => Some(Self::Host(host.clone())),
            _ => None,
        }
    }
}

impl Pool {
    /// Returns how many further permits of this pool a namespace may take if it already has `has`, by the rules of
    /// [`share`](crate::share).
    pub(super) fn free_for(&self, name: &PoolName, has: usize) -> usize {
        // More deliveries may run than a pool has permits: a namespace without a permit may always take one, and a slow
        // answer removes permits that are in use.
        match name {
            PoolName::All | PoolName::Slow => free_for(has, self.limit, self.running),
            PoolName::Host(_) => {
                // A single namespace gets three quarters of the pool, so the pool is a third larger than the limit of
                // one namespace.
                let all = (self.limit + self.grown).saturating_mul(4).div_ceil(3);
                // A reserve of a part of such a small pool would be empty after a few namespaces. The permits of the
                // service limit the number of these first permits.
                free_for(has, all, self.running).max(usize::from(has == 0))
            }
        }
    }

    /// Adds a permit for a host after a prompt answer, or removes added permits after a slower answer. `was_full` says
    /// whether the namespace used all its permits at the host. `most` is the greatest number of permits that one
    /// namespace can have, together with the added permits.
    pub(super) fn grow(&mut self, took: Took, was_full: bool, most: usize) {
        self.is_quick = took != Took::Slow;
        self.grown = match took {
            // A program that makes the settings itself may set `most` below `limit`.
            Took::Prompt if was_full => (self.grown + 1).min(most.saturating_sub(self.limit)),
            Took::Prompt => self.grown,
            Took::Quick => self.grown / 2,
            Took::Slow => 0,
        };
    }
}
