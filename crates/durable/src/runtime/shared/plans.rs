//! Records whether plans are right for the present time of the store's clock. In this module, a plan is the next
//! instant of a schedule.
//!
//! | plans | begins with | ends with |
//! |---|---|---|
//! | `Followed` | a new runtime, or the end of the worker | the start of the loop, or a step back: `Stale`, and a worker starts |
//! | `Stale` | the start of the loop, a step back, or an error of the store | the worker begins: `Computing`; the runtime stops: `Followed` |
//! | `Computing` | the worker begins | the worker ends, or is dropped: `Followed`; a step back: `Stale` |

/// Records whether the next instants of schedules must be recomputed, at the start of the loop or after a step back of
/// the store's clock. The table of this module explains the states.
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
