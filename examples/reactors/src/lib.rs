//! The parts of the examples that are the same for each reactor: the engines on the loop's shard, and the clients.

use std::error::Error;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};
use tourbillon::future::Wakeup;
use tourbillon::{Builder, Engine, Fired, Handle, LoopShard};

/// The number of connections.
pub const CONNECTIONS: u32 = 3;
/// How long a connection may be idle.
pub const IDLE: Duration = Duration::from_millis(60);
/// The delay of the timer that another thread arms.
const DELAY: Duration = Duration::from_millis(20);
/// The time between two bytes of a client.
const PAUSE: Duration = Duration::from_millis(15);
/// How long a client waits for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// The error of an example.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The timers of an example, on one shard that the reactor's thread turns.
#[derive(Debug)]
pub struct Timers {
    /// The engine with a handler, which runs on the thread of the reactor.
    engine: Engine<Instant>,
    /// The firings of the engine: how long after the arming, and on which thread.
    fired: Receiver<(Duration, ThreadId)>,
    /// The engine for the timeouts of the connections.
    futures: Handle<Wakeup>,
}

impl Timers {
    /// Makes a set of one shard, and the engines on it. A task of the reactor turns the shard.
    ///
    /// # Errors
    ///
    /// Fails if an engine cannot be made.
    pub fn new() -> Result<(Self, LoopShard), Failure> {
        let (shards, mut loops) = Builder::new().loops(1)?;
        let (sender, fired) = mpsc::channel();
        let engine = shards.engine().start(move |timer: Fired<'_, Instant>| {
            // The receiver is dropped when the example ends.
            let _ended = sender.send((timer.payload.elapsed(), thread::current().id()));
        })?;
        let futures = shards.futures().clone();
        Ok((Self { engine, fired, futures }, loops.remove(0)))
    }

    /// Returns the engine for the timeouts of connections.
    #[must_use]
    pub fn futures(&self) -> Handle<Wakeup> {
        self.futures.clone()
    }

    /// Starts the thread of the clients. First it arms a timer, while the reactor waits for a connection and the shard
    /// has no other timer, so that the arming must wake the reactor. Then it connects the clients.
    #[must_use]
    pub fn start_clients(self, server: SocketAddr) -> Clients {
        let reactor = thread::current().id();
        let futures = self.futures();
        let thread = thread::spawn(move || {
            self.engine.handle().schedule(DELAY, Instant::now())?;
            let (fired_after, thread) = self.fired.recv_timeout(PATIENCE)?;
            let clients: Vec<_> =
                (0..CONNECTIONS).map(|bytes| thread::spawn(move || talk(server, bytes))).collect();
            let mut closed_after = Vec::new();
            for client in clients {
                closed_after.push(client.join().map_err(|_| "a client has panicked")??);
            }
            Ok(Report { fired_after, is_on_reactor: thread == reactor, closed_after })
        });
        Clients { thread, futures }
    }
}

/// Sends some bytes and receives their echo, and then waits for the end of the connection. Returns the time from the
/// last byte to the end, by the client's own clock.
fn talk(server: SocketAddr, bytes: u32) -> io::Result<Duration> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut last = Instant::now();
    let mut echo = [0];
    for _ in 0..=bytes {
        thread::sleep(PAUSE);
        last = Instant::now();
        stream.write_all(&[17])?;
        stream.read_exact(&mut echo)?;
    }
    // A reset is an end as well.
    match stream.read(&mut echo) {
        Ok(0) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Ok(_) => return Err(io::Error::other("a byte that was not sent came back")),
        Err(error) => return Err(error),
    }
    Ok(last.elapsed())
}

/// The thread of the clients.
#[derive(Debug)]
pub struct Clients {
    thread: JoinHandle<Result<Report, Failure>>,
    futures: Handle<Wakeup>,
}

impl Clients {
    /// Waits for the end of the clients, and checks that no timer was early. The reactor must go on until then: with
    /// io_uring, a connection that the server has dropped is closed in a later turn of the reactor.
    ///
    /// # Errors
    ///
    /// Fails if a client has failed.
    ///
    /// # Panics
    ///
    /// The future panics if a timer was early, or if a handler ran on another thread than the reactor's.
    pub async fn report(self) -> Result<Report, Failure> {
        while !self.thread.is_finished() {
            self.futures.sleep(PAUSE).await;
        }
        let report = self.thread.join().map_err(|_| "the thread of the clients has panicked")??;
        assert!(report.is_on_reactor, "the handler ran on the thread of the reactor");
        assert!(report.fired_after >= DELAY, "early: {:?}", report.fired_after);
        for closed_after in &report.closed_after {
            assert!(*closed_after >= IDLE, "early: {closed_after:?}");
        }
        Ok(report)
    }
}

/// The times of the timers that have fired.
#[derive(Debug)]
pub struct Report {
    fired_after: Duration,
    is_on_reactor: bool,
    closed_after: Vec<Duration>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "a timer of {DELAY:?} from another thread fired after {:.1?} on the reactor's thread",
            self.fired_after
        )?;
        for closed_after in &self.closed_after {
            writeln!(f, "a connection with an idle timeout of {IDLE:?} was closed after {closed_after:.1?}")?;
        }
        write!(f, "{} timers fired, none was early", 1 + self.closed_after.len())
    }
}
