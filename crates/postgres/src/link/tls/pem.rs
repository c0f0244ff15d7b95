//! Certificates and keys in the format PEM, in memory or in files. A file is read again for each connection.

use super::fault::Fault;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::borrow::Cow;
use std::path::PathBuf;

/// A text in PEM.
#[derive(Clone)]
pub(super) enum Pem {
    Text(Vec<u8>),
    File(PathBuf),
}

impl Pem {
    fn read(&self) -> Result<Cow<'_, [u8]>, Fault> {
        match self {
            Self::Text(text) => Ok(text.into()),
            Self::File(path) => std::fs::read(path)
                .map(Cow::Owned)
                .map_err(|error| Fault::new(format!("{} cannot be read: {error}", path.display()))),
        }
    }

    /// Returns the source of the text for error messages: the path of the file, or `kind` for a text in memory.
    fn place<'a>(&'a self, kind: &'a str) -> Cow<'a, str> {
        match self {
            Self::Text(_) => kind.into(),
            Self::File(path) => path.to_string_lossy(),
        }
    }

    /// Reads the certificates. Fails if there is no certificate.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Fault> {
        let failed = |fault| Fault::new(format!("{}: {fault}", self.place("a certificate in memory")));
        let text = self.read()?;
        let read: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
        match read {
            Ok(found) if found.is_empty() => Err(failed("there is no certificate in PEM")),
            Ok(found) => Ok(found),
            // The error of the reader may show a line of the file, so it is not passed on.
            Err(_) => Err(failed("a certificate is not valid PEM")),
        }
    }

    /// Reads a private key.
    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, Fault> {
        let failed = |fault| Fault::new(format!("{}: {fault}", self.place("a key in memory")));
        PrivateKeyDer::from_pem_slice(&self.read()?).map_err(|error| match error {
            pem::Error::NoItemsFound => failed("there is no private key in PEM, or it is encrypted"),
            _ => failed("the private key is not valid PEM"),
        })
    }
}
