//! Reads the settings from a file in TOML.

use super::table::{SETTINGS, Setting};
use super::value::Form;
use crate::similar::similar;
use core::fmt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// A setting in the settings file: the value as a text, and the number of the line.
pub(super) struct Entry {
    pub(super) setting: &'static Setting,
    pub(super) text: String,
    pub(super) line: usize,
}

/// A fault in the settings file, with the number of the faulty line.
#[derive(Debug)]
pub(crate) struct FileFault {
    pub(crate) path: PathBuf,
    /// The number of the wrong line, counted from 1. Zero stands for the whole file.
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.line {
            0 => write!(f, "{path}: {}", self.message),
            line => write!(f, "{path}:{line}: {}", self.message),
        }
    }
}

/// Parses the text of a settings file. Errors name the file by `path`. Fails with the first fault.
pub(super) fn entries(path: &Path, text: &str) -> Result<Vec<Entry>, FileFault> {
    let line_of = |at: usize| 1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count();
    let fault = |at: usize, message: String| FileFault { path: path.to_owned(), line: line_of(at), message };
    let table = DeTable::parse(text)
        .map_err(|error| fault(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
    let mut entries = Vec::new();
    let mut tables = vec![(String::new(), table.get_ref())];
    while let Some((section, table)) = tables.pop() {
        for (name, value) in table {
            let at = name.span().start;
            let key = if section.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{section}.{}", name.get_ref())
            };
            if let DeValue::Table(table) = value.get_ref()
                && SETTINGS.iter().any(|setting| setting.section() == key)
            {
                tables.push((key, table));
                continue;
            }
            let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
                return Err(fault(at, unknown(&key)));
            };
            let text = text_of(setting.form, value.get_ref());
            let text = text.ok_or_else(|| fault(at, format!("{key} is {}", setting.form.words())))?;
            entries.push(Entry { setting, text, line: line_of(at) });
        }
    }
    Ok(entries)
}

fn unknown(key: &str) -> String {
    let sections = SETTINGS.iter().map(Setting::section).filter(|section| !section.is_empty());
    let names = SETTINGS.iter().map(|setting| setting.key).chain(sections);
    // The user may have put the right name into the wrong section. The message then proposes the right section.
    let last = key.rsplit('.').next().unwrap_or(key);
    let elsewhere = SETTINGS.iter().find(|setting| setting.key.rsplit('.').next() == Some(last));
    match similar(key, names).or(elsewhere.map(|setting| setting.key)) {
        Some(name) => format!("there is no setting {key}; is {name} meant?"),
        None => format!("there is no setting {key}"),
    }
}

/// Returns the value of a setting as text. Returns `None` if the value does not have the type that the setting needs.
fn text_of(form: Form, value: &DeValue<'_>) -> Option<String> {
    match (form, value) {
        (Form::Text, DeValue::String(text)) => Some(text.to_string()),
        (Form::Truth, DeValue::Boolean(truth)) => Some(truth.to_string()),
        // The parser removes the prefix of another radix, so `0x10` would be taken for ten.
        (Form::Number, DeValue::Integer(number)) if number.radix() == 10 => Some(number.as_str().to_owned()),
        (Form::List, DeValue::Array(items)) => {
            let items = items.iter().map(|item| match item.get_ref() {
                // The items are joined by commas, so an item with a comma would become two items.
                DeValue::String(text) if !text.contains(',') => Some(&**text),
                _ => None,
            });
            Some(items.collect::<Option<Vec<_>>>()?.join(","))
        }
        _ => None,
    }
}
