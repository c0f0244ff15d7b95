//! What a stored timer does when it is due, in its stored form.

use core::time::Duration;
use serde::{Deserialize, Serialize};

/// The name of the kind of timers that send a callback.
pub(crate) const CALLBACK: &str = "callback";
/// The name of the kind of timers that receivers fetch.
pub(crate) const PULL: &str = "pull";

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
    /// The time until a claim is to be ended or renewed.
    pub(crate) timeout_ms: u32,
}

/// The version of the stored form, its first byte.
const FORM: u8 = 1;

/// The stored form of a work.
pub(crate) fn write<T: Serialize>(work: &T) -> Vec<u8> {
    postcard::to_extend(work, vec![FORM]).expect("a vector takes every length, and the forms have no maps")
}

/// The work of a stored form. Fails with the reason why the bytes are none.
pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Box<str>> {
    match bytes.split_first() {
        Some((&FORM, rest)) => {
            postcard::from_bytes(rest).map_err(|error| format!("the stored work is damaged: {error}").into())
        }
        Some((form, _)) => {
            Err(format!("the stored work has form {form}, which this version does not know").into())
        }
        None => Err("the stored work is empty".into()),
    }
}
