//! The command line.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Closes silent connections and no others: the engine's main job, on real sockets.
#[derive(Debug, Parser)]
#[command(name = "connection_timeouts")]
pub(crate) struct Options {
    /// Connections to open
    #[arg(long, default_value_t = 10_000)]
    pub(crate) connections: usize,
    /// How long a connection may be silent: 2, 1.5s, 500ms
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub(crate) idle_timeout: Duration,
    /// How long the run lasts: 15, 1.5s, 500ms
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_duration)]
    pub(crate) seconds: Duration,
    /// How late a close still counts as in time
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = parse_duration)]
    pub(crate) tolerance: Duration,
    /// Event loops of the server, and as many of the clients
    #[arg(long, default_value = "2")]
    pub(crate) threads: NonZeroUsize,
    /// Decides the acts of the clients, and their moments
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Be the clients of the servers at these addresses
    #[arg(long, hide = true, value_delimiter = ',')]
    pub(crate) clients_of: Vec<SocketAddr>,
}

impl Options {
    /// Returns the command's options. Ends the process with a message if the options are wrong.
    pub(crate) fn parse_and_check() -> Self {
        let options = Self::parse();
        if let Err(message) = options.check() {
            Self::command().error(ErrorKind::ValueValidation, message).exit();
        }
        options
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.idle_timeout < Duration::from_millis(100) {
            return Err("an idle timeout below 100ms would find silent whoever waits for a processor");
        }
        if self.seconds <= self.idle_timeout + self.tolerance {
            return Err("a run that is not longer than the idle timeout and the tolerance closes nothing");
        }
        Ok(())
    }

    pub(crate) fn is_client_process(&self) -> bool {
        !self.clients_of.is_empty()
    }

    /// Returns the command line that starts the clients' process.
    pub(crate) fn for_clients(&self, connections: usize, servers: &[SocketAddr]) -> Vec<String> {
        let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
        vec![
            format!("--clients-of={}", servers.join(",")),
            format!("--connections={connections}"),
            format!("--idle-timeout={}", self.idle_timeout.as_secs_f64()),
            format!("--seconds={}", self.seconds.as_secs_f64()),
            format!("--threads={}", self.threads),
            format!("--seed={}", self.seed),
        ]
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(millis) => (millis, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let number: f64 = number.trim().parse().map_err(|_| "expected something like 2, 1.5s or 500ms")?;
    Duration::try_from_secs_f64(number * unit).map_err(|error| error.to_string())
}
