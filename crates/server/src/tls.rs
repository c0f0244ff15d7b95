//! Reads the certificate for TLS and its key from files. Both can be read again while connections are open.

use core::fmt;
use core::time::Duration;
use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode as _, Reader as _, Tagged as _};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The reason why a certificate cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file of the certificate or of the key cannot be read.
    File {
        /// The path of the file that cannot be read.
        path: PathBuf,
        /// The reason why the file cannot be read.
        error: pem::Error,
    },
    /// The key does not belong to the certificate, or the type of the key or certificate is unknown.
    Unusable(rustls::Error),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Unusable(rustls::Error::InconsistentKeys(_)) => {
                f.write_str("tls.certificate and tls.key do not fit: the key is that of another certificate")
            }
            Self::Unusable(error) => write!(f, "the certificate and its key cannot be used: {error}"),
        }
    }
}

impl core::error::Error for TlsError {}

/// The certificate of a service, with its key. Clones share the certificate, so a reload of one clone affects all.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    certificate: PathBuf,
    key: PathBuf,
    in_use: RwLock<InUse>,
}

/// The certificate as it was last read from its files.
#[derive(Clone)]
struct InUse {
    config: Arc<ServerConfig>,
    /// The earliest moment at which a certificate of the chain expires, in seconds since 1970.
    expiry: i64,
}

impl Tls {
    /// Reads the service's certificate, the certificates of its issuers, and its key from two PEM files.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read, or if the key does not belong to the certificate.
    pub fn open(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let (certificate, key) = (certificate.into(), key.into());
        let in_use = RwLock::new(read(&certificate, &key)?);
        Ok(Self(Arc::new(Inner { certificate, key, in_use })))
    }

    /// Reads the files of the certificate and the key again. New connections use the new certificate, and open
    /// connections keep the earlier certificate. After an error, new connections use the earlier certificate, too.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read, or if the key does not belong to the certificate.
    pub fn reload(&self) -> Result<(), TlsError> {
        let read = read(&self.0.certificate, &self.0.key)?;
        *self.0.in_use.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.in_use().config
    }

    /// Returns the earliest moment at which a certificate of the chain expires, in seconds since 1970. From then on,
    /// clients refuse the whole chain.
    pub(crate) fn expiry(&self) -> i64 {
        self.in_use().expiry
    }

    fn in_use(&self) -> InUse {
        self.0.in_use.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(certificate: &Path, key: &Path) -> Result<InUse, TlsError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| TlsError::File { path, error }
    };
    let chain = CertificateDer::pem_file_iter(certificate).map_err(failed(certificate))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(failed(certificate))?;
    if chain.is_empty() {
        return Err(failed(certificate)(pem::Error::NoItemsFound));
    }
    let expiries = chain.iter().filter_map(|one| expiry(one));
    // If no expiry can be read, a moment in the far future keeps alarms on the expiry silent.
    let expiry = expiries.min().map_or(i64::MAX, |expiry| expiry.as_secs().cast_signed());
    let secret = PrivateKeyDer::from_pem_file(key).map_err(failed(key))?;
    // Without this provider, rustls panics if the process has no default provider and links two providers.
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Unusable)?
        .with_no_client_auth();
    let mut config = config.with_single_cert(chain, secret).map_err(TlsError::Unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(InUse { config: Arc::new(config), expiry })
}

/// Returns the moment at which a certificate expires, as the time since 1970. Returns `None` if the certificate cannot
/// be parsed. Finds the moment by the order of the fields in RFC 5280, section 4.1.
fn expiry(certificate: &[u8]) -> Option<Duration> {
    let signed = *elements(AnyRef::from_der(certificate).ok()?)?.first()?;
    let fields = elements(signed)?;
    // The first field may be the version. Only this field has a context-specific tag, by which it is skipped. The
    // serial number, the algorithm, the issuer and the validity follow.
    let mut fields = fields.iter().skip_while(|field| field.tag().is_context_specific());
    let until = *elements(*fields.nth(3)?)?.get(1)?;
    // RFC 5280 prescribes `UTCTime` for moments before 2050, and `GeneralizedTime` for later moments.
    let short = until.decode_as::<UtcTime>().map(|time| time.to_unix_duration());
    short.or_else(|_| until.decode_as::<GeneralizedTime>().map(|time| time.to_unix_duration())).ok()
}

fn elements(sequence: AnyRef<'_>) -> Option<Vec<AnyRef<'_>>> {
    let read = sequence.sequence(|reader| {
        let mut elements = Vec::new();
        while !reader.is_finished() {
            elements.push(AnyRef::decode(reader)?);
        }
        der::Result::Ok(elements)
    });
    read.ok()
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("certificate", &self.0.certificate).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::expiry;
    use core::time::Duration;

    /// A certificate contains a time before 2050 as a `UTCTime`, and a later time as a `GeneralizedTime`.
    #[test]
    fn the_expiry_is_read_from_both_types_of_times() {
        for (year, seconds) in [(2031, 1_924_992_000), (2060, 2_840_140_800)] {
            let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
            let made = parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            assert_eq!(expiry(made.der()), Some(Duration::from_secs(seconds)));
            assert_eq!(expiry(&made.der()[..100]), None);
        }
        assert_eq!(expiry(b"no certificate"), None);
    }
}
