//! Tests which source of a setting wins, and how faults in each source are reported.

use super::*;
use std::fs;

fn load_from(
    folder: &Path,
    variables: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> Result<Loaded, ConfigError> {
    load(&Sources {
        file: None,
        folder,
        environment: variables.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
        flag: &|setting| {
            flags.iter().find(|(name, _)| *name == setting.flag()).map(|&(_, value)| value.to_owned())
        },
    })
}

fn origin_of<'l>(loaded: &'l Loaded, key: &str) -> &'l Origin {
    &loaded.origins[SETTINGS.iter().position(|setting| setting.key == key).unwrap()]
}

#[test]
fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    fs::write(&path, "drain = \"1s\"\ndata = \"f\"\n[limits]\nconnections = 7\n[timeouts]\nidle = \"1m\"\n")
        .unwrap();
    let variables = [("TOURBILLON_LIMITS_CONNECTIONS", "8"), ("TOURBILLON_DATA", "v"), ("HOME", "/")];
    let loaded = load_from(folder.path(), &variables, &[("data", "g")]).unwrap();
    let config = &loaded.config;
    assert_eq!(
        (
            config.data.as_path(),
            config.max_connections,
            config.drain.as_secs(),
            config.idle_timeout.as_secs()
        ),
        (Path::new("g"), 8, 1, 60)
    );
    assert_eq!(config.header_timeout.as_secs(), 10);
    assert_eq!(origin_of(&loaded, "data").to_string(), "--data");
    assert_eq!(origin_of(&loaded, "limits.connections").to_string(), "TOURBILLON_LIMITS_CONNECTIONS");
    assert_eq!(*origin_of(&loaded, "timeouts.idle"), Origin::File { path, line: 6 });
    assert_eq!(origin_of(&loaded, "timeouts.header").to_string(), "default");
    assert!(loaded.warnings.is_empty());
}

#[test]
fn faults_of_the_file_have_their_line_and_a_suggestion() {
    let folder = tempfile::tempdir().unwrap();
    for (text, line, words) in [
        ("\nlisen = [\"127.0.0.1:1\"]", 2, "there is no setting lisen; is listen meant?"),
        (
            "[limits]\n\nconections = 1",
            3,
            "there is no setting limits.conections; is limits.connections meant?",
        ),
        ("[limit]\nconnections = 1", 1, "there is no setting limit; is limits meant?"),
        ("cache = \"1MiB\"", 1, "there is no setting cache; is store.cache meant?"),
        ("colour = 1", 1, "there is no setting colour"),
        ("drain = 10", 1, "drain is a text in quotes"),
        ("drain = \"10\"", 1, "drain: \"10\" is not a time"),
        ("listen = \"127.0.0.1:1\"", 1, "listen is a list"),
        ("listen = [1]", 1, "listen is a list"),
        ("behind_proxy = \"true\"", 1, "behind_proxy is true or false"),
        ("tls = true", 1, "there is no setting tls"),
        ("[limits]\nconnections = -1", 2, "limits.connections: \"-1\" is not a whole number"),
        ("[limits]\nconnections = 0x10", 2, "limits.connections is a whole number"),
        ("data = \"a\"\ndata = \"b\"", 2, "duplicate key"),
        ("data = \"a\" b", 1, ""),
        ("[tls]\nkey = \"-----BEGIN PRIVATE KEY-----\"", 2, "must not be the secret itself"),
    ] {
        fs::write(folder.path().join(FILE), text).unwrap();
        match load_from(folder.path(), &[], &[]) {
            Err(ConfigError::File(fault)) => {
                assert_eq!(fault.line, line, "{text:?}: {fault}");
                assert!(fault.message.contains(words), "{text:?}: {fault}");
                assert!(!fault.message.contains("BEGIN"), "{fault}");
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }
}

#[test]
fn values_are_refused_with_their_origin() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |variables: &[(&str, &str)], flags: &[(&str, &str)]| {
        load_from(folder.path(), variables, flags).unwrap_err().to_string()
    };
    assert!(refused(&[("TOURBILLON_DRAIN", "x")], &[]).starts_with("TOURBILLON_DRAIN: "));
    assert!(refused(&[], &[("drain", "x")]).starts_with("--drain: "));
    assert!(refused(&[], &[("tls-key", "k")]).contains("together"));
    assert!(refused(&[], &[("limits-connections", "0")]).contains("at least 1"));
    assert!(refused(&[], &[("limits-header", "4KiB")]).contains("at least 8KiB"));
    assert!(refused(&[], &[("timeouts-idle", "0s")]).contains("timeouts.idle"));
    assert!(refused(&[], &[("listen", "")]).contains("an address"));
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none.toml");
    let sources =
        Sources { file: Some(&file), folder: folder.path(), environment: Vec::new(), flag: &|_| None };
    assert!(matches!(load(&sources), Err(ConfigError::Read(path, _)) if path == file));
}

#[test]
fn a_misspelt_variable_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("TOURBILLON_LISTN", "127.0.0.1:1"), ("TOURBILLON_URL", "x"), ("TOURBILLON_SEED", "1")];
    let loaded = load_from(folder.path(), &variables, &[]).unwrap();
    assert_eq!(loaded.warnings, ["the variable TOURBILLON_LISTN is not known; is TOURBILLON_LISTEN meant?"]);
}

