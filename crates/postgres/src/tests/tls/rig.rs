//! Authorities, servers with TLS, and connections to them.

use crate::Connect;
use crate::link::Failure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, SignatureAlgorithm};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsAcceptor;
use tourbillon_fault::{Issued, Postgres};

/// The first bytes of a client that asks for TLS.
const SSL_REQUEST: [u8; 8] = *b"\x00\x00\x00\x08\x04\xd2\x16\x2f";

/// Makes a certificate with a signature of this algorithm by its own key.
pub(super) fn self_signed(algorithm: &'static SignatureAlgorithm, is_authority: bool) -> Issued {
    let mut parameters = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    if is_authority {
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let key = KeyPair::generate_for(algorithm).unwrap();
    let certificate = parameters.self_signed(&key).unwrap().pem();
    if *algorithm != rcgen::PKCS_ED25519 {
        return Issued { certificate, key: key.serialize_pem() };
    }
    // OpenSSL reads such a key only without its public part (RFC 8410, section 7).
    let seed = &key.serialize_der()[16..48];
    let form = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
    let text = STANDARD.encode([form, seed].concat());
    Issued { certificate, key: format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n") }
}

/// Files of a client.
pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file, and returns its path.
    pub(super) fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

/// A server with TLS.
pub(super) struct Secure(pub(super) Postgres);

impl Secure {
    /// Starts a server with this certificate. `rules` are lines of `pg_hba.conf`. Certificates of users must be from
    /// the authority `users`.
    pub(super) fn start(own: &Issued, users: &str, rules: &str) -> Option<Self> {
        let mut server = Postgres::start(&[])?;
        server.secure(own, users, rules);
        Some(Self(server))
    }

    /// Returns the address of the server for a user, with these words in the query.
    pub(super) fn address(&self, user: &str, words: &str) -> String {
        format!("postgresql://{user}@127.0.0.1:{}/postgres?{words}", self.0.port())
    }
}

/// The server's view of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) has_tls: bool,
    /// The name in the client certificate.
    pub(super) user: Option<String>,
}

pub(super) const WITH_TLS: Seen = Seen { has_tls: true, user: None };
pub(super) const WITHOUT_TLS: Seen = Seen { has_tls: false, user: None };

pub(super) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Makes one connection, and returns the server's view of it.
pub(super) fn dial(connect: &Connect) -> Result<Seen, Failure> {
    runtime().block_on(async {
        let (client, connection) = connect.dial().await?;
        let _driven = tokio::spawn(connection);
        let seen = "SELECT ssl, client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let row = client.query_one(seen, &[]).await.unwrap();
        Ok(Seen { has_tls: row.get(0), user: row.get(1) })
    })
}

#[track_caller]
pub(super) fn accepted(address: &str, seen: Seen) {
    match dial(&Connect::to(address).unwrap()) {
        Ok(found) => assert_eq!(found, seen, "{address}"),
        Err(failure) => panic!("{address}: {failure:?}"),
    }
}

/// Checks that no connection is made, and that the error contains these words. Returns the failure.
#[track_caller]
pub(super) fn refused(address: &str, words: &str) -> Failure {
    refused_by(&Connect::to(address).unwrap(), words)
}

#[track_caller]
pub(super) fn refused_by(connect: &Connect, words: &str) -> Failure {
    let failure = dial(connect).expect_err("no connection is made");
    let message = failure.clone().into_error().to_string();
    assert!(message.contains(words), "{words:?} is not in {message}");
    for secret in ["hunter2", "PRIVATE"] {
        assert!(!message.contains(secret) && !format!("{connect:?}").contains(secret), "{message}");
    }
    failure
}

/// A program between a client and a server, which ends the client's TLS. Without TLS it passes all bytes on.
pub(super) struct Middle {
    pub(super) port: u16,
    _runtime: Runtime,
}

impl Middle {
    /// Starts the program with a certificate of its own. If `is_direct`, a connection begins with TLS.
    pub(super) fn start(server: &Postgres, own: &Issued, is_direct: bool, protocols: &[&[u8]]) -> Self {
        let chain = CertificateDer::pem_slice_iter(own.certificate.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let (runtime, acceptor) = (runtime(), TlsAcceptor::from(Arc::new(config)));
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let (port, server) = (listener.local_addr().unwrap().port(), server.port());
        runtime.spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await?;
                    if !is_direct {
                        let mut request = [0; 8];
                        client.read_exact(&mut request).await?;
                        if request != SSL_REQUEST {
                            server.write_all(&request).await?;
                            return tokio::io::copy_bidirectional(&mut client, &mut server).await;
                        }
                        client.write_all(b"S").await?;
                    }
                    let mut client = acceptor.accept(client).await?;
                    tokio::io::copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Self { port, _runtime: runtime }
    }
}
