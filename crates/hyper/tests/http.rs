//! The timeouts of hyper and hyper-util, over real sockets and by the peer's own clock.
//!
//! Lower bounds are exact: the peer reads its clock before the step from which the timeout counts. Upper bounds only
//! keep a test from waiting for ever. tokio runs no timer.

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2 as http2_client;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::future::pending;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tourbillon::future::Wakeup;
use tourbillon::{Builder, Engine};
use tourbillon_hyper::TourbillonTimer;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);
/// How long a test waits for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A receiver that gets the result of each connection when the connection ends.
type Endings = Receiver<Result<(), String>>;

/// A runtime of tokio, an engine, and a timer for hyper that runs on the engine.
struct Test {
    runtime: Runtime,
    engine: Engine<Wakeup>,
    timer: TourbillonTimer,
}

impl Test {
    fn new() -> Self {
        let engine = Builder::new().start_futures().unwrap();
        let timer = TourbillonTimer::new(engine.handle().clone());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build().unwrap();
        Self { runtime, engine, timer }
    }

    /// Serves each connection with `serve`. Returns the address, and a receiver of the connections' results.
    fn serve<F>(
        &self,
        serve: impl Fn(TokioIo<tokio::net::TcpStream>) -> F + Send + 'static,
    ) -> (SocketAddr, Endings)
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let listener =
            self.runtime.block_on(tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, endings) = mpsc::channel();
        self.runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (connection, sender) = (serve(TokioIo::new(stream)), sender.clone());
                // Sending fails if the test has dropped the receiver before the connection ends.
                tokio::spawn(async move { sender.send(connection.await).unwrap_or_default() });
            }
        });
        (address, endings)
    }

    /// Waits until the engine has exactly `count` timers.
    fn await_timers(&self, count: u64) {
        let begin = Instant::now();
        while self.engine.handle().stats().owned.alive != count {
            assert!(begin.elapsed() < PATIENCE, "{:?}, {count} expected", self.engine.handle().stats().owned);
            thread::sleep(MS);
        }
    }
}

