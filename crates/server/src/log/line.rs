//! Writes log lines to the standard error. Escapes characters that would break a line.

use crate::text::escaped;
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
        let _best_effort = io::stderr().lock().write_all(written(line).as_bytes());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // The standard error has no buffer.
        Ok(())
    }
}

/// Escapes the hidden characters of a log line. Keeps the line break at the end.
fn written(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    match text.strip_suffix('\n') {
        Some(body) => format!("{}\n", escaped(body)),
        None => escaped(&text).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::written;

    #[test]
    fn a_line_stays_one_line_and_a_terminal_obeys_none_of_it() {
        assert_eq!(written(b"a b\n"), "a b\n");
        assert_eq!(
            written("Käse\u{1b}[2J\nb\r\u{202e}\u{61c}\n".as_bytes()),
            "Käse\\u001b[2J\\u000ab\\u000d\\u202e\\u061c\n"
        );
        assert_eq!(written(b"a\x9b\n"), "a\u{fffd}\n");
    }
}
