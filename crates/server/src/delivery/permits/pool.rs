//! Keeps pools of permits that namespaces share, and limits the part of a pool that a namespace may take.

use crate::delivery::reason::Reason;
use crate::share::free_for;
use core::time::Duration;
use std::collections::VecDeque;

/// The longest time for an answer of a host that counts as quick.
pub(super) const QUICK: Duration = Duration::from_secs(2);
/// The longest time for an answer that counts as prompt. After a prompt answer, the host may get a further permit.
pub(super) const PROMPT: Duration = Duration::from_millis(100);

/// The class of the time that a host took for an answer: at most [`PROMPT`], at most [`QUICK`], or longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Took {
    Prompt,
    Quick,
    Slow,
}

/// The name of a pool, a set of permits that namespaces share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum PoolName {
    /// The permits of the whole service. All namespaces share this set.
    All,
    /// The permits for hosts that are slow or unknown. All namespaces share this set.
    Slow,
    /// The permits for this host. All namespaces share this set.
    Host(Box<str>),
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    /// The number of permits that namespaces share. For the permits of a host, the greatest number for a single
    /// namespace.
    pub(super) limit: usize,
    pub(super) running: usize,
    /// Whether the host answered its last delivery quickly. The delivery may belong to any namespace.
    pub(super) is_quick: bool,
    /// The number of permits that the host has gained by prompt answers.
    pub(super) grown: usize,
    /// The limiters (one limit's permits each) of namespaces that found no free permit in this pool. Each limiter is
    /// listed once.
    pub(super) starved: VecDeque<Reason>,
}

impl PoolName {
    /// Returns the pool that gives the permits of the limiter `reason`. Returns `None` if the limiter shares no permits
    /// with other namespaces.
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
    /// Returns how many further permits of this shared set a namespace may take. `has` is the number of permits that
    /// the namespace has already.
    pub(super) fn free_for(&self, name: &PoolName, has: usize) -> usize {
        let all = match name {
            PoolName::All | PoolName::Slow => self.limit,
            // The pool is a third larger than the limit of one namespace, because a single namespace gets three
            // quarters of the pool.
            PoolName::Host(_) => (self.limit + self.grown).saturating_mul(4).div_ceil(3),
        };
        free_for(has, all.saturating_sub(self.running))
    }

    /// Adds a permit for a host after a prompt answer, or removes permits after a slower answer. `took` is the time of
    /// the answer. `was_full` says whether the namespace used all its permits at the host. `most` is the greatest
    /// number of permits of one namespace.
    pub(super) fn grow(&mut self, took: Took, was_full: bool, most: usize) {
        self.is_quick = took != Took::Slow;
        self.grown = match took {
            Took::Prompt if was_full => (self.grown + 1).min(most.saturating_sub(self.limit)),
            Took::Prompt => self.grown,
            Took::Quick => self.grown / 2,
            Took::Slow => 0,
        };
    }
}
