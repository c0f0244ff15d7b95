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
    /// The folder of the service's files. If it is missing, the service makes it.
    pub data: PathBuf,
    /// The file of the tokens. By default `tokens.json` in the folder `data`.
    pub tokens: Option<PathBuf>,
    /// The rules that a callback's URL, method, headers and body must keep.
    pub rules: Rules,
    /// The settings of the client that sends callbacks.
    pub caller: CallerSettings,
    /// The greatest number of callbacks that run at the same time. 1,024 by default.
    pub concurrency: usize,
    /// The greatest number of callbacks that a namespace has under way to one host. 16 by default.
    pub host_concurrency: usize,
    /// The greatest number of callbacks that a namespace has under way to a host that answers within a tenth of a
    /// second. 256 by default.
    pub prompt_host_concurrency: usize,
    /// The greatest number of open claims: timers that receivers have fetched and not ended yet. 10,000 by default.
    pub open_claims: usize,
    /// The least pause after a failed delivery. No policy can shorten it. 1 s by default.
    pub least_pause: Duration,
    /// The greatest number of timers that a namespace may create in a second, unless it has a limit of its own. 50,000
    /// by default.
    pub creations: u32,
    /// The greatest number of schedules of a namespace, unless it has a limit of its own. 10,000 by default.
    pub max_schedules: u64,
    /// The length of a lease. If a service on a shared store dies, the other services deliver its timers after this
    /// time. 30 s by default.
    pub lease: Duration,
    /// The greatest number of stored timers. 100 million by default.
    pub max_timers: u64,
    /// The longest time from a timer's creation to its due moment. A hundred years by default.
    pub max_delay: Duration,
    /// The greatest number of late timers of a namespace that are delivered in a second, for example after a downtime.
    /// 10,000 by default.
    pub catch_up_rate: Option<u32>,
    /// The Redis deployment that stores the timers and is shared with other nodes. By default the timers are stored in
    /// a file in the folder `data`.
    pub redis: Option<RedisSettings>,
    /// The memory for cached pages of the store, in bytes. 44 MiB by default.
    pub cache: usize,
    /// The number of bytes that the service leaves free on the disk of the folder `data`. While fewer are free, the
    /// service stores nothing new. Deliveries, cancellations and moves go on. On a small disk the number is lowered to
    /// an eighth of the disk or 24 MiB, whichever is more. 64 MiB by default. Zero for no limit.
    pub keep_free: u64,
    /// Whether the folder `data` may be on a file system without locks. Without locks, nothing stops two services from
    /// using one folder. They would then lose each other's timers. False by default.
    pub without_locks: bool,
    /// The number of the store's entries that a background check reads in a second to find damage. 250 by default. Zero
    /// turns the check off.
    pub scrub: u32,
    /// Whether a proxy before the service names the clients' addresses in `X-Forwarded-For`. False by default.
    pub behind_proxy: bool,
    /// Whether clients reach the service over TLS, either directly or through a proxy. If so, browsers send the page's
    /// cookie over TLS only.
    pub over_tls: bool,
    /// The certificate of the service, if it has one. The metrics show when the certificate expires.
    pub tls: Option<Tls>,
    /// The settings for sending spans of creations and deliveries. By default no spans are sent.
    pub telemetry: TelemetrySettings,
}

/// The Redis deployment that stores a service's timers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisSettings {
    /// The servers, and how to connect to them.
    pub connect: Connect,
    /// The name of the deployment. Services that give the same name share their timers.
    pub deployment: String,
    /// The number of shards of a new deployment. With `None`, the default, an existing deployment may have any number,
    /// and a new deployment gets 64.
    pub shards: Option<u16>,
    /// The name of this node, as people see it.
    pub node: String,
    /// The time for which this node claims shards. If the node dies, other nodes take its shards over after this time:
    /// see `RedisBuilder::ttl`. 10 s by default.
    pub ttl: Duration,
    /// The time by which the servers' data may go back in a failure. If the data go back further, the store is closed:
    /// see `RedisBuilder::may_lose`. 10 s by default.
    pub may_lose: Duration,
}

impl RedisSettings {
    /// Makes the settings for a deployment on these servers, with defaults.
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

/// The settings for sending spans to an OpenTelemetry collector, by OTLP over HTTP with protobuf.
#[derive(Clone)]
#[non_exhaustive]
pub struct TelemetrySettings {
    /// The URL that spans are posted to, such as `http://127.0.0.1:4318/v1/traces`. By default no spans are sent.
    /// Sending needs the crate's feature `otel`: without it, opening a service with an endpoint fails.
    pub endpoint: Option<String>,
    /// The attribute `service.name` of all spans. `tourbillond` by default.
    pub service_name: String,
    /// The fraction of new traces that is recorded, from 0 to 1. It applies to creations without a `traceparent`.
    /// Otherwise the caller's flag decides. 1 by default.
    pub share: f64,
    /// Headers of the requests to the collector. Their values may be secret, so `Debug` does not show them.
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
    /// Makes the default settings. `data` is the folder of the service's files.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            tokens: None,
            rules: Rules::default(),
            caller: CallerSettings::default(),
            concurrency: 1_024,
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
            redis: None,
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
