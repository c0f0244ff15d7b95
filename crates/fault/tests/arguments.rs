//! The arguments of the program that runs the scenarios.
#![cfg(unix)]

use std::process::Command;

#[test]
fn arguments_that_name_nothing_to_do_are_an_error() {
    for arguments in [
        &["--only", "no scenario"][..],
        &["--minutes", "some"],
        &["--minutes"],
        &["--fast", "1"],
        &["--store", "mysql"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tourbillon-fault")).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("nodes killed"), "the scenarios are listed: {said}");
    }
}
