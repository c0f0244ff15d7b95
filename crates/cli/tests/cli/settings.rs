//! Tests the settings, and the errors that a command finds before it sends a request.

use crate::rig::{Fake, Run, program};
use serde_json::{Value, json};

async fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    program(arguments).envs(variables.iter().copied()).output().await.unwrap().into()
}

#[tokio::test]
async fn each_setting_has_an_origin() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("tourbillon");
    std::fs::create_dir(&home).unwrap();
    let file = home.join("cli.toml");
    std::fs::write(&file, "url = \"http://file:1\"\nnamespace = \"file\"\nca = \"/file\"\n").unwrap();
    let variables = [
        ("XDG_CONFIG_HOME", folder.path().to_str().unwrap()),
        ("TOURBILLON_URL", "http://variable:1"),
        ("TOURBILLON_NAMESPACE", "variable"),
        ("TOURBILLON_TIMEOUT", ""),
    ];
    let settings = run(&["config", "--json", "--url", "http://flag:1"], &variables).await.json();
    let file = file.to_str().unwrap();
    let expected = [
        ("url", json!("http://flag:1"), "--url"),
        ("token-file", Value::Null, "default"),
        ("namespace", json!("variable"), "TOURBILLON_NAMESPACE"),
        ("ca", json!("/file"), file),
        ("timeout", json!("10s"), "default"),
    ];
    for (setting, (name, value, origin)) in settings.as_array().unwrap().iter().zip(expected) {
        assert_eq!(*setting, json!({ "name": name, "value": value, "origin": origin }));
    }
    let text = run(&["config"], &variables).await.ok();
    assert!(text.starts_with("SETTING     VALUE              ORIGIN\n"), "{text}");
}

#[tokio::test]
async fn the_token_comes_from_a_file_and_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "tb_secret\n").unwrap();
    let file = file.to_str().unwrap();
    let fake = Fake::start(200, json!([])).await;
    let variables = [("TOURBILLON_URL", &*fake.url), ("TOURBILLON_TOKEN_FILE", file)];
    run(&["ns", "list"], &variables).await.ok();
    assert_eq!(fake.requests()[0].headers["authorization"], "Bearer tb_secret");
    let shown = run(&["config"], &variables).await.ok();
    assert!(shown.contains(file) && !shown.contains("tb_secret"), "{shown}");
    assert_eq!(run(&["--token", "tb_secret", "ns", "list"], &variables).await.code, 2);
    // The variables name a proxy that does not exist. If the program used it, the command would fail.
    let proxy = [variables[0], ("http_proxy", "http://127.0.0.1:1"), ("HTTP_PROXY", "http://127.0.0.1:1")];
    run(&["ns", "list"], &proxy).await.ok();
}

#[tokio::test]
async fn what_is_not_valid_is_not_sent() {
    let fake = Fake::start(200, json!({})).await;
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.toml");
    std::fs::write(&bad, "token = \"tb_secret\"\n").unwrap();
    let bad = bad.to_str().unwrap();
    let url = "http://127.0.0.1:9/";
    for arguments in [
        &["put", "k", "--in", "5", "--callback", url][..],
        &["put", "k", "--at", "tomorrow", "--callback", url],
        &["put", "k", "--at", "2090-01-01T00:00:00Z", "--in", "5s", "--callback", url],
        &["put", "k", "--in", "5s"],
        &["put", "k", "--callback", url, "--queue", "q"],
        &["put", "k", "--callback", url, "--body", "a", "--body-json", "1"],
        &["put", "k", "--callback", url, "--body-json", "{"],
        &["put", "k", "--file", "/nowhere"],
        &["put", "k", "--callback", url, "--backoff", "sometimes"],
        &["get"],
        &["get", "k", "--id", "7"],
        &["move", "k"],
        &["cancel-many"],
        &["cancel-many", "--label", "a", "--key-prefix", "b"],
        &["cancel-many", "--key-prefix", ""],
        &["list", "--phase", "done"],
        &["list", "--limit", "0"],
        &["nack", "c", "--dead", "--retry-after", "1s"],
        &["nack", "c", "--dead", "--snooze", "1s"],
        &["nack", "c", "--error", "no", "--snooze", "1s"],
        &["frobnicate"],
        &["get", "k", "--url", "nowhere"],
        &["get", "k", "--timeout", "soon"],
        &["get", "k", "--token-file", "/nowhere"],
        &["get", "k", "--ca", "/nowhere"],
        &["get", "k", "--config", "/nowhere"],
        &["get", "k", "--config", bad],
    ] {
        let run = fake.run(arguments).await;
        assert_eq!((run.code, &*run.out), (2, ""), "{arguments:?}: {run:?}");
        assert!(!run.err.is_empty() && !run.err.contains("panicked"), "{arguments:?}: {run:?}");
    }
    assert!(fake.requests().is_empty());
}

#[tokio::test]
async fn the_help_has_the_exit_codes_of_the_readme() {
    let help = run(&["--help"], &[]).await.ok();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for code in 0..=6 {
        let start = format!("| {code} | ");
        let line =
            include_str!("../../README.md").lines().find_map(|line| line.strip_prefix(&start)).unwrap();
        let text = format!("{code} {}", line.trim_end_matches(" |"));
        assert!(help.contains(&text), "{text}: {help}");
    }
}

#[tokio::test]
async fn shells_can_read_the_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell], &[]).await.ok();
        assert!(script.contains("cancel-many"), "{shell}");
        let found = std::process::Command::new(shell).arg("--version").output().is_ok();
        if ["bash", "zsh", "fish"].contains(&shell) && found {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("script");
            std::fs::write(&file, &script).unwrap();
            let output = std::process::Command::new(shell).arg("-n").arg(&file).output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {output:?}");
        } else {
            assert_ne!(shell, "bash", "bash is not there");
        }
    }
}
