//! Prints the configuration, with the origin of each value.

use super::table::{Config, SETTINGS, Setting};
use super::{Form, Loaded};
use core::fmt::Write as _;
use serde_json::{Value, json};

/// Returns the value of a setting in the form that a settings file has.
fn in_file(setting: &Setting, config: &Config) -> Value {
    let text = (setting.get)(config);
    match setting.form {
        Form::Truth => Value::Bool(text == "true"),
        Form::Number => text.parse::<u64>().map_or(Value::Null, Value::from),
        Form::List => text.split(',').filter(|item| !item.is_empty()).collect(),
        Form::Text => Value::String(text),
    }
}

/// Formats the configuration as a settings file. A comment on each line names the origin of the value.
pub(crate) fn lines(loaded: &Loaded) -> String {
    let mut out = String::new();
    let mut section = "";
    for (setting, origin) in SETTINGS.iter().zip(&loaded.origins) {
        // The table lists the settings of a section together. A TOML file may open each section only once.
        if setting.section() != section {
            section = setting.section();
            let _infallible = writeln!(out, "\n[{section}]");
        }
        let name = setting.key.rsplit('.').next().unwrap_or(setting.key);
        // TOML accepts the JSON form of texts, numbers, truth values and lists.
        let line = format!("{name} = {}", in_file(setting, &loaded.config));
        let _infallible = writeln!(out, "{line:<40} # {origin}");
    }
    out
}

/// Returns the configuration as a JSON object that has a member for each setting.
pub(crate) fn json(loaded: &Loaded) -> Value {
    let entries = SETTINGS.iter().zip(&loaded.origins).map(|(setting, origin)| {
        let entry = json!({
            "value": in_file(setting, &loaded.config),
            "origin": origin.to_string(),
            "variable": setting.variable(),
            "flag": format!("--{}", setting.flag()),
        });
        (setting.key.to_owned(), entry)
    });
    Value::Object(entries.collect())
}
