//! Runs `tourbillond` or `tourbillon`, the programs that the guide's commands name. The name under which this program
//! is started decides which. The tests make links with the two names.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let started = std::env::args_os().next().unwrap_or_default();
    match Path::new(&started).file_name().and_then(|name| name.to_str()) {
        Some("tourbillond") => tourbillon_server::main(),
        Some("tourbillon") => tourbillon_cli::main(),
        other => {
            eprintln!("a link to this program is named tourbillond or tourbillon, not {other:?}");
            ExitCode::FAILURE
        }
    }
}
