//! Shortens texts before they are stored or shown.

/// Cuts a text to at most `most` bytes, at the end of a character. Control characters become spaces, so the result is a
/// single line.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
