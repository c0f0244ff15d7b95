//! Records whether plans are right for the present time of the store's clock. A plan is the next instant of a schedule.
//!
//! | plans | begins with | ends with |
//! |---|---|---|
//! | `Followed` | the start | a step back: `Stale`, and a worker is asked for |
//! | `Stale` | a step back, an error of the store | the worker begins: `Computing`; the runtime stops: `Followed` |
//! | `Computing` | the worker begins | the worker ends, or is dropped: `Followed`; a step back: `Stale` |

/// Records whether the next instants of schedules are right for the present time of the store's clock. The table of
/// this module explains the states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Plans {
    #[default]
    Followed,
    Stale,
    Computing,
}

impl Plans {
    /// Returns true if a worker computes the next instants of schedules, or waits for a thread to do so.
    pub(crate) fn is_following(self) -> bool {
        self != Self::Followed
    }
}
