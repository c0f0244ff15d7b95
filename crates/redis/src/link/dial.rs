//! Makes connections with the settings of the user.

use super::primary::{Primary, ask, knows};
use super::roles::Roles;
use super::settings::{Connect, ConnectError, Servers, SyncPolicy};
use super::slots::Address;
use super::witness::{OnEnd, Witness};
use core::time::Duration;
use futures_util::future::join_all;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo as _,
    ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult, Value,
};
use std::sync::Arc;
use tokio::time::Instant;

/// The connections that one attempt to connect has made to a server.
#[derive(Clone)]
pub(crate) struct Wire {
    /// The connection on which scripts run.
    pub(crate) calls: MultiplexedConnection,
    /// The [`Witness`] of the server, which can confirm that the server's changes are durable. `None` with
    /// [`SyncPolicy::None`], which requires no confirmation.
    pub(crate) witness: Option<Arc<Witness>>,
    /// The server as the Sentinels have named it, or `None` without Sentinels.
    pub(crate) primary: Option<Primary>,
}

/// Makes connections to the servers that the settings name.
#[derive(Debug)]
pub(crate) struct Dial {
    connect: Connect,
    /// Records which server is the primary, according to the events of the Sentinels.
    roles: Arc<Roles>,
}

impl Dial {
    /// Checks the settings, and prepares TLS. Makes no connection.
    ///
    /// # Errors
    ///
    /// Fails if the settings cannot work with any server.
    pub(crate) fn new(connect: Connect) -> Result<Self, ConnectError> {
        if connect.servers.has_tls() {
            // The driver uses the default crypto provider of the process. It panics if the process has no default
            // provider and the program links two providers.
            let provider = rustls::crypto::ring::default_provider();
            if rustls::crypto::CryptoProvider::get_default().is_none() {
                // Another thread may have installed an equally good provider first.
                drop(provider.install_default());
            }
        }
        let dial = Self { connect, roles: Arc::default() };
        match &dial.connect.servers {
            Servers::Single(info) => drop(dial.client(info.clone()).map_err(invalid)?),
            Servers::Sentinel { .. } => drop(dial.sentinels().map_err(invalid)?),
            Servers::Cluster(nodes) => {
                for node in nodes {
                    drop(dial.client(node.clone()).map_err(invalid)?);
                }
            }
        }
        Ok(dial)
    }

    /// Returns the [`Roles`] of these settings. They record which server is the primary, according to the events of the
    /// Sentinels.
    pub(crate) fn roles(&self) -> &Arc<Roles> {
        &self.roles
    }

    pub(crate) fn servers(&self) -> &Servers {
        &self.connect.servers
    }

