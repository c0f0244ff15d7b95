//! Keeps pools of permits that namespaces share, and limits the permits that each namespace takes.

use crate::delivery::reason::Reason;
use crate::share::free_for;
use core::time::Duration;
use std::collections::VecDeque;

/// The time within which a quick host answers.
pub(super) const QUICK: Duration = Duration::from_secs(2);
/// The time within which an answer adds a permit.
pub(super) const PROMPT: Duration = Duration::from_millis(100);

/// How long a host took to answer: at most [`PROMPT`], at most [`QUICK`], or longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Took {
    Prompt,
    Quick,
    Slow,
}

/// Names a set of permits that namespaces share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum PoolName {
    /// All permits of the service.
    All,
    /// The permits for hosts that are slow or not known.
    Slow,
    /// The permits for this host.
    Host(Box<str>),
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    /// The greatest number of permits in the pool. In the pool of a host, the greatest number of one namespace.
    pub(super) limit: usize,
    pub(super) running: usize,
    /// Whether the host answered its last delivery quickly, whichever namespace the delivery came from.
    pub(super) is_quick: bool,
    /// The number of permits that were added for the prompt answers of a host.
    pub(super) grown: usize,
    /// The limiters of namespaces that had no free permit when they were last tried, each of them once.
    pub(super) starved: VecDeque<Reason>,
}

impl PoolName {
    /// Returns the pool from which a limiter takes its permits. `None` if the limiter shares its permits with no other
    /// namespace.
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
    /// Returns how many more permits a namespace that has `has` permits may take.
    pub(super) fn free_for(&self, name: &PoolName, has: usize) -> usize {
        let all = match name {
            PoolName::All | PoolName::Slow => self.limit,
            // The pool is a third larger than the limit of one namespace, since one namespace gets three quarters of
            // it.
            PoolName::Host(_) => (self.limit + self.grown).saturating_mul(4).div_ceil(3),
        };
        free_for(has, all.saturating_sub(self.running))
    }

    /// Adds or removes permits of a host by its last answer. `was_full` says whether the namespace used all its permits
    /// at the host.
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
