//! The files with which the service is installed.

use crate::process::{folder, is_installed, of_crate, text};
use std::fs;
use std::process::Command;

fn unit() -> String {
    fs::read_to_string(of_crate("packaging/tourbillond.service")).unwrap()
}

#[test]
fn systemd_accepts_the_unit_and_finds_it_hardened() {
    if !is_installed("systemd-analyze") {
        return;
    }
    let folder = folder();
    let path = folder.path().join("tourbillond.service");
    // The program is not installed where the unit expects it.
    let here = unit().replace("/usr/local/bin/tourbillond", env!("CARGO_BIN_EXE_tourbillond"));
    fs::write(&path, here).unwrap();
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().unwrap();
    // It reports on other units of the machine, too.
    let about_us = text(&verified.stderr)
        .lines()
        .filter(|line| line.contains("tourbillond"))
        .collect::<Vec<_>>()
        .join("\n");
    assert_eq!(about_us, "", "{verified:?}");
    let secure = Command::new("systemd-analyze")
        .args(["security", "--no-pager", "--offline=true", "--threshold=20"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(secure.status.success(), "the exposure is above 2.0: {}", text(&secure.stdout));
}

#[test]
fn the_unit_waits_longer_for_the_end_than_the_service_takes() {
    let value = |key: &str| {
        let found = unit().lines().find_map(|line| line.strip_prefix(key).map(str::to_owned));
        found.unwrap_or_else(|| panic!("the unit has no {key}"))
    };
    assert_eq!(value("Type="), "notify");
    assert!(value("ExecStart=").contains(" serve "));
    assert_eq!(value("ExecReload="), "/bin/kill -HUP $MAINPID");
    let stop: u64 = value("TimeoutStopSec=").trim_end_matches('s').parse().unwrap();
    assert!(stop > 10 + 2, "`drain` and what comes after it");
    assert!(value("WatchdogSec=").ends_with('s'));
}

#[test]
fn the_image_is_built_from_source_and_runs_without_privileges() {
    let file = fs::read_to_string(of_crate("packaging/Containerfile")).unwrap();
    let (build, run) = file.split_once("\nFROM docker.io/library/debian").unwrap();
    assert!(build.contains("cargo build --locked --release -p tourbillon-server"));
    for line in
        ["\nUSER 10001", "\nVOLUME /data", "\nHEALTHCHECK ", "\nENTRYPOINT [\"tourbillond\"]", "/healthz"]
    {
        assert!(run.contains(line), "{line}");
    }
}
