//! The part of HTTP/1.1 that a scraper needs: one `GET`, one response, and the end of the connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The longest time for sending or receiving. Then the client is disconnected.
const PATIENCE: Duration = Duration::from_secs(5);
/// The length of the longest request that the server reads, in bytes.
const LONGEST: u64 = 8 << 10;

pub(crate) struct Answer {
    pub(crate) status: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

/// Serves HTTP requests for ever. `answer` returns the page at a path.
pub(crate) fn serve(listener: &TcpListener, answer: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static) {
    let answer = Arc::new(answer);
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => {
                let answer = Arc::clone(&answer);
                // An error of a connection is not reported.
                thread::spawn(move || converse(&stream, &*answer).unwrap_or_default());
            }
            // Perhaps no file descriptor is free. Later there may be one.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn converse(stream: &TcpStream, answer: &impl Fn(&str) -> Option<Answer>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let plain = |status, text: &str| Answer { status, content_type: "text/plain", body: format!("{text}\n") };
    let answer = match read_request(stream)? {
        Some(path) => answer(&path).unwrap_or_else(|| plain("404 Not Found", "try /metrics or /health")),
        None => plain("400 Bad Request", "this is no GET"),
    };
    let Answer { status, content_type, body } = answer;
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len(),
    )
}

/// Reads a request up to the end of its headers. Returns the path without the query if the request is a `GET`, and
/// otherwise `None`.
fn read_request(stream: &TcpStream) -> io::Result<Option<String>> {
    let mut lines = BufReader::new(stream.take(LONGEST)).lines();
    let Some(first) = lines.next().transpose()? else { return Ok(None) };
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let mut words = first.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let is_get = method == Some("GET") && version.is_some_and(|version| version.starts_with("HTTP/1."));
    let path = target.and_then(|target| target.split('?').next());
    Ok(path.filter(|_| is_get).map(str::to_owned))
}
