//! Tests from which sources the program takes its settings.

use crate::process::{folder, of_crate, program, run, text};
use serde_json::Value;
use std::fs;

#[test]
fn each_setting_is_printed_with_its_origin() {
    let folder = folder();
    fs::write(folder.path().join("tourbillon.toml"), "drain = \"1s\"\n[limits]\nconnections = 7\n").unwrap();
    let printed = program(folder.path(), &["config", "--json", "--timeouts-idle", "1m", "--behind-proxy"])
        .env("TOURBILLON_LIMITS_CONNECTIONS", "8")
        .output()
        .unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let settings: Value = serde_json::from_str(&text(&printed.stdout)).unwrap();
    for (key, value, origin) in [
        ("drain", Value::from("1s"), "tourbillon.toml:1"),
        ("limits.connections", 8.into(), "TOURBILLON_LIMITS_CONNECTIONS"),
        ("timeouts.idle", "1m".into(), "--timeouts-idle"),
        ("behind_proxy", true.into(), "--behind-proxy"),
        ("timeouts.body", "30s".into(), "default"),
    ] {
        assert_eq!((&settings[key]["value"], &settings[key]["origin"]), (&value, &origin.into()), "{key}");
    }
    // The printed text can be used as a file with the same settings.
    let printed = text(&run(folder.path(), &["config", "--timeouts-idle", "1m"]).stdout);
    assert!(printed.contains("# tourbillon.toml:3") && printed.contains("# --timeouts-idle"), "{printed}");
    fs::write(folder.path().join("copy.toml"), printed).unwrap();
    let copy = run(folder.path(), &["config", "--json", "--config", "copy.toml"]);
    let copy: Value = serde_json::from_str(&text(&copy.stdout)).unwrap();
    assert_eq!(
        (&copy["timeouts.idle"]["value"], &copy["limits.connections"]["value"]),
        (&"1m".into(), &7.into())
    );
}

#[test]
fn a_wrong_setting_ends_the_program_with_its_place() {
    let folder = folder();
    fs::write(folder.path().join("wrong.toml"), "\n[limits]\nconections = 7\n").unwrap();
    for (arguments, words) in [
        (
            &["--config", "wrong.toml"][..],
            "wrong.toml:3: there is no setting limits.conections; is limits.connections meant?",
        ),
        (&["--config", "missing.toml"], "missing.toml"),
        (&["--drain", "10"], "--drain: \"10\" is not a time"),
        (&["--darin", "10s"], "--drain"),
    ] {
        let ended = run(folder.path(), &[&["serve"], arguments].concat());
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}");
        assert!(text(&ended.stderr).contains(words), "{ended:?}");
    }
    let ended = program(folder.path(), &["serve"]).env("TOURBILLON_LISTEN", "nowhere").output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(text(&ended.stderr).contains("TOURBILLON_LISTEN"), "{ended:?}");
}

/// Another program may be renewing a file that a setting names, and its disk may not be there yet. With the exit code 1
/// the service manager tries again.
#[test]
fn a_file_that_a_setting_names_and_that_is_not_right_yet_is_no_wrong_setting() {
    let folder = folder();
    fs::write(folder.path().join("empty"), "").unwrap();
    for file in ["missing", "empty"] {
        for arguments in [
            &["--tls-certificate", file, "--tls-key", "key.pem"][..],
            &["--callbacks-certificates", file],
            &["--redis-servers", "redis://127.0.0.1:1", "--redis-password-file", file],
            &["--postgres-server", "postgres://tourbillon@127.0.0.1:1/d", "--postgres-password-file", file],
            &["--postgres-server", "postgres://tourbillon@127.0.0.1:1/d", "--postgres-certificates", file],
        ] {
            let serve = [&["serve", "--listen", "127.0.0.1:0"], arguments].concat();
            let ended = run(folder.path(), &serve);
            assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {ended:?}");
            // PostgreSQL may need no password, so an empty one is tried.
            let is_tried = file == "empty" && arguments.contains(&"--postgres-password-file");
            assert!(is_tried || text(&ended.stderr).contains(file), "{arguments:?}: {ended:?}");
        }
    }
}

#[test]
fn the_example_has_the_defaults() {
    let folder = folder();
    let example = of_crate("packaging/tourbillon.toml");
    let by_default = run(folder.path(), &["config", "--json"]);
    let by_example = run(folder.path(), &["config", "--json", "--config", example.to_str().unwrap()]);
    assert!(by_default.status.success() && by_default.stdout == by_example.stdout, "{by_example:?}");
}

#[test]
fn the_program_prints_its_interface() {
    let folder = folder();
    let printed = run(folder.path(), &["openapi"]);
    let document: Value = serde_json::from_str(&text(&printed.stdout)).unwrap();
    assert!(document["paths"]["/v1/namespaces/{namespace}/timers/{key}"].is_object());
    let help = text(&run(folder.path(), &["--help"]).stdout);
    for words in ["serve", "token", "--limits-connections", "TOURBILLON_", "SIGHUP"] {
        assert!(help.contains(words), "{words}: {help}");
    }
}
