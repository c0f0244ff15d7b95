//! One event loop: its connections, its poll, and its shard.

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};
use tourbillon::{Handle, LoopLeft, LoopShard, Timer, Timestamp};

pub(crate) const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);
const FIRST_CONNECTION: usize = 2;
/// The largest number of tickets that a turn of the shard fires or moves. Then the loop serves its sockets again.
const TICKETS_PER_TURN: usize = 1_024;

thread_local! {
    /// The tokens of connections whose deadline has passed. All belong to this thread's loop.
    static EXPIRED: RefCell<Vec<Token>> = const { RefCell::new(Vec::new()) };
}

/// Notes that the connection of `token` is idle. The timer's handler calls this inside a turn of the connection's loop.
pub(crate) fn note_expired(token: usize) {
    EXPIRED.with_borrow_mut(|expired| expired.push(Token(token)));
}

/// A connection that is passed to its loop, and the connection's timer. Each token is used once, so a late timer closes
/// no other connection.
pub(crate) struct Accepted {
    stream: TcpStream,
    timer: Timer<usize>,
}

/// For each loop, the queue of its new connections and its waker.
#[derive(Clone)]
pub(crate) struct Connections {
    pub(crate) engine: Handle<usize>,
    pub(crate) idle_timeout: Duration,
    pub(crate) queues: Vec<(Sender<Accepted>, Arc<Waker>)>,
}

impl Connections {
    /// Passes a connection to loop number `n`, and arms the connection's first deadline there.
    fn give(&self, n: usize, token: usize, stream: TcpStream, now: Instant) -> io::Result<()> {
        let timer = self.engine.timer(token).map_err(|_| io::Error::other("the engine is full"))?;
        let deadline = Timestamp::from(now) + self.idle_timeout;
        self.engine.on(n).arm_at(&timer, deadline).map_err(io::Error::other)?;
        let (queue, waker) = &self.queues[n];
        queue.send(Accepted { stream, timer }).map_err(|_| io::Error::other("the loop has ended"))?;
        waker.wake()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    polls: u64,
    served: u64,
    bytes: u64,
    idle: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { polls, served, bytes, idle } = self;
        write!(f, "{served} connections, {bytes} bytes echoed, {idle} were idle, {polls} polls")
    }
}

pub(crate) struct Serving {
    shard: LoopShard,
    poll: Poll,
    accepted: Receiver<Accepted>,
    listener: Option<TcpListener>,
    connections: Connections,
    open: HashMap<Token, Accepted>,
    next_token: usize,
    tally: Tally,
}

impl Serving {
    pub(crate) fn new(
        (shard, poll): (LoopShard, Poll),
        accepted: Receiver<Accepted>,
        mut listener: Option<TcpListener>,
        connections: Connections,
    ) -> io::Result<Self> {
        if let Some(listener) = &mut listener {
            poll.registry().register(listener, LISTENER, Interest::READABLE)?;
        }
        let (open, next_token, tally) = (HashMap::new(), FIRST_CONNECTION, Tally::default());
        Ok(Self { shard, poll, accepted, listener, connections, open, next_token, tally })
    }

    pub(crate) fn run(mut self, stop_after: Option<Duration>) -> io::Result<Tally> {
        let begin = Instant::now();
        let mut events = Events::with_capacity(1_024);
        let mut now = begin;
        loop {
            let rest = stop_after.map(|time| time.saturating_sub(now - begin));
            if rest == Some(Duration::ZERO) {
                return Ok(self.tally);
            }
            // The timeout is read after the last arming, before each poll.
            let timeout = [self.shard.timeout(now), rest].into_iter().flatten().min();
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == ErrorKind::Interrupted => events.clear(),
                result => result?,
            }
            self.tally.polls += 1;
            now = Instant::now();
            for event in &events {
                match event.token() {
                    WAKER => {}
                    LISTENER => self.accept(now)?,
                    token => self.serve(token, now),
                }
            }
            self.take_accepted(now)?;
            // If the turn leaves work, the next poll has a timeout of zero, and the next turn goes on.
            let _: LoopLeft = self.shard.turn(now, TICKETS_PER_TURN);
            for token in EXPIRED.take() {
                self.tally.idle += u64::from(self.open.remove(&token).is_some());
            }
        }
    }

    fn accept(&mut self, now: Instant) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    let token = self.next_token;
                    self.next_token += 1;
                    self.connections.give(token % self.connections.queues.len(), token, stream, now)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take_accepted(&mut self, now: Instant) -> io::Result<()> {
        while let Ok(mut connection) = self.accepted.try_recv() {
            if !connection.timer.is_armed() {
                // The connection's deadline passed before the connection reached its loop.
                self.tally.idle += 1;
                continue;
            }
            let token = Token(*connection.timer.payload());
            self.poll.registry().register(&mut connection.stream, token, Interest::READABLE)?;
            self.open.insert(token, connection);
            self.tally.served += 1;
            self.serve(token, now);
        }
        Ok(())
    }

    /// Sends the bytes that have come back to the client. Disconnects a client that does not read the bytes.
    fn serve(&mut self, token: Token, now: Instant) {
        let Some(connection) = self.open.get_mut(&token) else { return };
        let mut buffer = [0; 4_096];
        let is_open = loop {
            match connection.stream.read(&mut buffer) {
                Ok(0) => break false,
                Ok(n) => {
                    if connection.stream.write_all(&buffer[..n]).is_err() {
                        break false;
                    }
                    self.tally.bytes += n as u64;
                    // This is a store and a load, since the queued ticket is due before this deadline.
                    let deadline = Timestamp::from(now) + self.connections.idle_timeout;
                    if connection.timer.arm_at(deadline).is_err() {
                        break false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        if !is_open {
            self.open.remove(&token);
        }
    }
}
