//! The permits that namespaces share, and how many each may take.

use crate::delivery::reason::Reason;
use crate::share::free_for;
use core::time::Duration;
use std::collections::VecDeque;

/// The time within which a quick host answers, and the time within which an answer adds a permit.
pub(super) const QUICK: Duration = Duration::from_secs(2);
pub(super) const PROMPT: Duration = Duration::from_millis(100);

/// The time that a host took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Took {
    Prompt,
    Quick,
    Slow,
}

/// Permits that namespaces share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum PoolName {
    /// All permits.
    All,
    /// Those for hosts that are not quick.
    Slow,
    /// Those at a host.
    Host(Box<str>),
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    /// The greatest number of permits; at a host, of one namespace.
    pub(super) limit: usize,
    pub(super) running: usize,
    /// The host has answered its last delivery quickly, of any namespace.
    pub(super) is_quick: bool,
    /// The permits that a host has got for its prompt answers.
    pub(super) grown: usize,
    /// The namespaces' limiters that had no permit when they were last looked at, each of them once.
    pub(super) starved: VecDeque<Reason>,
}

impl PoolName {
    /// The pool of a limiter, if the limiter is a namespace's share of a pool.
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
    /// The number of further permits that a namespace with `has` permits may take.
    pub(super) fn free_for(&self, name: &PoolName, has: usize) -> usize {
        let all = match name {
            PoolName::All | PoolName::Slow => self.limit,
            // A third more: three quarters of it are the permits of one namespace.
            PoolName::Host(_) => (self.limit + self.grown).saturating_mul(4).div_ceil(3),
        };
        free_for(has, all.saturating_sub(self.running))
    }

    /// Notes how a host has answered. `was_full` says whether the namespace had all its permits there.
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
