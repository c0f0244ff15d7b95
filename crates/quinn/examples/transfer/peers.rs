//! Two peers on the loopback that trust each other.

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, Runtime, ServerConfig, TransportConfig};
use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

const NAME: &str = "localhost";

/// The configurations of a server with a certificate that it has signed itself, and of a client that accepts only this
/// certificate.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    server: ServerConfig,
    client: ClientConfig,
}

impl Peers {
    /// Makes a certificate, and the configurations of both peers.
    pub(crate) fn new(transport: TransportConfig) -> Result<Self, BoxError> {
        let signed = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
        let certificate = signed.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone())?;
        let mut server = ServerConfig::with_single_cert(vec![certificate], key.into())?;
        let mut client = ClientConfig::with_root_certificates(Arc::new(roots))?;
        let transport = Arc::new(transport);
        server.transport_config(Arc::clone(&transport));
        client.transport_config(transport);
        Ok(Self { server, client })
    }

    /// Listens on a free port. Must be called in a tokio runtime.
    pub(crate) fn listen(&self, runtime: Arc<dyn Runtime>) -> io::Result<Endpoint> {
        endpoint(Some(self.server.clone()), runtime)
    }

    /// Connects to a server from a free port. Must be called in a tokio runtime.
    pub(crate) async fn connect(
        &self,
        server: SocketAddr,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Connection, BoxError> {
        let endpoint = endpoint(None, runtime)?;
        Ok(endpoint.connect_with(self.client.clone(), server, NAME)?.await?)
    }
}

fn endpoint(server: Option<ServerConfig>, runtime: Arc<dyn Runtime>) -> io::Result<Endpoint> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    Endpoint::new(EndpointConfig::default(), server, socket, runtime)
}
