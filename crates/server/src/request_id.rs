//! Gives each request an id.

use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use uuid::Uuid;

/// The header with the id of a request. A client may send it, and each answer has it.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The greatest length of an id that a client may give, in bytes.
pub(crate) const LONGEST_ID: usize = 128;

/// The id of a request, which the client gave or the service made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestId {
    text: Arc<str>,
    is_given: bool,
}

impl RequestId {
    /// Reads the id of a request from the header [`REQUEST_ID`]. Without a valid id there, makes a random id. A valid
    /// id has 1 to 128 letters, digits and characters of `-_.:/+=@`, in a single header.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(REQUEST_ID).iter();
        match (values.next().and_then(|value| value.to_str().ok()), values.next()) {
            (Some(text), None) if is_id(text) => Self { text: text.into(), is_given: true },
            _ => {
                // An id must only differ from other ids, so the random number need not be secret.
                let random = Uuid::from_u128(fastrand::u128(..)).simple();
                Self { text: (*random.encode_lower(&mut [0; 32])).into(), is_given: false }
            }
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the id if the client gave it, or `None` if the service made it.
    pub(crate) fn given(&self) -> Option<&str> {
        self.is_given.then_some(&self.text)
    }

    /// Returns the id as a value of the header [`REQUEST_ID`].
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        // Given and random ids have only characters that a header permits, so the conversion does not fail.
        HeaderValue::from_str(&self.text).ok()
    }
}

/// Returns whether a text is valid as an id that a client gives.
fn is_id(text: &str) -> bool {
    let is_permitted = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
    (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(is_permitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |&(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        list.iter().map(pair).collect()
    }

    #[test]
    fn an_id_is_the_clients_if_it_can_be_taken() {
        let longest = "a".repeat(LONGEST_ID);
        for text in ["a", "6f1c0f3e-5f0a-4a3e", "Root=1-67891233-abcdef", "a/b:c+d@e.f_g", &longest] {
            let id = RequestId::of(&headers(&[("x-request-id", text)]));
            assert_eq!((id.text(), id.given()), (text, Some(text)));
        }
        let too_long = "a".repeat(LONGEST_ID + 1);
        for text in ["", "a b", "a\"b", "a,b", "<b>", "{}", &too_long] {
            let id = RequestId::of(&headers(&[("x-request-id", text)]));
            assert!(id.given().is_none() && id.text().len() == 32 && is_id(id.text()), "{text}: {id:?}");
        }
        let two = headers(&[("x-request-id", "a"), ("x-request-id", "b")]);
        assert!(RequestId::of(&two).given().is_none());
        assert_ne!(RequestId::of(&HeaderMap::new()), RequestId::of(&HeaderMap::new()));
    }
}
