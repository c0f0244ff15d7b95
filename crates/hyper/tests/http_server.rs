//! The HTTP server, driven by clients on blocking sockets that stall at each stage.
//!
//! Each server here has only the timeouts that its test is about. All other timeouts are an hour. Lower bounds are
//! exact: the engine runs on the clients' clock, and a client reads that clock before the step from which the timeout
//! counts. Upper bounds only keep a test from waiting for ever.

#[path = "../examples/http_server/server/mod.rs"]
#[allow(dead_code, reason = "the example prints what the tests only count")]
mod http_server;

use http_server::{Ending, Timeouts};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tourbillon::future::Wakeup;
use tourbillon::{Builder, Engine, SystemClock};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);
/// How long a test waits for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(30);
const NO_TIMEOUTS: Timeouts = Timeouts { header: HOUR, idle: HOUR, request: HOUR };

const HELLO: &[u8] = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";
/// The length of a body that is larger than the system's buffers for a connection, in bytes.
const LARGE: usize = 48 << 20;

/// A running example server. The server ends when this value is dropped.
struct Server {
    address: SocketAddr,
    endings: Receiver<(SocketAddr, Ending)>,
    runtime: Runtime,
    engine: Engine<Wakeup>,
}

impl Server {
    fn start(timeouts: Timeouts) -> Self {
        let engine = Builder::new().clock(SystemClock::new()).start_futures().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build().unwrap();
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let server =
            runtime.block_on(http_server::Server::bind(address, engine.handle().clone(), timeouts)).unwrap();
        let address = server.address().unwrap();
        let (sender, endings) = mpsc::channel();
        // Sending fails if the test has dropped the receiver before the connection ends.
        runtime.spawn(server.run(move |peer, ending| sender.send((peer, ending)).unwrap_or_default()));
        Self { address, endings, runtime, engine }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream }
    }

    /// Waits until the next connection ends, and returns how it ended.
    fn ending(&self) -> Ending {
        self.endings.recv_timeout(PATIENCE).unwrap().1
    }

    /// Waits until the engine has no timers, while the server still runs.
    fn await_no_timers(&self) {
        let begin = Instant::now();
        while self.engine.handle().stats().owned.alive > 0 {
            assert!(begin.elapsed() < PATIENCE, "{:?}", self.engine.handle().stats());
            thread::sleep(MS);
        }
        assert_eq!(self.engine.handle().stats().pending, 0);
    }
}

/// The answer to a request: its status and its whole body.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Answer {
    fn ok(body: &[u8]) -> Self {
        Self { status: 200, body: body.to_vec() }
    }
}

struct Client {
    stream: TcpStream,
}

impl Client {
    fn send(&self, bytes: &[u8]) {
        (&self.stream).write_all(bytes).unwrap();
    }

    /// Reads one answer, and leaves later bytes unread.
    fn receive(&self) -> Answer {
        let (status, length) = self.receive_head();
        let mut body = vec![0; length];
        (&self.stream).read_exact(&mut body).unwrap();
        Answer { status, body }
    }

