//! Models of the protocols by which the nodes of a deployment share their timers: [`redis`] for `tourbillon-redis`,
//! [`postgres`] for `tourbillon-postgres`. A model checker, stateright, visits all states that a bounded number of
//! faults can lead to.
//!
//! Each check that a protocol makes is an enum's variant, a *planted fault*: the same model without that check. The
//! tests prove that the search finds each of these faults, and none without them. A protocol that promises more than it
//! checks is found here without a server.
//!
//! # Properties
//! A property holds in each state, or it speaks of the last state of a run: nothing acknowledged is lost, and no timer
//! is stuck. [`explore::longest_run`] proves that each run has a last state, so both are promises about all runs. They
//! ask for little fairness: as long as some part can do something, some part does something.
//!
//! # Not vacuous
//! Each transition notes the events that it has caused ([`explore::Reached`]), and the tests fail if an event never
//! happens. Some situations, such as two nodes that deliver one timer at once, are properties of the kind "sometimes".

// Floor 0: what both models are made of.
pub mod explore;
pub mod parts;
pub mod timer;
// Floor 1: the models.
pub mod postgres;
pub mod redis;
