//! The time module of this crate beside tokio's: the same cases, mounted twice.
//!
//! `cases.rs` and its folder have the cases. A case does not know which module it tests. The constants and the function
//! of each mount name the answers that may differ; `cases/differences.rs` alone reads them.
#![cfg(feature = "test-util")]
#![allow(clippy::duplicate_mod, reason = "the same cases run on two modules")]

#[path = "../support/mod.rs"]
mod support;

#[path = "."]
mod on_tokio {
    use tokio::runtime::Runtime;
    use tokio::time;

    /// Whether a call that makes a timer panics on a thread outside of a runtime.
    const NEEDS_A_RUNTIME: bool = true;
    /// Whether a sleep and a timeout must be pinned.
    const MUST_BE_PINNED: bool = true;
    /// Whether a call that makes a timer panics in a current-thread runtime that was built without a timer.
    const NEEDS_A_TIMER: bool = true;
    /// Whether a sleep waits while nobody runs the current-thread runtime in which it was made.
    const WAITS_FOR_ITS_RUNTIME: bool = true;

    /// Whether a sleep made in this runtime panics when it is polled after the runtime's end.
    fn ends_with(_: &Runtime) -> bool {
        true
    }

    #[path = "cases.rs"]
    mod cases;
}

#[path = "."]
mod on_tourbillon {
    use tokio::runtime::Runtime;
    use tourbillon::time;

    const NEEDS_A_RUNTIME: bool = false;
    const MUST_BE_PINNED: bool = false;
    const NEEDS_A_TIMER: bool = false;
    const WAITS_FOR_ITS_RUNTIME: bool = false;

    fn ends_with(_: &Runtime) -> bool {
        false
    }

    #[path = "cases.rs"]
    mod cases;
}
