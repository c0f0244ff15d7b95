//! An event loop of the server. It re-arms a connection's timer with every byte, and closes the connections that the
//! engine found idle.
//!
//! A timer may fire while bytes are on their way. The loop owns the connections, so the loop decides after it has read
//! the bytes that have come. If bytes have moved the deadline since, the firing closes nothing, and the timer is
//! already armed again.

use crate::connection::Connection;
use crate::mailbox::{Firing, IdleTimeout, Mailbox};
use crate::options::Options;
use crate::system;
use crate::tally::{Counts, count};
use hdrhistogram::Histogram;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use std::io::{self, ErrorKind};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tourbillon::{Handle, Timer, Timestamp};

/// The token of the event loop's waker. It wakes the loop because a firing is in the mailbox, or because the server
/// stops.
const WOKEN: Token = Token(usize::MAX);

/// An open connection and its timer.
pub(crate) struct Session {
    connection: Connection,
    timer: Timer<IdleTimeout>,
    last_byte: Timestamp,
}

impl Session {
    /// Arms the connection's timer, because bytes came or the connection was opened.
    fn arm(&mut self, now: Timestamp, idle_timeout: Duration) -> io::Result<()> {
        self.last_byte = now;
        // The handler may still run for an older deadline. That does no harm, since the firing names its deadline.
        self.timer.arm_at(now + idle_timeout).map(drop).map_err(io::Error::other)
    }
}

/// The state of a connection: open, or how it has ended.
enum Slot {
    Open(Session),
    TimedOut,
    /// The client has left, or the server has stopped.
    Gone,
}

impl Slot {
    /// Returns the session if the slot is open. Leaves `end` in the slot.
    fn end(&mut self, end: Slot) -> Option<Session> {
        match mem::replace(self, end) {
            Self::Open(session) => Some(session),
            ended => {
                *self = ended;
                None
            }
        }
    }
}

/// A thread of the server. It has listeners, and the connections that they accepted.
pub(crate) struct EventLoop {
    poll: Poll,
    /// The loop's listeners. Their tokens begin at zero.
    listeners: Vec<TcpListener>,
    /// The loop's connections. Their tokens follow the tokens of the listeners. Each token is used once, so an event or
    /// a firing always finds its own connection.
    slots: Vec<Slot>,
    /// The indices of the connections from which the loop has read bytes in the present turn.
    heard: Vec<usize>,
    engine: Handle<IdleTimeout>,
    mailbox: Arc<Mailbox>,
    firings: Receiver<Firing>,
    idle_timeout: Duration,
    tolerance: Duration,
    counts: Arc<Counts>,
    close_lateness: Histogram<u64>,
    stopping: Arc<AtomicBool>,
}

/// The results of an event loop, and the sessions that are open at its end.
pub(crate) struct LoopEnd {
    pub(crate) close_lateness: Histogram<u64>,
    pub(crate) open: Vec<Session>,
}

impl EventLoop {
    pub(crate) fn new(
        options: &Options,
        listeners: usize,
        engine: Handle<IdleTimeout>,
        counts: Arc<Counts>,
        stopping: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let (mailbox, firings) = Mailbox::new(Waker::new(poll.registry(), WOKEN)?);
        let listeners = (0..listeners).map(|index| listen(&poll, Token(index))).collect::<Result<_, _>>()?;
        Ok(Self {
            poll,
            listeners,
            slots: Vec::new(),
            heard: Vec::new(),
            engine,
            mailbox: Arc::new(mailbox),
            firings,
            idle_timeout: options.idle_timeout,
            tolerance: options.tolerance,
            counts,
            close_lateness: new_histogram(),
            stopping,
        })
    }

