//! Tests the example `axum_504` over a socket, by a client with its own clock.

#[path = "../examples/axum_504.rs"]
mod axum_504;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tourbillon::future::Wakeup;
use tourbillon::{Builder, Engine};

/// How long a test waits for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

struct Client(TcpStream);

impl Client {
    /// Sends a request, and returns the status and the body of the answer.
    fn get(&mut self, path: &str) -> (u16, String) {
        self.send(path);
        self.receive()
    }

    fn send(&mut self, path: &str) {
        write!(self.0, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    }

    fn receive(&mut self) -> (u16, String) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), String::from_utf8(body).unwrap())
    }
}

/// Starts the example's server, and connects a client. The server ends when the runtime is dropped.
fn start(engine: &Engine<Wakeup>, limit: Duration) -> (Runtime, Client) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let app = axum_504::app(engine.handle(), limit);
    runtime.spawn(async { axum::serve(listener, app).await });
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (runtime, Client(stream))
}

#[test]
fn slow_answers_are_504_and_the_connection_stays_usable() {
    const LIMIT: Duration = Duration::from_millis(150);
    let engine = Builder::new().start_futures().unwrap();
    let (_runtime, mut client) = start(&engine, LIMIT);
    for _ in 0..3 {
        assert_eq!(client.get("/fast"), (200, "fast\n".to_owned()));
        let begin = Instant::now();
        assert_eq!(client.get("/slow"), (504, "no response within 150ms\n".to_owned()));
        assert!(begin.elapsed() >= LIMIT);
    }
    assert_eq!(client.get("/fast"), (200, "fast\n".to_owned()));
}

#[test]
fn a_shutdown_answers_what_is_in_flight_at_once() {
    let engine = Builder::new().start_futures().unwrap();
    let (_runtime, mut client) = start(&engine, Duration::from_secs(3_600));
    client.send("/slow");
    let begin = Instant::now();
    while engine.handle().stats().owned.alive == 0 {
        assert!(begin.elapsed() < PATIENCE, "{:?}", engine.handle().stats());
        std::thread::yield_now();
    }
    drop(engine);
    let shut_down = (503, "the engine that limits a response to 3600s was shut down\n".to_owned());
    assert_eq!(client.receive(), shut_down);
    assert_eq!(client.get("/slow"), shut_down);
    assert_eq!(client.get("/fast"), (200, "fast\n".to_owned()));
}
