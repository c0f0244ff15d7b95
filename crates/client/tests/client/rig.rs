//! Starts services on ports of their own, and servers that behave as a test demands.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tourbillon_client::{Builder, Client};
use tourbillon_server::{Service, Settings, router};

/// A service on a free port and a client of this service, for a single test.
pub(crate) struct Rig {
    pub(crate) client: Client,
    service: Service,
    #[expect(dead_code, reason = "the folder is removed when the rig is dropped")]
    folder: TempDir,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(folder.path());
        settings.rules.allow_http = true;
        settings.caller.guard.allowed = vec!["127.0.0.0/8".parse().unwrap()];
        let service = Service::open(settings).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = router(service.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let client = Client::builder(format!("http://{address}")).build().unwrap();
        Self { client, service, folder }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let service = self.service.clone();
        // Closing the service blocks, which is not permitted on a thread of the asynchronous runtime.
        std::thread::spawn(move || service.close(Duration::ZERO)).join().unwrap();
    }
}

/// The way in which a test's server answers a request.
#[derive(Clone, Debug)]
pub(crate) enum Manner {
    /// Answers with the bytes of this text, and then reads the next request on the connection.
    Answer(String),
    /// Answers with the bytes of this text, and then closes the connection.
    Half(String),
    /// Resets the connection of the request.
    Reset,
    /// Answers with the bytes of this text, and then sends nothing more.
    Hang(String),
    /// Answers with as many bytes as the client takes.
    Flood,
}

/// Returns an answer with this status and body.
pub(crate) fn answer(status: &str, kind: &str, body: &str) -> Manner {
    Manner::Answer(format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
}

/// Returns an answer in JSON with this status and body.
pub(crate) fn json(status: &str, body: &str) -> Manner {
    answer(status, "application/json", body)
}

/// A server with a list of manners. Each request gets the next manner. After the end of the list, each request gets the
/// last manner.
pub(crate) struct Script {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Script {
    pub(crate) async fn start(manners: impl Into<Vec<Manner>>) -> Self {
        Self::start_with(manners, None).await
    }

    pub(crate) async fn start_with(
        manners: impl Into<Vec<Manner>>,
        tls: Option<tokio_rustls::TlsAcceptor>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (log, manners) = (Arc::clone(&requests), Arc::<[Manner]>::from(manners.into()));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, manners, tls) = (Arc::clone(&log), Arc::clone(&manners), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &manners, &log).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &manners, &log).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, requests }
    }

    /// Returns the requests that the server has received, each with its head and body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns the values of a header in the requests that the server has received. `None` stands for a request without
    /// the header.
    pub(crate) fn headers(&self, name: &str) -> Vec<Option<String>> {
        let value = |request: &String| {
            let line = request.lines().find(|line| line.starts_with(&format!("{name}: ")))?;
            Some(line[name.len() + 2..].to_owned())
        };
        self.requests().iter().map(value).collect()
    }

    pub(crate) fn builder(&self) -> Builder {
        Client::builder(format!("http://{}", self.address)).timeout(Duration::from_secs(5))
    }

    pub(crate) fn client(&self) -> Client {
        self.builder().build().unwrap()
    }
}

/// A stream of bytes whose connection can be reset.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin {
    fn reset(self);
}

impl Stream for TcpStream {
    fn reset(self) {
        self.set_zero_linger().unwrap();
    }
}

impl Stream for tokio_rustls::server::TlsStream<TcpStream> {
    fn reset(self) {
        self.into_inner().0.reset();
    }
}

async fn serve(mut stream: impl Stream, manners: &[Manner], log: &Mutex<Vec<String>>) {
    while let Some(request) = read_request(&mut stream).await {
        let manner = {
            let mut log = log.lock().unwrap();
            log.push(request);
            manners[(log.len() - 1).min(manners.len() - 1)].clone()
        };
        match manner {
            Manner::Answer(bytes) => {
                if stream.write_all(bytes.as_bytes()).await.is_err() {
                    return;
                }
            }
            Manner::Half(bytes) => {
                let _reader_may_be_gone = stream.write_all(bytes.as_bytes()).await;
                let _reader_may_be_gone = stream.shutdown().await;
                return;
            }
            Manner::Reset => return stream.reset(),
            Manner::Hang(bytes) => {
                let _reader_may_be_gone = stream.write_all(bytes.as_bytes()).await;
                return std::future::pending().await;
            }
            Manner::Flood => {
                let mut rest = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n".to_vec();
                while stream.write_all(&rest).await.is_ok() {
                    rest = vec![b' '; 65_536];
                }
                return;
            }
        }
    }
}

/// Reads the next request, with its body. Returns `None` if the connection ends before that.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(request).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(head + &String::from_utf8(body).unwrap())
}
