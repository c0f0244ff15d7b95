//! The settings of a connection.

use core::fmt;
use core::time::Duration;
use redis::{
    ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisConnectionInfo,
    RedisError, RedisResult, TlsCertificates,
};
use std::io;
use std::path::{Path, PathBuf};

/// Settings for the connection to Redis: to one server, to a primary that Sentinel watches, or to a cluster.
///
/// URLs have the form `redis://user:password@host:6379/0`; `rediss://` selects TLS, and `unix:///path` is a local
/// socket. For a cluster, the user name and the password in the first URL apply to all nodes.
///
/// ```
/// use core::time::Duration;
/// use tourbillon_redis::{Connect, SyncPolicy};
///
/// let connect = Connect::sentinel(["redis://10.0.0.1:26379", "redis://10.0.0.2:26379"], "timers")?
///     .user("tourbillon", "secret")
///     .response_timeout(Duration::from_secs(2))
///     .sync(SyncPolicy::Wait { replicas: 1, timeout: Duration::from_millis(500) });
/// # Ok::<(), tourbillon_redis::ConnectError>(())
/// ```
#[derive(Clone)]
pub struct Connect {
    pub(crate) servers: Servers,
    pub(crate) tls: Option<Tls>,
    pub(crate) response_timeout: Duration,
    pub(crate) connection_timeout: Duration,
    pub(crate) patience: Duration,
    pub(crate) sync: SyncPolicy,
    /// The user name, and the path of the file that has the password.
    pub(crate) password: Option<(Box<str>, PathBuf)>,
    pub(crate) sentinel_password: Option<PathBuf>,
}

/// The servers that the settings name: one server, Sentinels, or a cluster.
#[derive(Clone)]
pub(crate) enum Servers {
    Single(ConnectionInfo),
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        service: Box<str>,
        /// The database and the user at the primary. The primary's address comes from the Sentinels.
        primary: RedisConnectionInfo,
        is_tls: bool,
    },
    Cluster(Vec<ConnectionInfo>),
}

/// Certificates for TLS, in PEM format.
#[derive(Clone, Default)]
pub struct Tls {
    authority: Option<Vec<u8>>,
    own: Option<(Vec<u8>, Vec<u8>)>,
}

/// The copies that a change must have before it counts as stored.
///
/// Redis answers a change before it copies the change to replicas, and before it writes the append-only file. So a
/// failure can lose changes that were answered. With `None`, changes are as durable as the server's own settings make
/// them. The other policies wait for more copies if the caller asks for `Durability::PowerLoss`. They wait on a
/// separate connection, so claims, polls, renewals and reads are not delayed. The crate's page lists the operations
/// that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncPolicy {
    /// A change counts as stored once the primary has executed it.
    #[default]
    None,
    /// A change counts as stored once this number of replicas has received it (`WAIT`). If they have not received it
    /// within the timeout, the call fails with an unknown outcome, although the primary has executed the change.
    Wait {
        /// The number of replicas that must receive the change.
        replicas: u32,
        /// The longest time that the server waits until the replicas have received the change.
        timeout: Duration,
    },
    /// A change counts as stored once it is in the append-only files of the primary and of this number of replicas
    /// (`WAITAOF`, Redis 7.2 and later).
    WaitAof {
        /// The number of replicas that must have the change in their append-only files.
        replicas: u32,
        /// The longest time that the server waits until the append-only files have the change.
        timeout: Duration,
    },
}

/// The error if the settings in [`Connect`] are invalid, or if no thread for the connections can be started.
#[derive(Clone, Debug)]
pub struct ConnectError {
    message: Box<str>,
    source: Option<RedisError>,
}

impl Connect {
    fn to(servers: Servers) -> Self {
        Self {
            servers,
            tls: None,
            response_timeout: Duration::from_secs(5),
            connection_timeout: Duration::from_secs(2),
            // The patience is longer than the time for which a failover holds calls back (`LONGEST` in `roles.rs`), so
            // that these calls do not fail.
            patience: Duration::from_secs(5),
            sync: SyncPolicy::None,
            password: None,
            sentinel_password: None,
        }
    }

    /// Connects to one server.
    ///
    /// # Errors
    ///
    /// Fails if `url` does not name a server.
    pub fn single(url: &str) -> Result<Self, ConnectError> {
        Ok(Self::to(Servers::Single(info(url)?)))
    }

