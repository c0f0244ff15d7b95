//! Authorities that issue certificates for TLS.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};

/// An authority that issues certificates for a test.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

fn named(names: &[&str], common: &str) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut parameters = CertificateParams::new(names).expect("names of hosts");
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, common);
    parameters
}

impl Authority {
    /// Makes an authority with this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::with(name, |_| {})
    }

    /// Makes an authority, after `change` has changed the parameters of its certificate.
    #[must_use]
    pub fn with(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut parameters = named(&[], name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut parameters);
        Self(CertifiedIssuer::self_signed(parameters, new_key()).expect("a certificate"))
    }

    /// Returns the certificate of the authority.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for a server with these names.
    #[must_use]
    pub fn server(&self, names: &[&str]) -> Issued {
        self.issue(named(names, "server"))
    }

    /// Issues a certificate for the server 127.0.0.1, after `change` has changed the certificate's parameters.
    #[must_use]
    pub fn changed(&self, change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let mut parameters = named(&["127.0.0.1"], "server");
        change(&mut parameters);
        self.issue(parameters)
    }

    /// Issues a certificate for a user.
    #[must_use]
    pub fn user(&self, name: &str) -> Issued {
        self.issue(named(&[], name))
    }

    fn issue(&self, parameters: CertificateParams) -> Issued {
        let key = new_key();
        let certificate = parameters.signed_by(&key, &self.0).expect("a certificate");
        Issued { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("a key")
}
