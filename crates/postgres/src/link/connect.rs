//! The settings of connections.

use super::address::{UNSUPPORTED, split};
use super::tls::{Fault, Mode, Tls, client_config, effective};
use core::error::Error as _;
use core::fmt;
use core::time::Duration;
use std::path::Path;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslNegotiation};

/// The server of a deployment, and the settings of connections to it.
#[derive(Clone)]
pub struct Connect {
    pub(crate) config: Config,
    /// The value of `sslmode` in the address. `None` if the address has no `sslmode`.
    asked: Option<Mode>,
    pub(crate) tls: Tls,
    pub(crate) connections: usize,
    pub(crate) response_timeout: Duration,
    pub(crate) patience: Duration,
}

/// The reason why the address of a server cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text is not an address of a server.
    Address(Box<str>),
    /// The file of a password cannot be read.
    Password(std::io::Error),
    /// The settings of TLS contradict each other, or have an unknown value.
    Tls(Box<str>),
    /// A certificate or its key cannot be read or used.
    Certificate(Box<str>),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(fault) => write!(f, "the address of the server cannot be read: {fault}"),
            Self::Password(error) => write!(f, "the file of the password cannot be read: {error}"),
            Self::Tls(fault) | Self::Certificate(fault) => f.write_str(fault),
        }
    }
}

impl core::error::Error for ConnectError {}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The `Debug` of the driver's configuration does not show the password.
        let Self { config, asked, tls, .. } = self;
        f.debug_struct("Connect")
            .field("config", config)
            .field("asked", asked)
            .field("tls", tls)
            .finish_non_exhaustive()
    }
}

impl Connect {
    /// Reads the address of a server: a URL (`postgresql://user@host:5432/database`), or a list of parameters
    /// (`host=/run/postgresql user=app`). If the address names several hosts, a connection is made to the first host
    /// that accepts writes.
    ///
    /// The parameters of an address have the same meaning as in libpq. `sslmode` says how TLS protects a connection:
    ///
    /// | `sslmode` | TLS | the server's certificate |
    /// |---|---|---|
    /// | `disable` | no | |
    /// | `prefer` (the default) | if the server offers it | any |
    /// | `require` | yes | any. If `sslrootcert` is set: as for `verify-ca` |
    /// | `verify-ca` | yes | from the authority of `sslrootcert` |
    /// | `verify-full` | yes | from the authority, and for the host of the address |
    ///
    /// `sslrootcert` names a file with the certificates of authorities, or is `system`. If it is set, the default of
    /// `sslmode` is `verify-full`. If it is not set, `verify-full` trusts the system's authorities. `sslcert` and
    /// `sslkey` name the files of a client certificate and of its key. The method [`tls`](Self::tls) can set all these
    /// certificates as well. `channel_binding` and `sslnegotiation` are as in libpq. A connection to a local socket has
    /// no TLS. An address with a local socket must not have `hostaddr`.
    ///
    /// ```
    /// use tourbillon_postgres::Connect;
    ///
    /// assert!(Connect::to("postgresql://app@127.0.0.1/shop").is_ok());
    /// assert!(Connect::to("redis://127.0.0.1/").is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the text is not an address of a server, or if a parameter about TLS has an unknown value.
    pub fn to(address: &str) -> Result<Self, ConnectError> {
        let failed = |fault: String| ConnectError::Address(fault.into());
        let split = split(address);
        let mut config: Config = split.rest.parse().map_err(|error| failed(unreadable(&error)))?;
        if config.get_hosts().is_empty() {
            return Err(failed("it names no host".to_owned()));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(2));
        }
        if config.get_application_name().is_none() {
            config.application_name("tourbillon");
        }
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
        }
        let (asked, tls) = read_words(&split.words).map_err(contradiction)?;
        let (response_timeout, patience) = (Duration::from_secs(10), Duration::from_secs(5));
        Ok(Self { config, asked, tls, connections: 8, response_timeout, patience })
    }

    /// Sets certificates for TLS. They replace the certificates that the address names.
    ///
    /// ```
    /// use tourbillon_postgres::{Connect, Tls};
    ///
    /// let tls = Tls::new().authority_from("/etc/app/ca.pem").certificate_from("/etc/app/own.pem", "/etc/app/own.key");
    /// let connect = Connect::to("postgresql://app@db.example/shop?sslmode=verify-full")?.tls(tls);
    /// # Ok::<(), tourbillon_postgres::ConnectError>(())
    /// ```
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = self.tls.with(tls);
        self
    }

    /// Checks that the settings of TLS fit each other, and that the certificates and the key can be used. Makes no
    /// connection. The opening of a store checks the same.
    ///
    /// # Errors
    ///
    /// Fails with [`ConnectError::Tls`] if the settings contradict each other, and with
    /// [`ConnectError::Certificate`] if a file cannot be read or used.
    pub fn check(&self) -> Result<(), ConnectError> {
        match self.mode()? {
            Mode::Disable => Ok(()),
            mode => client_config(mode, &self.tls)
                .map(drop)
                .map_err(|fault| ConnectError::Certificate(fault.to_string().into())),
        }
    }

    /// Returns the mode of TLS for the connections. Fails if the settings contradict each other.
    pub(super) fn mode(&self) -> Result<Mode, ConnectError> {
        let mode = effective(self.asked, &self.tls, self.is_direct()).map_err(contradiction)?;
        let hosts = self.config.get_hosts();
        let sockets = hosts.iter().filter(|host| !matches!(host, Host::Tcp(_))).count();
        // The driver would connect to `hostaddr` by TCP, but without TLS, as for the socket.
        if sockets > 0 && !self.config.get_hostaddrs().is_empty() {
            return Err(contradiction(Fault::new(
                "the address has hostaddr, which needs the name of a host, and a local socket is none",
            )));
        }
        if sockets == hosts.len() {
            return Ok(Mode::Disable);
        }
        if sockets > 0 && mode >= Mode::Require {
            return Err(contradiction(Fault::new(
                "the address has a host and a local socket, and a socket has no TLS, which sslmode asks for",
            )));
        }
        Ok(mode)
    }

    /// Returns whether a connection begins with TLS, without asking the server first.
    pub(super) fn is_direct(&self) -> bool {
        self.config.get_ssl_negotiation() == SslNegotiation::Direct
    }

    /// Returns whether the address has a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Sets the password to the text of a file, without the line breaks at the end.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn password_from(mut self, path: &Path) -> Result<Self, ConnectError> {
        let text = std::fs::read_to_string(path).map_err(ConnectError::Password)?;
        self.config.password(text.trim_end_matches(['\n', '\r']));
        Ok(self)
    }

    /// Sets the greatest number of connections. 8 by default. 0 counts as 1.
    #[must_use]
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most.max(1);
        self
    }

    /// Sets the response timeout: the longest time for which a call waits for the answer to a statement. 10 s by
    /// default. The time includes waits for locks of other transactions. Then the call cancels its statement, and waits
    /// for at most a second more until the server has ended it. If a transaction that changes timers waits for
    /// a lock for nine tenths of this time, the server ends the wait. If the node's
    /// [`ttl`](crate::PostgresBuilder::ttl) is shorter than the response timeout, a claim waits for its answer only for
    /// the `ttl`.
    #[must_use]
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.response_timeout = time;
        self
    }

    /// Sets the time for which a call tries to connect. 5 s by default.
    #[must_use]
    pub fn patience(mut self, time: Duration) -> Self {
        self.patience = time;
        self
    }
}