    /// Connects to the primary that the Sentinels at these URLs know by the name `service`. The user name and the
    /// password in the first URL apply to all Sentinels. [`user`](Self::user) and [`database`](Self::database) apply to
    /// the primary. With `rediss://`, the primary is reached over TLS as well.
    ///
    /// # Errors
    ///
    /// Fails if there is no URL, or if a URL does not name a server.
    pub fn sentinel(urls: impl IntoIterator<Item: AsRef<str>>, service: &str) -> Result<Self, ConnectError> {
        let sentinels = infos(urls)?;
        let is_tls = sentinels.iter().any(is_tls);
        let primary = RedisConnectionInfo::default();
        Ok(Self::to(Servers::Sentinel { sentinels, service: service.into(), primary, is_tls }))
    }

    /// Connects to the cluster that has the nodes at these URLs. Each node names all other nodes, so a single URL
    /// suffices. With several URLs, the connection succeeds even if all but one of these nodes are down.
    ///
    /// # Errors
    ///
    /// Fails if there is no URL, if a URL names no server, or if the URLs differ in their use of TLS.
    pub fn cluster(urls: impl IntoIterator<Item: AsRef<str>>) -> Result<Self, ConnectError> {
        let nodes = infos(urls)?;
        if nodes.iter().any(|node| matches!(node.addr(), ConnectionAddr::Unix(_))) {
            return Err(ConnectError::new("the nodes of a cluster are not reached by local sockets"));
        }
        // All servers of a cluster are reached in the same way: with TLS or without. The cluster also names servers
        // that are not in the settings, and `Dial::to_node` connects to them as the first URL says.
        let security = |node: &ConnectionInfo| match node.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => Some(*insecure),
            _ => None,
        };
        if nodes.windows(2).any(|pair| security(&pair[0]) != security(&pair[1])) {
            return Err(ConnectError::new("the URLs of a cluster differ in their use of TLS"));
        }
        Ok(Self::to(Servers::Cluster(nodes)))
    }

    /// Sets the user of the access control list, and the user's password.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.servers.each(|info| info.set_username(name).set_password(password));
        self
    }

    /// Sets the user of the access control list, and the file that contains the user's password. A line end after the
    /// password is ignored. The file is read for each connection, so the password may change while the program runs. If
    /// the file cannot be read or is empty, the connection fails.
    #[must_use]
    pub fn user_from(mut self, name: &str, password: impl Into<PathBuf>) -> Self {
        self.password = Some((name.into(), password.into()));
        self
    }

    /// Sets the file that contains the Sentinels' password. The file is read for each connection, as with
    /// [`user_from`](Self::user_from).
    #[must_use]
    pub fn sentinel_password_from(mut self, password: impl Into<PathBuf>) -> Self {
        self.sentinel_password = Some(password.into());
        self
    }

    /// Sets the number of the database. A cluster has only database 0.
    #[must_use]
    pub fn database(mut self, number: u16) -> Self {
        self.servers.each(|info| info.set_db(number.into()));
        self
    }

    /// Sets certificates for URLs with `rediss://`. Without this call, the system's authorities are trusted.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the longest time for a reply. The default is 5 seconds. After this time, the outcome of the call is unknown
    /// and the connection is replaced.
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Sets the longest time for each connection of an attempt to connect. The default is 2 seconds. An attempt makes
    /// up to three connections, one after another: to the Sentinels, for scripts, and for the confirmations of a
    /// [`SyncPolicy`].
    #[must_use]
    pub fn connection_timeout(mut self, timeout: Duration) -> Self {
        self.connection_timeout = timeout;
        self
    }

    /// Sets the longest time that a call waits for a connection, or for a server that cannot run the call yet. The
    /// default is 5 seconds. After this time, the call fails and surely has had no effect. A call takes at most the sum
    /// of this time and the response timeout.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the copies that a change must have before it counts as stored.
    #[must_use]
    pub fn sync(mut self, policy: SyncPolicy) -> Self {
        self.sync = policy;
        self
    }
}

/// Reads a secret from a file, without line ends at the end of the file. Fails if nothing is left.
fn secret(path: &Path) -> io::Result<String> {
    let text = std::fs::read_to_string(path)?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file of a password is empty"));
    }
    Ok(text.to_owned())
}