/// Answers each request at once, except a request for `/never`, which gets no answer.
async fn answer(request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    if request.uri().path() == "/never" {
        pending::<()>().await;
    }
    Ok(Response::new(Empty::new()))
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads until the other side closes or resets the connection.
fn await_end(mut stream: &TcpStream) {
    let mut bytes = [0; 4_096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            // A signal, or a stop of the machine, has interrupted the read.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads the head of an answer, up to the empty line.
fn read_head(mut stream: &TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    String::from_utf8(head).unwrap()
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";

// --- Headers ---

/// Starts hyper's own server for HTTP/1. `limit` is the time limit for headers.
fn http1_server(test: &Test, limit: Duration) -> (SocketAddr, Endings) {
    let mut http = http1::Builder::new();
    http.timer(test.timer.clone()).header_read_timeout(limit);
    test.serve(move |stream| {
        let connection = http.serve_connection(stream, service_fn(answer));
        async { connection.await.map_err(|error| error.to_string()) }
    })
}

/// Starts hyper-util's server for HTTP/1 and HTTP/2. `limit` is the time limit for headers.
fn auto_server(test: &Test, limit: Duration) -> (SocketAddr, Endings) {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(test.timer.clone()).header_read_timeout(limit);
    test.serve(move |stream| {
        let http = http.clone();
        async move {
            let connection = http.serve_connection(stream, service_fn(answer));
            connection.await.map_err(|error| error.to_string())
        }
    })
}

fn a_slow_header_ends_its_connection(server: fn(&Test, Duration) -> (SocketAddr, Endings)) {
    const LIMIT: Duration = Duration::from_millis(600);
    let test = Test::new();
    let (address, endings) = server(&test, LIMIT);
    let begin = Instant::now();
    let mut client = connect(address);
    client.write_all(&REQUEST[..10]).unwrap();
    await_end(&client);
    assert!(begin.elapsed() >= LIMIT);
    assert_eq!(endings.recv_timeout(PATIENCE).unwrap().unwrap_err(), "read header from client timeout");
    // A later header has a limit of its own.
    let mut client = connect(address);
    for _ in 0..3 {
        client.write_all(REQUEST).unwrap();
        assert!(read_head(&client).starts_with("HTTP/1.1 200"));
    }
    let begin = Instant::now();
    client.write_all(REQUEST).unwrap();
    assert!(read_head(&client).starts_with("HTTP/1.1 200"));
    client.write_all(&REQUEST[..10]).unwrap();
    await_end(&client);
    assert!(begin.elapsed() >= LIMIT);
    test.await_timers(0);
}

#[test]
fn a_slow_header_ends_its_connection_on_http1() {
    a_slow_header_ends_its_connection(http1_server);
}

#[test]
fn a_slow_header_ends_its_connection_on_auto() {
    a_slow_header_ends_its_connection(auto_server);
}

// --- Keep-alive of HTTP/2 ---

const INTERVAL: Duration = Duration::from_millis(150);
const TIMEOUT: Duration = Duration::from_millis(250);

/// Starts hyper's own server for HTTP/2. The server sends pings, and waits for the answer to a ping for at most
/// `timeout`.
fn http2_server(test: &Test, timeout: Duration) -> (SocketAddr, Endings) {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(test.timer.clone()).keep_alive_interval(INTERVAL).keep_alive_timeout(timeout);
    test.serve(move |stream| {
        let connection = http.serve_connection(stream, service_fn(answer));
        async { connection.await.map_err(|error| error.to_string()) }
    })
}

/// Returns the types of the complete HTTP/2 frames at the beginning of `bytes`.
fn frames(mut bytes: &[u8]) -> Vec<u8> {
    let mut types = Vec::new();
    while let [high, middle, low, kind, _flags, _, _, _, _, rest @ ..] = bytes {
        types.push(*kind);
        let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
        bytes = rest.get(length..).unwrap_or_default();
    }
    types
}

const SETTINGS: u8 = 4;
const PING: u8 = 6;
const EMPTY_SETTINGS: &[u8] = &[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];

#[test]
fn a_client_that_answers_no_ping_is_closed_after_the_keep_alive_timeout() {
    let test = Test::new();
    let (address, endings) = http2_server(&test, TIMEOUT);
    let begin = Instant::now();
    let mut client = connect(address);
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    client.write_all(EMPTY_SETTINGS).unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert!(begin.elapsed() >= INTERVAL + TIMEOUT);
    assert_eq!(frames(&received).iter().filter(|kind| **kind == PING).count(), 1, "{:?}", frames(&received));
    // The connection has ended. The result that hyper reports makes no difference.
    endings.recv_timeout(PATIENCE).unwrap().unwrap_or_default();
    test.await_timers(0);
}

/// Connects hyper's client. Returns the sender of requests, and a task that ends with the connection's result.
async fn http2_connect(
    test: &Test,
    address: SocketAddr,
    is_pinging: bool,
) -> (http2_client::SendRequest<Empty<Bytes>>, tokio::task::JoinHandle<hyper::Result<()>>) {
    let stream = TokioIo::new(tokio::net::TcpStream::connect(address).await.unwrap());
    let mut http = http2_client::Builder::new(TokioExecutor::new());
    http.timer(test.timer.clone());
    if is_pinging {
        http.keep_alive_interval(INTERVAL).keep_alive_timeout(TIMEOUT).keep_alive_while_idle(true);
    }
    let (sender, connection) = http.handshake(stream).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn request(address: SocketAddr, path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://{address}{path}")).body(Empty::new()).unwrap()
}

#[test]
fn a_client_that_answers_pings_is_kept() {
    let test = Test::new();
    // This time is long enough even for a busy machine.
    let timeout = 1_000 * MS;
    let (address, _endings) = http2_server(&test, timeout);
    test.runtime.block_on(async {
        let (mut sender, connection) = http2_connect(&test, address, false).await;
        for _ in 0..2 {
            let response = sender.send_request(request(address, "/")).await.unwrap();
            assert!(response.status().is_success());
            test.engine.handle().sleep(INTERVAL + timeout + TIMEOUT).await;
        }
        assert!(!connection.is_finished());
    });
}

#[test]
fn a_server_that_answers_no_ping_is_given_up_after_the_keep_alive_timeout() {
    let test = Test::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    // The server sends one frame, and then only reads.
    let silent = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(EMPTY_SETTINGS).unwrap();
        let last_word = Instant::now();
        await_end(&stream);
        last_word.elapsed()
    });
    let begin = Instant::now();
    test.runtime.block_on(async {
        let (mut sender, connection) = http2_connect(&test, address, true).await;
        let error = test.engine.handle().timeout(PATIENCE, sender.send_request(request(address, "/"))).await;
        let error = error.expect("the request ends").unwrap_err();
        assert!(error.is_timeout(), "{error:?}");
        assert!(begin.elapsed() >= INTERVAL + TIMEOUT);
        connection.await.unwrap().unwrap_or_default();
    });
    assert!(silent.join().unwrap() < PATIENCE);
    test.await_timers(0);
}

// --- The pool ---

/// Starts a server for a client with a pool of connections. At the end of each connection, the server reports how long
/// ago it sent the last answer.
fn peer_of_a_pool() -> (SocketAddr, Receiver<Duration>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, sender) = (stream.unwrap(), sender.clone());
            thread::spawn(move || {
                let mut bytes = [0; 4_096];
                let mut last_answer = Instant::now();
                while stream.read(&mut bytes).is_ok_and(|count| count > 0) {
                    last_answer = Instant::now();
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                }
                sender.send(last_answer.elapsed()).unwrap_or_default();
            });
        }
    });
    (address, ended)
}

