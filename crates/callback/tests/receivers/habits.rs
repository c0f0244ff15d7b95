//! Tests the outcome for each habit of a receiver, over raw sockets. The table in the guide has the same rows.

use crate::{ATTEMPT, read_request, settings};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tourbillon_callback::{Attempt, Callback, Caller, Failure, Outcome, Rules};

/// A step of a receiver on a connection. After the last step the receiver closes the connection.
enum Step {
    /// The receiver reads the request.
    Read,
    /// The receiver reads the first byte of the request.
    ReadByte,
    Send(&'static str),
    /// Sends the bytes of this text slowly, a byte each 2 ms.
    Drip(&'static str),
    /// Sends the bytes of this text again and again, without end.
    Repeat(&'static str),
    /// Sends nothing more, but keeps the connection open.
    Hold,
    Reset,
}

use Step::{Drip, Hold, Read, ReadByte, Repeat, Reset, Send};

/// The effect that an attempt's outcome has on the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Delivered,
    /// The attempt has failed, and another attempt follows.
    Again,
    /// The attempt has failed, and the receiver asks for a pause of this number of seconds.
    AgainAfter(u64),
    /// The timer is dead: no further attempt follows.
    Dead,
}

use End::{Again, AgainAfter, Dead, Delivered};

const DAY: u64 = 86_400;
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const LONG: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/// The habits of receivers, in the words of the guide. Each habit has the receiver's steps, and the effect on the
/// timer.
const HABITS: &[(&str, &[Step], End)] = &[
    // Answers by which the receiver takes the callback.
    ("200 with a body", &[Read, Send(OK), Hold], Delivered),
    ("204", &[Read, Send("HTTP/1.1 204 No Content\r\n\r\n"), Hold], Delivered),
    ("299, without a reason", &[Read, Send("HTTP/1.1 299\r\ncontent-length: 0\r\n\r\n"), Hold], Delivered),
    (
        "200 by HTTP/1.0, which ends with the connection",
        &[Read, Send("HTTP/1.0 200 OK\r\n\r\nok")],
        Delivered,
    ),
    (
        "200 in chunks",
        &[Read, Send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), Hold],
        Delivered,
    ),
    (
        "200 with a length and chunks",
        &[
            Read,
            Send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
            Hold,
        ],
        Delivered,
    ),
    ("200 with line feeds alone", &[Read, Send("HTTP/1.1 200 OK\ncontent-length: 2\n\nok"), Hold], Delivered),
    ("200 a byte at a time", &[Read, Drip(OK), Hold], Delivered),
    ("200 after 100", &[Read, Send("HTTP/1.1 100 Continue\r\n\r\n"), Send(OK), Hold], Delivered),
    (
        "200 after 102 and 103",
        &[
            Read,
            Send("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"),
            Send(OK),
            Hold,
        ],
        Delivered,
    ),
    ("200 before it has read the request", &[ReadByte, Send(OK), Hold], Delivered),
    (
        "200, and a second answer to no request",
        &[Read, Send(OK), Send("HTTP/1.1 503 Away\r\ncontent-length: 0\r\n\r\n"), Hold],
        Delivered,
    ),
    (
        "200, and bytes that do not form an answer",
        &[Read, Send(OK), Send("\u{0}\u{1}nonsense"), Hold],
        Delivered,
    ),
    ("200, and closes", &[Read, Send(OK)], Delivered),
    ("200, and resets", &[Read, Send(OK), Hold, Reset], Delivered),
    (
        "200 with a body that does not come",
        &[Read, Send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n"), Hold],
        Delivered,
    ),
    (
        "200 with a body that is cut",
        &[Read, Send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")],
        Delivered,
    ),
    (
        "200 with a chunk that does not end",
        &[Read, Send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\nab"), Hold],
        Delivered,
    ),
    (
        "200 with a chunk that has no length",
        &[Read, Send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnone\r\n"), Hold],
        Delivered,
    ),
    ("200 with a body without an end", &[Read, Send("HTTP/1.1 200 OK\r\n\r\n"), Repeat(LONG)], Delivered),
    // Answers by which the receiver refuses the callback.
    ("410", &[Read, Send("HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n"), Hold], Dead),
    (
        "301 to another place",
        &[
            Read,
            Send("HTTP/1.1 301 Moved\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n"),
            Hold,
        ],
        Again,
    ),
    (
        "307 to itself",
        &[Read, Send("HTTP/1.1 307 Temporary\r\nlocation: /\r\ncontent-length: 0\r\n\r\n"), Hold],
        Again,
    ),
    ("304", &[Read, Send("HTTP/1.1 304 Not Modified\r\n\r\n"), Hold], Again),
    ("400", &[Read, Send("HTTP/1.1 400 Bad\r\ncontent-length: 0\r\n\r\n"), Hold], Again),
    ("404", &[Read, Send("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n"), Hold], Again),
    ("500 with a body without an end", &[Read, Send("HTTP/1.1 500 Bad\r\n\r\n"), Repeat(LONG)], Again),
    (
        "101, as if for another protocol",
        &[Read, Send("HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"), Hold],
        Again,
    ),
    ("999", &[Read, Send("HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n"), Hold], Again),
    // Answers that ask for a pause.
    (
        "429 with `Retry-After: 3`",
        &[Read, Send("HTTP/1.1 429 Slowly\r\nretry-after: 3\r\ncontent-length: 0\r\n\r\n"), Hold],
        AgainAfter(3),
    ),
    (
        "503 with `Retry-After: 0`",
        &[Read, Send("HTTP/1.1 503 Away\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n"), Hold],
        AgainAfter(0),
    ),
    (
        "503 with `Retry-After: 99999999`",
        &[Read, Send("HTTP/1.1 503 Away\r\nretry-after: 99999999\r\ncontent-length: 0\r\n\r\n"), Hold],
        AgainAfter(DAY),
    ),
    (
        "503 with a date that is far",
        &[
            Read,
            Send(
                "HTTP/1.1 503 Away\r\nretry-after: Fri, 31 Dec 9999 23:59:59 GMT\r\ncontent-length: 0\r\n\r\n",
            ),
            Hold,
        ],
        AgainAfter(DAY),
    ),
    (
        "503 with a date that has passed",
        &[
            Read,
            Send(
                "HTTP/1.1 503 Away\r\nretry-after: Fri, 31 Dec 1999 23:59:59 GMT\r\ncontent-length: 0\r\n\r\n",
            ),
            Hold,
        ],
        AgainAfter(0),
    ),
    (
        "503 with `Retry-After: soon`",
        &[Read, Send("HTTP/1.1 503 Away\r\nretry-after: soon\r\ncontent-length: 0\r\n\r\n"), Hold],
        Again,
    ),
    (
        "503 with `Retry-After: -1`",
        &[Read, Send("HTTP/1.1 503 Away\r\nretry-after: -1\r\ncontent-length: 0\r\n\r\n"), Hold],
        Again,
    ),
    // Connections without an answer.
    ("closes at once", &[], Again),
    ("resets at once", &[Reset], Again),
    ("closes after the request", &[Read], Again),
    ("resets after the request", &[Read, Reset], Again),
    ("closes within the first line", &[Read, Send("HTTP/1.1 20")], Again),
    ("closes within the head", &[Read, Send("HTTP/1.1 200 OK\r\ncontent-le")], Again),
    ("closes after 100", &[Read, Send("HTTP/1.1 100 Continue\r\n\r\n")], Again),
    ("sends 100 without an end", &[Read, Repeat("HTTP/1.1 100 Continue\r\n\r\n")], Again),
    ("never answers", &[Read, Hold], Again),
    ("never reads", &[Hold], Again),
    ("sends a head without an end", &[Read, Send("HTTP/1.1 200 OK\r\nx-long: "), Repeat(LONG)], Again),
    ("sends headers without an end", &[Read, Send("HTTP/1.1 200 OK\r\n"), Repeat("a: b\r\n")], Again),
    ("sends no HTTP", &[Read, Send("220 mail.example ESMTP\r\n"), Hold], Again),
    ("sends TLS", &[Read, Send("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}"), Hold], Again),
    ("sends HTTP/2", &[Read, Send("\u{0}\u{0}\u{0}\u{4}\u{0}\u{0}\u{0}\u{0}\u{0}"), Hold], Again),
    (
        "a status that is not a number",
        &[Read, Send("HTTP/1.1 2xx OK\r\ncontent-length: 0\r\n\r\n"), Hold],
        Again,
    ),
    (
        "two lengths that differ",
        &[Read, Send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nokk"), Hold],
        Again,
    ),
    (
        "a length that is not a number",
        &[Read, Send("HTTP/1.1 200 OK\r\ncontent-length: two\r\n\r\nok"), Hold],
        Again,
    ),
    (
        "a header with a zero byte",
        &[Read, Send("HTTP/1.1 200 OK\r\nx: a\u{0}b\r\ncontent-length: 0\r\n\r\n"), Hold],
        Again,
    ),
    ("over TLS: closes at once", &[], Again),
    ("over TLS: never begins", &[ReadByte, Hold], Again),
    (
        "over TLS: a byte of the handshake at a time",
        &[ReadByte, Drip("\u{16}\u{3}\u{3}\u{0}\u{40}\u{2}\u{0}\u{0}\u{3c}"), Hold],
        Again,
    ),
    ("over TLS: sends HTTP", &[ReadByte, Send(OK), Hold], Again),
];

async fn serve(mut stream: TcpStream, steps: &'static [Step]) {
    for step in steps {
        let sent = match step {
            Read => read_request(&mut stream).await.map(drop).ok_or_else(|| std::io::ErrorKind::Other.into()),
            ReadByte => stream.read_u8().await.map(drop),
            Send(text) => stream.write_all(text.as_bytes()).await,
            Drip(text) => {
                for byte in text.bytes() {
                    let _sent = stream.write_all(&[byte]).await;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Ok(())
            }
            Repeat(text) => {
                let many = text.repeat(1_000);
                while stream.write_all(many.as_bytes()).await.is_ok() {}
                return;
            }
            Hold => {
                tokio::time::sleep(Duration::from_secs(12)).await;
                Ok(())
            }
            Reset => stream.set_zero_linger(),
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn receiver(steps: &'static [Step]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, steps));
        }
    });
    address
}

async fn outcome_of(caller: Caller, name: &str, steps: &'static [Step]) -> Outcome {
    let scheme = if name.starts_with("over TLS") { "https" } else { "http" };
    let url = format!("{scheme}://{}/hook", receiver(steps).await);
    let mut rules = Rules::default();
    rules.allow_http = true;
    let callback = Callback::new(&url, "POST", [], "{}", &rules).unwrap();
    let attempt = Attempt { timeout: Duration::from_secs(8), ..ATTEMPT };
    caller.send(&callback, attempt).await
}

fn end_of(outcome: &Outcome) -> End {
    match outcome {
        Outcome::Delivered(_) => Delivered,
        Outcome::Gone(_) => Dead,
        Outcome::Failed { retry_after: Some(pause), .. } => AgainAfter(pause.as_secs()),
        Outcome::Failed { retry_after: None, .. } => Again,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_habit_comes_to_what_the_guide_says() {
    assert!(HABITS.len() >= 40);
    let caller = Caller::new(settings()).unwrap();
    let ends =
        HABITS.iter().map(|(name, steps, _)| (*name, tokio::spawn(outcome_of(caller.clone(), name, steps))));
    let mut wrong = Vec::new();
    for ((name, end), (_, _, expected)) in ends.collect::<Vec<_>>().into_iter().zip(HABITS) {
        let outcome = end.await.unwrap();
        if end_of(&outcome) != *expected {
            wrong.push(format!("{name}: not {expected:?}: {outcome:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Such a receiver would take a core of the caller until the attempt's timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_never_begins_its_body_is_cut_off_before_the_timeout() {
    let caller = Caller::new(settings()).unwrap();
    let endless = |steps: &[Step]| matches!(steps, [.., Repeat(_)]);
    for (name, steps, _) in HABITS.iter().filter(|(_, steps, end)| endless(steps) && *end == Again) {
        let outcome = outcome_of(caller.clone(), name, steps).await;
        let Outcome::Failed { failure, .. } = outcome else { panic!("{name}: {outcome:?}") };
        assert!(!matches!(failure, Failure::Timeout), "{name}");
    }
}

/// Returns the words by which the guide describes an effect.
fn words(end: End) -> String {
    match end {
        Delivered => "delivered".to_owned(),
        Again => "tried again".to_owned(),
        AgainAfter(DAY) => "tried again, after a day at least".to_owned(),
        AgainAfter(0) => "tried again, after the policy's pause".to_owned(),
        AgainAfter(seconds) => format!("tried again, after {seconds} s at least"),
        Dead => "dead".to_owned(),
    }
}

#[test]
fn the_guide_has_a_row_for_each_habit() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/receivers.md");
    // A package of this crate does not contain the guide.
    let Ok(guide) = std::fs::read_to_string(path) else { return };
    let rows: Vec<&str> =
        guide.lines().filter(|line| line.starts_with("| ") && !line.contains("---")).collect();
    let expected: Vec<String> =
        HABITS.iter().map(|(name, _, end)| format!("| {name} | {} |", words(*end))).collect();
    let missing: Vec<_> = expected.iter().filter(|row| !rows.contains(&&***row)).collect();
    assert!(missing.is_empty(), "rows that the guide lacks:\n{missing:#?}");
}