/// Returns the reason why the driver cannot read an address. Includes the driver's details only if they say that the
/// value of a parameter, such as `port`, is invalid. Other details may repeat a part of the address, which may be a
/// password.
fn unreadable(error: &tokio_postgres::Error) -> String {
    let reason = error.source().map(ToString::to_string);
    let reason = reason.filter(|reason| reason.starts_with("invalid value for option"));
    reason.map_or_else(|| error.to_string(), |reason| format!("{error}: {reason}"))
}

fn contradiction(fault: Fault) -> ConnectError {
    ConnectError::Tls(fault.to_string().into())
}

/// Reads the parameters about TLS of an address, such as `sslmode=require`. If a parameter occurs several times, its
/// last value counts.
fn read_words(words: &[(&'static str, String)]) -> Result<(Option<Mode>, Tls), Fault> {
    if let Some((word, _)) = words.iter().find(|(word, _)| UNSUPPORTED.contains(word)) {
        return Err(Fault::new(format!("{word} is not supported")));
    }
    let last = |name: &str| match words.iter().rev().find(|(word, _)| *word == name) {
        Some((word, value)) if value.is_empty() => Err(Fault::new(format!("{word} is empty"))),
        found => Ok(found.map(|(_, value)| value.as_str())),
    };
    let asked = last("sslmode")?.map(Mode::parse).transpose()?;
    let mut tls = Tls::new();
    match last("sslrootcert")? {
        Some("system") => tls = tls.of_system(),
        Some(path) => tls = tls.authority_from(path),
        None => {}
    }
    match (last("sslcert")?, last("sslkey")?) {
        (Some(certificate), Some(key)) => tls = tls.certificate_from(certificate, key),
        (None, None) => {}
        _ => return Err(Fault::new("sslcert and sslkey are set together or not at all")),
    }
    Ok((asked, tls))
}