    /// Reads the head of an answer. Returns the status, and the length of the body.
    fn receive_head(&self) -> (u16, usize) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            (&self.stream).read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        (status, length.parse().unwrap())
    }

    fn ask(&self, bytes: &[u8]) -> Answer {
        self.send(bytes);
        self.receive()
    }

    /// Waits until the server closes the connection. Fails if the server sends anything before.
    fn await_end(&self) {
        let end = (&self.stream).read_exact(&mut [0]).map_err(|error| error.kind());
        assert_eq!(end, Err(ErrorKind::UnexpectedEof));
    }

    /// Sends bytes one by one, with pauses, until the connection ends or the server sends an answer.
    fn drip(&self, bytes: impl IntoIterator<Item = u8>) {
        self.stream.set_read_timeout(Some(10 * MS)).unwrap();
        for byte in bytes {
            match self.stream.peek(&mut [0]) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                _ => break,
            }
            // The write fails if the connection has just ended.
            (&self.stream).write_all(&[byte]).unwrap_or_default();
        }
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }

    /// Waits until the server ends the connection. The end may be a reset, because the server does not read bytes that
    /// are still on their way.
    fn await_end_or_reset(&self) {
        let end = (&self.stream).read_exact(&mut [0]).expect_err("the server has nothing to say").kind();
        assert!(matches!(end, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{end:?}");
    }
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").into_bytes()
}

/// Makes the head of a request whose body has `length` bytes.
fn post_head(length: usize) -> Vec<u8> {
    format!("POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: {length}\r\n\r\n").into_bytes()
}

// --- Nobody stalls ---

#[test]
fn a_request_is_answered() {
    let server = Server::start(NO_TIMEOUTS);
    let client = server.connect();
    assert_eq!(client.ask(HELLO), Answer::ok(b"hello\n"));
    assert_eq!(client.ask(&[post_head(4), b"echo".to_vec()].concat()), Answer::ok(b"echo"));
    assert_eq!(client.ask(&get("/slow?ms=5")), Answer::ok(b"slept well\n"));
    assert_eq!(client.ask(&get("/bytes?count=100000")), Answer::ok(&[b'.'; 100_000]));
    assert_eq!(client.ask(&get("/bytes?count=all")).status, 400);
    assert_eq!(client.ask(&get("/nowhere")).status, 404);
    assert_eq!(client.ask(&post_head(2 << 20)).status, 413);
    client.await_end_or_reset();
    assert!(matches!(server.ending(), Ending::Closed));
    server.await_no_timers();
}

#[test]
fn a_connection_lives_longer_than_every_timeout_while_it_is_used() {
    let server = Server::start(Timeouts { header: 1_500 * MS, idle: 1_500 * MS, request: 1_500 * MS });
    let client = server.connect();
    for _ in 0..8 {
        assert_eq!(client.ask(HELLO), Answer::ok(b"hello\n"));
        thread::sleep(250 * MS);
    }
    drop(client);
    assert!(matches!(server.ending(), Ending::Closed));
    server.await_no_timers();
}

#[test]
fn requests_sent_at_once_are_answered_in_turn() {
    let server = Server::start(NO_TIMEOUTS);
    let client = server.connect();
    client.send(&[get("/slow?ms=20"), HELLO.to_vec(), get("/slow?ms=0")].concat());
    assert_eq!(client.receive(), Answer::ok(b"slept well\n"));
    assert_eq!(client.receive(), Answer::ok(b"hello\n"));
    assert_eq!(client.receive(), Answer::ok(b"slept well\n"));
}

#[test]
fn a_client_is_not_idle_while_its_request_is_with_the_handler() {
    let server = Server::start(Timeouts { idle: 100 * MS, ..NO_TIMEOUTS });
    let client = server.connect();
    assert_eq!(client.ask(&get("/slow?ms=500")), Answer::ok(b"slept well\n"));
    let begin = Instant::now();
    client.send(&post_head(1));
    thread::sleep(400 * MS);
    client.send(b"x");
    assert_eq!(client.receive(), Answer::ok(b"x"));
    assert!(begin.elapsed() >= 400 * MS);
}

// --- The header ---

#[test]
fn whoever_drips_a_header_is_disconnected_after_the_header_timeout() {
    const HEADER: Duration = Duration::from_millis(400);
    let server = Server::start(Timeouts { header: HEADER, ..NO_TIMEOUTS });
    let begin = Instant::now();
    let client = server.connect();
    client.drip(b"GET /".iter().copied().chain(std::iter::repeat_n(b'x', 10_000)));
    client.await_end_or_reset();
    assert!(begin.elapsed() >= HEADER);
    assert!(matches!(server.ending(), Ending::HeaderTimeout));
    server.await_no_timers();
}

#[test]
fn whoever_stops_within_a_header_is_disconnected_after_the_header_timeout() {
    const HEADER: Duration = Duration::from_millis(300);
    let server = Server::start(Timeouts { header: HEADER, ..NO_TIMEOUTS });
    let begin = Instant::now();
    let client = server.connect();
    client.send(&HELLO[..HELLO.len() - 1]);
    client.await_end();
    assert!(begin.elapsed() >= HEADER);
    assert!(matches!(server.ending(), Ending::HeaderTimeout));
}

#[test]
fn the_header_of_a_later_request_has_a_timeout_of_its_own() {
    const HEADER: Duration = Duration::from_millis(600);
    let server = Server::start(Timeouts { header: HEADER, ..NO_TIMEOUTS });
    let client = server.connect();
    assert_eq!(client.ask(HELLO), Answer::ok(b"hello\n"));
    thread::sleep(HEADER / 4);
    let begin = Instant::now();
    assert_eq!(client.ask(HELLO), Answer::ok(b"hello\n"));
    client.send(&HELLO[..5]);
    client.await_end();
    assert!(begin.elapsed() >= HEADER);
    assert!(matches!(server.ending(), Ending::HeaderTimeout));
}

// --- Silence ---

#[test]
fn whoever_drips_a_header_is_not_idle() {
    const IDLE: Duration = Duration::from_millis(800);
    let server = Server::start(Timeouts { idle: IDLE, ..NO_TIMEOUTS });
    let begin = Instant::now();
    let client = server.connect();
    let (beginning, rest) = HELLO.split_at(12);
    for byte in beginning {
        thread::sleep(80 * MS);
        client.send(&[*byte]);
    }
    assert!(begin.elapsed() > IDLE, "nothing was slow");
    assert_eq!(client.ask(rest), Answer::ok(b"hello\n"));
}

#[test]
fn whoever_sends_nothing_is_idle() {
    const IDLE: Duration = Duration::from_millis(200);
    let server = Server::start(Timeouts { idle: IDLE, ..NO_TIMEOUTS });
    let begin = Instant::now();
    server.connect().await_end();
    assert!(begin.elapsed() >= IDLE);
    assert!(matches!(server.ending(), Ending::Idle));
    server.await_no_timers();
}

#[test]
fn whoever_says_no_more_after_an_answer_is_idle() {
    const IDLE: Duration = Duration::from_millis(400);
    let server = Server::start(Timeouts { idle: IDLE, ..NO_TIMEOUTS });
    let client = server.connect();
    thread::sleep(IDLE / 4);
    let mut begin = Instant::now();
    for request in [HELLO.to_vec(), get("/slow?ms=500")] {
        begin = Instant::now();
        assert_eq!(client.ask(&request).status, 200);
    }
    client.await_end();
    assert!(begin.elapsed() >= 500 * MS + IDLE);
    assert!(matches!(server.ending(), Ending::Idle));
    server.await_no_timers();
}

#[test]
fn whoever_does_not_read_is_idle() {
    const IDLE: Duration = Duration::from_millis(300);
    let server = Server::start(Timeouts { idle: IDLE, ..NO_TIMEOUTS });
    let client = server.connect();
    let begin = Instant::now();
    client.send(&get(&format!("/bytes?count={LARGE}")));
    assert!(matches!(server.ending(), Ending::Idle));
    assert!(begin.elapsed() >= IDLE);
    let received = io::copy(&mut &client.stream, &mut io::sink());
    assert!(received.is_err() || received.is_ok_and(|count| count < LARGE as u64));
    server.await_no_timers();
}

#[test]
fn whoever_reads_slowly_gets_it_all() {
    let server = Server::start(Timeouts { idle: 1_500 * MS, request: 1_500 * MS, ..NO_TIMEOUTS });
    let client = server.connect();
    let begin = Instant::now();
    client.send(&get(&format!("/bytes?count={LARGE}")));
    let (status, length) = client.receive_head();
    assert_eq!((status, length), (200, LARGE));
    let (mut rest, mut buffer) = (length, vec![0; LARGE / 300]);
    while rest > 0 {
        let most = rest.min(buffer.len());
        (&client.stream).read_exact(&mut buffer[..most]).unwrap();
        rest -= most;
        thread::sleep(10 * MS);
    }
    assert!(begin.elapsed() > 2_000 * MS, "nothing was slow");
}

// --- Body and handler ---

#[test]
fn a_body_that_stops_is_told_so() {
    const REQUEST: Duration = Duration::from_millis(300);
    let server = Server::start(Timeouts { request: REQUEST, ..NO_TIMEOUTS });
    let client = server.connect();
    let begin = Instant::now();
    client.send(&[post_head(100), b"the beginning".to_vec()].concat());
    assert_eq!(client.receive().status, 408);
    client.await_end();
    assert!(begin.elapsed() >= REQUEST);
    assert!(matches!(server.ending(), Ending::Closed));
    server.await_no_timers();
}

#[test]
fn a_body_that_drips_is_told_so() {
    const REQUEST: Duration = Duration::from_millis(300);
    let server = Server::start(Timeouts { request: REQUEST, ..NO_TIMEOUTS });
    let client = server.connect();
    let begin = Instant::now();
    client.send(&post_head(10_000));
    client.drip([b'x'; 10_000]);
    assert_eq!(client.receive().status, 408);
    client.await_end_or_reset();
    assert!(begin.elapsed() >= REQUEST);
    server.await_no_timers();
}

#[test]
fn a_handler_that_takes_too_long_is_given_up_and_the_connection_is_not() {
    const REQUEST: Duration = Duration::from_millis(300);
    let server = Server::start(Timeouts { request: REQUEST, ..NO_TIMEOUTS });
    let client = server.connect();
    for _ in 0..2 {
        let begin = Instant::now();
        assert_eq!(client.ask(&get("/slow?ms=3600000")).status, 503);
        assert!(begin.elapsed() >= REQUEST);
        assert_eq!(client.ask(HELLO), Answer::ok(b"hello\n"));
    }
    drop(client);
    assert!(matches!(server.ending(), Ending::Closed));
    server.await_no_timers();
}

// --- All of it ---

/// Sends requests one after another until `is_over` is set. Returns the number of answers that came.
fn ask_until(is_over: &AtomicBool, client: &Client) -> usize {
    let (begin, mut answered) = (Instant::now(), 0);
    while !is_over.load(Ordering::Relaxed) && begin.elapsed() < PATIENCE {
        assert_eq!(client.ask(HELLO), Answer::ok(b"hello\n"));
        answered += 1;
        thread::sleep(MS);
    }
    answered
}

#[test]
fn whoever_stalls_disturbs_nobody_else() {
    const EACH: usize = 8;
    let timeouts = Timeouts { header: HOUR, idle: 1_000 * MS, request: 1_200 * MS };
    let server = Server::start(timeouts);
    let (good, is_over) = (server.connect(), AtomicBool::new(false));
    let answered = thread::scope(|scope| {
        let good = scope.spawn(|| ask_until(&is_over, &good));
        let begin = Instant::now();
        let crowd = |request: &[u8]| -> Vec<Client> {
            let stalling: Vec<Client> = (0..EACH).map(|_| server.connect()).collect();
            stalling.iter().for_each(|client| client.send(request));
            stalling
        };
        let large = get(&format!("/bytes?count={LARGE}"));
        let _idle = [crowd(b""), crowd(b"GET / HT"), crowd(HELLO), crowd(&large)];
        let (no_body, slow) = (crowd(&post_head(9)), crowd(&get("/slow?ms=3600000")));
        no_body.iter().for_each(|client| assert_eq!(client.receive().status, 408));
        slow.iter().for_each(|client| assert_eq!(client.receive().status, 503));
        assert!(begin.elapsed() >= timeouts.request);
        let endings: Vec<Ending> = (0..6 * EACH).map(|_| server.ending()).collect();
        is_over.store(true, Ordering::Relaxed);
        // A client that got the answer 503 keeps its connection and sends nothing more, so it becomes idle.
        let idle = endings.iter().filter(|ending| matches!(ending, Ending::Idle)).count();
        let closed = endings.iter().filter(|ending| matches!(ending, Ending::Closed)).count();
        assert_eq!((idle, closed), (5 * EACH, EACH), "{endings:?}");
        good.join().unwrap()
    });
    assert!(answered > 50, "{answered}");
    drop(good);
    server.await_no_timers();
}

#[test]
fn a_client_that_leaves_takes_its_timers_along() {
    let server = Server::start(NO_TIMEOUTS);
    let clients: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    clients.iter().for_each(|client| client.send(&get("/slow?ms=3600000")));
    let begin = Instant::now();
    // Each client has three timers: for the idle timeout, for the request, and for the handler's sleep.
    while server.engine.handle().stats().owned.alive < 150 {
        assert!(begin.elapsed() < PATIENCE, "{:?}", server.engine.handle().stats().owned);
        thread::sleep(MS);
    }
    drop(clients);
    server.await_no_timers();
    assert_eq!(server.engine.handle().stats().owned.fired, 0);
}

#[test]
fn a_server_that_is_dropped_leaves_no_timers() {
    let server = Server::start(NO_TIMEOUTS);
    let clients: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    clients.iter().for_each(|client| assert_eq!(client.ask(HELLO), Answer::ok(b"hello\n")));
    assert!(server.engine.handle().stats().owned.alive >= 50);
    drop(server.runtime);
    assert_eq!(server.engine.handle().stats().owned.alive, 0);
}
