//! Tests TLS from end to end, with a certificate that changes.

use crate::clients::{far, timer};
use crate::process::{Daemon, SOON, folder, program, token};
use axum::body::Bytes;
use axum::http::{Request, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::Signal;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Writes a new certificate and its key into `folder`. Returns the certificate.
pub(crate) fn certify(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("certificate.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

/// Opens a TLS connection to the service. The client of the connection trusts only `certificate`.
pub(crate) async fn connect(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.into()];
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn request(method: &str, address: SocketAddr, token: &str, body: String) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(format!("https://localhost:{}{}", address.port(), timer("k")))
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {token}"))
        .body(Full::new(body.into()))
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_changes_and_no_connection_breaks() {
    let folder = folder();
    let first = certify(folder.path());
    let admin = token(folder.path(), &["--role", "admin", "--data", "data"]);
    let arguments = ["--tls-certificate", "certificate.pem", "--tls-key", "key.pem", "--data", "data"];
    // With tokens and TLS, the service may listen at an address that others reach.
    let daemon = Daemon::spawn(program(
        folder.path(),
        &[&arguments[..], &["--listen", "0.0.0.0:0", "--callbacks-allow-http"]].concat(),
    ));
    daemon.line("https://").await;
    let address = SocketAddr::from(([127, 0, 0, 1], daemon.address.port()));

    let stream = connect(address, &first, "http/1.1").await.unwrap();
    let (mut old, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let made = old.send_request(request("PUT", address, &admin, far().to_string())).await.unwrap();
    assert_eq!(made.status(), 201);
    made.into_body().collect().await.unwrap();

    // If the key does not fit the new certificate, the service keeps the old certificate.
    let key = std::fs::read(folder.path().join("key.pem")).unwrap();
    let second = certify(folder.path());
    let fitting = std::fs::read(folder.path().join("key.pem")).unwrap();
    std::fs::write(folder.path().join("key.pem"), key).unwrap();
    daemon.signal(Signal::HUP);
    daemon.line("the certificate stays as it was").await;
    assert!(connect(address, &first, "http/1.1").await.is_ok());

    std::fs::write(folder.path().join("key.pem"), fitting).unwrap();
    daemon.signal(Signal::HUP);
    daemon.line("the certificate was read again").await;
    assert!(connect(address, &first, "http/1.1").await.is_err(), "new connections get the new certificate");
    let stream = connect(address, &second, "h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut new, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let shown = new.send_request(request("GET", address, &admin, String::new())).await.unwrap();
    assert_eq!((shown.status().as_u16(), shown.version()), (200, Version::HTTP_2));
    // The connection from before still works.
    let shown = old.send_request(request("GET", address, &admin, String::new())).await.unwrap();
    assert_eq!(shown.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_does_not_end_is_cut() {
    let folder = folder();
    certify(folder.path());
    let tls = ["--tls-certificate", "certificate.pem", "--tls-key", "key.pem", "--timeouts-header", "300ms"];
    let daemon = Daemon::start(folder.path(), &tls);
    for start in [&b""[..], b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut raw = crate::clients::Raw::connect(daemon.address).await;
        raw.send(start).await;
        assert!(raw.rest(SOON).await.1, "{start:?}");
    }
}

#[test]
fn a_certificate_that_cannot_be_used_ends_the_start() {
    let folder = folder();
    // A renewal replaces both files, and a start in between must be tried again. So the exit code is not that of a
    // wrong setting.
    let refused = |arguments: &[&str]| {
        let ended = crate::process::run(folder.path(), arguments);
        assert_eq!(ended.status.code(), Some(if arguments.len() > 2 { 1 } else { 2 }));
        crate::process::text(&ended.stderr)
    };
    let arguments =
        ["--tls-certificate", "certificate.pem", "--tls-key", "key.pem", "--listen", "127.0.0.1:0"];
    assert!(refused(&arguments).contains("certificate.pem"));
    certify(folder.path());
    std::fs::write(folder.path().join("key.pem"), "no key").unwrap();
    assert!(refused(&arguments).contains("key.pem"));
    let key = std::fs::read(folder.path().join("certificate.pem")).unwrap();
    std::fs::write(folder.path().join("key.pem"), key).unwrap();
    assert!(refused(&arguments).contains("key.pem"), "a certificate in the place of the key");
    certify(folder.path());
    let of_another = std::fs::read(folder.path().join("key.pem")).unwrap();
    certify(folder.path());
    std::fs::write(folder.path().join("key.pem"), of_another).unwrap();
    assert!(refused(&arguments).contains("do not fit"));
    assert!(refused(&arguments[..2]).contains("together"));
}

/// Clients leave in the middle of a TLS handshake, at three different points. The connections must free their places at
/// once: the service permits only two connections, and no timeout ends within the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_is_cut_in_the_middle_costs_nothing() {
    let folder = folder();
    let trusted = certify(folder.path());
    let arguments = ["--tls-certificate", "certificate.pem", "--tls-key", "key.pem"];
    let limits = ["--timeouts-header", "1h", "--limits-connections", "2"];
    let daemon = Daemon::start(folder.path(), &[arguments, limits].concat());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    let mut hello = Vec::new();
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = rustls::ClientConnection::new(config, name).unwrap();
    client.write_tls(&mut hello).unwrap();
    for round in 0..10 {
        for (sent, reads) in [(5, false), (hello.len() / 2, false), (hello.len(), false), (hello.len(), true)]
        {
            let begun = std::time::Instant::now();
            loop {
                let mut raw = crate::clients::Raw::connect(daemon.address).await;
                let mut byte = [0];
                let is_cut =
                    !raw.send(&hello[..sent]).await || reads && !matches!(raw.0.read(&mut byte).await, Ok(1));
                // A connection may still count for a moment after its client has left. So try again.
                if !is_cut {
                    break;
                }
                assert!(begun.elapsed() < SOON, "round {round}, {sent} bytes: {}", daemon.log());
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
    }
    let begun = std::time::Instant::now();
    while connect(daemon.address, &trusted, "http/1.1").await.is_err() {
        assert!(begun.elapsed() < SOON, "{}", daemon.log());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
