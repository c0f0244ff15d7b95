//! Tells whether plans, the next instants of schedules, are computed by the store's present clock.
//!
//! | plans | begins with | ends with |
//! |---|---|---|
//! | `Followed` | the start | a step back: `Stale`, and a worker is asked for |
//! | `Stale` | a step back, an error of the store | the worker begins: `Computing`; the runtime stops: `Followed` |
//! | `Computing` | the worker begins | the worker ends, or is dropped: `Followed`; a step back: `Stale` |

/// Tells whether plans are computed by the store's present clock. The table above explains the states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Plans {
    #[default]
    Followed,
    Stale,
    Computing,
}

impl Plans {
    /// Returns whether a worker computes plans, or is about to.
    pub(crate) fn is_following(self) -> bool {
        self != Self::Followed
    }
}
