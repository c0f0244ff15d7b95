//! Runs the examples `event_loop` and `loops` as processes of their own, and talks to them through sockets.
//!
//! Times have only lower bounds, which are exact. A client reads its clock at places where the server's idle time is at
//! most the client's measured time.

mod support;

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::{HOUR, MS, PATIENCE, Rng};

/// A number of bytes that exceeds all buffers of a connection, in the system and in the server.
const MOST_BUFFERED: usize = 256 << 20;

/// A running example server. Dropping the value kills the server.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    fn start(idle_timeout: Duration) -> Self {
        Self::start_with(&mut Command::new(example("event_loop")), idle_timeout)
    }

    fn start_with(command: &mut Command, idle_timeout: Duration) -> Self {
        let mut child = command
            .arg(format!("--idle-timeout={}", idle_timeout.as_millis()))
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

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Waits until the server stops by itself. Returns the server's output after the line with the address.
    fn finish(mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The kill fails if the process has already ended.
        self.child.kill().unwrap_or_default();
        self.child.wait().unwrap();
    }
}

/// Returns the path of an example's binary. The binary is in the folder `examples` beside this test's folder.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).expect("in target/<profile>/deps");
    let example = profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(example.exists(), "first run `cargo build --example {name}` in this profile: {example:?}");
    example
}

fn random_bytes(count: usize) -> Vec<u8> {
    let mut rng = Rng::new(7);
    let mut bytes: Vec<u8> = (0..count.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes()).collect();
    bytes.truncate(count);
    bytes
}

/// Sends `bytes`, and waits until the server has sent them back.
fn echo(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    let mut echoed = vec![0; bytes.len()];
    stream.read_exact(&mut echoed)?;
    assert!(echoed == bytes);
    Ok(())
}

/// Waits for the end of the stream. Fails if bytes come before the end.
fn await_end(mut stream: &TcpStream) {
    let end = stream.read_exact(&mut [0]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::UnexpectedEof));
}

/// Sends `bytes` again and again until the system has taken nothing for a while. Returns the number of bytes that the
/// system took.
fn send_until_blocked(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    stream.set_write_timeout(Some(100 * MS))?;
    let mut sent = 0;
    loop {
        assert!(sent < MOST_BUFFERED, "the server reads what it cannot send");
        match stream.write(&bytes[sent % bytes.len()..]) {
            Ok(count) => sent += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(sent);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads `count` bytes, some thousands at a time, with pauses.
fn read_slowly(mut stream: &TcpStream, count: usize) -> Vec<u8> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 7_919]);
    while bytes.len() < count {
        thread::sleep(MS);
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "the end after {} bytes of {count}", bytes.len());
        bytes.extend(&buffer[..read]);
    }
    bytes
}

// --- Echo ---

#[test]
fn a_mebibyte_in_odd_pieces_comes_back_to_a_slow_reader() {
    let server = Server::start(HOUR);
    let (sender, payload) = (server.connect(), random_bytes(1 << 20));
    let echoed = thread::scope(|scope| {
        scope.spawn(|| {
            let (mut rest, mut rng) = (&payload[..], Rng::new(1));
            while !rest.is_empty() {
                let (piece, others) = rest.split_at(rest.len().min(1 + 2 * rng.index(5_000)));
                (&sender).write_all(piece).unwrap();
                rest = others;
            }
        });
        read_slowly(&sender, payload.len())
    });
    assert!(echoed == payload);
    sender.shutdown(Shutdown::Write).unwrap();
    await_end(&sender);
}

#[test]
fn whoever_does_not_read_stops_nobody_and_loses_nothing() {
    let server = Server::start(HOUR);
    let (stuck, payload) = (server.connect(), random_bytes(1 << 20));
    let sent = send_until_blocked(&stuck, &payload).unwrap();
    for _ in 0..5 {
        echo(&server.connect(), &payload[..10_001]).unwrap();
    }
    stuck.shutdown(Shutdown::Write).unwrap();
    let mut echoed = Vec::new();
    (&stuck).read_to_end(&mut echoed).unwrap();
    assert_eq!(echoed.len(), sent);
    assert!(echoed.chunks(payload.len()).all(|round| round == &payload[..round.len()]));
}

#[test]
fn a_client_that_shuts_down_its_side_gets_everything_and_then_the_end() {
    let server = Server::start(HOUR);
    let payload = random_bytes(300_001);
    for part in [&payload[..], b"!", b""] {
        let mut stream = server.connect();
        stream.write_all(part).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut echoed = Vec::new();
        stream.read_to_end(&mut echoed).unwrap();
        assert!(echoed == part);
    }
}