    /// Returns the addresses of a cluster's servers in the settings, or an empty list without a cluster.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        let Servers::Cluster(nodes) = &self.connect.servers else { return Vec::new() };
        let address = |node: &ConnectionInfo| match node.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Address { host: host.as_str().into(), port: *port })
            }
            _ => None,
        };
        nodes.iter().filter_map(address).collect()
    }

    /// Returns the settings for connections to one server of the cluster, with the user name and the password from the
    /// first URL of the settings.
    pub(crate) fn to_node(&self, address: &Address) -> Self {
        let mut connect = self.connect.clone();
        if let Servers::Cluster(nodes) = &self.connect.servers
            && let Some(first) = nodes.first()
        {
            let (host, port) = (address.host.to_string(), address.port);
            let address = match first.addr().clone() {
                ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                    ConnectionAddr::TcpTls { host, port, insecure, tls_params }
                }
                _ => ConnectionAddr::Tcp(host, port),
            };
            connect.servers = Servers::Single(first.clone().set_addr(address));
        }
        Self { connect, roles: Arc::default() }
    }

    /// Returns the longest time for an attempt to connect. An attempt makes its connections one after another.
    fn limit(&self) -> Duration {
        let connections = match &self.connect.servers {
            Servers::Single(_) | Servers::Cluster(_) => 1,
            // The Sentinels are asked at the same time.
            Servers::Sentinel { .. } => 2,
        };
        let witness = u32::from(!matches!(self.connect.sync, SyncPolicy::None));
        self.connect.connection_timeout.saturating_mul(connections + witness)
    }

    /// Connects to the only server, or to the primary that the Sentinels name. `on_end` is called when any of the
    /// new connections ends. The Sentinels may name another primary while the connections are made, so the caller
    /// must then check the server with [`roles`](Self::roles).
    pub(crate) async fn connect(&self, on_end: OnEnd) -> RedisResult<Wire> {
        let limit = self.limit();
        let made = async { self.renewed()?.make(on_end).await };
        tokio::time::timeout(limit, made).await.unwrap_or_else(|_| Err(late(limit)))
    }

    /// Asks each server that the settings name, once, whether it fits the settings. If no server fits, returns the
    /// reason: the servers are not of the kind that the settings say, or they lack a command that the settings need.
    /// Then no attempt to connect can succeed. Returns `None` if any server fits, does not answer, or fails for another
    /// reason.
    pub(crate) async fn misfit(&self) -> Option<String> {
        let answers: Vec<RedisResult<()>> = match &self.connect.servers {
            Servers::Single(_) => vec![self.connect(Arc::new(|| {})).await.map(drop)],
            Servers::Sentinel { service, .. } => {
                let sentinels = self.renewed().and_then(|dial| dial.sentinels()).ok()?;
                let answers = knows(&sentinels, service, self.connect.connection_timeout).await;
                match answers.iter().any(Result::is_ok) {
                    true => vec![self.connect(Arc::new(|| {})).await.map(drop)],
                    false => answers,
                }
            }
            Servers::Cluster(_) => {
                join_all(self.addresses().iter().map(async |address| {
                    let mut wire = self.to_node(address).connect(Arc::new(|| {})).await?;
                    let mut question = redis::cmd("CLUSTER");
                    question.arg("SLOTS");
                    let limit = self.connect.response_timeout;
                    let asked = tokio::time::timeout(limit, wire.calls.req_packed_command(&question));
                    asked.await.unwrap_or_else(|_| Err(late(limit)))?.extract_error().map(drop)
                }))
                .await
            }
        };
        let misfits: Option<Vec<RedisError>> =
            answers.into_iter().map(|answer| answer.err().filter(is_misfit)).collect();
        Some(format!("{}: {}", self.connect.servers, misfits?.first()?))
    }

    /// Returns the settings with passwords read again from their files.
    fn renewed(&self) -> RedisResult<Self> {
        Ok(Self { connect: self.connect.renewed()?, roles: Arc::clone(&self.roles) })
    }

    async fn make(&self, on_end: OnEnd) -> RedisResult<Wire> {
        let config = self.config(Arc::clone(&on_end));
        let (client, mut calls, primary) = match &self.connect.servers {
            Servers::Single(info) => {
                let client = self.client(info.clone())?;
                let calls = client.get_multiplexed_async_connection_with_config(&config).await?;
                (client, calls, None)
            }
            Servers::Sentinel { .. } => {
                let (client, calls, primary) = self.to_primary(&config).await?;
                (client, calls, Some(primary))
            }
            Servers::Cluster(_) => {
                return Err((ErrorKind::InvalidClientConfig, "a cluster is not a single server").into());
            }
        };
        if let SyncPolicy::WaitAof { .. } = self.connect.sync {
            // A server without the command would make each change and then refuse the confirmation. So each promise
            // would end with an unknown outcome. Such a server is refused before any change.
            let mut question = redis::cmd("COMMAND");
            question.arg("INFO").arg("WAITAOF");
            let answer = calls.req_packed_command(&question).await?;
            if !matches!(answer, Value::Array(found) if found.iter().any(|one| *one != Value::Nil)) {
                let message = "SyncPolicy::WaitAof needs the command WAITAOF, which Redis has from 7.2 on, and a user that may use COMMAND";
                return Err((ErrorKind::InvalidClientConfig, message).into());
            }
        }
        let witness = match self.connect.sync {
            SyncPolicy::None => None,
            policy => {
                // The witness must be at the server that runs the scripts. A new question to the Sentinels could name
                // another server, so both connections use the same client.
                let own = client.get_multiplexed_async_connection_with_config(&config).await?;
                Some(Arc::new(Witness::new(own, policy, self.connect.response_timeout, on_end)))
            }
        };
        Ok(Wire { calls, witness, primary })
    }

    /// Makes a connection that subscribes to `channels`. `on_push` is called with each message of the server, and when
    /// the connection ends. In a cluster, each attempt takes the next node of the settings, because every node passes
    /// messages on to all other nodes.
    pub(crate) async fn subscribe(
        &self,
        channels: &[Vec<u8>],
        attempt: usize,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> RedisResult<MultiplexedConnection> {
        let dial = self.renewed()?;
        let push = move |push: PushInfo| -> Result<(), ()> {
            on_push(push);
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(dial.connect.connection_timeout))
            .set_response_timeout(Some(dial.connect.response_timeout))
            .set_push_sender(push);
        let mut connection = match &dial.connect.servers {
            Servers::Single(info) => {
                dial.client(info.clone())?.get_multiplexed_async_connection_with_config(&config).await?
            }
            Servers::Sentinel { .. } => {
                let begun = Instant::now();
                let (_, connection, primary) = dial.to_primary(&config).await?;
                if !dial.roles.permit(Some(&primary), begun) {
                    return Err(former());
                }
                connection
            }
            Servers::Cluster(nodes) => {
                let (Some(first), Some(node)) = (nodes.first(), nodes.get(attempt % nodes.len().max(1)))
                else {
                    return Err((ErrorKind::InvalidClientConfig, "a cluster without nodes").into());
                };
                // The user name and the password of the first server apply to all servers.
                let node = node.clone().set_redis_settings(first.redis_settings().clone());
                dial.client(node)?.get_multiplexed_async_connection_with_config(&config).await?
            }
        };
        connection.subscribe(channels).await?;
        Ok(connection)
    }

    /// Makes a connection that subscribes to all events of one Sentinel. `place` is the Sentinel's position in the
    /// settings.
    pub(crate) async fn listen_to_sentinel(
        &self,
        place: usize,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> RedisResult<MultiplexedConnection> {
        let mut sentinels = self.renewed()?.sentinels()?;
        if place >= sentinels.len() {
            return Err((ErrorKind::InvalidClientConfig, "there is no such Sentinel").into());
        }
        let client = sentinels.swap_remove(place);
        let push = move |push: PushInfo| -> Result<(), ()> {
            on_push(push);
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect.connection_timeout))
            .set_response_timeout(Some(self.connect.response_timeout))
            .set_push_sender(push);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        connection.psubscribe("*").await?;
        Ok(connection)
    }

    fn config(&self, on_end: OnEnd) -> AsyncConnectionConfig {
        let notice = move |push: PushInfo| -> Result<(), ()> {
            if push.kind == PushKind::Disconnection {
                on_end();
            }
            Ok(())
        };
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect.connection_timeout))
            // Each call has a limit of its own.
            .set_response_timeout(None)
            .set_push_sender(notice)
    }

    /// Connects to the primary that the Sentinels name. Fails if that server does not say that it is a primary. Returns
    /// the client of the server, for further connections, and the connection.
    async fn to_primary(
        &self,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<(Client, MultiplexedConnection, Primary)> {
        let Servers::Sentinel { service, primary: settings, is_tls, .. } = &self.connect.servers else {
            return Err((ErrorKind::InvalidClientConfig, "there are no Sentinels").into());
        };
        let primary = ask(&self.sentinels()?, service, self.connect.connection_timeout).await?;
        let (host, port) = (primary.address.0.to_string(), primary.address.1);
        let address = if *is_tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let client = self.client(address.into_connection_info()?.set_redis_settings(settings.clone()))?;
        let mut connection = client.get_multiplexed_async_connection_with_config(config).await?;
        let role = connection.req_packed_command(&redis::cmd("ROLE")).await?.extract_error()?;
        let is_primary =
            |words: &[Value]| matches!(words, [Value::BulkString(role), ..] if role == b"master");
        if !matches!(&role, Value::Array(words) if is_primary(words)) {
            return Err((ErrorKind::Io, "the Sentinels name a server that is not a primary").into());
        }
        Ok((client, connection, primary))
    }

    /// Returns a client for each Sentinel. The user name and the password of the first Sentinel apply to all Sentinels.
    fn sentinels(&self) -> RedisResult<Vec<Client>> {
        let Servers::Sentinel { sentinels, .. } = &self.connect.servers else { return Ok(Vec::new()) };
        let Some(first) = sentinels.first() else { return Ok(Vec::new()) };
        let of_first =
            |info: &ConnectionInfo| info.clone().set_redis_settings(first.redis_settings().clone());
        sentinels.iter().map(|info| self.client(of_first(info))).collect()
    }

    fn client(&self, info: ConnectionInfo) -> RedisResult<Client> {
        let info = resp3(info);
        match &self.connect.tls {
            Some(tls) => Client::build_with_tls(info, tls.certificates()),
            None => Client::open(info),
        }
    }
}

