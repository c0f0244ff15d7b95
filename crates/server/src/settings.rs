//! Defines the settings of a service, independent of their source.

use crate::tls::Tls;
use core::fmt;
use core::time::Duration;
use std::path::PathBuf;
use tourbillon_callback::{CallerSettings, Rules};
use tourbillon_redis::Connect;

/// The settings of a service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The folder of the service's files. The service creates it if it is missing.
    pub data: PathBuf,
    /// The path of the token file. `None`, the default, means `tokens.json` in the folder `data`.
    pub tokens: Option<PathBuf>,
    /// The rules for the URL, the method, the headers and the body of each callback.
    pub rules: Rules,
    /// The settings of the client that sends callbacks.
    pub caller: CallerSettings,
    /// The greatest number of callbacks that run at the same time. At this number, a namespace that runs no callback
    /// may still start one, until an eighth more callbacks run in total. 1,024 by default.
    pub concurrency: usize,
    /// The greatest number of concurrent callbacks of one namespace to one host. 16 by default.
    pub host_concurrency: usize,
    /// The greatest number of concurrent callbacks of one namespace to a host that answers within 100 ms. 256 by
    /// default.
    pub prompt_host_concurrency: usize,
    /// The greatest number of open claims. A claim is open from the moment at which a receiver fetches a timer until
    /// the delivery ends. At this number, a namespace without an open claim may still open one, until an eighth more
    /// claims are open in total. 10,000 by default.
    pub open_claims: usize,
    /// The least pause after a failed delivery, which a timer's policy cannot shorten. 1 s by default.
    pub least_pause: Duration,
    /// The greatest number of timers that a namespace may create in a second, unless the namespace has its own limit.
    /// 50,000 by default.
    pub creations: u32,
    /// The greatest number of schedules in a namespace, unless the namespace has its own limit. 10,000 by default.
    pub max_schedules: u64,
    /// The duration of a service's lease on a timer. If a service on a shared store dies, other services deliver its
    /// timers after this time. 30 s by default.
    pub lease: Duration,
    /// The greatest number of timers in the store. 100 million by default.
    pub max_timers: u64,
    /// The longest time from a timer's creation to its due moment. 36,600 days by default.
    pub max_delay: Duration,
    /// The greatest number of late timers that a namespace delivers in a second, for example after a downtime. A timer
    /// is late if its due moment passed more than 5 s ago. `None` for no limit. 10,000 by default.
    pub catch_up_rate: Option<u32>,
    /// The place where the service stores its timers. By default, this is a file in the folder `data`.
    pub store: StorePlace,
    /// The size of the store's page cache in memory, in bytes. 44 MiB by default.
    pub cache: usize,
    /// The number of bytes that the service leaves free on the disk of the folder `data`. With less free space, the
    /// service stores no new timers, but delivers, cancels and moves the stored timers.
    ///
    /// On a small disk, the service leaves fewer bytes free: an eighth of the disk, but at least 24 MiB, and never more
    /// than half of the disk. Zero for no limit. 64 MiB by default.
    pub keep_free: u64,
    /// Whether the folder `data` may be on a file system without file locks. There, two services could use the folder
    /// at the same time, and each would lose timers of the other. False by default.
    pub without_locks: bool,
    /// The number of the store's entries that are checked for damage in a second. Zero turns the checks off. 250 by
    /// default.
    pub scrub: u32,
    /// Whether a proxy in front of the service lists the addresses of clients in the header `X-Forwarded-For`. False by
    /// default.
    pub behind_proxy: bool,
    /// Whether clients reach the service by TLS, directly or through a proxy. If so, browsers send the cookie of the
    /// pages only by TLS. False by default.
    pub over_tls: bool,
    /// The certificate of the service. The metrics show its expiry. `None`, the default, for no certificate.
    pub tls: Option<Tls>,
    /// The settings for sending spans to a collector. By default no spans are sent.
    pub telemetry: TelemetrySettings,
}

/// The place where a service stores its timers.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum StorePlace {
    /// The file `timers.redb` in the folder of the service's files.
    #[default]
    File,
    /// The SQLite database at this path.
    Sqlite(PathBuf),
    /// A deployment on Redis, which several nodes can share.
    Redis(RedisSettings),
    /// A schema in PostgreSQL, which several nodes can share.
    Postgres(PostgresSettings),
}

