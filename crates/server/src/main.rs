//! Starts `tourbillond`: durable timers as a service.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tourbillon_server::main()
}
