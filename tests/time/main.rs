//! The time module of this crate beside tokio's: the same cases, mounted twice.
//!
//! `cases.rs` and its folder have the cases. A case does not know which module it tests. The constants of each
//! mount name the answers that may differ; `cases/differences.rs` alone reads them.
#![cfg(feature = "test-util")]
#![allow(clippy::duplicate_mod, reason = "the same cases run on two modules")]

#[path = "../support/mod.rs"]
mod support;

#[path = "."]
mod on_tokio {
    use tokio::time;

    /// Whether a call that makes a timer panics on a thread outside of a runtime.
    const NEEDS_A_RUNTIME: bool = true;
    /// Whether a sleep and a timeout must be pinned.
    const MUST_BE_PINNED: bool = true;
    /// Whether a call that makes a timer panics in a current-thread runtime that was built without a timer.
    const NEEDS_A_TIMER: bool = true;
    /// Whether a sleep waits while nobody runs the current-thread runtime in which it was made.
    const WAITS_FOR_ITS_RUNTIME: bool = true;

    /// Whether a future belongs to the runtime in which it was made, even before the future's first poll.
    const IS_BOUND_WHEN_MADE: bool = true;
    /// The text of the panic of a sleep whose runtime has ended.
    const ENDED: &str = "A Tokio 1.x context was found, but it is being shutdown.";

    #[path = "cases.rs"]
    mod cases;
}

#[path = "."]
mod on_tourbillon {
    use tourbillon::time;

    const NEEDS_A_RUNTIME: bool = false;
    const MUST_BE_PINNED: bool = false;
    const NEEDS_A_TIMER: bool = false;
    const WAITS_FOR_ITS_RUNTIME: bool = false;

    const IS_BOUND_WHEN_MADE: bool = false;
    const ENDED: &str = "the engine of this sleep was shut down";

    #[path = "cases.rs"]
    mod cases;
}