/// Checks that a setting takes precedence over a variable of OpenTelemetry, and that a wrong value of the variable only
/// causes a warning. Other programs on the machine may use the same variable.
#[test]
fn a_setting_wins_over_a_variable_of_opentelemetry() {
    let folder = tempfile::tempdir().unwrap();
    let standard = ("OTEL_SERVICE_NAME", "all");
    let loaded = load_from(folder.path(), &[standard], &[]).unwrap();
    assert_eq!(loaded.config.telemetry_service_name, "all");
    assert_eq!(origin_of(&loaded, "telemetry.service_name").to_string(), "OTEL_SERVICE_NAME");
    fs::write(folder.path().join(FILE), "[telemetry]\nservice_name = \"own\"").unwrap();
    let loaded = load_from(folder.path(), &[standard], &[]).unwrap();
    assert_eq!(loaded.config.telemetry_service_name, "own");
    let own = ("TOURBILLON_TELEMETRY_SERVICE_NAME", "v");
    assert_eq!(load_from(folder.path(), &[own, standard], &[]).unwrap().config.telemetry_service_name, "v");
}

#[cfg(feature = "otel")]
#[test]
fn the_collector_has_a_setting_and_a_fault_of_the_common_variable_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let all = |url| [("OTEL_EXPORTER_OTLP_ENDPOINT", url)];
    let endpoint =
        |loaded: &Loaded| loaded.config.telemetry_endpoint.as_ref().map(|endpoint| endpoint.0.clone());
    let loaded = load_from(folder.path(), &all("http://c:4318"), &[]).unwrap();
    assert_eq!(endpoint(&loaded).as_deref(), Some("http://c:4318/v1/traces"));
    assert_eq!(origin_of(&loaded, "telemetry.endpoint").to_string(), "OTEL_EXPORTER_OTLP_ENDPOINT");
    let loaded =
        load_from(folder.path(), &all("http://c:4318"), &[("telemetry-endpoint", "https://own")]).unwrap();
    assert_eq!(
        loaded.config.settings().unwrap().telemetry.endpoint.as_deref(),
        Some("https://own/v1/traces")
    );
    let loaded = load_from(folder.path(), &all("c:4318"), &[]).unwrap();
    assert!(endpoint(&loaded).is_none() && loaded.warnings.len() == 1, "{:?}", loaded.warnings);
    let refused = load_from(folder.path(), &[], &[("telemetry-endpoint", "c:4318")]).unwrap_err();
    assert!(refused.to_string().starts_with("--telemetry-endpoint: "), "{refused}");
}

#[cfg(not(feature = "otel"))]
#[test]
fn a_program_without_the_feature_refuses_a_collector() {
    let folder = tempfile::tempdir().unwrap();
    let refused = load_from(folder.path(), &[], &[("telemetry-endpoint", "http://c:4318")]).unwrap_err();
    assert!(refused.to_string().contains("the feature `otel`"), "{refused}");
    let mut settings = Settings::new(folder.path());
    settings.telemetry.endpoint = Some("http://c:4318/v1/traces".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(async { crate::service::Service::open(settings) }).err().unwrap();
    assert!(refused.to_string().contains("the feature `otel`"), "{refused}");
}

#[test]
fn what_config_prints_is_a_file_with_the_same_settings() {
    let folder = tempfile::tempdir().unwrap();
    let flags =
        [("callbacks-allowed", "10.0.0.0/8,fc00::/7"), ("listen", "127.0.0.1:1,[::1]:2"), ("drain", "3m")];
    let first = load_from(folder.path(), &[], &flags).unwrap();
    let printed = lines(&first);
    fs::write(folder.path().join(FILE), &printed).unwrap();
    let second = load_from(folder.path(), &[], &[]).unwrap();
    assert_eq!(first.config, second.config, "{printed}");
    assert_eq!(json(&second)["callbacks.allowed"]["value"], serde_json::json!(["10.0.0.0/8", "fc00::/7"]));
    assert_eq!(json(&first)["drain"]["origin"], "--drain");
}

#[test]
fn the_example_has_every_setting_with_its_default() {
    let text = include_str!("../../packaging/tourbillon.toml");
    let path = Path::new("packaging/tourbillon.toml");
    assert!(file::entries(path, text).unwrap().is_empty(), "every setting of the example is a comment");
    // The example has its settings in comments. Without the comment signs, it sets each setting to its default.
    let is_setting = |line: &str| line.contains(" = ") || line.starts_with('[');
    let set = text.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') && is_setting(rest) => rest,
        _ => line,
    });
    let set = set.collect::<Vec<_>>().join("\n");
    let mut config = Config::default();
    let mut left: std::collections::BTreeSet<_> = SETTINGS.iter().map(|setting| setting.key).collect();
    for entry in file::entries(path, &set).unwrap() {
        (entry.setting.set)(&mut config, &entry.text).unwrap();
        assert!(left.remove(entry.setting.key), "{}", entry.setting.key);
    }
    assert_eq!(config, Config::default());
    assert!(left.is_empty(), "the example lacks {left:?}");
}

