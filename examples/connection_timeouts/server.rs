//! The server: event loops that re-arm a timer with every byte, around the engine that closes whom they do not hear.

use crate::connection::{Connection, TimedOut, close_idle};
use crate::options::Options;
use crate::system;
use crate::tally::{Counts, Tally, count};
use hdrhistogram::Histogram;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use std::error::Error;
use std::io::{self, ErrorKind};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tourbillon::{Builder, Cancel, Engine, Handle, RescheduleError, TimerId, Timestamp};

const STOP: Token = Token(usize::MAX);
/// A client finds no port towards an address to which it has as many connections as there are ports.
const CONNECTIONS_PER_ADDRESS: usize = 20_000;

/// A connection as its event loop knows it.
struct Session {
    connection: Arc<Connection>,
    timer: TimerId,
    last_byte: Timestamp,
}

impl Session {
    /// Takes note of bytes.
    fn rearm(&mut self, engine: &Handle<Arc<Connection>>, idle_timeout: Duration) -> io::Result<()> {
        self.last_byte = engine.now();
        match engine.reschedule_at(self.timer, self.last_byte + idle_timeout) {
            Ok(timer) => self.timer = timer,
            // The bytes came too late, or the timer too early: `verify_timeout` will tell.
            Err(RescheduleError::Running | RescheduleError::Gone) => {}
            Err(refused) => return Err(io::Error::other(refused.to_string())),
        }
        Ok(())
    }
}

/// The engine and the event loops around it.
pub(crate) struct Server {
    engine: Engine<Arc<Connection>>,
    counts: Arc<Counts>,
    stopping: Arc<AtomicBool>,
    addresses: Vec<SocketAddr>,
    loops: Vec<(Waker, JoinHandle<io::Result<LoopEnd>>)>,
}

/// A server that has stopped, but has not yet let go of its open connections.
pub(crate) struct Stopped {
    pub(crate) tally: Tally,
    pub(crate) close_lateness: Histogram<u64>,
    pub(crate) cpu_time: Duration,
    pub(crate) engine: Engine<Arc<Connection>>,
    _open: Vec<Session>,
}

impl Server {
    pub(crate) fn start(options: &Options, connections: usize) -> Result<Self, Box<dyn Error>> {
        let mut server = Self {
            engine: Builder::new().build(close_idle)?,
            counts: Arc::default(),
            stopping: Arc::default(),
            addresses: Vec::new(),
            loops: Vec::new(),
        };
        let threads = options.threads.get();
        let listeners = connections.div_ceil(threads).div_ceil(CONNECTIONS_PER_ADDRESS).max(1);
        for _ in 0..threads {
            server.start_loop(options, listeners)?;
        }
        Ok(server)
    }

    fn start_loop(&mut self, options: &Options, listeners: usize) -> io::Result<()> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), STOP)?;
        let listeners =
            (0..listeners).map(|index| listen(&poll, Token(index))).collect::<Result<Vec<_>, _>>()?;
        for listener in &listeners {
            self.addresses.push(listener.local_addr()?);
        }
        let event_loop = EventLoop {
            poll,
            listeners,
            sessions: Vec::new(),
            engine: self.engine.clone(),
            idle_timeout: options.idle_timeout,
            tolerance: options.tolerance,
            counts: Arc::clone(&self.counts),
            close_lateness: new_histogram(),
            stopping: Arc::clone(&self.stopping),
        };
        let thread = thread::Builder::new().name("server loop".into()).spawn(move || event_loop.run())?;
        self.loops.push((waker, thread));
        Ok(())
    }

    pub(crate) fn engine(&self) -> &Handle<Arc<Connection>> {
        &self.engine
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub(crate) fn tally(&self) -> Tally {
        self.counts.tally()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.loops.iter().any(|(_, thread)| thread.is_finished())
    }

    pub(crate) fn stop(self) -> io::Result<Stopped> {
        self.stopping.store(true, Ordering::Relaxed);
        let mut close_lateness = new_histogram();
        let mut open = Vec::new();
        for (waker, thread) in self.loops {
            waker.wake()?;
            let end = thread.join().expect("an event loop does not panic")?;
            close_lateness.add(end.close_lateness).expect("both resize by themselves");
            open.extend(end.open);
        }
        let tally = self.counts.tally();
        Ok(Stopped { tally, close_lateness, cpu_time: system::cpu_time(), engine: self.engine, _open: open })
    }
}

fn listen(poll: &Poll, token: Token) -> io::Result<TcpListener> {
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    poll.registry().register(&mut listener, token, Interest::READABLE)?;
    Ok(listener)
}