/// The client's end reaches the server while a full socket keeps bytes back. One of the tested lengths is a little too
/// long for the system's buffers. On Linux the buffers hold 4 MiB by default. Elsewhere the test may miss that length.
#[test]
fn bytes_that_were_unsent_when_the_end_came_are_sent() {
    let server = Server::start(HOUR);
    let payload = random_bytes(5_500_000);
    for length in (2_500_000..=payload.len()).step_by(40_000) {
        let mut stream = server.connect();
        stream.write_all(&payload[..length]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        thread::sleep(2 * MS);
        let mut echoed = Vec::new();
        stream.read_to_end(&mut echoed).unwrap();
        assert_eq!(echoed.len(), length);
        assert!(echoed == payload[..length]);
    }
}

// --- Idle timeouts ---

/// Sends a byte in each third of the idle timeout, for five timeouts. Returns the connection, and a moment before the
/// last byte was sent. Returns `None` if this thread slept too long, because the server was then free to close the
/// connection.
fn talk(server: &Server, idle_timeout: Duration) -> Option<(TcpStream, Instant)> {
    let mut before = Instant::now();
    let mut stream = server.connect();
    for _ in 0..15 {
        thread::sleep(idle_timeout / 3);
        let last = std::mem::replace(&mut before, Instant::now());
        let is_sent = stream.write_all(b"x");
        let pause = last.elapsed();
        if let Err(error) = is_sent.and_then(|()| stream.read_exact(&mut [0])) {
            assert!(pause >= idle_timeout, "closed after {pause:?}: {error}");
            return None;
        }
    }
    Some((stream, before))
}

#[test]
fn a_busy_connection_is_kept_and_an_idle_one_is_closed_not_early() {
    const IDLE_TIMEOUT: Duration = Duration::from_millis(200);
    let server = Server::start(IDLE_TIMEOUT);
    thread::scope(|scope| {
        scope.spawn(|| {
            let before = Instant::now();
            await_end(&server.connect());
            assert!(before.elapsed() >= IDLE_TIMEOUT);
        });
        let talked = (0..10).find_map(|_| talk(&server, IDLE_TIMEOUT));
        let (busy, before) = talked.expect("a thread that does not oversleep each time");
        await_end(&busy);
        assert!(before.elapsed() >= IDLE_TIMEOUT);
    });
}

/// Messages keep the loop turning, so that it never sleeps. The loop may then turn in the tick of a deadline, but
/// before the deadline. The loop must not close a connection early.
#[test]
fn a_loop_that_does_not_sleep_closes_nobody_early() {
    const IDLE_TIMEOUT: Duration = Duration::from_millis(100);
    let server = Server::start(IDLE_TIMEOUT);
    let is_over = AtomicBool::new(false);
    let watch = || {
        let before = Instant::now();
        await_end(&server.connect());
        assert!(before.elapsed() >= IDLE_TIMEOUT);
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut chatter = server.connect();
            while !is_over.load(Ordering::Relaxed) {
                // The echo fails if this thread has slept for too long.
                if echo(&chatter, b"x").is_err() {
                    chatter = server.connect();
                }
            }
        });
        let watches: Vec<_> = (0..8).map(|_| scope.spawn(|| (0..3).for_each(|_| watch()))).collect();
        let outcomes: Vec<_> = watches.into_iter().map(|watch| watch.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(outcomes.iter().all(Result::is_ok));
    });
}

#[test]
fn two_hundred_idle_connections_are_all_closed_and_none_early() {
    const IDLE_TIMEOUT: Duration = Duration::from_millis(300);
    let server = Server::start(IDLE_TIMEOUT);
    let connect = |_| {
        // At most 128 connections may wait to be accepted. Others would try again after a second.
        thread::sleep(MS / 10);
        let before = Instant::now();
        let stream = server.connect();
        stream.set_nonblocking(true).unwrap();
        (before, stream)
    };
    let mut open: Vec<_> = (0..200).map(connect).collect();
    let is_open = |(before, stream): &mut (Instant, TcpStream)| match stream.read(&mut [0]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => true,
        end => {
            assert_eq!(end.unwrap(), 0);
            assert!(before.elapsed() >= IDLE_TIMEOUT);
            false
        }
    };
    let begin = Instant::now();
    while !open.is_empty() {
        assert!(begin.elapsed() < PATIENCE, "{} connections are open still", open.len());
        open.retain_mut(is_open);
        thread::sleep(MS);
    }
}

#[test]
fn whoever_does_not_read_is_idle() {
    let server = Server::start(150 * MS);
    let stuck = server.connect();
    let payload = random_bytes(1 << 16);
    let begin = Instant::now();
    while send_until_blocked(&stuck, &payload).is_ok() {
        assert!(begin.elapsed() < PATIENCE, "it is open still");
    }
    echo(&server.connect(), b"hello").unwrap();
}

// --- The rest ---