/// The schema in PostgreSQL that stores a service's timers and namespaces.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresSettings {
    /// The address of the server, and the options for connections to it.
    pub connect: tourbillon_postgres::Connect,
    /// The name of the schema. Services with the same schema of a database share their timers.
    pub schema: String,
    /// Whether the service creates the schema and runs migrations at its start. True by default.
    pub migrates: bool,
    /// The name of this node in lists of nodes.
    pub node: String,
    /// The time without a heartbeat of this node after which other nodes take over its shards, the parts of the timers
    /// that it delivers. 10 s by default.
    pub ttl: Duration,
    /// Whether this node has a further connection on which it listens for new timers that are due at once. False by
    /// default. See [`PostgresBuilder::listen`](tourbillon_postgres::PostgresBuilder::listen).
    pub listens: bool,
}

impl PostgresSettings {
    /// Makes the settings for the schema `schema` on the server of `connect`, with defaults for all other settings.
    pub fn new(connect: tourbillon_postgres::Connect, schema: impl Into<String>) -> Self {
        let ttl = Duration::from_secs(10);
        Self { connect, schema: schema.into(), migrates: true, node: "node".to_owned(), ttl, listens: false }
    }
}

/// The Redis deployment that stores a service's timers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisSettings {
    /// The addresses of the Redis servers, and the options for connections to them.
    pub connect: Connect,
    /// The name of the deployment on the Redis servers. Services with the same name share their timers.
    pub deployment: String,
    /// The number of shards, the parts into which the deployment divides its timers. `None`, the default, keeps the
    /// number of an existing deployment, and gives a new deployment 64 shards.
    pub shards: Option<u16>,
    /// The name of this node in lists of nodes. Several nodes may have the same name.
    pub node: String,
    /// The duration of this node's lease on its shards, the parts of the timers that it delivers. If the node dies,
    /// other nodes take over its shards after this time: see `RedisBuilder::ttl`. 10 s by default.
    pub ttl: Duration,
    /// The greatest loss of data that the open store accepts, as the length of the period whose changes the Redis
    /// servers have lost, for example in a failover. After a greater loss, the store closes: see
    /// `RedisBuilder::may_lose`. 10 s by default.
    pub may_lose: Duration,
}

impl RedisSettings {
    /// Makes the settings for the deployment `deployment` on the servers of `connect`, with defaults for all other
    /// settings.
    pub fn new(connect: Connect, deployment: impl Into<String>) -> Self {
        Self {
            connect,
            deployment: deployment.into(),
            shards: None,
            node: "node".to_owned(),
            ttl: Duration::from_secs(10),
            may_lose: Duration::from_secs(10),
        }
    }
}

/// The settings for sending spans to an OpenTelemetry collector, by OTLP over HTTP with protobuf. A span records the
/// creation of a timer, or an attempt to deliver a timer.
#[derive(Clone)]
#[non_exhaustive]
pub struct TelemetrySettings {
    /// The URL to which spans are posted, such as `http://127.0.0.1:4318/v1/traces`. `None`, the default, sends no
    /// spans. A service with an endpoint cannot be opened without the crate's feature `otel`.
    pub endpoint: Option<String>,
    /// The attribute `service.name` of the spans. `tourbillond` by default.
    pub service_name: String,
    /// The fraction of new traces that is recorded, from 0 to 1. A request without the header `traceparent` begins a
    /// new trace. If a request has the header, a flag in the header decides whether its trace is recorded. 1 by
    /// default.
    pub share: f64,
    /// The headers of requests to the collector. `Debug` does not show them, because they may be secret.
    pub headers: Vec<(String, String)>,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self { endpoint: None, service_name: "tourbillond".to_owned(), share: 1.0, headers: Vec::new() }
    }
}

impl fmt::Debug for TelemetrySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TelemetrySettings")
            .field("endpoint", &self.endpoint)
            .field("service_name", &self.service_name)
            .field("share", &self.share)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// Makes the default settings of a service with its files in the folder `data`.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            tokens: None,
            rules: Rules::default(),
            caller: CallerSettings::default(),
            concurrency: 1_024,
            // A small receiver does not bear more at first. A host that answers promptly gets more permits, up to the
            // next limit.
            host_concurrency: 16,
            prompt_host_concurrency: 256,
            open_claims: 10_000,
            least_pause: Duration::from_secs(1),
            creations: 50_000,
            max_schedules: 10_000,
            lease: Duration::from_secs(30),
            max_timers: 100_000_000,
            max_delay: Duration::from_secs(100 * 366 * 86_400),
            catch_up_rate: Some(10_000),
            store: StorePlace::File,
            // With this cache, a service with a million pending timers stays below 100 MB of memory.
            cache: 44 << 20,
            keep_free: 64 << 20,
            without_locks: false,
            scrub: 250,
            behind_proxy: false,
            over_tls: false,
            tls: None,
            telemetry: TelemetrySettings::default(),
        }
    }
}
