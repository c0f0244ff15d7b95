//! The settings of TLS: the mode, and certificates.

use super::fault::Fault;
use super::pem::Pem;
use core::fmt;
use std::path::PathBuf;

/// The protection of a connection by TLS, as `sslmode` of libpq names it. Each mode protects better than the modes
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// No TLS.
    Disable,
    /// TLS if the server has it, and a connection without TLS otherwise.
    Prefer,
    /// TLS with any server.
    Require,
    /// TLS with a server whose certificate is from a trusted authority.
    VerifyCa,
    /// TLS with a server whose certificate is from a trusted authority and is valid for the host in the address.
    VerifyFull,
}

/// Certificates for TLS, in the format PEM. A program passes them to [`Connect::tls`](crate::Connect::tls), or names
/// their files in the address of the server.
#[derive(Clone, Default)]
pub struct Tls {
    pub(super) authority: Option<Authority>,
    /// The client certificate, and its key.
    pub(super) own: Option<(Pem, Pem)>,
}

/// The authorities that are trusted for the certificate of the server.
#[derive(Clone)]
pub(super) enum Authority {
    /// The authorities of the system, which `sslrootcert=system` names.
    System,
    /// The authorities in a text or file.
    Given(Pem),
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Mode {
    const ALL: [Self; 5] = [Self::Disable, Self::Prefer, Self::Require, Self::VerifyCa, Self::VerifyFull];

    fn word(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }

    /// Reads the value of `sslmode`.
    pub(crate) fn parse(word: &str) -> Result<Self, Fault> {
        let found = Self::ALL.into_iter().find(|mode| mode.word() == word);
        found.ok_or_else(|| match word {
            "allow" => Fault::new(
                "sslmode=allow is not supported: it begins without TLS. prefer begins with TLS, and require \
                 insists on it",
            ),
            _ => Fault::new("sslmode is one of disable, prefer, require, verify-ca and verify-full"),
        })
    }
}

impl Tls {
    /// Makes settings without an authority and without a client certificate. So `sslmode` alone decides whether the
    /// server is checked: `verify-full` trusts the system's authorities, and the default, `prefer`, checks nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts these authorities for the server's certificate, instead of the system's authorities. With them the
    /// default of `sslmode` is `verify-full`.
    #[must_use]
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(Authority::Given(Pem::Text(pem.into())));
        self
    }

    /// Trusts the authorities in a file, as [`authority`](Self::authority) does. The file is read for each connection.
    #[must_use]
    pub fn authority_from(mut self, path: impl Into<PathBuf>) -> Self {
        self.authority = Some(Authority::Given(Pem::File(path.into())));
        self
    }

    /// Sends a client certificate to a server that asks for it. `certificate` contains the client certificate and the
    /// certificates of its issuers. `key` is the certificate's private key, without a password.
    #[must_use]
    pub fn certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.own = Some((Pem::Text(certificate.into()), Pem::Text(key.into())));
        self
    }

    /// Sends the certificate in a file, as [`certificate`](Self::certificate) does. Both files are read for each
    /// connection, so a certificate may be replaced while the program runs. If a connection finds a new certificate but
    /// still the old key, the connection is tried again.
    #[must_use]
    pub fn certificate_from(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.own = Some((Pem::File(certificate.into()), Pem::File(key.into())));
        self
    }

    /// Trusts the system's authorities, as `sslrootcert=system` asks.
    pub(crate) fn of_system(mut self) -> Self {
        self.authority = Some(Authority::System);
        self
    }

    /// Replaces the authority and the client certificate by those of `other`, where `other` has them.
    pub(crate) fn with(self, other: Self) -> Self {
        Self { authority: other.authority.or(self.authority), own: other.own.or(self.own) }
    }
}

/// Returns the mode of the connections. `asked` is the value of `sslmode` in the address. Fails if the mode contradicts
/// another setting. For example, `prefer` contradicts the setting of an authority: with `prefer`, a server without TLS
/// would be accepted, and the authority would check nothing.
pub(crate) fn effective(asked: Option<Mode>, tls: &Tls, is_direct: bool) -> Result<Mode, Fault> {
    let without = if tls.authority.is_some() { Mode::VerifyFull } else { Mode::Prefer };
    let mode = asked.unwrap_or(without);
    let word = mode.word();
    let failed = |message: String| Err(Fault::new(message));
    match &tls.authority {
        Some(_) if mode < Mode::Require => {
            return failed(format!(
                "an authority (sslrootcert) checks nothing with sslmode={word}, which takes a connection \
                 without TLS: verify-full checks the server"
            ));
        }
        Some(Authority::System) if mode < Mode::VerifyFull => {
            return failed(format!(
                "the system's authorities vouch for servers of others too, so sslmode={word} is too weak for \
                 them: it must be verify-full"
            ));
        }
        None if mode == Mode::VerifyCa => {
            return failed(
                "sslmode=verify-ca needs an authority (sslrootcert): the system's authorities vouch for \
                 servers of others too"
                    .to_owned(),
            );
        }
        _ => {}
    }
    if tls.own.is_some() && mode == Mode::Disable {
        return failed("a client certificate (sslcert) is for TLS, and sslmode is disable".to_owned());
    }
    if is_direct && mode < Mode::Require {
        return failed(format!("sslnegotiation=direct needs TLS, and sslmode={word} does not insist on it"));
    }
    // As in libpq: with an authority, `require` checks the server's certificate, too.
    Ok(if tls.authority.is_some() { mode.max(Mode::VerifyCa) } else { mode })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(asked: &str, tls: &Tls) -> Result<Mode, String> {
        let asked = (!asked.is_empty()).then(|| Mode::parse(asked)).transpose();
        asked.and_then(|asked| effective(asked, tls, false)).map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_mode_keeps_its_promise_and_those_of_the_certificates() {
        let (none, given, system) = (Tls::new(), Tls::new().authority_from("/ca"), Tls::new().of_system());
        let own = Tls::new().certificate_from("/c", "/k");
        for (asked, tls, expected) in [
            ("", &none, Ok(Mode::Prefer)),
            ("disable", &none, Ok(Mode::Disable)),
            ("require", &none, Ok(Mode::Require)),
            ("verify-full", &none, Ok(Mode::VerifyFull)),
            ("verify-ca", &none, Err("needs an authority")),
            ("", &given, Ok(Mode::VerifyFull)),
            ("require", &given, Ok(Mode::VerifyCa)),
            ("verify-ca", &given, Ok(Mode::VerifyCa)),
            ("prefer", &given, Err("checks nothing with sslmode=prefer")),
            ("disable", &given, Err("checks nothing with sslmode=disable")),
            ("", &system, Ok(Mode::VerifyFull)),
            ("verify-ca", &system, Err("sslmode=verify-ca is too weak")),
            ("require", &system, Err("sslmode=require is too weak")),
            ("", &own, Ok(Mode::Prefer)),
            ("disable", &own, Err("a client certificate (sslcert) is for TLS")),
            ("allow", &none, Err("prefer begins with TLS")),
            ("VERIFY-FULL", &none, Err("one of disable, prefer, require, verify-ca and verify-full")),
        ] {
            match (mode(asked, tls), expected) {
                (Err(message), Err(words)) => assert!(message.contains(words), "{asked}: {message}"),
                (found, expected) => assert_eq!(found, expected.map_err(str::to_owned), "{asked}"),
            }
        }
        let direct = |asked| effective(Some(asked), &none, true);
        assert!(direct(Mode::Prefer).unwrap_err().to_string().contains("sslnegotiation=direct"));
        assert_eq!(direct(Mode::Require).unwrap(), Mode::Require);
    }
}
