//! Prints the results of commands: as JSON, or as lines and tables for people.

use comfy_table::{Table, presets};
use serde::Serialize;
use std::io::{self, Write as _};

/// Prints the results of commands. With the flag `--json` it prints JSON, and otherwise text for people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) is_json: bool,
}

impl Output {
    /// Prints a value: with `--json` as one line of JSON, and otherwise as the line of text that `line` returns.
    pub(crate) fn value<T: Serialize>(self, value: &T, line: impl FnOnce(&T) -> String) -> io::Result<()> {
        if self.is_json { self.json(value) } else { print(&line(value)) }
    }

    /// Prints a value as one line of JSON.
    pub(crate) fn json(self, value: &impl Serialize) -> io::Result<()> {
        print(&serde_json::to_string(value)?)
    }

    /// Prints a list of values: with `--json` each value as one line of JSON, and otherwise a table. `columns` are the
    /// headings of the table, and `row` makes the row of a value.
    pub(crate) fn list<T: Serialize, const N: usize>(
        self,
        values: &[T],
        columns: [&str; N],
        row: impl Fn(&T) -> [String; N],
    ) -> io::Result<()> {
        if self.is_json {
            return values.iter().try_for_each(|value| self.json(value));
        }
        print(&table(Some(columns), values.iter().map(row)))
    }

    /// Prints a value: with `--json` as one line of JSON, and otherwise with each of its fields on a line. Leaves
    /// empty fields out.
    pub(crate) fn fields<T: Serialize>(
        self,
        value: &T,
        fields: impl FnOnce(&T) -> Vec<(&'static str, String)>,
    ) -> io::Result<()> {
        if self.is_json {
            return self.json(value);
        }
        let fields = fields(value).into_iter().filter(|(_, text)| !text.is_empty());
        print(&table(None, fields.map(|(name, text)| [name.to_owned(), text])))
    }
}

/// Prints a text and a line feed, and flushes the output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Builds a table with aligned columns. Escapes control characters in the cells.
pub(crate) fn table<const N: usize>(
    columns: Option<[&str; N]>,
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if let Some(columns) = columns {
        table.set_header(columns);
    }
    for row in rows {
        table.add_row(row.map(|cell| plain(&cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Escapes the characters that control a terminal, that end a line, or that change the direction of text. The log of
/// the service escapes the same characters.
pub(crate) fn plain(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_hidden) {
        return text.to_owned();
    }
    let mut plain = String::new();
    for c in text.chars() {
        if is_hidden(c) { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    plain
}

/// Returns the JSON text of a value without its quotes, for example the word for a variant of an enum.
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

/// Returns the text of an optional value, or an empty text if there is no value.
pub(crate) fn or_none(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_no_cell() {
        assert_eq!(plain("a\u{1b}[2Jb\nc\u{202e}\u{61c}"), "a\\u{1b}[2Jb\\nc\\u{202e}\\u{61c}");
        assert_eq!(plain("a\u{2028}b\u{2029}"), "a\\u{2028}b\\u{2029}");
        assert_eq!(plain("Käse 🕐"), "Käse 🕐");
    }

    #[test]
    fn a_table_is_aligned_and_has_no_spaces_at_the_ends_of_lines() {
        let rows = [["1", ""], ["22", "b"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(Some(["A", "LONG"]), rows.into_iter()), "A   LONG\n1\n22  b");
    }
}
