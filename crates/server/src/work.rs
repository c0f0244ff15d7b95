//! The work of a timer when it is due, in its stored form.

use crate::asker::LONGEST_ID;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// The name of the kind of timers that send a callback.
pub(crate) const CALLBACK: &str = "callback";
/// The name of the kind of timers that receivers fetch.
pub(crate) const PULL: &str = "pull";

/// The header of a callback with the id of the request that made its timer.
pub(crate) const REQUEST_ID: &str = "tourbillon-request-id";

/// The longest time for one attempt of a callback.
pub(crate) const LONGEST_CALLBACK: Duration = Duration::from_secs(30);
/// The longest time for which a claim is open, with all its renewals.
pub(crate) const LONGEST_CLAIM: Duration = Duration::from_secs(3_600);
/// The beginning of the error of a timer whose destination is blocked.
pub(crate) const BLOCKED: &str = "blocked-destination";

/// An HTTP request, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredCallback {
    pub(crate) url: Box<str>,
    pub(crate) method: Box<str>,
    pub(crate) headers: Vec<(Box<str>, Box<str>)>,
    pub(crate) body: Vec<u8>,
    /// The time for one attempt.
    pub(crate) timeout_ms: u32,
}

/// A place in a queue, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredPull {
    pub(crate) queue: Box<str>,
    pub(crate) body: Vec<u8>,
    /// The time until a claim must be ended or renewed.
    pub(crate) timeout_ms: u32,
}

/// The head of a stored form, before the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head<'a> {
    /// The fingerprint of the request that made the work, if it had an idempotency key.
    pub(crate) fingerprint: Option<u128>,
    /// The id of that request, if its client gave it one.
    #[serde(borrow)]
    pub(crate) request: Option<&'a str>,
}

/// The versions of the stored form, its first byte: a work, a work after the fingerprint of its request, and a work
/// after a head. Each work has the first that has room for its head.
const FORM: u8 = 1;
const FORM_WITH_FINGERPRINT: u8 = 2;
const FORM_WITH_HEAD: u8 = 3;

/// The length of a stored form besides the texts and the body of its work, but for headers.
pub(crate) const OVERHEAD: usize = 96 + LONGEST_ID;

/// The stored form of a work.
pub(crate) fn write<T: Serialize>(work: &T, head: Head<'_>) -> Vec<u8> {
    const INFALLIBLE: &str = "a vector takes every length, and the forms have no maps";
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

/// The head of a stored form, and the work's own bytes. Fails with the reason why the bytes have none.
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

/// The work of a stored form. Fails with the reason why the bytes are none.
pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Box<str>> {
    let (_, work) = split(bytes)?;
    postcard::from_bytes(work).map_err(|error| format!("the stored work is damaged: {error}").into())
}

/// The head of a stored work. It is empty if the bytes are not a work.
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
