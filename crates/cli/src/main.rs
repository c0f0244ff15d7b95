//! `tourbillon`: the command line of `tourbillond`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tourbillon_cli::main()
}
