//! Texts that are shortened before they are kept or shown.

/// The first bytes of a text, as one line: at most `most` of them, and never a part of a character.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
