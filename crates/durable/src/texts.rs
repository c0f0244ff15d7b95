//! Finds and replaces zero bytes in texts. A text in PostgreSQL cannot have a zero byte. So no store keeps a timer with
//! such a text, because a backup of one store can be restored into every other.

pub(crate) fn has_zero_byte(text: &str) -> bool {
    text.contains('\0')
}

/// Replaces the zero bytes of a text. For texts that no caller can correct, such as the error of a delivery.
pub(crate) fn without_zero_bytes(text: Box<str>) -> Box<str> {
    if has_zero_byte(&text) { text.replace('\0', "\u{fffd}").into() } else { text }
}
