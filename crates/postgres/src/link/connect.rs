//! The settings of connections.

use core::fmt;
use core::time::Duration;
use std::path::Path;
use tokio_postgres::Config;

/// The server of a deployment, and the settings of connections to it.
#[derive(Clone)]
pub struct Connect {
    pub(crate) config: Config,
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
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(fault) => write!(f, "the address of the server cannot be read: {fault}"),
            Self::Password(error) => write!(f, "the file of the password cannot be read: {error}"),
        }
    }
}

impl core::error::Error for ConnectError {}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration of the driver shows no password.
        f.debug_struct("Connect").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Connect {
    /// Reads the address of a server: a URL (`postgresql://user@host:5432/database`), or words (`host=/run/postgresql
    /// user=app`). Several hosts may be named. A connection is made to the first host that takes writes.
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
    /// Fails if the text is not an address of a server.
    pub fn to(address: &str) -> Result<Self, ConnectError> {
        let failed = |fault: String| ConnectError::Address(fault.into());
        let mut config: Config =
            address.parse().map_err(|error: tokio_postgres::Error| failed(error.to_string()))?;
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
        let (response_timeout, patience) = (Duration::from_secs(30), Duration::from_secs(5));
        Ok(Self { config, connections: 8, response_timeout, patience })
    }

    /// Returns whether the address has a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Sets the password to the text of a file, without the end of the line.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn password_from(mut self, path: &Path) -> Result<Self, ConnectError> {
        let text = std::fs::read_to_string(path).map_err(ConnectError::Password)?;
        self.config.password(text.trim_end_matches(['\n', '\r']));
        Ok(self)
    }

    /// Sets the greatest number of connections. 8 by default; 0 counts as 1.
    #[must_use]
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most.max(1);
        self
    }

    /// Sets the time for which a call waits for the answer to a statement. 30 s by default. The time includes
    /// a wait for the lock of another transaction.
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
