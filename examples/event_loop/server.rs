//! The event loop of the server.

use crate::clock::{Clock, current_tick, due_tick, time_until};
use crate::connection::{Connection, Status};
use crate::tally::Tally;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::collections::{BTreeSet, HashMap};
use std::io::{self, ErrorKind};
use std::mem;
use std::net::SocketAddr;
use std::time::Duration;
use tourbillon::Timestamp;
use tourbillon::wheel::{Progress, Wheel};

const LISTENER: Token = Token(0);
/// The largest number of connections to accept in a turn. The system lets as many connections wait.
const ACCEPTS_PER_TURN: usize = 128;
const TICKETS_PER_TURN: usize = 4_096;
/// The pause after a failed accept. The cause may be too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The purpose of a timer in the server's wheel.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// The timer checks whether the connection is idle.
    Idle(Token),
    /// The timer ends a pause, so that the server accepts connections again.
    Accept,
    /// The timer stops the server.
    Stop,
}

pub(crate) struct Server {
    poll: Poll,
    listener: TcpListener,
    /// The connections by their tokens. Each token is used once, so an event always finds its own connection.
    connections: HashMap<Token, Connection>,
    next_token: usize,
    /// The tokens of sockets that may be readable or writable. The poll reported them, or they had used up their turn.
    ready: BTreeSet<Token>,
    /// The tokens of connections that get a deadline once the clock has been read.
    unarmed: Vec<Token>,
    /// The tokens of connections whose deadline has passed.
    idle: Vec<Token>,
    buffer: Vec<u8>,
    clock: Clock,
    wheel: Wheel<Purpose>,
    idle_timeout: Duration,
    accept_is_paused: bool,
    is_stopping: bool,
    tally: Tally,
}

