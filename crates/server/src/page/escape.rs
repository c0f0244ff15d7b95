//! Escapes values that are written into a page.
//!
//! A character that changes the direction of text is shown as its number. Otherwise such a character in a key or an
//! error could reorder other words of the page.
//!
//! The value of a field that a form sends back must stay unchanged. So templates write this value with the filter
//! `escape("xml")` instead.

use crate::text::turns_text;
use askama::filters::{Escaper, Html};
use core::fmt::{self, Write};
use std::borrow::Cow;

/// Escapes a text for a page. Every character becomes visible, and the text cannot change the page around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visible;

/// Replaces each character that changes the writing direction by the number of the character, such as `[U+202E]`.
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
