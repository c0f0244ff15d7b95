//! The program itself, as a user starts it, with a service in this process.

mod backup;
mod commands;
mod forgetful;
mod rig;
mod settings;
#[cfg(target_os = "linux")]
mod terminal;
mod trouble;
mod whole;
