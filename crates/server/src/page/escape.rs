//! How values are written into a page.
//!
//! Characters that change the direction of the text around them are shown by their numbers: a key or an error could
//! otherwise make other words of the page read as something else. Values that a form sends back are written as they
//! are, with the filter `escape("xml")` in their templates.

use askama::filters::{Escaper, Html};
use core::fmt::{self, Write};
use std::borrow::Cow;

/// Writes values into a page so that their characters are seen and change nothing else.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visible;

/// Whether a character changes the direction of the text around it.
fn turns_text(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// A text as a page shows it.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(turns_text) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if turns_text(character) {
            let _infallible = write!(shown, "[U+{:04X}]", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    shown.into()
}

impl Escaper for Visible {
    fn write_escaped_str<W: Write>(&self, dest: W, text: &str) -> fmt::Result {
        Html.write_escaped_str(dest, &visible(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_shows_what_turns_it() {
        assert_eq!(visible("a\u{202e}b\u{2066}<"), "a[U+202E]b[U+2066]<");
        for as_it_is in ["", "שלום", "👩\u{200d}💻", "a b"] {
            assert_eq!(visible(as_it_is), as_it_is);
        }
        let mut page = String::new();
        Visible.write_escaped_str(&mut page, "\u{202e}<b>").unwrap();
        assert_eq!(page, "[U+202E]&#60;b&#62;");
    }
}
