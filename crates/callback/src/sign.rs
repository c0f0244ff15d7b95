//! Signs callbacks according to Standard Webhooks 1.0, with HMAC-SHA256 over the id, the time and the body.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use core::fmt;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A secret that a sender and a receiver share. The sender signs callbacks with the secret, and the receiver verifies
/// the signatures with it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

/// The reason why a text cannot be read as a signing [`Secret`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretError {
    /// The text does not begin with `whsec_`, or the rest is not base 64.
    Form,
    /// The secret does not have 24 to 64 bytes. The value is its number of bytes.
    Length(usize),
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("a secret is whsec_ and a text in base 64"),
            Self::Length(length) => write!(f, "a secret has 24 to 64 bytes, not {length}"),
        }
    }
}

impl core::error::Error for SecretError {}

const PREFIX: &str = "whsec_";

impl core::str::FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let secret = text.strip_prefix(PREFIX).ok_or(SecretError::Form)?;
        let secret = BASE64_STANDARD.decode(secret).map_err(|_| SecretError::Form)?;
        if (24..=64).contains(&secret.len()) {
            Ok(Self(secret.into()))
        } else {
            Err(SecretError::Length(secret.len()))
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Returns the value of the header `webhook-signature`, with a signature for each secret. So during a change of
/// secrets, a receiver can verify the callback with either the old or the new secret.
pub(crate) fn signatures(secrets: &[Secret], id: &str, timestamp: u64, body: &[u8]) -> String {
    let sign = |Secret(secret): &Secret| {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length will do");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    };
    secrets.iter().map(sign).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signs with two secrets, and verifies the signatures with the library of the authors of Standard Webhooks. A
    /// receiver with either secret must accept them.
    #[test]
    fn receivers_of_either_secret_accept_what_was_signed() {
        let texts = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"];
        let secrets: Vec<Secret> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let body = b"{\"order\":17}";
        let signature = signatures(&secrets, "msg-1", now, body);
        for (text, other) in [(texts[0], "msg-1"), (texts[1], "msg-1"), (texts[0], "msg-2")] {
            let mut headers = http::HeaderMap::new();
            headers.insert("webhook-id", other.parse().unwrap());
            headers.insert("webhook-timestamp", now.into());
            headers.insert("webhook-signature", signature.parse().unwrap());
            let verifier = standardwebhooks::Webhook::new(text).unwrap();
            assert_eq!(verifier.verify(body, &headers).is_ok(), other == "msg-1");
        }
    }

    #[test]
    fn texts_that_are_no_secrets_are_refused() {
        let read = |text: &str| text.parse::<Secret>().map(drop);
        assert_eq!(read("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), Err(SecretError::Form));
        assert_eq!(read("whsec_!"), Err(SecretError::Form));
        assert_eq!(read("whsec_AAAA"), Err(SecretError::Length(3)));
        assert_eq!(
            format!("{:?}", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse::<Secret>().unwrap()),
            "Secret"
        );
    }
}
