//! Making connections.

use super::settings::{Connect, ConnectError, Servers, SyncPolicy};
use core::time::Duration;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, Pipeline, ProtocolVersion, PushInfo,
    PushKind, RedisConnectionInfo, RedisError, RedisResult, TlsMode, Value, from_redis_value,
};
use std::sync::Arc;

/// Called when a connection has ended.
pub(crate) type OnEnd = Arc<dyn Fn() + Send + Sync>;

/// A connection that has been made. Its clones share it.
#[derive(Clone)]
pub(crate) enum Connection {
    Node(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Where a request goes in a cluster. A connection to one server has one place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// The primary that has this key, or any primary.
    Key(Option<&'a [u8]>),
    /// The node at this address, which has the keys for now.
    Address(&'a str),
}

impl Connection {
    /// The replies to the commands, in order, from the one after the first `skipped`. Errors of the server are values,
    /// unless a cluster has to act on them.
    pub(crate) async fn send(
        &mut self,
        commands: &Pipeline,
        skipped: usize,
        place: Place<'_>,
    ) -> RedisResult<Vec<Value>> {
        let count = commands.len() - skipped;
        match self {
            Self::Node(node) => node.req_packed_commands(commands, skipped, count).await,
            Self::Cluster(cluster) => {
                let place = match place {
                    Place::Key(None) => SingleNodeRoutingInfo::RandomPrimary,
                    Place::Key(Some(key)) => {
                        SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master))
                    }
                    Place::Address(address) => by_address(address)?,
                };
                cluster.route_pipeline(commands.clone(), skipped, count, place).await
            }
        }
    }

    /// The reply of the server, or of each primary of a cluster, with its address; `name` is the server's.
    pub(crate) async fn ask_each(&mut self, command: Cmd, name: &str) -> RedisResult<Vec<(String, Value)>> {
        match self {
            Self::Node(node) => {
                Ok(vec![(name.to_owned(), node.req_packed_command(&command).await?.extract_error()?)])
            }
            Self::Cluster(cluster) => {
                let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                match cluster.route_command(command, all).await?.extract_error()? {
                    Value::Map(replies) => {
                        let named = |(name, reply)| Ok((from_redis_value(name)?, reply));
                        replies.into_iter().map(named).collect()
                    }
                    _ => {
                        Err((ErrorKind::UnexpectedReturnType, "the nodes of a cluster have no names").into())
                    }
                }
            }
        }
    }

    /// Whether the driver connects again by itself after the end of a connection.
    pub(crate) fn repairs_itself(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }
}

fn by_address(address: &str) -> RedisResult<SingleNodeRoutingInfo> {
    let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = parts.ok_or((ErrorKind::ClusterConnectionNotFound, "the cluster names no address"))?;
    Ok(SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port })
}

/// Makes connections with these settings.
#[derive(Debug)]
pub(crate) struct Dial {
    connect: Connect,
}

impl Dial {
    /// # Errors
    ///
    /// If the settings cannot work, whatever the servers do.
    pub(crate) fn new(connect: Connect) -> Result<Self, ConnectError> {
        if connect.servers.has_tls() {
            // The driver takes the process's provider, and panics without one where a program links two.
            let provider = rustls::crypto::ring::default_provider();
            if rustls::crypto::CryptoProvider::get_default().is_none() {
                // Another thread may have been first, with a provider as good.
                drop(provider.install_default());
            }
        }
        let dial = Self { connect };
        match &dial.connect.servers {
            Servers::Single(info) => drop(dial.client(info.clone()).map_err(invalid)?),
            Servers::Sentinel { sentinels, service, primary, is_tls } => {
                drop(dial.sentinel(sentinels, service, primary, *is_tls).map_err(invalid)?);
            }
            Servers::Cluster(nodes) => drop(dial.cluster(nodes).build().map_err(invalid)?),
        }
        Ok(dial)
    }

    /// The servers' names, for messages.
    pub(crate) fn servers(&self) -> &Servers {
        &self.connect.servers
    }

    /// A new connection. `on_end` is called when a connection to one server ends.
    pub(crate) async fn connect(&self, on_end: OnEnd) -> RedisResult<Connection> {
        let limit = match &self.connect.servers {
            Servers::Single(_) => self.connect.connection_timeout,
            // Several connections, one after another.
            Servers::Sentinel { .. } | Servers::Cluster(_) => self.connect.connection_timeout * 3,
        };
        tokio::time::timeout(limit, self.make(on_end)).await.unwrap_or_else(|_| Err(late(limit)))
    }

