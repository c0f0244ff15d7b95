//! The nodes of a run: child processes that deliver timers. They run the library, or they are processes of
//! `tourbillond`, whose timers are in PostgreSQL.

use super::callbacks::{HOST, name_of, serve_names};
use super::node::NodeSettings;
use super::part::{Part, command};
use super::requests::Addresses;
use super::wall;
use crate::ports::free_port;
use rustix::process::Signal;
use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tourbillon_durable::UtcMillis;

/// The words in the line that a process of `tourbillond` writes when it is ready.
const LISTENS: &str = "listening on";

/// A child process of a run that delivers timers.
#[derive(Debug)]
pub struct Node {
    name: String,
    pub(super) part: Part,
    /// Whether the process runs the daemon `tourbillond`. If false, the process is this program, started as a node that
    /// runs the library.
    is_daemon: bool,
}

impl Node {
    /// Starts a node that runs the library: a process of this program with the arguments `program`. If `before` is a
    /// command such as `faketime`, this command runs the process.
    pub(super) fn start(before: &[String], program: &[String], settings: NodeSettings) -> Self {
        let part = Part::start(before, program, &format!("node {}", settings.words().join(" ")));
        Self { name: settings.name, part, is_daemon: false }
    }

    /// Returns the node's name in the history.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the node runs and has opened its store.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        if self.is_daemon {
            self.part.line_with(LISTENS).is_some()
        } else {
            self.part.said("ready").is_some()
        }
    }

    /// Returns the number of seconds by which the node's time of day is ahead of the machine's; `None` until the node
    /// is ready.
    #[must_use]
    pub fn shift(&self) -> Option<f64> {
        let shift = if self.is_daemon {
            // Each line of the log begins with its moment.
            let (at, line) = self.part.line_with(LISTENS)?;
            let said: UtcMillis = line.split_whitespace().next()?.parse().ok()?;
            i128::from(said.as_millis()) * 1_000 - i128::from(at + wall())
        } else {
            let wall_of_node: i128 = self.part.said("ready")?.parse().ok()?;
            wall_of_node - i128::from(wall())
        };
        Some(shift as f64 / 1e6)
    }

    /// Returns the error with which the node's store has closed for good; `None` if the store is open.
    #[must_use]
    pub fn closed(&self) -> Option<String> {
        self.part.said("closed")
    }

    /// Stops the node's process by SIGSTOP.
    pub fn stop(&self) {
        self.part.signal(Signal::STOP);
    }

    /// Lets the node's process run on after [`stop`](Self::stop).
    pub fn go_on(&self) {
        self.part.signal(Signal::CONT);
    }

    /// Shuts the node down. Returns the number of its deliveries, including deliveries whose handlers did not begin.
    /// For `tourbillond`, the number is always zero. Returns `None` if the node did not end in time and was killed, or
    /// if it ended without a report of the number.
    pub(super) fn end(&mut self) -> Option<u64> {
        if self.is_daemon {
            self.part.signal(Signal::TERM);
            return self.part.end().then_some(0);
        }
        let has_ended = self.part.end();
        self.part.said("stopped").filter(|_| has_ended)?.parse().ok()
    }
}

/// The settings with which a process of the daemon `tourbillond` starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct DaemonSettings {
    /// How long a lease of a timer lasts.
    pub(super) lease: Duration,
    /// How long the node owns a shard without a renewal.
    pub(super) ttl: Duration,
    /// The greatest number of handlers that the node runs at a time.
    pub(super) workers: usize,
}

/// Starts the nodes of a run if they are processes of the daemon `tourbillond`. Contains the settings that these nodes
/// share, and the addresses of the nodes that run.
#[derive(Debug)]
pub struct Daemons {
    program: PathBuf,
    /// The URL of the PostgreSQL server.
    server: String,
    /// The server's URL for nodes whose connections have TLS, and the certificate of the authority that they trust.
    secure: Option<(String, String)>,
    /// The port at which the receiver, the process that records the deliveries of the run, accepts the HTTP callbacks
    /// of the nodes.
    receiver: u16,
    pub(super) addresses: Addresses,
}

impl Daemons {
    /// Prepares nodes whose timers are on the PostgreSQL server at the URL `server`. Returns `None` if the program
    /// `tourbillond` is not in the folder of this program.
    ///
    /// # Panics
    ///
    /// If the path of this program is not known.
    #[must_use]
    pub fn on(server: impl Into<String>) -> Option<Self> {
        let program = env::current_exe().expect("the path of this program").with_file_name("tourbillond");
        let (server, receiver) = (server.into(), free_port());
        program.exists().then(|| Self {
            program,
            server,
            secure: None,
            receiver,
            addresses: Addresses::default(),
        })
    }

    /// Gives the nodes another URL of the server, under which their connections have TLS. They trust `authority`, a
    /// certificate in PEM.
    #[must_use]
    pub fn with_tls(self, server: String, authority: String) -> Self {
        Self { secure: Some((server, authority)), ..self }
    }

    /// Changes the URL of the server for the nodes that are started from now on. Their connections have TLS as before.
    pub(super) fn set_secure_server(&mut self, url: String) {
        if let Some((server, _)) = &mut self.secure {
            *server = url;
        }
    }

    /// Returns the URL of the PostgreSQL server.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    pub(super) fn port_of_receiver(&self) -> u16 {
        self.receiver
    }

    /// Returns the URL of the receiver, the process that accepts the callbacks of timers. The URL of each callback is
    /// this URL, followed by a path.
    pub(super) fn receiver(&self) -> String {
        format!("http://{HOST}:{}", self.receiver)
    }

    /// Starts the node with this number. Its files are in `folder`.
    pub(super) fn start(
        &self,
        before: &[String],
        number: u32,
        folder: &Path,
        settings: DaemonSettings,
    ) -> Node {
        let DaemonSettings { lease, ttl, workers } = settings;
        let name = name_of(number);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let names = serve_names(number).expect("a socket");
        let millis = |time: Duration| format!("{}ms", time.as_millis());
        let mut command = command(before, self.program.as_os_str());
        for variable in env::vars_os().map(|(name, _)| name) {
            if variable.to_string_lossy().starts_with("TOURBILLON_") {
                command.env_remove(variable);
            }
        }
        command.args([
            "--callbacks-allow-http",
            "--callbacks-allow-private",
            "--deliveries-least-pause",
            "10ms",
        ]);
        // Each timer has a policy of its own. The receiver refuses some callbacks on purpose.
        command.args(["--deliveries-host-failures", "1000000", "--deliveries-host-concurrency", "1024"]);
        command.args(["--deliveries-prompt-host-concurrency", "1024", "--postgres-server"]);
        match &self.secure {
            None => command.arg(&self.server),
            Some((server, authority)) => {
                let file = folder.join(format!("{name}.pem"));
                std::fs::write(&file, authority).expect("a new file");
                command.args([server, "--postgres-certificates"]).arg(file)
            }
        };
        command.args([
            "--deliveries-concurrency",
            &workers.to_string(),
            "--deliveries-lease",
            &millis(lease),
        ]);
        command.args([
            "--postgres-ttl",
            &millis(ttl),
            "--postgres-node",
            &name,
            "--listen",
            &address.to_string(),
        ]);
        command.args(["--callbacks-name-servers", &names.to_string(), "--data"]).arg(folder.join(&name));
        let part = Part::start_other(command);
        self.addresses.add(&name, address);
        Node { name, part, is_daemon: true }
    }
}
