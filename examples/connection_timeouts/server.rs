//! The server: an engine, and the event loops that use it.

use crate::event_loop::{EventLoop, LoopEnd, Session, new_histogram};
use crate::mailbox::{IdleTimeout, Mailbox, tell_event_loop};
use crate::options::Options;
use crate::system;
use crate::tally::{Counts, Tally};
use hdrhistogram::Histogram;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tourbillon::{Builder, Engine, Handle};

/// The number of connections for each address of the server. A client has a limited number of ports, and each
/// connection to an address takes a port.
const CONNECTIONS_PER_ADDRESS: usize = 20_000;

/// The engine, and the event loops that use it.
pub(crate) struct Server {
    engine: Engine<IdleTimeout>,
    counts: Arc<Counts>,
    stopping: Arc<AtomicBool>,
    addresses: Vec<SocketAddr>,
    loops: Vec<(Arc<Mailbox>, JoinHandle<io::Result<LoopEnd>>)>,
}

/// A server that has stopped. Its open connections are still open.
pub(crate) struct Stopped {
    pub(crate) tally: Tally,
    pub(crate) close_lateness: Histogram<u64>,
    pub(crate) cpu_time: Duration,
    pub(crate) engine: Engine<IdleTimeout>,
    _open: Vec<Session>,
}

impl Server {
    pub(crate) fn start(options: &Options, connections: usize) -> Result<Self, Box<dyn Error>> {
        let mut server = Self {
            engine: Builder::new().start(tell_event_loop)?,
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
        let (counts, stopping) = (Arc::clone(&self.counts), Arc::clone(&self.stopping));
        let event_loop = EventLoop::new(options, listeners, self.engine.handle().clone(), counts, stopping)?;
        self.addresses.extend(event_loop.addresses()?);
        let mailbox = Arc::clone(event_loop.mailbox());
        let thread = thread::Builder::new().name("server loop".into()).spawn(move || event_loop.run())?;
        self.loops.push((mailbox, thread));
        Ok(())
    }

    pub(crate) fn engine(&self) -> &Handle<IdleTimeout> {
        self.engine.handle()
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
        for (mailbox, thread) in self.loops {
            mailbox.wake()?;
            let end = thread.join().expect("an event loop does not panic")?;
            close_lateness.add(end.close_lateness).expect("both resize by themselves");
            open.extend(end.open);
        }
        let tally = self.counts.tally();
        Ok(Stopped { tally, close_lateness, cpu_time: system::cpu_time(), engine: self.engine, _open: open })
    }
}
