//! An echo server with an event loop for each core: the first loop accepts, and all of them serve.
//!
//! Each loop turns a shard of its own (`LoopShard`), so there is no timer thread. A connection has an owned timer,
//! which each byte arms again on the loop's own thread. The accepting loop passes a connection to another loop. It also
//! arms the first deadline for that loop (`Handle::on`). So a client that never sends a byte is disconnected, too.
//!
//! ```text
//!  loop 0: accept ──► queue of loop n, wake ──► loop n: poll ──► read, write, arm ──► turn: fire what is due
//!                     on(n).arm_at(first)                 ▲                                        │
//!                                                         └────── until next_deadline() ───────────┘
//! ```
//!
//! `cargo run --example loops -- --help`
#![expect(clippy::print_stdout, reason = "the address and the summary are for whoever runs this program")]

mod serving;

use clap::Parser;
use mio::net::TcpListener;
use mio::{Poll, Waker};
use serving::{Connections, Serving, WAKER};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Fired};

/// Echoes the bytes that it receives, and closes idle connections.
#[derive(Clone, Debug, Parser)]
#[command(name = "loops")]
struct Options {
    /// The address to listen on; port 0 is any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The number of event loops
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    loops: u16,
    /// Milliseconds for which a connection may be idle
    #[arg(long, value_name = "MILLIS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    idle_timeout: u64,
    /// Seconds after which to stop and print a summary; 0 is never
    #[arg(long, value_name = "N", default_value_t = 0)]
    seconds: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let (shards, loops) = Builder::new().loops(options.loops.into())?;
    // The handler runs on the thread of the loop whose connection it closes.
    let engine = shards.engine().start(|timer: Fired<'_, usize>| serving::note_expired(timer.payload))?;
    let mut listener = Some(TcpListener::bind(options.listen)?);
    println!("listening on {}", listener.as_ref().map(TcpListener::local_addr).transpose()?.expect("bound"));
    let (mut queues, mut polls) = (Vec::new(), Vec::new());
    for mut shard in loops {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let wake = Arc::clone(&waker);
        // The wake is a write to an eventfd. The poll under way returns at once. If none is under way, the next poll
        // does.
        shard.wake_by(move || drop(wake.wake()));
        let (queue, accepted) = mpsc::channel();
        queues.push((queue, waker));
        polls.push((shard, poll, accepted));
    }
    let stop_after = (options.seconds > 0).then(|| Duration::from_secs(options.seconds));
    let idle_timeout = Duration::from_millis(options.idle_timeout);
    let connections = Connections { engine: engine.handle().clone(), idle_timeout, queues };
    let threads: Vec<_> = polls
        .into_iter()
        .map(|(shard, poll, accepted)| {
            let serving = Serving::new((shard, poll), accepted, listener.take(), connections.clone());
            thread::spawn(move || serving?.run(stop_after))
        })
        .collect();
    for (n, thread) in threads.into_iter().enumerate() {
        let tally = thread.join().map_err(|_| io::Error::other("a loop panicked"))??;
        println!("loop {n}: {tally}");
    }
    println!("timers armed with a ticket: {}", engine.handle().stats().owned.posted);
    Ok(())
}
