//! Timers that the reactor of glommio turns: idle timeouts of connections, and a timer that another thread arms.
//!
//! A task of the local executor turns the shard. Between two turns it sleeps by `glommio::timer::sleep` until the
//! shard's next deadline. Timeouts and handlers run on the executor's thread. There is no thread for timers. glommio
//! needs io_uring, and panics where the system refuses it.
//!
//! `cargo run --features glommio --bin glommio`

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::timer::sleep;
use glommio::{LocalExecutorBuilder, spawn_local};
use std::io;
use tourbillon::Handle;
use tourbillon::future::Wakeup;
use tourbillon_reactors::{CONNECTIONS, Failure, IDLE, Timers};

/// Echoes bytes until the client has been idle for too long.
async fn serve(mut stream: TcpStream, timers: Handle<Wakeup>) -> io::Result<()> {
    let mut buffer = [0; 64];
    let mut timeout = timers.reusable_timeout();
    while let Ok(length) = timeout.timeout(IDLE, stream.read(&mut buffer)).await {
        match length? {
            0 => break,
            length => stream.write_all(&buffer[..length]).await?,
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let (timers, shard) = Timers::new()?;
    let executor = LocalExecutorBuilder::default().make().map_err(|error| error.to_string())?;
    let report = executor.run(async {
        spawn_local(shard.turn_as_task(sleep)).detach();
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let futures = timers.futures();
        let clients = timers.start_clients(listener.local_addr().map_err(|error| error.to_string())?);
        let mut serving = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = listener.accept().await.map_err(|error| error.to_string())?;
            serving.push(spawn_local(serve(stream, futures.clone())));
        }
        for connection in serving {
            connection.await?;
        }
        clients.report().await
    })?;
    println!("{report}");
    Ok(())
}
