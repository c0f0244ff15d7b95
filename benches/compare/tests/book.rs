//! Runs the whole book at a tiny size. Every contestant runs in every workload, each in its own process.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

fn book(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tourbillon-compare")).args(arguments).output().unwrap()
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Runs the book with tiny sizes, and returns the raw results.
fn run(name: &str, more: &[&str]) -> Value {
    let path = scratch(name);
    let output = book(&[&["--scale", "smoke", "--json", path.to_str().unwrap()], more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap()
}

#[test]
fn every_contestant_runs_in_every_workload_or_says_why_not() {
    let results = run("all.json", &[]);
    let mut figures = 0;
    for outcome in array(&results, "outcomes") {
        for row in array(outcome, "rows") {
            let place =
                format!("{}, {}, {}", outcome["workload"], outcome["case"]["name"], row["contestant"]);
            let has_figures = !row["numbers"].as_object().unwrap().is_empty();
            assert!(has_figures != row["note"].is_string(), "{place}: {row}");
            for column in array(outcome, "columns") {
                let samples = &row["numbers"][column["key"].as_str().unwrap()];
                let samples = samples.as_array().into_iter().flatten();
                figures += samples.map(|sample| assert!(sample.is_number(), "{place}")).count();
            }
        }
    }
    assert!(figures > 500, "{figures} figures");
    for key in ["processor", "kernel", "rustc", "commit"] {
        assert!(results["machine"].as_object().unwrap().contains_key(key), "{key}");
    }
}

#[test]
fn a_filter_is_part_of_a_workloads_a_cases_or_a_contestants_name() {
    let rows = |results: &Value| {
        array(results, "outcomes").iter().map(|outcome| array(outcome, "rows").len()).sum::<usize>()
    };
    let floor = run("floor.json", &["--filter", "floor"]);
    assert_eq!(array(&floor, "outcomes").len(), 1);
    let tree = run("tree.json", &["--filter", "<BTreeMap>"]);
    assert!(array(&tree, "outcomes").len() > 5);
    assert!(rows(&tree) >= array(&tree, "outcomes").len());
    let nothing = book(&["--filter", "nobody is called so"]);
    assert!(!nothing.status.success());
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("no contestant"));
}

#[test]
fn a_turn_that_is_not_one_is_refused() {
    for arguments in [&["turn"][..], &["turn", "pair", "nobody", "{}"], &["turn", "nothing", "x", "{}"]] {
        let output = book(arguments);
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}");
    }
}
