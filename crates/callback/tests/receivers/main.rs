//! Tests callbacks to real receivers over real sockets: the outcome of each answer, and of answers that do not come.

mod addresses;
mod bodies;
mod closed;
mod habits;
mod look_ups;
mod shortage;

use addresses::{outcome_of, resolver};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tourbillon_callback::guard::Guard;
use tourbillon_callback::{
    Attempt, Callback, Caller, CallerSettings, Failure, Outcome, Part, Resolver, Rules, Secret,
};

/// The way in which a receiver treats a connection.
#[derive(Clone)]
enum Manner {
    /// Answers each request with the bytes of this text.
    Answer(String),
    /// Answers with this head, and then with a byte each 10 ms, without end.
    Drip(String),
    /// Answers with this head, and then with as many bytes as the caller takes.
    Flood(String),
    /// Reads the request and never answers.
    Hang,
    /// Reads the request and closes the connection.
    Reset,
}

/// A receiver that stores the requests that it gets.
struct Receiver {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    sent: Arc<AtomicUsize>,
}

impl Receiver {
    async fn start(manner: Manner) -> Self {
        Self::start_with(manner, None).await
    }

    async fn start_with(manner: Manner, tls: Option<tokio_rustls::TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
            connections: Arc::default(),
            sent: Arc::default(),
        };
        let (requests, connections, sent) =
            (Arc::clone(&receiver.requests), Arc::clone(&receiver.connections), Arc::clone(&receiver.sent));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                let (requests, manner, sent, tls) =
                    (Arc::clone(&requests), manner.clone(), Arc::clone(&sent), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &manner, &requests, &sent).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &manner, &requests, &sent).await;
                            }
                        }
                    }
                });
            }
        });
        receiver
    }

    fn url(&self) -> String {
        format!("http://{}/hook?a=b", self.address)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    manner: &Manner,
    requests: &Mutex<Vec<String>>,
    sent: &AtomicUsize,
) {
    while let Some(request) = read_request(&mut stream).await {
        requests.lock().unwrap().push(request);
        match manner {
            Manner::Answer(answer) => {
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
            Manner::Drip(head) | Manner::Flood(head) => {
                let (chunk, pause) = match manner {
                    Manner::Drip(_) => (vec![b'x'; 1], Duration::from_millis(10)),
                    _ => (vec![b'x'; 65_536], Duration::ZERO),
                };
                let mut rest = head.as_bytes().to_vec();
                while stream.write_all(&rest).await.is_ok() {
                    sent.fetch_add(rest.len(), Ordering::Relaxed);
                    rest.clone_from(&chunk);
                    tokio::time::sleep(pause).await;
                }
                return;
            }
            Manner::Hang => std::future::pending::<()>().await,
            Manner::Reset => return,
        }
    }
}

/// Reads the next request, with its body. Returns `None` if the connection ends before that.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut request = Vec::new();
    loop {
        let byte = stream.read_u8().await.ok()?;
        request.push(byte);
        if request.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    let head = String::from_utf8(request).unwrap();
    let length =
        head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(head + &String::from_utf8(body).unwrap())
}

fn answer(status: &str, headers: &str) -> Manner {
    Manner::Answer(format!("HTTP/1.1 {status}\r\n{headers}content-length: 2\r\n\r\nok"))
}

fn settings() -> CallerSettings {
    let mut settings = CallerSettings::default();
    settings.guard.allow_private = true;
    settings
}

fn callback(url: &str) -> Callback {
    let mut rules = Rules::default();
    rules.allow_http = true;
    Callback::new(url, "POST", [("x-order", "17")], "{\"order\":17}", &rules).unwrap()
}

const ATTEMPT: Attempt<'static> = Attempt {
    tenant: "",
    id: "timer-1",
    number: 3,
    scheduled_for: "2026-01-01T00:00:00.000Z",
    trace: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    secrets: &[],
    timeout: Duration::from_secs(5),
    is_once: false,
};

async fn send_to(manner: Manner, timeout: Duration) -> (Outcome, Receiver) {
    let receiver = Receiver::start(manner).await;
    let caller = Caller::new(settings()).unwrap();
    (caller.send(&callback(&receiver.url()), Attempt { timeout, ..ATTEMPT }).await, receiver)
}