#[test]
fn a_connection_that_is_idle_in_a_pool_is_closed_after_the_idle_timeout() {
    const IDLE: Duration = Duration::from_millis(300);
    let test = Test::new();
    let (address, ended) = peer_of_a_pool();
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new())
        .pool_timer(test.timer.clone())
        .pool_idle_timeout(IDLE)
        .build_http();
    test.runtime.block_on(async {
        // One request. A second that came before the connection is back in the pool would open another connection,
        // and one of the two may be closed at once.
        let response = client.request(request(address, "/")).await.unwrap();
        response.into_body().collect().await.unwrap();
    });
    let idle = ended.recv_timeout(PATIENCE).unwrap();
    assert!(idle >= IDLE, "{idle:?}");
    test.runtime.block_on(async {
        assert!(client.request(request(address, "/")).await.unwrap().status().is_success());
    });
    drop(client);
    test.await_timers(0);
}

#[test]
fn a_connection_that_is_used_stays_in_its_pool() {
    const IDLE: Duration = Duration::from_millis(600);
    let test = Test::new();
    let (address, ended) = peer_of_a_pool();
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new())
        .pool_timer(test.timer.clone())
        .pool_idle_timeout(IDLE)
        .build_http();
    test.runtime.block_on(async {
        let begin = Instant::now();
        while begin.elapsed() < 2 * IDLE {
            let response = client.request(request(address, "/")).await.unwrap();
            response.into_body().collect().await.unwrap();
            test.engine.handle().sleep(IDLE / 20).await;
        }
    });
    // A request that comes before a connection is back in the pool opens a new connection. That connection may really
    // be idle, so it may end after the idle timeout.
    let idle: Vec<Duration> = ended.try_iter().collect();
    assert!(idle.iter().all(|idle| *idle >= IDLE), "{idle:?}");
}

// --- The end of the engine ---

#[test]
fn header_timeouts_hold_though_the_engine_is_shut_down() {
    const LIMIT: Duration = Duration::from_millis(400);
    let test = Test::new();
    let (address, endings) = http1_server(&test, LIMIT);
    let begin = Instant::now();
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = connect(address);
            client.write_all(&REQUEST[..10]).unwrap();
            client
        })
        .collect();
    let mut in_flight = connect(address);
    in_flight.write_all(b"GET /never HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    test.await_timers(20);
    drop(test.engine);
    clients.iter().for_each(await_end);
    assert!(begin.elapsed() >= LIMIT);
    for _ in 0..20 {
        assert_eq!(endings.recv_timeout(PATIENCE).unwrap().unwrap_err(), "read header from client timeout");
    }
    // The time limit also holds for connections that come after the shutdown.
    let begin = Instant::now();
    let mut late = connect(address);
    late.write_all(REQUEST).unwrap();
    assert!(read_head(&late).starts_with("HTTP/1.1 200"));
    await_end(&late);
    assert!(begin.elapsed() >= LIMIT);
    // The header timeout does not concern a request that is with its handler.
    in_flight.set_read_timeout(Some(10 * MS)).unwrap();
    assert!(matches!(in_flight.read(&mut [0]), Err(error) if error.kind() != ErrorKind::ConnectionReset));
}

#[test]
fn pings_and_the_pool_go_on_though_the_engine_is_shut_down() {
    const IDLE: Duration = Duration::from_millis(300);
    let test = Test::new();
    let (address, _endings) = http2_server(&test, TIMEOUT);
    let (pool_address, ended) = peer_of_a_pool();
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new())
        .pool_timer(test.timer.clone())
        .pool_idle_timeout(IDLE)
        .build_http();
    let begin = Instant::now();
    let mut silent = connect(address);
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    silent.write_all(EMPTY_SETTINGS).unwrap();
    test.runtime.block_on(async {
        client.request(request(pool_address, "/")).await.unwrap().into_body().collect().await.unwrap();
    });
    test.await_timers(2);
    drop(test.engine);
    await_end(&silent);
    assert!(begin.elapsed() >= INTERVAL + TIMEOUT);
    assert!(ended.recv_timeout(PATIENCE).unwrap() >= IDLE);
}

#[test]
fn a_limit_of_zero_ends_a_connection_whose_header_is_not_there_and_years_do_not() {
    let test = Test::new();
    let (address, endings) = http1_server(&test, Duration::ZERO);
    let client = connect(address);
    await_end(&client);
    assert_eq!(endings.recv_timeout(PATIENCE).unwrap().unwrap_err(), "read header from client timeout");

    let (address, endings) = http1_server(&test, 24 * 365 * 1_000 * HOUR);
    let mut client = connect(address);
    client.write_all(&REQUEST[..10]).unwrap();
    test.await_timers(1);
    client.write_all(&REQUEST[10..]).unwrap();
    assert!(read_head(&client).starts_with("HTTP/1.1 200"));
    drop(client);
    assert_eq!(endings.recv_timeout(PATIENCE).unwrap(), Ok(()));
}
