//! Receives backups of a service, and verifies them while they arrive.

use crate::error::{Error, with_causes};
use bytes::Bytes;
use core::fmt;
use core::time::Duration;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;

/// The greatest length of the last line of a backup, in bytes.
const LONGEST_END: usize = 200;

/// The last line of a backup. The line contains the number of timers and a checksum.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    timers: u64,
    crc32: u32,
}

/// The counts and checksums of the bytes that have arrived. The backup's last line must agree with them.
#[derive(Default)]
struct Seen {
    /// The number of complete lines that have arrived.
    lines: u64,
    /// The checksum of all bytes that have arrived. `sum_before` is the checksum without the last line.
    sum: crc32fast::Hasher,
    sum_before: crc32fast::Hasher,
    /// The last line, as far as it has arrived. A line that is longer than [`LONGEST_END`] bytes is cut.
    last: Vec<u8>,
}

impl Seen {
    fn add(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.last.ends_with(b"\n") || self.lines == 0 && self.last.is_empty() {
                self.sum_before = self.sum.clone();
                self.last.clear();
            }
            self.sum.update(part);
            let room = LONGEST_END.saturating_sub(self.last.len());
            self.last.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                self.lines += 1;
                // A longer line was cut, so its end is missing and is added here.
                if !self.last.ends_with(b"\n") {
                    self.last.push(b'\n');
                }
            }
        }
    }

    /// Returns the number of timers if the backup is complete and its last line matches the bytes before it. Otherwise
    /// returns `None`.
    fn end(&self) -> Option<u64> {
        let line = self.last.strip_suffix(b"\n")?;
        let end: End = serde_json::from_slice(line).ok()?;
        // The first and the last line hold no timers.
        let agrees = end.crc32 == self.sum_before.clone().finalize() && self.lines == end.timers + 2;
        agrees.then_some(end.timers)
    }
}

/// A copy of all timers, schedules and namespaces of a service. The caller reads it in pieces.
pub struct Backup {
    body: Incoming,
    patience: Duration,
    seen: Seen,
    timers: Option<u64>,
}

impl Backup {
    pub(crate) fn new(body: Incoming, patience: Duration) -> Self {
        Self { body, patience, seen: Seen::default(), timers: None }
    }

    /// Returns the next piece of the backup, or `None` after the last piece. After `None`, the backup is complete, and
    /// [`timers`](Self::timers) returns the number of its timers.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Connection`] if the backup breaks off, or if its number of timers or its checksum is wrong.
    /// Fails with [`Error::Timeout`] if no byte comes within the client's timeout. After an error, the pieces do not
    /// form a complete backup.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let frame = tokio::time::timeout(self.patience, self.body.frame()).await;
            match frame.map_err(|_| Error::Timeout)? {
                None => {
                    let no_end = || Error::Connection("the backup was cut or changed on its way".into());
                    self.timers = Some(self.seen.end().ok_or_else(no_end)?);
                    return Ok(None);
                }
                Some(Err(error)) => return Err(Error::Connection(with_causes(&error).into())),
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.seen.add(&piece);
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }

    /// Returns the number of timers in the backup. Returns `None` until the whole backup has arrived.
    #[must_use]
    pub fn timers(&self) -> Option<u64> {
        self.timers
    }
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backup").field("timers", &self.timers).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a backup with a first line, lines of these lengths, and a last line.
    fn backup(lengths: &[usize]) -> Vec<u8> {
        let mut bytes = b"{\"tourbillon\":\"backup\"}\n".to_vec();
        for length in lengths {
            bytes.extend(std::iter::repeat_n(b'x', *length));
            bytes.push(b'\n');
        }
        let crc32 = crc32fast::hash(&bytes);
        bytes.extend(format!("{{\"timers\":{},\"crc32\":{crc32}}}\n", lengths.len()).into_bytes());
        bytes
    }

    fn end(bytes: &[u8], piece: usize) -> Option<u64> {
        let mut seen = Seen::default();
        bytes.chunks(piece).for_each(|piece| seen.add(piece));
        seen.end()
    }

    #[test]
    fn a_complete_backup_is_known_however_it_is_cut_into_pieces() {
        for lengths in [&[][..], &[0], &[1, 199, 200, 201, 5_000, 3]] {
            let bytes = backup(lengths);
            for piece in [1, 2, 3, 7, 64, 199, 200, 201, bytes.len()] {
                assert_eq!(end(&bytes, piece), Some(lengths.len() as u64), "{lengths:?}, {piece}");
            }
        }
    }

    #[test]
    fn a_backup_that_is_cut_or_changed_is_refused() {
        let bytes = backup(&[3, 300, 7]);
        for length in 0..bytes.len() {
            assert_eq!(end(&bytes[..length], 64), None, "cut to {length} bytes");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(end(&changed, 64), None, "byte {at} is changed");
        }
        assert_eq!(end(&[&bytes[..], b"x"].concat(), 64), None);
    }
}