#[tokio::test]
async fn a_callback_arrives_with_its_headers_and_a_signature() {
    let receiver = Receiver::start(answer("204 No Content", "")).await;
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let secrets: [Secret; 1] = [secret.parse().unwrap()];
    let caller = Caller::new(settings()).unwrap();
    let attempt = Attempt { secrets: &secrets, ..ATTEMPT };
    let outcome = caller.send(&callback(&receiver.url()), attempt).await;
    assert!(matches!(outcome, Outcome::Delivered(ref answer) if answer.status == 204), "{outcome:?}");
    let request = receiver.requests().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{head}");
    let mut headers = http::HeaderMap::new();
    for line in head.lines().skip(1) {
        let (name, value) = line.split_once(": ").unwrap();
        headers.insert(http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
    }
    for (name, value) in [
        ("x-order", "17"),
        ("webhook-id", "timer-1"),
        ("tourbillon-attempt", "3"),
        ("tourbillon-scheduled-for", ATTEMPT.scheduled_for),
        ("traceparent", ATTEMPT.trace.unwrap()),
        ("content-type", "application/json"),
        ("host", &receiver.address.to_string()),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
    standardwebhooks::Webhook::new(secret).unwrap().verify(body.as_bytes(), &headers).unwrap();
}

/// F-29: Checks the outcome for each row of the table of answers.
#[tokio::test]
async fn answers_are_taken_for_what_they_say() {
    for status in ["200 OK", "201 Created", "202 Accepted", "299 Fine"] {
        assert!(
            matches!(send_to(answer(status, ""), ATTEMPT.timeout).await.0, Outcome::Delivered(_)),
            "{status}"
        );
    }
    assert!(matches!(send_to(answer("410 Gone", ""), ATTEMPT.timeout).await.0, Outcome::Gone(_)));
    for status in
        ["400 Bad", "401 No", "404 None", "408 Slow", "425 Early", "429 Many", "500 Bad", "503 Away"]
    {
        let (outcome, _receiver) = send_to(answer(status, "retry-after: 120\r\n"), ATTEMPT.timeout).await;
        let Outcome::Failed { failure: Failure::Status(answer), retry_after } = outcome else {
            panic!("{status}")
        };
        assert_eq!((answer.status.as_str(), retry_after), (&status[..3], Some(Duration::from_secs(120))));
        assert_eq!(&answer.head[..], b"ok");
    }
    let (outcome, _receiver) =
        send_to(answer("503 Away", "retry-after: 99999999\r\n"), ATTEMPT.timeout).await;
    assert!(
        matches!(outcome, Outcome::Failed { retry_after: Some(pause), .. } if pause == Duration::from_secs(86_400))
    );
}

#[tokio::test]
async fn a_redirection_is_a_failure_and_never_followed() {
    let inner = Receiver::start(answer("200 OK", "")).await;
    for status in [301, 302, 303, 307, 308] {
        for target in [inner.url(), "http://169.254.169.254/latest/meta-data/".to_owned()] {
            let manner = answer(&format!("{status} Moved"), &format!("location: {target}\r\n"));
            let (outcome, _receiver) = send_to(manner, ATTEMPT.timeout).await;
            assert!(matches!(outcome, Outcome::Failed { failure: Failure::Status(_), .. }), "{outcome:?}");
        }
    }
    assert_eq!(inner.requests().len(), 0);
}

#[tokio::test]
async fn silence_a_reset_and_a_refusal_are_failures() {
    let begin = Instant::now();
    let (outcome, _receiver) = send_to(Manner::Hang, Duration::from_millis(300)).await;
    assert_eq!(outcome, Outcome::Failed { failure: Failure::Timeout, retry_after: None });
    assert!(begin.elapsed() < Duration::from_secs(3));
    let (outcome, receiver) = send_to(Manner::Reset, ATTEMPT.timeout).await;
    assert!(matches!(outcome, Outcome::Failed { failure: Failure::Connection(_), .. }), "{outcome:?}");
    assert!(!format!("{outcome:?}").contains("client error"), "{outcome:?}");
    assert_eq!(receiver.requests().len(), 1, "not sent again: the receiver may have acted");
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let caller = Caller::new(settings()).unwrap();
    let outcome = caller.send(&callback(&format!("http://{closed}/")), ATTEMPT).await;
    assert!(matches!(outcome, Outcome::Failed { failure: Failure::Connection(_), .. }), "{outcome:?}");
    let (outcome, _receiver) =
        send_to(Manner::Answer("SSH-2.0-OpenSSH_9.9\r\n".into()), ATTEMPT.timeout).await;
    assert!(matches!(outcome, Outcome::Failed { failure: Failure::Connection(_), .. }), "{outcome:?}");
}

#[tokio::test]
async fn of_a_long_answer_only_the_beginning_is_read() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 2147483648\r\n\r\n";
    let (outcome, receiver) = send_to(Manner::Flood(head.into()), ATTEMPT.timeout).await;
    let Outcome::Delivered(answer) = outcome else { panic!("{outcome:?}") };
    assert_eq!(answer.head.len(), 4 << 10);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let sent = receiver.sent.load(Ordering::Relaxed);
    assert!(sent < 64 << 20, "the connection was closed: {sent}");
}

#[tokio::test]
async fn few_informational_answers_are_read() {
    let head = "HTTP/1.1 100 Continue\r\n\r\n";
    let (outcome, _receiver) = send_to(Manner::Flood(head.repeat(10_000)), ATTEMPT.timeout).await;
    assert!(format!("{outcome:?}").contains("the answer does not end"), "{outcome:?}");
    let (outcome, _receiver) =
        send_to(Manner::Answer(head.repeat(10) + "HTTP/1.1 204 No Content\r\n\r\n"), ATTEMPT.timeout).await;
    assert!(matches!(outcome, Outcome::Delivered(_)), "{outcome:?}");
}

#[tokio::test]
async fn a_resolver_that_does_not_answer_holds_nothing_up() {
    let silent: Resolver = Arc::new(|_, _| Box::pin(std::future::pending()));
    let begin = Instant::now();
    let outcome = outcome_of(Guard::default(), Some(silent), "http://silent.example/").await;
    assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
    assert!(begin.elapsed() < Duration::from_secs(3));
}

// --- Hosts ---

/// F-30: Checks that a host that fails gets no callbacks for a while, and that other hosts still get their callbacks.
#[tokio::test]
async fn a_host_that_fails_is_left_alone_and_others_are_not() {
    let (bad, good) =
        (Receiver::start(answer("500 Bad", "")).await, Receiver::start(answer("200 OK", "")).await);
    let caller = Caller::new(settings()).unwrap();
    let (to_bad, to_good) = (callback(&bad.url()), callback(&good.url()));
    for _ in 0..10 {
        assert!(matches!(caller.send(&to_bad, ATTEMPT).await, Outcome::Failed { .. }));
    }
    for _ in 0..5 {
        let Outcome::Parked { at: Part::Path, for_ } = caller.send(&to_bad, ATTEMPT).await else {
            panic!("it is open")
        };
        assert!(for_ > Duration::from_secs(5));
        assert!(matches!(caller.send(&to_good, ATTEMPT).await, Outcome::Delivered(_)));
    }
    assert_eq!((bad.requests().len(), good.requests().len()), (10, 5));
    assert!(caller.hosts().iter().any(|host| host.open_for.is_some()));
    assert_eq!(good.connections.load(Ordering::Relaxed), 1, "connections are used again");
}

// --- TLS ---

/// Makes a self-signed certificate for a receiver. With `is_authority`, it is the certificate of an authority.
fn tls(is_authority: bool) -> (tokio_rustls::TlsAcceptor, Vec<u8>) {
    let mut params = rcgen::CertificateParams::new(vec!["receiver.example".to_owned()]).unwrap();
    if is_authority {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    }
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    (Arc::new(config).into(), certificate.to_vec())
}

/// A certificate of an authority identifies no receiver. The error says what to do.
#[tokio::test]
async fn the_certificate_of_an_authority_is_refused_with_a_remedy() {
    let (acceptor, certificate) = tls(true);
    let receiver = Receiver::start_with(answer("200 OK", ""), Some(acceptor)).await;
    let mut settings = settings();
    settings.resolver = Some(resolver(vec![vec!["127.0.0.1"]]).0);
    settings.certificates = vec![certificate];
    let url = format!("https://receiver.example:{}/", receiver.address.port());
    let outcome = Caller::new(settings).unwrap().send(&callback(&url), ATTEMPT).await;
    assert!(format!("{outcome:?}").contains("CA:FALSE"), "{outcome:?}");
}

#[tokio::test]
async fn a_receiver_that_is_silent_in_the_handshake_has_the_time_of_a_connection() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = settings();
    settings.connect_timeout = Duration::from_millis(300);
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let begun = Instant::now();
    let outcome = Caller::new(settings).unwrap().send(&callback(&url), ATTEMPT).await;
    assert!(format!("{outcome:?}").contains("the handshake of TLS"), "{outcome:?}");
    assert!(begun.elapsed() < ATTEMPT.timeout / 2, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn certificates_are_checked_against_the_name() {
    let (acceptor, certificate) = tls(false);
    let receiver = Receiver::start_with(answer("200 OK", ""), Some(acceptor)).await;
    let (resolver, _) = resolver(vec![vec!["127.0.0.1"]]);
    let send = async |host: &str, certificates: Vec<Vec<u8>>| {
        let mut settings = settings();
        (settings.resolver, settings.certificates) = (Some(Arc::clone(&resolver)), certificates);
        let url = format!("https://{host}:{}/", receiver.address.port());
        Caller::new(settings).unwrap().send(&callback(&url), ATTEMPT).await
    };
    let trusted = vec![certificate];
    assert!(matches!(send("receiver.example", trusted.clone()).await, Outcome::Delivered(_)));
    for (host, certificates) in [("receiver.example", Vec::new()), ("other.example", trusted)] {
        let outcome = send(host, certificates).await;
        assert!(matches!(outcome, Outcome::Failed { failure: Failure::Connection(_), .. }), "{outcome:?}");
    }
    assert_eq!(receiver.requests().len(), 1);
    let mut broken = settings();
    broken.certificates = vec![vec![1, 2, 3]];
    assert!(Caller::new(broken).is_err());
}
