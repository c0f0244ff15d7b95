//! The program itself, as a user starts it, with a service in this process.

mod commands;
mod rig;
mod settings;
mod trouble;
