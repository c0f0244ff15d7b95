//! Writes log lines to the standard error. Escapes characters that would break a line.

use std::borrow::Cow;
use std::io::{self, Write};
use tracing_subscriber::fmt::MakeWriter;

/// Writes log lines to the standard error. `tracing` passes each line in a single write.
pub(super) struct Stderr;

impl MakeWriter<'_> for Stderr {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // The service goes on even if its log cannot be written.
        let _best_effort = io::stderr().lock().write_all(escaped(line).as_bytes());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // The standard error has no buffer.
        Ok(())
    }
}

/// Escapes all control characters of a log line as JSON does. Keeps the line break at the end.
fn escaped(line: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(line);
    let body = text.strip_suffix('\n').unwrap_or(&text);
    if !body.contains(is_hidden) {
        return text;
    }
    let mut plain = String::with_capacity(body.len() + 32);
    for c in body.chars() {
        if is_hidden(c) {
            // Four digits are enough, because no hidden character is above U+FFFF. Inside a JSON string the escape is
            // valid, so a line of JSON stays JSON.
            plain.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            plain.push(c);
        }
    }
    plain.push('\n');
    plain.into()
}

/// Returns whether a log line must show a character in escaped form. Otherwise a terminal or a program that reads lines
/// would obey the character instead of showing it.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn a_line_stays_one_line_and_a_terminal_obeys_none_of_it() {
        assert_eq!(escaped(b"a b\n"), "a b\n");
        assert_eq!(
            escaped("Käse\u{1b}[2J\nb\r\u{202e}\u{61c}\n".as_bytes()),
            "Käse\\u001b[2J\\u000ab\\u000d\\u202e\\u061c\n"
        );
        assert_eq!(escaped(b"a\x9b\n"), "a\u{fffd}\n");
    }
}
