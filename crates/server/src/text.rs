//! Escapes or replaces characters of foreign texts that would break a line or control a terminal.

use core::fmt::Write as _;
use std::borrow::Cow;

/// Returns whether a character changes the writing direction of the text around it.
pub(crate) fn turns_text(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns whether a terminal, or a program that reads lines, would obey a character instead of showing it. Such a
/// character controls a terminal, ends a line, or changes the direction of text.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || turns_text(c)
}

/// Escapes hidden characters ([`is_hidden`]) as JSON does.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len() + 32);
    for c in text.chars() {
        if is_hidden(c) {
            // Four digits are enough, because no hidden character is above U+FFFF. Inside a JSON string the escape is
            // valid, so a line of JSON stays JSON.
            let _infallible = write!(plain, "\\u{:04x}", u32::from(c));
        } else {
            plain.push(c);
        }
    }
    plain.into()
}

/// Escapes hidden characters ([`is_hidden`]) as JSON does, except the ends of lines.
pub(crate) fn escaped_lines(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// Cuts a text to at most `most` bytes, at the end of a character. Hidden characters ([`is_hidden`]) become spaces, so
/// the result is a single line.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_to_a_single_line_that_no_terminal_obeys() {
        assert_eq!(cut("a\nb\u{2028}c\u{202e}d\u{1b}", 100), "a b c d ");
        assert_eq!(cut("éé", 3), "é");
    }

    #[test]
    fn the_lines_of_an_output_stay_and_no_terminal_obeys_them() {
        assert_eq!(escaped_lines("a\u{1b}[2J\n\"\u{202e}\"\n"), "a\\u001b[2J\n\"\\u202e\"\n");
    }
}
