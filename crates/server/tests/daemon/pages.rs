//! Runs the commands of the page `docs/curl.md` against a real service.

use crate::process::{Daemon, folder, is_installed, of_crate, text};
use std::fmt::Write as _;
use std::process::Command;

/// Returns the commands on a page of the guide: its code blocks with the language `sh`.
fn commands(page: &str) -> Vec<&str> {
    page.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

#[test]
fn the_commands_for_curl_do_what_the_page_says() {
    if !is_installed("bash") || !is_installed("curl") {
        return;
    }
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &[]);
    let page = std::fs::read_to_string(of_crate("docs/curl.md")).unwrap();
    // The script ends if a command fails, or if an answer is a problem.
    let mut script =
        "set -euo pipefail\ncurl() { command curl --silent --show-error --fail-with-body \"$@\"; echo; }\n"
            .to_owned();
    for block in commands(&page) {
        let _infallible =
            writeln!(script, "{}", block.replace("127.0.0.1:7670", &daemon.address.to_string()));
    }
    let ran = Command::new("bash").arg("-c").arg(&script).current_dir(folder.path()).output().unwrap();
    let (out, errors) = (text(&ran.stdout), text(&ran.stderr));
    assert!(ran.status.success(), "{script}\n{out}\n{errors}");
    // The output has the answers that the page shows.
    let answers: Vec<_> =
        page.split("\n```json\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect();
    assert!(answers.len() >= 5);
    for answer in answers {
        for part in answer.split("...") {
            let part = part.trim();
            assert!(out.contains(part), "{part} is not in {out}");
        }
    }
}
