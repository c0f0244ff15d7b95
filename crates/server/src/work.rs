//! Writes and reads the stored form of a timer's *work*: a callback, or an entry of a queue.

use crate::request_id::LONGEST_ID;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// The name of the handler for timers that send a callback when they are due.
pub(crate) const CALLBACK: &str = "callback";
/// The name of the handler for timers that receivers fetch from a queue when they are due.
pub(crate) const PULL: &str = "pull";

/// The name of a header of callbacks. The header contains the id of the request that created the timer.
pub(crate) const REQUEST_ID: &str = "tourbillon-request-id";

/// The longest time for one attempt to send a callback.
pub(crate) const LONGEST_CALLBACK: Duration = Duration::from_secs(30);
/// The longest time for which a receiver may hold a fetched timer, including all renewals.
pub(crate) const LONGEST_CLAIM: Duration = Duration::from_secs(3_600);
/// The first word of a timer's error if the callback's destination is blocked.
pub(crate) const BLOCKED: &str = "blocked-destination";

/// The HTTP request of a callback timer, in its stored form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredCallback {
    pub(crate) url: Box<str>,
    pub(crate) method: Box<str>,
    pub(crate) headers: Vec<(Box<str>, Box<str>)>,
    pub(crate) body: Vec<u8>,
    /// The longest time for one attempt to send the callback, in milliseconds.
    pub(crate) timeout_ms: u32,
}

/// The queue and the body of a pull timer, in their stored form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredPull {
    pub(crate) queue: Box<str>,
    pub(crate) body: Vec<u8>,
    /// The time within which a receiver must end or renew its claim on the timer, in milliseconds.
    pub(crate) timeout_ms: u32,
}

/// Facts about the request that created a timer. They are stored in front of the timer's work, which is a callback or
/// an entry of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head<'a> {
    /// The fingerprint of the request, a hash that equal requests share. `None` if the request had no idempotency key.
    pub(crate) fingerprint: Option<u128>,
    /// The id that the client gave the request, or `None`.
    #[serde(borrow)]
    pub(crate) request: Option<&'a str>,
}

/// The version of the stored form of a timer's callback or queue entry. This form begins with a byte that has the
/// version. A [`Head`] and the callback or queue entry follow.
const FORM: u8 = 1;

/// The greatest number of bytes that the stored form of a callback or queue entry needs in addition to its body and its
/// texts, such as the URL. A callback also needs a few bytes for each header, which are not included here.
pub(crate) const OVERHEAD: usize = 96 + LONGEST_ID;

/// Writes the stored form of `work`, a [`StoredCallback`] or a [`StoredPull`]. `head` has the facts about the request
/// that created the timer.
pub(crate) fn write<T: Serialize>(work: &T, head: Head<'_>) -> Vec<u8> {
    const INFALLIBLE: &str = "a vector takes every length, and the forms have no maps";
    let mut bytes = Vec::with_capacity(256);
    bytes.push(FORM);
    let bytes = postcard::to_extend(&head, bytes).expect(INFALLIBLE);
    postcard::to_extend(work, bytes).expect(INFALLIBLE)
}

/// Splits the stored form of a callback or queue entry into the facts about the request that created the timer, and the
/// remaining bytes. Fails with the reason if the form is damaged or unknown.
fn split(bytes: &[u8]) -> Result<(Head<'_>, &[u8]), Box<str>> {
    match bytes.split_first() {
        Some((&FORM, rest)) => postcard::take_from_bytes(rest)
            .map_err(|error| format!("the stored work is damaged: {error}").into()),
        Some((form, _)) => {
            Err(format!("the stored work has form {form}, which this version does not know").into())
        }
        None => Err("the stored work is empty".into()),
    }
}

/// Reads a timer's work (a [`StoredCallback`] or a [`StoredPull`]) from its stored form. Fails with the reason if the
/// bytes are not a value of the type `T`.
pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Box<str>> {
    let (_, work) = split(bytes)?;
    postcard::from_bytes(work).map_err(|error| format!("the stored work is damaged: {error}").into())
}

/// Reads the facts about the request that created a timer from the stored form of the timer's work. Returns an empty
/// head if the bytes are damaged or in an unknown form.
pub(crate) fn head(bytes: &[u8]) -> Head<'_> {
    split(bytes).map(|(head, _)| head).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_and_its_head_are_read_as_they_were_written() {
        let pull = StoredPull { queue: "q".into(), body: b"b".to_vec(), timeout_ms: 7 };
        let (fingerprint, request) = (Some(u128::MAX - 1), Some("r-1"));
        for head in [
            Head::default(),
            Head { fingerprint, request: None },
            Head { fingerprint: None, request },
            Head { fingerprint, request },
        ] {
            let bytes = write(&pull, head);
            assert_eq!((bytes[0], super::head(&bytes)), (FORM, head));
            assert_eq!(read(&bytes), Ok(pull.clone()));
            for length in 0..bytes.len() {
                assert!(read::<StoredPull>(&bytes[..length]).is_err(), "{head:?}, {length} bytes");
            }
        }
        assert_eq!(write(&pull, Head::default()), b"\x01\0\0\x01q\x01b\x07", "stored timers stay readable");
        assert!(read::<StoredPull>(b"\x02\0\0\x01q\x01b\x07").unwrap_err().contains("form 2"));
    }
}