    pub(crate) fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    pub(crate) fn run(mut self) -> io::Result<LoopEnd> {
        let mut events = Events::with_capacity(1_024);
        while !self.stopping.load(Ordering::Relaxed) {
            system::poll(&mut self.poll, &mut events, None)?;
            for event in &events {
                match event.token() {
                    WOKEN => {}
                    Token(token) if token < self.listeners.len() => self.accept(token)?,
                    Token(token) => self.hear(token - self.listeners.len()),
                }
            }
            self.end_turn()?;
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
        let index = self.slots.len();
        let token = Token(self.listeners.len() + index);
        self.poll.registry().register(&mut stream, token, Interest::READABLE)?;
        let timeout = IdleTimeout { mailbox: Arc::clone(&self.mailbox), connection: index };
        let timer = self.engine.timer(timeout).map_err(|error| io::Error::other(error.kind.to_string()))?;
        let mut session = Session { connection: Connection::new(stream), timer, last_byte: Timestamp::ZERO };
        session.arm(self.engine.now(), self.idle_timeout)?;
        session.connection.greet();
        self.slots.push(Slot::Open(session));
        count(&self.counts.opened);
        Ok(())
    }

    /// Reads the bytes that connection `index` has sent. The end of the turn re-arms the connection's timer, together
    /// with all other timers.
    fn hear(&mut self, index: usize) {
        let Slot::Open(session) = &mut self.slots[index] else { return };
        let heard = session.connection.hear();
        if heard.ended {
            self.end_by_client(index);
        } else if heard.bytes > 0 {
            self.heard.push(index);
        }
    }

    fn end_by_client(&mut self, index: usize) {
        let Some(session) = self.slots[index].end(Slot::Gone) else { return };
        // If the timer has fired, the firing is in the mailbox after this call.
        session.timer.disarm_and_wait();
        count(&self.counts.closed_by_client);
    }

    /// Re-arms the timers of connections that sent bytes in this turn. Then closes the connections whose timers fired
    /// and that sent nothing.
    fn end_turn(&mut self) -> io::Result<()> {
        let firings: Vec<Firing> = self.firings.try_iter().collect();
        for firing in &firings {
            self.hear(firing.connection);
        }
        // The clock is read once in a turn, after all the bytes. A deadline that counts from an earlier moment would be
        // early.
        let now = self.engine.now();
        self.rearm_heard(now)?;
        for firing in firings {
            self.close_if_idle(firing);
        }
        Ok(())
    }

    fn rearm_heard(&mut self, now: Timestamp) -> io::Result<()> {
        let mut rearmed = 0;
        for index in self.heard.drain(..) {
            if let Slot::Open(session) = &mut self.slots[index] {
                session.arm(now, self.idle_timeout)?;
                rearmed += 1;
            }
        }
        self.counts.rearmed.fetch_add(rearmed, Ordering::Relaxed);
        Ok(())
    }

    /// Counts a timer's firing. Closes the connection, unless bytes have come since the timer's arming.
    fn close_if_idle(&mut self, firing: Firing) {
        let slot = &mut self.slots[firing.connection];
        match slot {
            Slot::Open(session) if firing.deadline >= session.last_byte + self.idle_timeout => {
                let due = session.last_byte + self.idle_timeout;
                // This closes the socket and drops the timer. The timer's handler may not have ended.
                drop(slot.end(Slot::TimedOut));
                self.verify_close(due, firing.handler_began);
            }
            Slot::Open(_) | Slot::Gone => count(&self.counts.overtaken),
            Slot::TimedOut => count(&self.counts.fired_twice),
        }
    }

    /// Compares the present moment, at which a connection is closed, with the moment at which the close was due.
    fn verify_close(&mut self, due: Timestamp, handler_began: Timestamp) {
        count(&self.counts.closed_by_timeout);
        if handler_began < due {
            count(&self.counts.closed_early);
        }
        let lateness = self.engine.now() - due;
        if lateness > self.tolerance {
            count(&self.counts.not_closed_in_time);
        }
        self.close_lateness += u64::try_from(lateness.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Reads every connection once more, and disarms the remaining timers. Then searches connections that should have
    /// been closed.
    fn settle(&mut self) -> io::Result<Vec<Session>> {
        for index in 0..self.slots.len() {
            self.hear(index);
        }
        self.end_turn()?;
        let open: Vec<Session> = self.slots.iter_mut().filter_map(|slot| slot.end(Slot::Gone)).collect();
        for session in &open {
            session.timer.disarm_and_wait();
            self.verify_open(session);
        }
        // Timers that have fired since then came too late. By now no handler runs any more, so all firings are in the
        // mailbox and are counted.
        self.end_turn()?;
        Ok(open)
    }

    fn verify_open(&self, session: &Session) {
        count(&self.counts.still_open);
        if self.engine.now() - session.last_byte > self.idle_timeout + self.tolerance {
            count(&self.counts.not_closed_in_time);
        }
    }
}

fn listen(poll: &Poll, token: Token) -> io::Result<TcpListener> {
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    poll.registry().register(&mut listener, token, Interest::READABLE)?;
    Ok(listener)
}

/// Makes a histogram of nanoseconds that is exact to three digits.
pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are supported")
}