/// Selects RESP3, the protocol in which the end of a connection is noticed at once.
fn resp3(info: ConnectionInfo) -> ConnectionInfo {
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    info.set_redis_settings(settings)
}

/// Returns the error for a connection to a server that is no longer the primary.
pub(super) fn former() -> RedisError {
    (ErrorKind::Io, "a Sentinel names a former primary, which another server has replaced").into()
}

/// Returns whether the error shows that a server does not fit the settings, so that a later attempt has the same error.
fn is_misfit(error: &RedisError) -> bool {
    // The driver puts the errors of a pipeline into one error, which has only a text.
    const TEXTS: [&str; 3] = ["cluster support disabled", "No such master", "unknown command"];
    let text = error.to_string();
    error.kind() == ErrorKind::InvalidClientConfig || TEXTS.iter().any(|part| text.contains(part))
}

fn invalid(error: RedisError) -> ConnectError {
    ConnectError::caused_by(format!("the connection's settings: {error}"), error)
}

fn late(limit: Duration) -> RedisError {
    (ErrorKind::Io, "no connection in time", format!("{limit:?}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_to_connect_has_time_for_each_of_its_connections() {
        let second = Duration::from_secs(1);
        let limit = |connect: Connect| Dial::new(connect.connection_timeout(second)).unwrap().limit();
        let single = Connect::single("redis://127.0.0.1:1").unwrap();
        let sentinel = Connect::sentinel(["redis://127.0.0.1:1"], "timers").unwrap();
        let waits = SyncPolicy::Wait { replicas: 1, timeout: second };
        assert_eq!((limit(single.clone()), limit(sentinel.clone())), (second, 2 * second));
        assert_eq!((limit(single.sync(waits)), limit(sentinel.sync(waits))), (2 * second, 3 * second));
    }
}