impl Server {
    pub(crate) fn new(
        address: SocketAddr,
        idle_timeout: Duration,
        stop_after: Option<Duration>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(address)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let clock = Clock::new();
        let now = clock.now();
        let mut wheel = Wheel::new(current_tick(now));
        if let Some(time) = stop_after {
            wheel.insert(due_tick(now + time), Purpose::Stop);
        }
        Ok(Self {
            poll,
            listener,
            connections: HashMap::new(),
            next_token: LISTENER.0 + 1,
            ready: BTreeSet::new(),
            unarmed: Vec::new(),
            idle: Vec::new(),
            buffer: vec![0; 16 * 1_024],
            clock,
            wheel,
            idle_timeout,
            accept_is_paused: false,
            is_stopping: false,
            tally: Tally::default(),
        })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(crate) fn run(mut self) -> io::Result<Tally> {
        let mut events = Events::with_capacity(1_024);
        let mut timeout = Some(Duration::ZERO);
        while !self.is_stopping {
            self.wait(&mut events, timeout)?;
            for token in mem::take(&mut self.ready) {
                if token == LISTENER {
                    self.accept();
                } else {
                    self.serve(token);
                }
            }
            // The clock is read after all bytes. So a deadline that counts from here is not early for any byte.
            let now = self.clock.now();
            self.arm(now);
            timeout = self.advance(now);
        }
        self.tally.still_open = self.connections.len() as u64;
        self.tally.echoed_bytes += self.connections.values().map(Connection::sent).sum::<u64>();
        Ok(self.tally)
    }

    /// Waits for events, at most for `timeout`. A signal also ends the wait.
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() == ErrorKind::Interrupted => events.clear(),
            result => result?,
        }
        self.tally.wake_ups += 1;
        self.ready.extend(events.iter().map(|event| event.token()));
        Ok(())
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            match self.listener.accept().and_then(|(stream, _)| self.open(stream)) {
                Ok(()) => {}
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    _ => return self.pause_accept(&error),
                },
            }
        }
        self.ready.insert(LISTENER);
    }

    /// Pauses the accepts after a failure. The poll does not report waiting connections again, so a timer must start
    /// the next accept.
    fn pause_accept(&mut self, error: &io::Error) {
        if self.tally.accept_errors == 0 {
            eprintln!("cannot accept, and will try every {ACCEPT_PAUSE:?}: {error}");
        }
        self.tally.accept_errors += 1;
        self.unarmed.push(LISTENER);
    }

    fn open(&mut self, mut stream: TcpStream) -> io::Result<()> {
        let token = Token(self.next_token);
        // The socket stays registered for reading and writing. A writable socket is reported once, not in each turn.
        self.poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        self.next_token += 1;
        self.connections.insert(token, Connection::new(stream));
        self.unarmed.push(token);
        self.tally.accepted += 1;
        Ok(())
    }

    /// Serves the connection of `token`. Returns false if the connection stays open and no byte moved.
    fn serve(&mut self, token: Token) -> bool {
        let Some(connection) = self.connections.get_mut(&token) else { return true };
        let moved = connection.moved();
        let status = connection.serve(&mut self.buffer);
        let was_heard = connection.moved() > moved;
        if was_heard {
            self.unarmed.push(token);
        }
        match status {
            Ok(Status::Waiting) => return was_heard,
            Ok(Status::Unfinished) => drop(self.ready.insert(token)),
            Ok(Status::Finished) => {
                self.tally.closed_by_peer += 1;
                self.close(token);
            }
            Err(_) => {
                self.tally.closed_on_error += 1;
                self.close(token);
            }
        }
        true
    }

    fn close(&mut self, token: Token) {
        let Some(mut connection) = self.connections.remove(&token) else { return };
        if let Some(timer) = connection.timer {
            self.wheel.cancel(timer);
        }
        // A failure does no harm. When the socket is closed, the poll forgets it anyway.
        self.poll.registry().deregister(&mut connection.stream).unwrap_or_default();
        self.tally.echoed_bytes += connection.sent();
    }

    /// Gives a deadline to each connection that sent something. Makes a timer for each connection that lacks a timer.
    ///
    /// A timer is moved when it comes due, not by each byte. Therefore a connection costs one insert in an idle
    /// timeout, for any number of bytes.
    fn arm(&mut self, now: Timestamp) {
        while let Some(token) = self.unarmed.pop() {
            if token == LISTENER {
                if !mem::replace(&mut self.accept_is_paused, true) {
                    self.wheel.insert(due_tick(now + ACCEPT_PAUSE), Purpose::Accept);
                }
                continue;
            }
            let Some(connection) = self.connections.get_mut(&token) else { continue };
            connection.deadline = now + self.idle_timeout;
            if connection.timer.is_none() {
                let timer = self.wheel.insert(due_tick(connection.deadline), Purpose::Idle(token));
                connection.timer = Some(timer);
            }
        }
    }

    /// Fires the timers that are due at `now`. Returns the longest time that the poll may wait. `None` for no limit.
    fn advance(&mut self, now: Timestamp) -> Option<Duration> {
        let Self { wheel, connections, ready, idle, accept_is_paused, is_stopping, .. } = self;
        let progress =
            wheel.advance(current_tick(now), TICKETS_PER_TURN, |wheel, timer| match timer.payload {
                Purpose::Idle(token) => {
                    let Some(connection) = connections.get_mut(&token) else { return };
                    connection.timer = if connection.deadline > now {
                        Some(wheel.insert(due_tick(connection.deadline), timer.payload))
                    } else {
                        idle.push(token);
                        None
                    };
                }
                Purpose::Accept => {
                    *accept_is_paused = false;
                    ready.insert(LISTENER);
                }
                Purpose::Stop => *is_stopping = true,
            });
        while let Some(token) = self.idle.pop() {
            self.close_idle(token, now);
        }
        if progress == Progress::BudgetSpent || !self.ready.is_empty() || !self.unarmed.is_empty() {
            return Some(Duration::ZERO);
        }
        self.wheel.next_expiry().map(|tick| time_until(tick, now))
    }

    /// Closes a connection whose deadline has passed. The connection stays if a byte that came in time is still in the
    /// socket.
    fn close_idle(&mut self, token: Token, now: Timestamp) {
        if self.serve(token) {
            return;
        }
        if let Some(connection) = self.connections.get(&token) {
            self.tally.worst_lateness = self.tally.worst_lateness.max(now - connection.deadline);
            self.tally.closed_idle += 1;
            self.close(token);
        }
    }
}
