//! Prints the configuration, with the origin of each value.

use super::table::{Config, SETTINGS, Setting};
use super::{Form, Loaded};
use core::fmt::Write as _;
use serde_json::{Value, json};

/// Returns a setting's value as it would stand in a file of settings.
fn in_file(setting: &Setting, config: &Config) -> Value {
    let text = (setting.get)(config);
    match setting.form {
        Form::Truth => Value::Bool(text == "true"),
        Form::Number => text.parse::<u64>().map_or(Value::Null, Value::from),
        Form::List => text.split(',').filter(|item| !item.is_empty()).collect(),
        Form::Text => Value::String(text),
    }
}

/// Formats the configuration as a file of settings. A comment on each line names the value's origin.
pub(crate) fn lines(loaded: &Loaded) -> String {
    let mut out = String::new();
    let mut section = "";
    for (setting, origin) in SETTINGS.iter().zip(&loaded.origins) {
        if setting.section() != section {
            section = setting.section();
            let _infallible = writeln!(out, "\n[{section}]");
        }
        let name = setting.key.rsplit('.').next().unwrap_or(setting.key);
        let line = format!("{name} = {}", in_file(setting, &loaded.config));
        let _infallible = writeln!(out, "{line:<40} # {origin}");
    }
    out
}

/// Returns the configuration as a JSON object with an entry for each setting.
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
