//! The settings of a service, after file, environment and flags were read.

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
    /// The folder of the service's files. It is made if it is missing.
    pub data: PathBuf,
    /// The file of the tokens; `tokens.json` in the folder by default.
    pub tokens: Option<PathBuf>,
    /// The rules for the texts of callbacks.
    pub rules: Rules,
    /// How callbacks are sent.
    pub caller: CallerSettings,
    /// The greatest number of callbacks at a time. 1,024 by default.
    pub concurrency: usize,
    /// The greatest number of callbacks of a namespace to one host at a time. 16 by default.
    pub host_concurrency: usize,
    /// The same for a host that answers within a tenth of a second. 256 by default.
    pub prompt_host_concurrency: usize,
    /// The greatest number of timers that receivers have fetched and not ended yet. 10,000 by default.
    pub open_claims: usize,
    /// The least pause after a failed delivery, which no policy can shorten. 1 s by default.
    pub least_pause: Duration,
    /// The greatest number of timers that a namespace makes in a second, unless it has a limit of its own. 50,000 by
    /// default.
    pub creations: u32,
    /// The greatest number of schedules of a namespace, unless it has a limit of its own. 10,000 by default.
    pub max_schedules: u64,
    /// The length of a lease: a service that dies on a shared store is taken over after it. 30 s by default.
    pub lease: Duration,
    /// The greatest number of stored timers, 100 million by default.
    pub max_timers: u64,
    /// The longest time to a due moment, a hundred years by default.
    pub max_delay: Duration,
    /// The rate at which timers of a namespace are delivered that are late, after a downtime for example. 10,000 a
    /// second by default.
    pub catch_up_rate: Option<u32>,
    /// The Redis that has the timers, which other nodes share. By default the timers are in a file in the folder.
    pub redis: Option<RedisSettings>,
    /// The memory for cached pages of the store, in bytes. 48 MiB by default.
    pub cache: usize,
    /// The bytes that are left free on the disk of the folder: while fewer are free, nothing new is stored, and
    /// deliveries, cancellations and moves go on. At most an eighth of the disk, or 24 MiB. 64 MiB by default; zero for
    /// no limit.
    pub keep_free: u64,
    /// Whether the folder may be on a file system without locks. Two services in one folder then lose each other's
    /// timers. False by default.
    pub without_locks: bool,
    /// The entries of the store that are looked at in a second, in search of damage; none with 0. 250 by default.
    pub scrub: u32,
    /// Whether a proxy stands before the service, which names its clients' addresses in `X-Forwarded-For`. False by
    /// default.
    pub behind_proxy: bool,
    /// Whether clients reach the service over TLS, its own or a proxy's: browsers then send the page's cookie over TLS
    /// only.
    pub over_tls: bool,
    /// The certificate of which the metrics show the end, if the service has one.
    pub tls: Option<Tls>,
    /// The spans of creations and deliveries. None are sent by default.
    pub telemetry: TelemetrySettings,
}

/// The Redis that has a service's timers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisSettings {
    /// The servers.
    pub connect: Connect,
    /// The name of the deployment. Services that name the same deployment share its timers.
    pub deployment: String,
    /// The number of shards of a deployment that is made. `None` by default: a deployment is taken as it is, and made
    /// with 64.
    pub shards: Option<u16>,
    /// The name of this node, for people.
    pub node: String,
    /// The time for which this node takes shards for itself, as `RedisBuilder::ttl` has it. 10 s by default.
    pub ttl: Duration,
    /// The time by which the servers' data may go back, as `RedisBuilder::may_lose` has it. 10 s by default.
    pub may_lose: Duration,
}

impl RedisSettings {
    /// A deployment on these servers.
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

/// The spans of OpenTelemetry that a service sends to a collector, by OTLP over HTTP with protobuf.
#[derive(Clone)]
#[non_exhaustive]
pub struct TelemetrySettings {
    /// The URL to which spans are posted, such as `http://127.0.0.1:4318/v1/traces`. None are sent by default. It needs
    /// the crate's feature `otel`; without it, a service with an endpoint is not opened.
    pub endpoint: Option<String>,
    /// The attribute `service.name` of all spans. `tourbillond` by default.
    pub service_name: String,
    /// The share of the traces without a caller's `traceparent` that is recorded, from 0 to 1. 1 by default. For the
    /// others the caller's flag decides.
    pub share: f64,
    /// Headers of the requests to the collector. They may be secret, and `Debug` does not show their values.
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
    /// The settings by default, with this folder.
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
            cache: 48 << 20,
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
