//! Reads elements of DER, the form of certificates.

pub(super) const SEQUENCE: u8 = 0x30;

/// Splits a text in DER into the content of its first element, which must have this tag, and the bytes after it.
pub(super) fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        // A certificate has fewer than 2^32 bytes.
        let length =
            length.len().le(&4).then(|| length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))?;
        (length, rest)
    };
    (found == tag).then(|| rest.split_at_checked(length))?
}
