//! Timers that the reactor of monoio turns: idle timeouts of connections, and a timer that another thread arms.
//!
//! A task of the runtime turns the shard. Between two turns it sleeps by `monoio::time::sleep` until the shard's next
//! deadline. Timeouts and handlers run on the runtime's thread. There is no thread for timers. The driver
//! `FusionDriver` takes io_uring where the system allows it, and epoll otherwise.
//!
//! The runtime needs monoio's feature `sync`. Without it, a wake from another thread panics in that thread.
//!
//! `cargo run --features monoio --bin monoio`

use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{TcpListener, TcpStream};
use monoio::time::sleep;
use monoio::{FusionDriver, RuntimeBuilder, spawn};
use std::io;
use tourbillon::Handle;
use tourbillon::future::Wakeup;
use tourbillon_reactors::{CONNECTIONS, Failure, IDLE, Timers};

/// Echoes bytes until the client has been idle for too long.
async fn serve(mut stream: TcpStream, timers: Handle<Wakeup>) -> io::Result<()> {
    let mut timeout = timers.reusable_timeout();
    let mut buffer = Vec::with_capacity(64);
    // A read that is dropped by its timeout is cancelled. The system keeps its buffer until then.
    while let Ok((length, received)) = timeout.timeout(IDLE, stream.read(buffer)).await {
        if length? == 0 {
            break;
        }
        let (sent, returned) = stream.write_all(received).await;
        sent?;
        buffer = returned;
        buffer.clear();
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let (timers, shard) = Timers::new()?;
    let mut runtime = RuntimeBuilder::<FusionDriver>::new().enable_timer().build()?;
    let report = runtime.block_on(async {
        // The handle is dropped, and the task goes on.
        drop(spawn(shard.turn_as_task(sleep)));
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let futures = timers.futures();
        let clients = timers.start_clients(listener.local_addr()?);
        let mut serving = Vec::new();
        for _ in 0..CONNECTIONS {
            let (stream, _) = listener.accept().await?;
            serving.push(spawn(serve(stream, futures.clone())));
        }
        for connection in serving {
            connection.await?;
        }
        clients.report().await
    })?;
    println!("{report}");
    Ok(())
}