    async fn make(&self, on_end: OnEnd) -> RedisResult<Connection> {
        let mut connection = match &self.connect.servers {
            Servers::Single(info) => {
                let client = self.client(info.clone())?;
                Connection::Node(
                    client.get_multiplexed_async_connection_with_config(&self.config(on_end)).await?,
                )
            }
            Servers::Sentinel { sentinels, service, primary, is_tls } => {
                let mut client = self.sentinel(sentinels, service, primary, *is_tls)?;
                Connection::Node(client.get_async_connection_with_config(&self.config(on_end)).await?)
            }
            Servers::Cluster(nodes) => {
                let client = self.cluster(nodes).build()?;
                Connection::Cluster(client.get_async_connection().await?)
            }
        };
        if let SyncPolicy::WaitAof { .. } = self.connect.sync {
            let mut question = redis::pipe();
            question.cmd("COMMAND").arg("INFO").arg("WAITAOF");
            let answer = connection.send(&question, 0, Place::Key(None)).await?;
            if !answer.iter().any(
                |value| matches!(value, Value::Array(found) if found.iter().any(|one| *one != Value::Nil)),
            ) {
                let message = "SyncPolicy::WaitAof needs the command WAITAOF, which Redis has from 7.2 on, and a user that may use COMMAND";
                return Err((ErrorKind::InvalidClientConfig, message).into());
            }
        }
        Ok(connection)
    }

    /// A new connection that has subscribed to a channel. `on_push` is called with what the server sends by itself, the
    /// messages and the connection's end. A cluster passes messages on to all of its nodes; attempts take these in
    /// turn.
    pub(crate) async fn subscribe(
        &self,
        channel: &[u8],
        attempt: usize,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> RedisResult<MultiplexedConnection> {
        let push = move |push: PushInfo| -> Result<(), ()> {
            on_push(push);
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect.connection_timeout))
            .set_response_timeout(Some(self.connect.response_timeout))
            .set_push_sender(push);
        let mut connection = match &self.connect.servers {
            Servers::Single(info) => {
                self.client(info.clone())?.get_multiplexed_async_connection_with_config(&config).await?
            }
            Servers::Sentinel { sentinels, service, primary, is_tls } => {
                let mut client = self.sentinel(sentinels, service, primary, *is_tls)?;
                client.get_async_connection_with_config(&config).await?
            }
            Servers::Cluster(nodes) => {
                let (Some(first), Some(node)) = (nodes.first(), nodes.get(attempt % nodes.len().max(1)))
                else {
                    return Err((ErrorKind::ClusterConnectionNotFound, "a cluster without nodes").into());
                };
                // The name and the password of the first one are those for all.
                let node = node.clone().set_redis_settings(first.redis_settings().clone());
                self.client(node)?.get_multiplexed_async_connection_with_config(&config).await?
            }
        };
        connection.subscribe(channel).await?;
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

    /// A client that asks the Sentinels for the primary, and the server whether it is one.
    fn sentinel(
        &self,
        sentinels: &[ConnectionInfo],
        service: &str,
        primary: &RedisConnectionInfo,
        is_tls: bool,
    ) -> RedisResult<SentinelClient> {
        let addresses = sentinels.iter().map(|info| info.addr().clone());
        let mut builder = SentinelClientBuilder::new(addresses, service, SentinelServerType::Master)?
            .set_client_to_redis_protocol(ProtocolVersion::RESP3)
            .set_client_to_redis_db(primary.db());
        if let Some(name) = primary.username() {
            builder = builder.set_client_to_redis_username(name);
        }
        if let Some(password) = primary.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        let settings = sentinels.first().map(ConnectionInfo::redis_settings);
        if let Some(name) = settings.and_then(RedisConnectionInfo::username) {
            builder = builder.set_client_to_sentinel_username(name);
        }
        if let Some(password) = settings.and_then(RedisConnectionInfo::password) {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if is_tls {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
            if let Some(tls) = &self.connect.tls {
                builder = builder
                    .set_client_to_redis_certificates(tls.certificates())
                    .set_client_to_sentinel_certificates(tls.certificates());
            }
        }
        builder.build()
    }

    fn client(&self, info: ConnectionInfo) -> RedisResult<Client> {
        let info = resp3(info);
        match &self.connect.tls {
            Some(tls) => Client::build_with_tls(info, tls.certificates()),
            None => Client::open(info),
        }
    }

    fn cluster(&self, nodes: &[ConnectionInfo]) -> ClusterClientBuilder {
        let builder = ClusterClientBuilder::new(nodes.iter().cloned().map(resp3))
            // The driver would send again what may have run, and hide from the store that it may have.
            .retries(0)
            .use_protocol(ProtocolVersion::RESP3)
            .connection_timeout(self.connect.connection_timeout)
            .response_timeout(self.connect.response_timeout + self.connect.sync.timeout())
            // Each call has a limit of its own.
            .overall_response_timeout(None);
        match &self.connect.tls {
            Some(tls) => builder.certs(tls.certificates()),
            None => builder,
        }
    }
}

/// With the protocol in which the end of a connection is noticed at once.
fn resp3(info: ConnectionInfo) -> ConnectionInfo {
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    info.set_redis_settings(settings)
}

fn invalid(error: RedisError) -> ConnectError {
    ConnectError::caused_by(format!("the connection's settings: {error}"), error)
}

fn late(limit: Duration) -> RedisError {
    (ErrorKind::Io, "no connection in time", format!("{limit:?}")).into()
}
