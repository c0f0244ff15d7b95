//! Reads elements of DER, the form of certificates.

pub(super) const SEQUENCE: u8 = 0x30;

/// Splits bytes in DER into the content of the first element, and the bytes after this element. `None` if the first
/// element has another tag than `tag`, or if the bytes cannot be read.
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
