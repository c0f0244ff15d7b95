//! The configuration of rustls for a value of `sslmode`, and the check of the server's certificate.

use super::fault::Fault;
use super::settings::{Authority, Mode, Tls};
use super::validity::check;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, Error, InconsistentKeys, RootCertStore, SignatureScheme};
use std::sync::{Arc, OnceLock};

/// The name of PostgreSQL's protocol in the handshake (ALPN). A server from PostgreSQL 17 on confirms this name.
pub(super) const PROTOCOL: &[u8] = b"postgresql";

/// The checks of the server's certificate.
#[derive(Debug)]
enum Check {
    Nothing,
    Authority(Arc<RootCertStore>),
    AuthorityAndName(Arc<RootCertStore>),
}

#[derive(Debug)]
struct Verifier {
    check: Check,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn check_authority(
        &self,
        authorities: &RootCertStore,
        certificate: &ParsedCertificate<'_>,
        issuers: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(certificate, authorities, issuers, now, algorithms)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.check {
            Check::Nothing => {}
            Check::Authority(authorities) => {
                self.check_authority(authorities, &ParsedCertificate::try_from(own)?, issuers, now)?;
            }
            Check::AuthorityAndName(authorities) => {
                let certificate = ParsedCertificate::try_from(own)?;
                self.check_authority(authorities, &certificate, issuers, now)?;
                verify_server_name(&certificate, name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    // In each mode the server must prove that it has the key of its certificate, because SCRAM binds the password to
    // this certificate.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns the certificates of the system's authorities. They are read once in the process.
fn system() -> &'static [CertificateDer<'static>] {
    static SYSTEM: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    if let Some(found) = SYSTEM.get() {
        return found;
    }
    let found = rustls_native_certs::load_native_certs().certs;
    // An empty list is not cached, because authorities may be installed later.
    if found.is_empty() { &[] } else { SYSTEM.get_or_init(|| found) }
}

/// Returns the trusted authorities whose certificates are valid now. Ignores authorities whose certificates have
/// expired or are not valid yet. So a file may contain an authority and its successor. Fails if no authority is left.
fn authorities(tls: &Tls) -> Result<Arc<RootCertStore>, Fault> {
    let (mut authorities, now, mut not_now) = (RootCertStore::empty(), UnixTime::now(), None);
    let Some(Authority::Given(pem)) = &tls.authority else {
        let valid = system().iter().filter(|certificate| check(certificate, now).is_ok()).cloned();
        let _counts = authorities.add_parsable_certificates(valid);
        if authorities.is_empty() {
            return Err(Fault::new(
                "the system has no authorities that could vouch for the server (sslrootcert names a file)",
            ));
        }
        return Ok(Arc::new(authorities));
    };
    let mut others = RootCertStore::empty();
    for certificate in pem.certificates()? {
        let checked = check(&certificate, now);
        // An authority that is not valid now is added to `others`, which is not used. So if its certificate cannot be
        // read, the error says so.
        let into = if checked.is_ok() { &mut authorities } else { &mut others };
        into.add(certificate).map_err(|error| {
            Fault::new(format!("the certificate of an authority cannot be used: {error}"))
        })?;
        not_now = checked.err().or(not_now);
    }
    match not_now {
        Some(fault) if authorities.is_empty() => Err(fault),
        _ => Ok(Arc::new(authorities)),
    }
}

/// Returns the configuration of a connection. Reads the files of the certificates.
pub(crate) fn client_config(mode: Mode, tls: &Tls) -> Result<ClientConfig, Fault> {
    let provider = ring::default_provider();
    let algorithms = provider.signature_verification_algorithms;
    let check = match mode {
        Mode::Disable | Mode::Prefer | Mode::Require => Check::Nothing,
        Mode::VerifyCa => Check::Authority(authorities(tls)?),
        Mode::VerifyFull => Check::AuthorityAndName(authorities(tls)?),
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Fault::new(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { check, algorithms }));
    let mut config = match &tls.own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let (chain, key) = (certificate.certificates()?, key.key()?);
            builder.with_client_auth_cert(chain, key).map_err(|error| match error {
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                    Fault::new("the client certificate and the key do not fit: the key is that of another")
                }
                error => Fault::new(format!("the client certificate and its key cannot be used: {error}")),
            })?
        }
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // Each connection has a new configuration, so no session could be resumed.
    config.resumption = Resumption::disabled();
    Ok(config)
}
