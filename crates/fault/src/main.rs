//! Runs timers on Redis and PostgreSQL under faults, and checks the history of each run.
#![forbid(unsafe_code)]

#[cfg(unix)]
mod scenarios;
#[cfg(unix)]
mod table;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    tourbillon_fault::run::be_part();
    scenarios::main()
}

#[cfg(not(unix))]
fn main() {}
