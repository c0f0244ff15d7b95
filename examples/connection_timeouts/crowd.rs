//! A crowd of clients. One event loop runs the lives of all its connections.
//!
//! Of 20 clients 10 talk to the end, 7 fall silent at a random moment, and 3 leave at a random moment. While a client
//! talks, it pauses for a random time of at most half the idle timeout. This process may let a client sleep for three
//! quarters of the timeout. Such a client stays silent, since its next bytes might come too late.

use crate::clients::Report;
use crate::connection::GREETING;
use crate::options::Options;
use crate::system;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tourbillon::{Clock, SystemClock, Timestamp};

const STOP: Token = Token(usize::MAX);
/// The largest number of connections that may be connecting at once, over all crowds. A listener's backlog has room for
/// them.
const MOST_CONNECTING: usize = 128;
const LONGEST_MESSAGE: usize = 32;

/// A client's plan: to talk, to fall silent, or to leave.
#[derive(Clone, Copy, Debug)]
enum Plan {
    Talk,
    FallSilent(Timestamp),
    Leave(Timestamp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Talking,
    Silent,
}

struct Client {
    stream: TcpStream,
    plan: Plan,
    phase: Phase,
    /// The moment at which the client last sent a message. Before the first message, the moment at which it began to
    /// connect.
    last_sent: Timestamp,
    pause_began: Timestamp,
}

/// The shortest and longest pauses of a client, and the bounds of its life.
struct Habits {
    idle_timeout: Duration,
    shortest_pause: Duration,
    longest_pause: Duration,
    too_long: Duration,
    life: Duration,
}

pub(crate) struct Crowd {
    poll: Poll,
    servers: Vec<SocketAddr>,
    habits: Habits,
    random: Random,
    clock: SystemClock,
    /// The number of clients that the crowd will have.
    size: usize,
    connecting: usize,
    most_connecting: usize,
    clients: Vec<Option<Client>>,
    /// For each client, the moment of its next action. The earliest moment comes first.
    agenda: BinaryHeap<Reverse<(Timestamp, usize)>>,
    report: Report,
}

impl Crowd {
    /// Makes the crowd number `index`, and a waker for the crowd. Each thread has one crowd.
    pub(crate) fn new(options: &Options, index: usize) -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), STOP)?;
        let crowds = options.threads.get();
        let crowd = Self {
            poll,
            servers: options.clients_of.clone(),
            habits: Habits {
                idle_timeout: options.idle_timeout,
                shortest_pause: options.idle_timeout / 10,
                longest_pause: options.idle_timeout / 2,
                too_long: options.idle_timeout * 3 / 4,
                life: options.seconds,
            },
            random: Random::new(options.seed, index),
            clock: SystemClock::new(),
            size: (options.connections + index) / crowds,
            connecting: 0,
            most_connecting: (MOST_CONNECTING / crowds).max(1),
            clients: Vec::new(),
            agenda: BinaryHeap::new(),
            report: Report::default(),
        };
        Ok((crowd, waker))
    }

    pub(crate) fn run(mut self, stopping: &AtomicBool) -> io::Result<Report> {
        let mut events = Events::with_capacity(1_024);
        while !stopping.load(Ordering::Relaxed) {
            self.connect_more()?;
            let wait = self.until_next_act();
            self.hear(&mut events, wait)?;
            self.act()?;
        }
        // The server closed these connections before it stopped.
        while self.hear(&mut events, Some(Duration::ZERO))? > 0 {}
        Ok(self.report)
    }

    fn connect_more(&mut self) -> io::Result<()> {
        while self.connecting < self.most_connecting && self.clients.len() < self.size {
            let index = self.clients.len();
            let now = self.clock.now();
            let mut stream = TcpStream::connect(self.servers[index % self.servers.len()])?;
            self.poll.registry().register(&mut stream, Token(index), Interest::READABLE)?;
            let plan = self.random.plan(self.habits.life);
            let phase = Phase::Connecting;
            self.clients.push(Some(Client { stream, plan, phase, last_sent: now, pause_began: now }));
            self.connecting += 1;
        }
        Ok(())
    }

    fn until_next_act(&self) -> Option<Duration> {
        let Reverse((moment, _)) = self.agenda.peek()?;
        Some(*moment - self.clock.now())
    }

    /// Waits for messages from the server. Returns the number of clients that got a message.
    fn hear(&mut self, events: &mut Events, wait: Option<Duration>) -> io::Result<usize> {
        system::poll(&mut self.poll, events, wait)?;
        let mut heard = 0;
        for event in events.iter().filter(|event| event.token() != STOP) {
            self.hear_one(event.token().0)?;
            heard += 1;
        }
        Ok(heard)
    }

    fn hear_one(&mut self, index: usize) -> io::Result<()> {
        let mut buffer = [0; GREETING.len()];
        while let Some(client) = &mut self.clients[index] {
            match client.stream.read(&mut buffer) {
                Ok(0) => self.end_by_server(index),
                Ok(_) => self.begin_talking(index),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if client.phase == Phase::Connecting => return Err(error),
                Err(_) => self.end_by_server(index),
            }
        }
        Ok(())
    }

    fn begin_talking(&mut self, index: usize) {
        let Some(client) = &mut self.clients[index] else { return };
        client.phase = Phase::Talking;
        self.connecting -= 1;
        self.report.greeted += 1;
        self.pause(index);
    }

    /// Puts the next action of client `index` on the agenda.
    fn pause(&mut self, index: usize) {
        let Some(client) = &mut self.clients[index] else { return };
        client.pause_began = self.clock.now();
        let end =
            client.pause_began + self.random.between(self.habits.shortest_pause, self.habits.longest_pause);
        let next = match client.plan {
            Plan::Talk => end,
            Plan::FallSilent(moment) | Plan::Leave(moment) => end.min(moment),
        };
        self.agenda.push(Reverse((next, index)));
    }

    /// Lets each client act whose moment has come.
    fn act(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        while let Some(&Reverse((moment, index))) = self.agenda.peek()
            && moment <= now
        {
            self.agenda.pop();
            self.act_one(index)?;
        }
        Ok(())
    }

    fn act_one(&mut self, index: usize) -> io::Result<()> {
        let Some(client) = &mut self.clients[index] else { return Ok(()) };
        let now = self.clock.now();
        match client.plan {
            Plan::FallSilent(moment) if moment <= now => client.phase = Phase::Silent,
            _ if now - client.last_sent >= self.habits.too_long => {
                client.phase = Phase::Silent;
                self.report.overslept += 1;
            }
            Plan::Leave(moment) if moment <= now => {
                self.clients[index] = None;
                self.report.left += 1;
            }
            _ => self.talk(index, now)?,
        }
        Ok(())
    }

    fn talk(&mut self, index: usize, now: Timestamp) -> io::Result<()> {
        let Some(client) = &mut self.clients[index] else { return Ok(()) };
        self.report.longest_pause = self.report.longest_pause.max(now - client.pause_began);
        let length = 1 + self.random.below(LONGEST_MESSAGE);
        match client.stream.write(&[b'.'; LONGEST_MESSAGE][..length]) {
            Ok(_) => {
                client.last_sent = now;
                self.pause(index);
            }
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                self.end_by_server(index);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Checks that the server closed a connection in time. Compares the close with the moment at which the client last
    /// sent a message.
    fn end_by_server(&mut self, index: usize) {
        let Some(client) = self.clients[index].take() else { return };
        let silence = self.clock.now() - client.last_sent;
        self.report.closed_by_server += 1;
        if silence + clock_difference(silence) < self.habits.idle_timeout {
            self.report.closed_early += 1;
        }
        match client.phase {
            Phase::Silent => {}
            _ if silence >= self.habits.too_long => self.report.overslept += 1,
            Phase::Connecting | Phase::Talking => self.report.closed_while_talking += 1,
        }
    }
}

/// Returns the largest difference between the server's clock and this clock after `span`. The result is 1 in 1,000, and
/// clocks differ by at most 1 in 10,000.
fn clock_difference(span: Duration) -> Duration {
    span / 1_000
}

/// The random generator SplitMix64. The same seed always makes the same crowd.
struct Random(u64);

impl Random {
    fn new(seed: u64, crowd: usize) -> Self {
        let mut random = Self(seed.wrapping_add(crowd as u64));
        Self(random.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    #[expect(clippy::cast_possible_truncation, reason = "below a usize")]
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        low + (high - low).mul_f64(unit)
    }

    fn plan(&mut self, life: Duration) -> Plan {
        let moment = Timestamp::ZERO + self.between(Duration::ZERO, life);
        match self.below(20) {
            0..10 => Plan::Talk,
            10..17 => Plan::FallSilent(moment),
            _ => Plan::Leave(moment),
        }
    }
}