/// Of nanoseconds, to three digits.
fn new_histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are supported")
}

/// One thread of the server, with its listeners and the connections that these accepted.
struct EventLoop {
    poll: Poll,
    /// Their tokens count from zero.
    listeners: Vec<TcpListener>,
    /// Their tokens follow the listeners'. None is used twice, so an event never meets another connection than its own.
    sessions: Vec<Option<Session>>,
    engine: Handle<Arc<Connection>>,
    idle_timeout: Duration,
    tolerance: Duration,
    counts: Arc<Counts>,
    close_lateness: Histogram<u64>,
    stopping: Arc<AtomicBool>,
}

/// What an event loop leaves behind.
struct LoopEnd {
    close_lateness: Histogram<u64>,
    open: Vec<Session>,
}

impl EventLoop {
    fn run(mut self) -> io::Result<LoopEnd> {
        let mut events = Events::with_capacity(1_024);
        while !self.stopping.load(Ordering::Relaxed) {
            system::poll(&mut self.poll, &mut events, None)?;
            for event in &events {
                match event.token() {
                    STOP => {}
                    Token(token) if token < self.listeners.len() => self.accept(token)?,
                    Token(token) => self.hear(token - self.listeners.len())?,
                }
            }
        }
        let open = self.settle()?;
        Ok(LoopEnd { close_lateness: self.close_lateness, open })
    }

    fn accept(&mut self, listener: usize) -> io::Result<()> {
        loop {
            match self.listeners[listener].accept() {
                Ok((stream, _)) => self.open(stream)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn open(&mut self, mut stream: TcpStream) -> io::Result<()> {
        let token = Token(self.listeners.len() + self.sessions.len());
        self.poll.registry().register(&mut stream, token, Interest::READABLE)?;
        let connection = Arc::new(Connection::new(stream));
        let now = self.engine.now();
        let timer = self
            .engine
            .schedule_at(now + self.idle_timeout, Arc::clone(&connection))
            .map_err(|error| io::Error::other(error.kind.to_string()))?;
        connection.greet();
        self.sessions.push(Some(Session { connection, timer, last_byte: now }));
        count(&self.counts.opened);
        Ok(())
    }

    fn hear(&mut self, index: usize) -> io::Result<()> {
        let Some(session) = &mut self.sessions[index] else { return Ok(()) };
        let heard = session.connection.hear();
        if heard.bytes > 0 {
            session.rearm(&self.engine, self.idle_timeout)?;
        }
        if heard.ended {
            self.close(index);
        }
        Ok(())
    }

    /// Ends a session whose stream has ended. Whoever wins its timer was the one who ended it.
    fn close(&mut self, index: usize) {
        let Some(session) = self.sessions[index].take() else { return };
        match self.engine.cancel_and_wait(session.timer) {
            Cancel::Cancelled(_) => count(&self.counts.closed_by_client),
            Cancel::Running | Cancel::Gone => self.verify_timeout(&session),
        }
    }

    /// Holds the close of a connection against the moment of its last byte: bytes that were on their way into this
    /// loop when the timer fired have moved that moment past the close.
    fn verify_timeout(&mut self, session: &Session) {
        let Some(TimedOut { before_close, after_close }) = session.connection.timed_out() else {
            // The timer is gone and has not fired: nobody was going to close this one.
            return count(&self.counts.not_closed_in_time);
        };
        count(&self.counts.closed_by_timeout);
        let deadline = session.last_byte + self.idle_timeout;
        if before_close < deadline {
            count(&self.counts.closed_early);
        }
        let lateness = after_close - deadline;
        if lateness > self.tolerance || !session.connection.hear().ended {
            count(&self.counts.not_closed_in_time);
        }
        self.close_lateness += u64::try_from(lateness.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Hears everybody once more, takes the other timers back, and looks for connections that should not be open.
    fn settle(&mut self) -> io::Result<Vec<Session>> {
        for index in 0..self.sessions.len() {
            self.hear(index)?;
        }
        let mut open = Vec::new();
        for session in mem::take(&mut self.sessions).into_iter().flatten() {
            if let Cancel::Cancelled(_) = self.engine.cancel_and_wait(session.timer) {
                self.verify_open(&session);
                open.push(session);
            } else {
                self.verify_timeout(&session);
            }
        }
        Ok(open)
    }

    fn verify_open(&self, session: &Session) {
        count(&self.counts.still_open);
        if self.engine.now() - session.last_byte > self.idle_timeout + self.tolerance {
            count(&self.counts.not_closed_in_time);
        }
    }
}
