//! Records whether plans are right for the present time of the store's clock. In this module, a plan is the next
//! instant of a schedule.
//!
//! | plans | begins with | ends with |
//! |---|---|---|
//! | `Followed` | a new runtime, or the end of the worker | the start of the loop, or a step back: `Stale`, and a worker starts |
//! | `Stale` | the start of the loop, a step back, or an error of the store | the worker begins: `Computing`; the runtime stops: `Followed` |
//! | `Computing` | the worker begins | the worker ends, or is dropped: `Followed`; a step back: `Stale` |

/// Records whether the next instants of schedules must be recomputed. This is necessary at the start of the delivery
/// loop, and after the store's clock was set back. The table in the documentation of this module explains the states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Plans {
    #[default]
    Followed,
    Stale,
    Computing,
}

impl Plans {
    /// Returns true if the runtime has a worker that recomputes the next instants of schedules. The worker may still
    /// wait for a free thread, or pause after an error of the store.
    pub(crate) fn is_following(self) -> bool {
        self != Self::Followed
    }
}
