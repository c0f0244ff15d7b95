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

/// The version of the stored form of a timer's work (a callback, or an entry of a queue). The version is the first byte
/// of this form. In version 1, only the work follows. In version 2, the fingerprint of the request precedes the work.
/// In version 3, a whole [`Head`] precedes the work. [`write()`] uses the lowest version that can store the given facts
/// about the request.
const FORM: u8 = 1;
const FORM_WITH_FINGERPRINT: u8 = 2;
const FORM_WITH_HEAD: u8 = 3;

/// The greatest number of bytes that the stored form of a timer's work (a callback, or an entry of a queue) needs in
/// addition to its body and its texts, such as the URL. A callback also needs a few bytes for each header, which are
/// not included here.
pub(crate) const OVERHEAD: usize = 96 + LONGEST_ID;

/// Writes the stored form of a timer's work. `work` is a [`StoredCallback`] or a [`StoredPull`]. `head` has the facts
/// about the request that created the timer.
pub(crate) fn write<T: Serialize>(work: &T, head: Head<'_>) -> Vec<u8> {
    const INFALLIBLE: &str = "a vector takes every length, and the forms have no maps";
    // Work without such facts keeps the bytes that earlier releases have written, so these releases can still read it.
    let mut bytes = match head {
        Head { request: Some(_), .. } => postcard::to_extend(&head, vec![FORM_WITH_HEAD]).expect(INFALLIBLE),
        Head { fingerprint: Some(fingerprint), .. } => {
            [&[FORM_WITH_FINGERPRINT], &fingerprint.to_be_bytes()[..]].concat()
        }
        Head { .. } => vec![FORM],
    };
    bytes.reserve(256);
    postcard::to_extend(work, bytes).expect(INFALLIBLE)
}

/// Splits the stored form of a timer's work into the facts about the request that created the timer, and the bytes of
/// the work. Fails with the reason if the form is damaged or unknown.
fn split(bytes: &[u8]) -> Result<(Head<'_>, &[u8]), Box<str>> {
    match bytes.split_first() {
        Some((&FORM, work)) => Ok((Head::default(), work)),
        Some((&FORM_WITH_FINGERPRINT, rest)) => {
            let (fingerprint, work) =
                rest.split_first_chunk().ok_or("the stored work is damaged: it has no fingerprint")?;
            Ok((Head { fingerprint: Some(u128::from_be_bytes(*fingerprint)), request: None }, work))
        }
        Some((&FORM_WITH_HEAD, rest)) => postcard::take_from_bytes(rest)
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
    fn each_version_of_the_stored_form_is_read() {
        let pull = StoredPull { queue: "q".into(), body: b"b".to_vec(), timeout_ms: 7 };
        let (fingerprint, request) = (Some(u128::MAX - 1), Some("r-1"));
        for (head, form) in [
            (Head::default(), FORM),
            (Head { fingerprint, request: None }, FORM_WITH_FINGERPRINT),
            (Head { fingerprint: None, request }, FORM_WITH_HEAD),
            (Head { fingerprint, request }, FORM_WITH_HEAD),
        ] {
            let bytes = write(&pull, head);
            assert_eq!((bytes[0], super::head(&bytes)), (form, head));
            assert_eq!(read(&bytes), Ok(pull.clone()));
            for length in 0..bytes.len() {
                assert!(read::<StoredPull>(&bytes[..length]).is_err(), "{head:?}, {length} bytes");
            }
        }
        assert_eq!(write(&pull, Head::default()), b"\x01\x01q\x01b\x07", "as it was stored ever since");
        assert!(read::<StoredPull>(b"\x04").unwrap_err().contains("form 4"));
    }
}
