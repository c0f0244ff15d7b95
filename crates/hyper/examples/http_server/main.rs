//! An HTTP server with a header, an idle and a request timeout, all on one engine.
//!
//! tokio moves the bytes and runs no timer, and hyper speaks HTTP. A client that stalls until a timeout passes is
//! disconnected, or answered 408 or 503. The server itself is in `server/`.
//!
//! `cargo run -p tourbillon-hyper --example http_server -- --help`
#![expect(clippy::print_stdout, reason = "the address and the timeouts are for whoever runs this program")]

mod server;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use server::{Ending, Server, Timeouts};
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use tourbillon::Builder;

/// Answers HTTP requests, and ends those that stall.
#[derive(Debug, Parser)]
#[command(name = "http_server")]
struct Options {
    /// The address to listen on; port 0 is any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Milliseconds for a header, and the wait for it
    #[arg(long, value_name = "MILLIS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    header_timeout: u64,
    /// Milliseconds between two bytes, while a client is waited for
    #[arg(long, value_name = "MILLIS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..))]
    idle_timeout: u64,
    /// Milliseconds for the body of a request and its handler
    #[arg(long, value_name = "MILLIS", default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(1..))]
    request_timeout: u64,
}

impl Options {
    /// Parses the options. If they cannot work, ends the process with a message.
    fn parse_and_check() -> Self {
        let options = Self::parse();
        if options.idle_timeout > options.header_timeout {
            let message =
                "the header timeout includes the wait for the header: a longer idle timeout would not pass";
            Self::command().error(ErrorKind::ValueValidation, message).exit();
        }
        options
    }

    fn timeouts(&self) -> Timeouts {
        Timeouts {
            header: Duration::from_millis(self.header_timeout),
            idle: Duration::from_millis(self.idle_timeout),
            request: Duration::from_millis(self.request_timeout),
        }
    }
}

fn main() -> ExitCode {
    let Err(error) = run(&Options::parse_and_check());
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Serves until the process is killed.
fn run(options: &Options) -> Result<std::convert::Infallible, Box<dyn Error>> {
    let engine = Builder::new().start_futures()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build()?;
    runtime.block_on(async {
        let server = Server::bind(options.listen, engine.handle().clone(), options.timeouts()).await?;
        let address = server.address()?;
        println!("listening on {address}");
        println!("try: curl http://{address}/");
        println!("     curl 'http://{address}/slow?ms={}'", options.request_timeout.saturating_add(1_000));
        println!("     nc {} {}", address.ip(), address.port());
        Ok(server.run(report).await)
    })
}

fn report(peer: SocketAddr, ending: Ending) {
    match ending {
        Ending::Closed => {}
        Ending::Idle => println!("{peer} was idle"),
        Ending::HeaderTimeout => println!("{peer} did not send a header in time"),
        Ending::Failed(error) => println!("{peer}: {error}"),
    }
}
