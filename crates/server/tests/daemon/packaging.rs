//! Tests the files with which the service is installed: the systemd unit, and the files for the container image.

use crate::process::{folder, is_installed, of_crate, program, text};
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn unit() -> String {
    fs::read_to_string(of_crate("packaging/tourbillond.service")).unwrap()
}

fn container_file() -> String {
    fs::read_to_string(of_crate("packaging/Containerfile")).unwrap()
}

#[test]
fn systemd_accepts_the_unit_and_finds_it_hardened() {
    if !is_installed("systemd-analyze") {
        return;
    }
    let folder = folder();
    let path = folder.path().join("tourbillond.service");
    // In the test, the program is not at the path that the unit names. So replace the path.
    let here = unit().replace("/usr/local/bin/tourbillond", env!("CARGO_BIN_EXE_tourbillond"));
    fs::write(&path, here).unwrap();
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().unwrap();
    // `systemd-analyze` reports on other units of the machine, too.
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
    // A reload must not need `/bin/kill`: it is in a package that may not be installed.
    assert_eq!(value("ExecReload="), r#"/bin/sh -c 'kill -HUP "$MAINPID"'"#);
    assert_eq!(
        value("StartLimitIntervalSec="),
        "0",
        "an outage of some seconds must not end the service for good"
    );
    let stop: u64 = value("TimeoutStopSec=").trim_end_matches('s').parse().unwrap();
    assert!(stop > 10 + 2, "`drain` and what comes after it");
    assert!(value("WatchdogSec=").ends_with('s'));
}

#[test]
fn the_image_is_built_from_source_and_runs_without_privileges() {
    let file = container_file();
    let (build, run) = file.split_once("\nFROM docker.io/library/debian").unwrap();
    // Podman's own format of images drops the health check, so the command names Docker's.
    assert!(build.contains("podman build --format docker "));
    let built = build.split("cargo build --locked --release ").nth(1).unwrap();
    for part in ["-p tourbillon-server ", "-p tourbillon-cli ", "--features tourbillon-server/otel "] {
        assert!(built.contains(part), "{part}");
    }
    for program in ["tourbillond", "tourbillon"] {
        assert!(built.contains(&format!("--bin {program}")), "{program}");
        assert!(run.contains(&format!("/source/target/release/{program} ")), "{program}");
    }
    for line in
        ["\nUSER 10001", "\nVOLUME /data", "\nHEALTHCHECK ", "\nENTRYPOINT [\"tourbillond\"]", "/healthz"]
    {
        assert!(run.contains(line), "{line}");
    }
}

#[test]
fn the_variables_of_the_image_are_settings_and_its_ports_agree() {
    let file = container_file();
    let after = |key: &str| file.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    let variables: Vec<_> =
        after("ENV ").split_whitespace().map(|variable| variable.split_once('=').unwrap()).collect();
    let folder = folder();
    let shown = program(folder.path(), &["config"]).envs(variables.iter().copied()).output().unwrap();
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let shown = text(&shown.stdout);
    for (name, _) in &variables {
        let set = shown.lines().any(|line| line.ends_with(&format!("# {name}")));
        assert!(set, "{name} is no setting: {shown}");
    }
    let listen = variables.iter().find(|(name, _)| *name == "TOURBILLON_LISTEN").unwrap().1;
    let (_, port) = listen.rsplit_once(':').unwrap();
    assert_eq!(after("EXPOSE "), port);
    assert_eq!(file.matches(&format!("127.0.0.1:{port}/healthz")).count(), 2, "by HTTP and by HTTPS");
}

/// Returns the patterns of the paths that the image does not contain.
fn exclusions() -> Vec<String> {
    let file = fs::read_to_string(of_crate("packaging/Containerfile.dockerignore")).unwrap();
    file.lines().map(str::to_owned).collect()
}

/// Returns whether the image does not contain a path. A pattern is a path from the repository's root. A pattern that
/// begins with `**/` matches in any folder.
fn is_excluded(path: &Path) -> bool {
    exclusions().iter().any(|pattern| match pattern.strip_prefix("**/") {
        Some(anywhere) => path.ancestors().any(|folder| folder.ends_with(anywhere)),
        None => path.starts_with(pattern),
    })
}

/// Returns the files of the repository that the build of the program reads.
///
/// If git is installed, all files that git lists are included. The manifests of the workspace are always included. The
/// first file of each target is included too, because cargo refuses a manifest without this file.
fn files_of_the_build(root: &Path) -> BTreeSet<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = ["metadata", "--no-deps", "--locked", "--offline", "--format-version=1"];
    let metadata = Command::new(cargo).args(metadata).current_dir(root).output().unwrap();
    assert!(metadata.status.success(), "{}", text(&metadata.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let path = |value: &serde_json::Value| {
        let path = Path::new(value.as_str().unwrap());
        path.strip_prefix(root).unwrap().to_owned()
    };
    let mut files = BTreeSet::from(["Cargo.toml", "Cargo.lock"].map(PathBuf::from));
    for package in metadata["packages"].as_array().unwrap() {
        files.insert(path(&package["manifest_path"]));
        files.extend(package["targets"].as_array().unwrap().iter().map(|target| path(&target["src_path"])));
    }
    if is_installed("git") {
        // In an archive of the sources, which is not a repository, git lists nothing.
        let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().unwrap();
        files.extend(text(&listed.stdout).split_terminator('\0').map(PathBuf::from));
    }
    files
}

#[test]
fn the_image_is_built_with_all_that_cargo_reads_and_without_what_it_makes() {
    let patterns = exclusions();
    let plain =
        |pattern: &String| !pattern.trim_start_matches("**/").contains(['*', '?', '[', '!', '#', '\\']);
    assert!(patterns.iter().all(plain), "`is_excluded` reads no such patterns: {patterns:?}");
    let root = of_crate("../..").canonicalize().unwrap();
    let files = files_of_the_build(&root);
    for known in ["Cargo.lock", "crates/server/src/main.rs", "crates/server/src/page/style.css", "src/lib.rs"]
    {
        assert!(files.contains(Path::new(known)), "{known}: {files:?}");
    }
    let missing: Vec<_> = files.iter().filter(|file| is_excluded(file)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(is_excluded(Path::new(".git/HEAD")));
    for made in fs::read_to_string(root.join(".gitignore")).unwrap().lines() {
        assert!(is_excluded(Path::new(made.trim_start_matches('/'))), "{made}");
    }
}

/// Returns the system calls for which an entry of `SystemCallFilter=` stands. The entry names a system call, or a group
/// of system calls.
fn calls(entry: &str) -> BTreeSet<String> {
    if !entry.starts_with('@') {
        return BTreeSet::from([entry.to_owned()]);
    }
    let listed =
        Command::new("systemd-analyze").args(["syscall-filter", "--no-pager", entry]).output().unwrap();
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let listed = text(&listed.stdout);
    let lines =
        listed.lines().skip(1).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.flat_map(calls).collect()
}

/// System calls without which the service can work, each with its benefit. If the filter refused such a call, only this
/// test would fail.
const CALLS: &[(&str, &str)] = &[
    ("membarrier", "without it each timer costs a fence"),
    ("prctl", "sleeps that end on time"),
    ("prlimit64", "more open files than the soft limit"),
    ("sched_getattr", "short slices, as below"),
    ("sched_setaffinity", "the threads of shards stay on their cores"),
    ("sched_setattr", "short slices, with which timers are punctual on a busy machine"),
];

#[test]
fn the_unit_refuses_no_system_call_whose_refusal_the_service_only_counts() {
    if !is_installed("systemd-analyze") {
        return;
    }
    let mut permitted = BTreeSet::new();
    for line in unit().lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let refused = line.strip_prefix('~');
        for entry in refused.unwrap_or(line).split_whitespace() {
            for call in calls(entry) {
                if refused.is_some() {
                    permitted.remove(&call)
                } else {
                    permitted.insert(call)
                };
            }
        }
    }
    assert!(permitted.contains("openat") && !permitted.contains("reboot"), "{permitted:?}");
    for (call, reason) in CALLS {
        assert!(permitted.contains(*call), "{call}: {reason}");
    }
}
