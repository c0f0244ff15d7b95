//! The page: over plain HTTP, and in a browser without a window.

mod actions;
mod browser;
mod counting;
mod driver;
#[path = "../common/forwarding.rs"]
mod forwarding;
mod fuzz;
mod lists;
mod looks;
mod pages;
mod rig;
mod schedules;
mod sign;