impl Connect {
    /// Returns the settings with passwords read again from their files.
    pub(crate) fn renewed(&self) -> RedisResult<Self> {
        let read = |path: &Path| {
            secret(path).map_err(|error| {
                let message = format!("{}: {error}", path.display());
                RedisError::from((ErrorKind::Io, "the file of a password", message))
            })
        };
        let mut renewed = self.clone();
        if let Some((name, path)) = &self.password {
            renewed = renewed.user(name, &read(path)?);
        }
        if let (Some(path), Servers::Sentinel { sentinels, .. }) =
            (&self.sentinel_password, &mut renewed.servers)
        {
            let password = read(path)?;
            for info in sentinels {
                let settings = info.redis_settings().clone().set_password(&password);
                *info = info.clone().set_redis_settings(settings);
            }
        }
        Ok(renewed)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }
}

impl Servers {
    /// Applies a change to the settings of each server that stores data. The settings of Sentinels stay as they are.
    fn each(&mut self, change: impl Fn(RedisConnectionInfo) -> RedisConnectionInfo) {
        let changed =
            |info: &ConnectionInfo| info.clone().set_redis_settings(change(info.redis_settings().clone()));
        match self {
            Self::Single(info) => *info = changed(info),
            Self::Sentinel { primary, .. } => *primary = change(primary.clone()),
            Self::Cluster(nodes) => nodes.iter_mut().for_each(|node| *node = changed(node)),
        }
    }

    /// Returns whether a connection to any server uses TLS.
    pub(crate) fn has_tls(&self) -> bool {
        match self {
            Self::Single(info) => is_tls(info),
            Self::Sentinel { is_tls, .. } => *is_tls,
            Self::Cluster(nodes) => nodes.iter().any(is_tls),
        }
    }
}

impl Tls {
    /// Trusts the system's authorities, and sends no client certificate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts this certificate authority for the servers' certificates, instead of the system's authorities.
    #[must_use]
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    /// Sends this certificate, with the private key `key`, to servers that ask for a client certificate.
    #[must_use]
    pub fn certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.own = Some((certificate.into(), key.into()));
        self
    }

    pub(crate) fn certificates(&self) -> TlsCertificates {
        let own = self.own.clone();
        TlsCertificates {
            client_tls: own.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key }),
            root_cert: self.authority.clone(),
        }
    }
}

impl SyncPolicy {
    /// Returns the longest time that the server waits until replicas or append-only files have a change.
    pub(crate) fn timeout(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Wait { timeout, .. } | Self::WaitAof { timeout, .. } => timeout,
        }
    }
}

impl ConnectError {
    pub(crate) fn new(message: impl Into<Box<str>>) -> Self {
        Self { message: message.into(), source: None }
    }

    pub(crate) fn caused_by(message: impl Into<Box<str>>, source: RedisError) -> Self {
        Self { message: message.into(), source: Some(source) }
    }
}

fn is_tls(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

fn info(url: &str) -> Result<ConnectionInfo, ConnectError> {
    // The URL is not in the message: it may have a password.
    url.into_connection_info()
        .map_err(|error| ConnectError::caused_by("not the URL of a Redis server", error))
}

fn infos(urls: impl IntoIterator<Item: AsRef<str>>) -> Result<Vec<ConnectionInfo>, ConnectError> {
    let infos: Vec<_> = urls.into_iter().map(|url| info(url.as_ref())).collect::<Result<_, _>>()?;
    if infos.is_empty() {
        return Err(ConnectError::new("no address of a server"));
    }
    Ok(infos)
}

/// Writes the addresses of the servers, without user names and passwords.
impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, infos: &[ConnectionInfo]| {
            for (index, info) in infos.iter().enumerate() {
                let comma = if index == 0 { "" } else { ", " };
                write!(f, "{comma}{}", info.addr())?;
            }
            Ok(())
        };
        match self {
            Self::Single(info) => list(f, core::slice::from_ref(info)),
            Self::Sentinel { sentinels, service, .. } => {
                write!(f, "the primary {service} of Sentinel at ")?;
                list(f, sentinels)
            }
            Self::Cluster(nodes) => {
                write!(f, "the cluster of ")?;
                list(f, nodes)
            }
        }
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { servers, tls, response_timeout, connection_timeout, patience, sync, .. } = self;
        f.debug_struct("Connect")
            // The `Display` form of the servers leaves out user names and passwords.
            .field("servers", &format_args!("{servers}"))
            .field("tls", tls)
            .field("response_timeout", response_timeout)
            .field("connection_timeout", connection_timeout)
            .field("patience", patience)
            .field("sync", sync)
            .finish()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The private key must not appear in a log.
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
