//! Tests the web pages: over plain HTTP, and in a browser without a window.

mod actions;
mod axe;
mod browser;
mod counting;
mod dead;
mod driver;
mod everywhere;
mod fuzz;
mod hand;
mod lists;
mod looks;
mod names;
mod pages;
mod paper;
mod rig;
mod schedules;
mod sign;
