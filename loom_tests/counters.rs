//! The counts of firings, on a line that sessions hold in turn.
//!
//! Each row was tried: the named ordering was made `Relaxed`, or the step was left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | CN1: `try_hold` | `sessions_count_each_firing_once` |
//! | CN1: the drop of `Tally` | `sessions_count_each_firing_once` |
//! | a session counts on its line although another session holds the line | `sessions_count_each_firing_once` |

use super::model;
use crate::base::counters::{StationCounters, Stripe};
use crate::base::sync::{StdArc, thread};

/// Two sessions of the same line count firings, at the same time or one after the other. No firing is lost.
#[test]
fn sessions_count_each_firing_once() {
    model("sessions_count_each_firing_once", || {
        let counters = StdArc::new(StationCounters::new());
        let elsewhere = StdArc::clone(&counters);
        let other = thread::spawn(move || elsewhere.tally(Stripe::of_this_thread()).count_one_shot());
        counters.tally(Stripe::of_this_thread()).count_one_shot();
        other.join().unwrap();
        assert_eq!(counters.fired(), 2, "a firing was not counted");
    });
}