/// The comments above a setting of the example are the setting's help.
#[test]
fn the_example_explains_every_setting_as_the_help_does() {
    let (mut section, mut comment) = ("", Vec::new());
    let mut explained = 0;
    for line in include_str!("../../packaging/tourbillon.toml").lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some(text) = line.strip_prefix("# ") {
            comment.push(text);
            continue;
        } else if let Some((name, _)) = line.strip_prefix('#').and_then(|rest| rest.split_once(" = ")) {
            let key = if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") };
            let setting = SETTINGS.iter().find(|setting| setting.key == key).unwrap();
            assert_eq!(comment.join(" "), setting.help(), "{key}");
            explained += 1;
        }
        comment.clear();
    }
    assert_eq!(explained, SETTINGS.len());
}

#[test]
fn a_service_that_a_program_embeds_has_the_defaults_of_tourbillond() {
    let config = Config::default();
    let mut settings = config.settings().unwrap();
    assert_eq!(settings.tokens.take(), Some(config.token_file()));
    assert_eq!(format!("{settings:?}"), format!("{:?}", Settings::new(&config.data)));
}

#[test]
fn a_value_outside_of_its_bounds_is_refused_with_the_bounds() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, value, words) in [
        ("deliveries-lease", "1ms", "deliveries.lease: from a second to a day"),
        ("deliveries-lease", "0s", "deliveries.lease: from a second to a day"),
        ("deliveries-lease", "36500d", "deliveries.lease: from a second to a day"),
        ("limits-body", "17179869183GiB", "at most 1GiB"),
        ("limits-request", "2GiB", "at most 1GiB"),
        ("limits-header", "1KiB", "limits.header: at least 8KiB"),
        ("timeouts-idle", "0s", "timeouts.idle: more than no time"),
    ] {
        let refused = load_from(folder.path(), &[], &[(flag, value)]).unwrap_err().to_string();
        assert!(refused.contains(words), "{flag} {value}: {refused}");
    }
    for value in ["1s", "1d"] {
        load_from(folder.path(), &[], &[("deliveries-lease", value)]).unwrap();
    }
}

/// Tests that each setting of Redis and of PostgreSQL is refused if the timers are elsewhere.
#[test]
fn a_setting_of_a_store_that_is_not_used_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut checked = 0;
    for (section, place) in [("redis", "redis.servers"), ("postgres", "postgres.server")] {
        for setting in SETTINGS.iter().filter(|setting| setting.section() == section && setting.key != place)
        {
            let values = ["true", "false", "7", "7s", "x", "wait:1:1s"];
            let is_other = |value: &&str| {
                let mut config = Config::default();
                (setting.set)(&mut config, value).is_ok() && config != Config::default()
            };
            let value = values.into_iter().find(is_other).unwrap();
            let refused = load_from(folder.path(), &[], &[(&setting.flag(), value)]).unwrap_err().to_string();
            let words = [format!("{} is for timers in ", setting.key), format!("{place} names no server")];
            assert!(words.iter().all(|words| refused.contains(words)), "{}: {refused}", setting.key);
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
}

#[test]
fn a_file_of_certificates_without_any_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("roots.pem");
    let loaded =
        load_from(folder.path(), &[], &[("callbacks-certificates", path.to_str().unwrap())]).unwrap();
    for text in ["", "# no certificate\n", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"] {
        fs::write(&path, text).unwrap();
        match loaded.config.settings() {
            Err(ConfigError::Named(fault)) => {
                assert!(fault.starts_with(path.to_str().unwrap()), "{text}: {fault}");
            }
            other => panic!("{text}: {:?}", other.map(drop)),
        }
    }
}