#[cfg(unix)]
#[test]
fn whoever_finds_no_file_left_is_accepted_later() {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"ulimit -n 24 && exec "$0" "$@""#]).arg(example("event_loop")).stderr(Stdio::null());
    let server = Server::start_with(&mut shell, 100 * MS);
    let clients: Vec<TcpStream> = (0..40).map(|_| server.connect()).collect();
    for mut client in &clients {
        client.write_all(b"x").unwrap();
    }
    for mut client in &clients {
        client.read_exact(&mut [0]).unwrap();
        await_end(client);
    }
}

#[test]
fn a_run_ends_with_a_summary() {
    let server = Server::start_with(Command::new(example("event_loop")).arg("--seconds=2"), 500 * MS);
    let leaving = server.connect();
    echo(&leaving, b"seventeen").unwrap();
    leaving.shutdown(Shutdown::Write).unwrap();
    await_end(&leaving);
    let resetting = server.connect();
    (&resetting).write_all(b"x").unwrap();
    resetting.peek(&mut [0]).unwrap();
    // The client has not read all bytes, so the system resets the connection.
    drop(resetting);
    let idle = server.connect();
    echo(&idle, b"four").unwrap();
    await_end(&idle);

    let summary = server.finish();
    let count = |label: &str| -> f64 {
        let rest = summary.lines().find_map(|line| line.strip_prefix(label)).expect(label);
        rest.split_whitespace().next().expect(label).parse().unwrap()
    };
    let counts =
        ["accepted", "echoed bytes", "closed idle", "closed by peer", "closed on error", "still open"];
    assert_eq!(counts.map(count), [3.0, 14.0, 1.0, 1.0, 1.0, 0.0], "{summary}");
    assert!((4.0..100.0).contains(&count("poll wake-ups")), "{summary}");
    assert!(count("worst lateness of idle closes") >= 0.0, "{summary}");
}

// --- The example `loops` ---

/// One loop's line in the summary that the example prints.
#[derive(Debug, PartialEq, Eq)]
struct LoopLine {
    connections: u64,
    bytes: u64,
    idle: u64,
    polls: u64,
}

impl LoopLine {
    fn parse(line: &str, n: usize) -> Option<Self> {
        let rest = line.strip_prefix(&format!("loop {n}: "))?;
        let (connections, rest) = rest.split_once(" connections, ")?;
        let (bytes, rest) = rest.split_once(" bytes echoed, ")?;
        let (idle, rest) = rest.split_once(" were idle, ")?;
        let number = |text: &str| text.parse().ok();
        Some(Self {
            connections: number(connections)?,
            bytes: number(bytes)?,
            idle: number(idle)?,
            polls: number(rest.strip_suffix(" polls")?)?,
        })
    }
}

/// Connections go to the loops in turn. Each loop echoes, and arms its connections' timers without a ticket (an entry
/// in the wheel). The loop closes connections that are idle after their last byte, and connections that never sent a
/// byte.
#[test]
fn each_loop_serves_its_connections_and_closes_those_that_are_idle() {
    const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
    const ECHOES: u64 = 50;
    let mut command = Command::new(example("loops"));
    let server = Server::start_with(command.args(["--loops=2", "--seconds=4"]), IDLE_TIMEOUT);
    let connect = |_| (Instant::now(), server.connect());
    let [mut one, two, mut three, four] = [0, 1, 2, 3].map(connect);
    echo(&four.1, b"four").unwrap();
    four.1.shutdown(Shutdown::Write).unwrap();
    await_end(&four.1);
    for _ in 0..ECHOES {
        for (before, stream) in [&mut one, &mut three] {
            *before = Instant::now();
            echo(stream, b"seventeen").unwrap();
        }
    }
    for (before, stream) in [&one, &two, &three] {
        await_end(stream);
        assert!(before.elapsed() >= IDLE_TIMEOUT, "closed early");
    }
    // The server still runs, so it closed the connections before its end.
    echo(&server.connect(), b"late").unwrap();

    let summary = server.finish();
    let lines: Vec<&str> = summary.lines().collect();
    let [first, second, tickets] = lines[..] else { panic!("{summary}") };
    let [first, second] =
        [(0, first), (1, second)].map(|(n, line)| LoopLine::parse(line, n).expect("a loop"));
    assert_eq!((first.connections, first.bytes, first.idle), (3, 18 * ECHOES + 4, 2), "{summary}");
    assert_eq!((second.connections, second.bytes, second.idle), (2, 4, 1), "{summary}");
    assert!(first.polls >= 2 * ECHOES && second.polls >= 2, "{summary}");
    let tickets: u64 =
        tickets.strip_prefix("timers armed with a ticket: ").expect("tickets").parse().unwrap();
    // The first arming of each timer takes a ticket. Later armings rarely do, if they meet a check of the timer.
    assert!((4..ECHOES).contains(&tickets), "{summary}");
}
