//! Tests the program as a user starts it. The service runs in the process of the test.

mod backup;
mod commands;
mod forgetful;
mod rig;
mod settings;
#[cfg(target_os = "linux")]
mod terminal;
mod trouble;
mod whole;
