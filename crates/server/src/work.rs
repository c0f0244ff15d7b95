//! What a stored timer does when it is due, in its stored form.

use serde::{Deserialize, Serialize};

/// The name of the kind of timers that send a callback.
pub(crate) const CALLBACK: &str = "callback";
/// The name of the kind of timers that receivers fetch.
pub(crate) const PULL: &str = "pull";

/// An HTTP request, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredCallback {
    pub(crate) url: Box<str>,
    pub(crate) method: Box<str>,
    pub(crate) headers: Vec<(Box<str>, Box<str>)>,
    pub(crate) body: Vec<u8>,
}

/// A place in a queue, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredPull {
    pub(crate) queue: Box<str>,
    pub(crate) body: Vec<u8>,
}

/// The versions of the stored form, its first byte: a work, and a work after the fingerprint of its request.
const FORM: u8 = 1;
const FORM_WITH_FINGERPRINT: u8 = 2;

/// The length of a stored form besides the texts and the body of its work, but for headers.
pub(crate) const OVERHEAD: usize = 96;

/// The stored form of a work.
pub(crate) fn write<T: Serialize>(work: &T, fingerprint: Option<u128>) -> Vec<u8> {
    let mut bytes = match fingerprint {
        None => vec![FORM],
        Some(fingerprint) => [&[FORM_WITH_FINGERPRINT], &fingerprint.to_be_bytes()[..]].concat(),
    };
    bytes.reserve(256);
    postcard::to_extend(work, bytes).expect("a vector takes every length, and the forms have no maps")
}

/// The work of a stored form. Fails with the reason why the bytes are none.
pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Box<str>> {
    let work = match bytes.split_first() {
        Some((&FORM, rest)) => rest,
        Some((&FORM_WITH_FINGERPRINT, rest)) => {
            rest.get(16..).ok_or("the stored work is damaged: it has no fingerprint")?
        }
        Some((form, _)) => {
            return Err(format!("the stored work has form {form}, which this version does not know").into());
        }
        None => return Err("the stored work is empty".into()),
    };
    postcard::from_bytes(work).map_err(|error| format!("the stored work is damaged: {error}").into())
}

/// The fingerprint of the request that made a work, if the request had an idempotency key.
pub(crate) fn fingerprint(bytes: &[u8]) -> Option<u128> {
    let (&FORM_WITH_FINGERPRINT, rest) = bytes.split_first()? else { return None };
    rest.first_chunk().copied().map(u128::from_be_bytes)
}
