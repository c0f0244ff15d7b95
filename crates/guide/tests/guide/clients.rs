//! Generates the client of the page about clients, and runs the program on the page with it.

use crate::shell::{Background, Shell, programs};
use crate::{is_installed, of_repository};
use std::fs;
use std::io::Write as _;

#[test]
fn a_generated_client_makes_cancels_and_fetches_timers() {
    if !is_installed("bash") {
        return;
    }
    let skip = |reason: &str| drop(writeln!(std::io::stderr(), "skipped the generated client: {reason}"));
    if std::env::var_os("TOURBILLON_NO_REGISTRIES").is_some() {
        return skip("TOURBILLON_NO_REGISTRIES is set");
    }
    let read =
        |name: &str| fs::read_to_string(of_repository(&format!("crates/guide/clients/{name}"))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("orders.py"), read("orders.py")).unwrap();
    let programs = programs(folder.path());
    let mut shell = Shell::start(folder.path(), &programs);
    for command in read("generate.sh").lines() {
        let ran = shell.run(command);
        // Python, its index or the network may be missing. The document is ours.
        if command.starts_with("python") && ran.is_err() {
            return skip("Python with venv and pip is missing, or the generator cannot be fetched");
        }
        ran.unwrap_or_else(|error| panic!("{command}: {error}"));
    }
    let service = Background::start(folder.path(), &programs, "tourbillond serve");
    let output = shell.run(&format!("python/bin/python orders.py http://{}", service.address));
    assert_eq!(output, Ok(read("orders.txt")), "{}", service.output());
}
