//! Runs the example `monitoring` as a process of its own, and sends requests through sockets.

use crate::page::Page;
use crate::support::{PATIENCE, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The running example program. Dropping the value kills it.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    fn start(options: &[&str]) -> Self {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(|deps| deps.parent()).expect("in target/<profile>/deps");
        let example = profile.join("examples").join(format!("monitoring{}", std::env::consts::EXE_SUFFIX));
        assert!(
            example.exists(),
            "first run `cargo build --example monitoring` in this profile: {example:?}"
        );
        let mut child = Command::new(example)
            .arg("--listen=127.0.0.1:0")
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on ").expect("its address").parse().unwrap();
        Self { child, output, address }
    }

    /// Sends `request` to the example. Returns the status, the headers and the body of the response.
    fn ask(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let (status, headers) = head.split_once("\r\n").expect("headers");
        let status = status.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).expect("a status");
        assert!(headers.contains(&format!("Content-Length: {}\r\n", body.len())), "{headers}");
        (status.parse().unwrap(), headers.to_owned(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The kill fails if the process has already ended.
        self.child.kill().unwrap_or_default();
        self.child.wait().unwrap();
    }
}

#[test]
fn metrics_are_a_page_that_goes_on() {
    let server = Server::start(&["--timers=500"]);
    let page = || {
        let (status, headers, body) = server.get("/metrics?from=a_scraper");
        assert_eq!(status, 200);
        assert!(headers.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{headers}");
        Page::read(&body).unwrap()
    };
    wait_until("timers are pending", || page().get("tourbillon_engine_pending") >= 450.0);
    let fired = |page: &Page| -> f64 {
        let samples =
            page.samples.iter().filter(|(series, _)| series.name == "tourbillon_engine_fired_total");
        samples.map(|(_, fired)| fired).sum()
    };
    let first = page();
    wait_until("some fire, and more are scheduled and cancelled", || {
        let later = page();
        let grows = |name| later.get(name) > first.get(name);
        fired(&later) > fired(&first)
            && grows("tourbillon_engine_scheduled_total")
            && grows("tourbillon_engine_cancelled_total")
    });
}

#[test]
fn health_is_a_word_and_a_status() {
    let well = Server::start(&["--timers=500"]);
    wait_until("it is healthy", || {
        let (status, _, body) = well.get("/health");
        assert_eq!(status == 200, body.starts_with("healthy: "), "{body}");
        assert!(status == 200 || status == 503, "{status}");
        status == 200
    });
    let full = Server::start(&["--timers=500", "--capacity=500"]);
    wait_until("it is full", || {
        let (status, _, body) = full.get("/health");
        status == 503 && body.starts_with("full: ") && body.ends_with('\n')
    });
}

#[test]
fn what_is_not_asked_for_is_refused() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/").0, 404);
    assert_eq!(server.get("/metrics/").0, 404);
    for request in ["POST /metrics HTTP/1.1\r\n\r\n", "GET /metrics\r\n\r\n", "\r\n\r\n", "GET\r\n\r\n"] {
        assert_eq!(server.ask(request).0, 400, "{request:?}");
    }
    // The example answers other clients while a client is silent.
    let silent = TcpStream::connect(server.address).unwrap();
    assert_eq!(server.get("/metrics").0, 200);
    drop(silent);
}

#[test]
fn it_stops_when_it_was_told_to() {
    let mut server = Server::start(&["--seconds=1", "--timers=100"]);
    let mut rest = String::new();
    server.output.read_to_string(&mut rest).unwrap();
    assert!(server.child.wait().unwrap().success());
    assert!(rest.ends_with(" timers had not fired\n"), "{rest}");
}
