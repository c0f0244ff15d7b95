//! Provides receivers of callbacks that misbehave.

use crate::rig::{Rig, eventually};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tourbillon_callback::Resolver;

/// The way in which a receiver of callbacks answers.
#[derive(Clone)]
pub(crate) enum Manner {
    /// The receiver waits for a pause, then answers with the given bytes.
    Answer(String, Duration),
    /// The receiver answers with a head, and then sends a byte every 10 ms for ever.
    Drip,
    /// The receiver announces a body of 2 GB, and sends as many bytes as the caller reads.
    Flood,
    /// The receiver reads the request and never answers.
    Hang,
    /// The receiver closes the connection without an answer.
    Reset,
    /// The receiver does not listen, so connections to it fail.
    Away,
}

impl Manner {
    /// Returns the manner of a receiver that answers at once with `status`, `headers` and a short body.
    pub(crate) fn answer(status: &str, headers: &str) -> Self {
        let text = format!("HTTP/1.1 {status}\r\n{headers}content-length: 9\r\n\r\nnot\ntoday");
        Self::Answer(text, Duration::ZERO)
    }
}

/// A request that a receiver of callbacks has got.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) at: Instant,
    /// The request's headers: their names in lower case, and their values.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }
}

/// The requests that a receiver of callbacks has got. Also counts the requests that are under way at the same time.
#[derive(Default)]
pub(crate) struct Log {
    requests: Mutex<Vec<Request>>,
    running: AtomicUsize,
    most: AtomicUsize,
    sent: AtomicUsize,
}

/// A receiver of callbacks at a port of its own. The receiver answers in the [`Manner`] that a test chooses.
#[derive(Clone)]
pub(crate) struct Rough {
    pub(crate) address: SocketAddr,
    pub(crate) log: Arc<Log>,
    manner: Arc<Mutex<Manner>>,
}

impl Rough {
    pub(crate) async fn start(manner: Manner) -> Self {
        Self::start_with(manner, None).await
    }

    pub(crate) async fn start_with(manner: Manner, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let receiver = Self { address, log: Arc::default(), manner: Arc::new(Mutex::new(manner)) };
        let serving = receiver.clone();
        if matches!(*receiver.manner.lock().unwrap(), Manner::Away) {
            return receiver;
        }
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (serving, tls) = (serving.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serving.serve(stream).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serving.serve(stream).await;
                            }
                        }
                    }
                });
            }
        });
        receiver
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn behave(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.log.requests.lock().unwrap().clone()
    }

    /// Returns the greatest number of requests that the receiver had under way at the same time.
    pub(crate) fn most_at_a_time(&self) -> usize {
        self.log.most.load(Ordering::SeqCst)
    }

    pub(crate) fn sent(&self) -> usize {
        self.log.sent.load(Ordering::SeqCst)
    }

    /// Waits until the receiver has got `count` requests. Returns all requests of the receiver. Fails after a
    /// minute.
    pub(crate) async fn await_requests(&self, count: usize) -> Vec<Request> {
        eventually(&format!("{count} requests"), async || {
            let requests = self.requests();
            (requests.len() >= count).then_some(requests)
        })
        .await
    }

    async fn serve(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        while let Some(request) = read_request(&mut stream).await {
            self.log.requests.lock().unwrap().push(request);
            let running = self.log.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.log.most.fetch_max(running, Ordering::SeqCst);
            let manner = self.manner.lock().unwrap().clone();
            let goes_on = self.answer(&mut stream, manner).await;
            self.log.running.fetch_sub(1, Ordering::SeqCst);
            if !goes_on {
                return;
            }
        }
    }

    async fn answer(&self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin), manner: Manner) -> bool {
        let (length, chunk, pause) = match manner {
            Manner::Answer(answer, pause) => {
                tokio::time::sleep(pause).await;
                // For the caller, the request ends with the answer. So do not write more.
                return stream.write_all(answer.as_bytes()).await.is_ok();
            }
            Manner::Hang => {
                // Wait until the caller closes the connection.
                let _closed = stream.read_u8().await;
                return false;
            }
            Manner::Reset | Manner::Away => return false,
            Manner::Drip => (100_000, 1, Duration::from_millis(10)),
            Manner::Flood => (2_u64 << 30, 65_536, Duration::ZERO),
        };
        let mut rest = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").into_bytes();
        while stream.write_all(&rest).await.is_ok() {
            self.log.sent.fetch_add(rest.len(), Ordering::SeqCst);
            rest = vec![b'x'; chunk];
            tokio::time::sleep(pause).await;
        }
        false
    }
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let headers = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let headers: Vec<_> = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { at: Instant::now(), headers, body: String::from_utf8(body).unwrap() })
}

/// Returns the dead timer with the id `id`. Searches the list of dead timers, because a dead timer has no key any more.
pub(crate) async fn dead(rig: &Rig, namespace: &str, id: &str) -> Option<Value> {
    let path = format!("/v1/namespaces/{namespace}/timers?phase=dead&limit=200");
    let (_, page) = rig.send("GET", &path, Value::Null).await;
    page["items"].as_array().unwrap().iter().find(|timer| timer["id"] == id).cloned()
}

/// Makes a resolver of host names. The resolver gives `answers` one after another, and then repeats the last answer.
pub(crate) fn resolver(answers: Vec<Vec<&'static str>>) -> Resolver {
    let asked = AtomicUsize::new(0);
    Arc::new(move |_, port| {
        let turn = asked.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        let addresses = answers[turn].iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).collect();
        Box::pin(async move { Ok(addresses) })
    })
}
