//! The reasons why TLS fails, in plain words. No reason contains a key.

use core::fmt;
use core::time::Duration;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error};
use std::io;

/// The reason why TLS fails.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    message: Box<str>,
    /// Whether another attempt within the next seconds would fail in the same way.
    pub(crate) is_final: bool,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for Fault {}

impl Fault {
    /// Makes a fault after which another attempt may succeed.
    pub(crate) fn new(message: impl Into<Box<str>>) -> Self {
        Self { message: message.into(), is_final: false }
    }

    /// Makes a fault after which another attempt would fail, too.
    fn last(message: impl Into<Box<str>>) -> Self {
        Self { message: message.into(), is_final: true }
    }

    /// Makes the fault of an authority whose certificate is no longer valid.
    pub(super) fn of_expired_authority(until: UnixTime, now: UnixTime) -> Self {
        Self::last(format!("the certificate of the authority expired {} ago", between(until, now)))
    }

    /// Makes the fault of an authority whose certificate is not valid yet.
    pub(super) fn of_early_authority(from: UnixTime, now: UnixTime) -> Self {
        let rest = between(now, from);
        Self::last(format!("the certificate of the authority is valid only in {rest}: a clock may be wrong"))
    }

    /// Returns the reason why a handshake failed.
    pub(super) fn of_handshake(error: &io::Error) -> Self {
        match of_rustls(error) {
            Some(Error::InvalidCertificate(reason)) => Self::last(of_certificate(reason)),
            _ => Self::new(refusal(error).unwrap_or_else(|| format!("the handshake of TLS failed: {error}"))),
        }
    }
}

fn of_rustls(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Returns a message if the server has refused the client certificate by an alert. Returns `None` for other errors.
/// With TLS 1.3 such an alert arrives after the handshake, with the first answer of the server.
pub(crate) fn refusal(error: &io::Error) -> Option<String> {
    let Some(Error::AlertReceived(alert)) = of_rustls(error) else { return None };
    match alert {
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            Some("the server asks for a client certificate".to_owned())
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied
        | AlertDescription::DecryptError => {
            Some(format!("the server does not accept the client certificate ({alert:?})"))
        }
        _ => None,
    }
}

/// Returns a message about a server certificate that this client does not accept.
fn of_certificate(reason: &CertificateError) -> String {
    match reason {
        CertificateError::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            if presented.is_empty() {
                return format!(
                    "the certificate of the server is not for {expected}: it has no name in subjectAltName"
                );
            }
            let names: Vec<_> = presented.iter().map(|name| bare(name)).collect();
            format!("the certificate of the server is not for {expected}, but for {}", names.join(", "))
        }
        CertificateError::ExpiredContext { time, not_after } => {
            format!(
                "the certificate of the server, or of its authority, expired {} ago",
                between(*not_after, *time)
            )
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            format!(
                "the certificate of the server, or of its authority, is valid only in {}: a clock may be wrong",
                between(*time, *not_before)
            )
        }
        CertificateError::UnknownIssuer => {
            "the certificate of the server is from no authority that is trusted".to_owned()
        }
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "the certificate of the server is that of an authority (CA:TRUE), and so not that of a server"
                .to_owned()
        }
        other => format!("the certificate of the server cannot be used: {other}"),
    }
}

/// Returns the name in a text such as `DnsName("db")` or `IpAddress(10.0.0.5)`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.map_or(name, |inner| inner.trim_matches('"'))
}

fn between(from: UnixTime, to: UnixTime) -> String {
    let time = Duration::from_secs(to.as_secs().saturating_sub(from.as_secs()));
    match time.as_secs() {
        seconds @ ..=119 => format!("{seconds} s"),
        seconds @ ..=7_199 => format!("{} min", seconds / 60),
        seconds @ ..=172_799 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_names_are_short() {
        let after = |seconds: u64| {
            let at = |seconds: u64| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            between(at(7), at(7 + seconds))
        };
        assert_eq!([0, 119, 120, 7_200, 172_800].map(after), ["0 s", "119 s", "2 min", "2 h", "2 days"]);
        assert_eq!([r#"DnsName("db")"#, "IpAddress(::1)", "Other"].map(bare), ["db", "::1", "Other"]);
    }
}
