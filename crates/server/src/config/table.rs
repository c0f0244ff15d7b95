//! The table of all settings. The keys of the file, the environment variables, the flags and the help are derived from
//! this table.

use super::value::{DatabaseAddress, Endpoint, Form, ServerUrl, Share, Size, Sync, Value};
use crate::log;
use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;
use tourbillon_callback::guard::Range;
use tracing::level_filters::LevelFilter;

/// The prefix of the environment variables for settings.
pub(crate) const PREFIX: &str = "TOURBILLON_";

/// A setting, which is a row of the table.
pub(crate) struct Setting {
    /// The key in the file, with its section.
    pub(crate) key: &'static str,
    /// The purpose of the setting, in a sentence or two.
    help: &'static [&'static str],
    /// The placeholder that the help shows for the value.
    pub(crate) value: &'static str,
    pub(crate) form: Form,
    /// The default value, as text.
    pub(crate) default: &'static str,
    pub(super) set: fn(&mut Config, &str) -> Result<(), String>,
    pub(super) get: fn(&Config) -> String,
}

impl Setting {
    /// Returns the name of the setting's environment variable.
    pub(crate) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.replace('.', "_").to_ascii_uppercase())
    }

    /// Returns the name of the setting's flag, without its dashes.
    pub(crate) fn flag(&self) -> String {
        self.key.replace(['.', '_'], "-")
    }

    /// Returns the purpose of the setting on one line.
    pub(crate) fn help(&self) -> String {
        self.help.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }

    /// Returns the section of the file that contains the setting. The text is empty if no section does.
    pub(crate) fn section(&self) -> &'static str {
        self.key.rsplit_once('.').map_or("", |(section, _)| section)
    }
}

macro_rules! settings {
    ($($(#[doc = $help:literal])* $field:ident: $type:ty, $key:literal = $default:literal;)*) => {
        /// The configuration: the values of all settings.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct Config {
            $($(#[doc = $help])* pub(crate) $field: $type,)*
        }

        /// The table of all settings.
        pub(crate) const SETTINGS: &[Setting] = &[$(Setting {
            key: $key,
            help: &[$($help),*],
            value: <$type as Value>::NAME,
            form: <$type as Value>::FORM,
            default: $default,
            set: |config, text| {
                config.$field = Value::parse(text)?;
                Ok(())
            },
            get: |config| Value::show(&config.$field),
        },)*];

        impl Default for Config {
            fn default() -> Self {
                Self { $($field: by_default($default),)* }
            }
        }
    };
}

fn by_default<T: Value>(text: &str) -> T {
    T::parse(text).expect("the defaults of the table can be read, which a test shows")
}

settings! {
    /// The folder of the service's files. It is made if it is missing.
    data: PathBuf, "data" = "tourbillon-data";
    /// The addresses at which the service listens. Others than those of this machine need tokens and TLS, or
    /// `behind_proxy`.
    listen: Vec<SocketAddr>, "listen" = "127.0.0.1:7670";
    /// Whether a proxy with TLS of its own stands before the service. Tokens are needed all the same.
    behind_proxy: bool, "behind_proxy" = "false";
    /// The file of the tokens; `tokens.json` in the data folder if it is empty.
    tokens: Option<PathBuf>, "tokens" = "";
    /// The time for callbacks and requests under way when the service is stopped. Deliveries that have not ended by
    /// then are made again after the next start.
    drain: Duration, "drain" = "10s";

    /// The file of the certificate and those that vouch for it, in PEM.
    tls_certificate: Option<PathBuf>, "tls.certificate" = "";
    /// The file of the certificate's key, in PEM.
    tls_key: Option<PathBuf>, "tls.key" = "";

    /// The greatest number of connections. Further connections are closed at once.
    max_connections: u32, "limits.connections" = "4096";
    /// The greatest size of a request's header.
    max_header: Size, "limits.header" = "16KiB";
    /// The greatest size of a request's body, a batch for example.
    max_request: Size, "limits.request" = "8MiB";
    /// The greatest size of the body of a callback.
    max_body: Size, "limits.body" = "64KiB";
    /// The greatest number of stored timers.
    max_timers: u64, "limits.timers" = "100000000";
    /// The greatest number of timers that a namespace makes in a second, unless it has a limit of its own.
    creations: u32, "limits.creations" = "50000";
    /// The greatest number of schedules of a namespace, unless it has a limit of its own.
    max_schedules: u64, "limits.schedules" = "10000";
    /// The longest time to a due moment.
    max_delay: Duration, "limits.delay" = "36600d";

    /// The time for a request's header, from its first byte on, and for the handshake of TLS.
    header_timeout: Duration, "timeouts.header" = "10s";
    /// The time for a request's body.
    body_timeout: Duration, "timeouts.body" = "30s";
    /// The time for which a connection is kept without a request.
    idle_timeout: Duration, "timeouts.idle" = "75s";
    /// The time for which a client may read nothing of an answer.
    write_timeout: Duration, "timeouts.write" = "30s";

    /// The greatest number of callbacks at a time.
    concurrency: usize, "deliveries.concurrency" = "1024";
    /// The greatest number of timers that receivers have fetched and not ended yet.
    open_claims: usize, "deliveries.open_claims" = "10000";
    /// The greatest number of callbacks of a namespace to one host at a time; a quarter for a host that is slow or not
    /// known yet. Several namespaces have a third more together.
    host_concurrency: usize, "deliveries.host_concurrency" = "16";
    /// The same for a host that answers within a tenth of a second: each such answer adds a callback, up to this
    /// number.
    prompt_host_concurrency: usize, "deliveries.prompt_host_concurrency" = "256";
    /// The number of failures in a row after which a host, or a path of it, gets no callbacks of the namespace for a
    /// while.
    host_failures: u32, "deliveries.host_failures" = "10";
    /// The rate of deliveries per second of each namespace that are late, after a downtime for example. Zero for no
    /// limit.
    catch_up_rate: u32, "deliveries.catch_up_rate" = "10000";
    /// The least pause after a failed delivery, whatever the policy of the timer says.
    least_pause: Duration, "deliveries.least_pause" = "1s";
    /// The length of a lease, which is renewed while a delivery runs.
    lease: Duration, "deliveries.lease" = "30s";

    /// Whether callbacks may use `http`. Otherwise only `https` is permitted.
    allow_http: bool, "callbacks.allow_http" = "false";
    /// Whether callbacks may go to private addresses and to this machine.
    allow_private: bool, "callbacks.allow_private" = "false";
    /// Ranges of addresses to which callbacks may go whatever the other rules say.
    allowed: Vec<Range>, "callbacks.allowed" = "";
    /// The name servers for the names of receivers. Those of the system if there are none (`/etc/resolv.conf`, read at
    /// the start).
    name_servers: Vec<SocketAddr>, "callbacks.name_servers" = "";
    /// A file of certificates, in PEM, that are trusted besides those of the web.
    certificates: Option<PathBuf>, "callbacks.certificates" = "";
    /// The time for resolving a receiver's name, and for connecting to it.
    connect_timeout: Duration, "callbacks.connect_timeout" = "5s";

    /// The memory for cached pages of the store.
    cache: Size, "store.cache" = "44MiB";
    /// The room that is left free on the disk of the data folder, at most an eighth of the disk, or 24 MiB: while less
    /// is free, nothing new is stored (507), and deliveries, cancellations and moves go on. Half as much is kept in a
    /// file for a disk that others fill. Zero for no limit.
    keep_free: Size, "store.keep_free" = "64MiB";
    /// Whether the data folder may be on a file system without locks. Nothing then keeps a second service out of the
    /// folder, and each loses timers of the other.
    without_locks: bool, "store.without_locks" = "false";
    /// The entries of the store that are looked at in a second, in search of damage; a timer has three to six. None
    /// with 0. In SQLite and in Redis there is no such search.
    scrub: u32, "store.scrub" = "250";

    /// The SQLite database that has the timers, beside tables of other programs if there are any; none for a store in
    /// the data folder. It is made if it is missing. The other files of the service stay in the data folder.
    sqlite_path: Option<PathBuf>, "sqlite.path" = "";

    /// The Redis servers that have the timers, as URLs with `redis://`, `rediss://` (TLS) or `unix://`; none for a
    /// store in the data folder. They name the server itself, nodes of a cluster (`redis.cluster`) or Sentinels
    /// (`redis.sentinel`).
    redis_servers: Vec<ServerUrl>, "redis.servers" = "";
    /// The name by which the Sentinels in `redis.servers` know the primary.
    redis_sentinel: Option<String>, "redis.sentinel" = "";
    /// Whether the servers are nodes of a cluster.
    redis_cluster: bool, "redis.cluster" = "false";
    /// The name of the deployment. Nodes with the same name share its timers.
    redis_deployment: String, "redis.deployment" = "tourbillon";
    /// The number of shards of a deployment that is made: a power of two up to 1024. With 0 an existing deployment
    /// stays as it is, and a new deployment has 64.
    redis_shards: u32, "redis.shards" = "0";
    /// The user of the servers' access control list.
    redis_username: Option<String>, "redis.username" = "";
    /// The file of the user's password. It is read for each connection.
    redis_password_file: Option<PathBuf>, "redis.password_file" = "";
    /// The file of the Sentinels' password, which is read for each connection. A name for it stands in their URLs.
    redis_sentinel_password_file: Option<PathBuf>, "redis.sentinel_password_file" = "";
    /// A file of certificates, in PEM, that vouch for the servers, instead of the system's certificates.
    redis_certificates: Option<PathBuf>, "redis.certificates" = "";
    /// The file of the certificate that the servers ask for, in PEM.
    redis_client_certificate: Option<PathBuf>, "redis.client_certificate" = "";
    /// The file of that certificate's key, in PEM.
    redis_client_key: Option<PathBuf>, "redis.client_key" = "";
    /// The copies that a change waits for: `none`, `wait:REPLICAS:TIME` for replicas that have it, or
    /// `waitaof:REPLICAS:TIME` for append-only files on disks.
    redis_sync: Sync, "redis.sync" = "none";
    /// The name of this node for people; the host's name if it is empty.
    redis_node: Option<String>, "redis.node" = "";
    /// The lease of a node on its shards. If its machine or network dies, its timers wait for this time until other
    /// nodes take its shards over. The death of a process is seen at once. From 100 ms to an hour.
    redis_ttl: Duration, "redis.ttl" = "10s";
    /// The time by which the servers' data may go back while the service runs, as in a failover to a replica without
    /// the last writes. Further than that, as after a restart from an older snapshot, the node refuses the data, and
    /// goes on with them once it is started again.
    redis_may_lose: Duration, "redis.may_lose" = "10s";
    /// The time for a connection to a server.
    redis_connect_timeout: Duration, "redis.connect_timeout" = "2s";
    /// The time for a server's answer. After it the outcome of a change is not known.
    redis_response_timeout: Duration, "redis.response_timeout" = "5s";
    /// The time for which an operation waits for a connection, or for a server that cannot answer now.
    redis_patience: Duration, "redis.patience" = "5s";

    /// The PostgreSQL server that has the timers, as a URL (`postgresql://user@host/database`) or in words (`host=/run
    /// user=app`), without a password; none for a store in the data folder, or in Redis. `sslmode=verify-full` in it
    /// asks for TLS with the server of that name.
    postgres_server: Option<DatabaseAddress>, "postgres.server" = "";
    /// The file of the user's password. It is read at the start.
    postgres_password_file: Option<PathBuf>, "postgres.password_file" = "";
    /// A file of certificates, in PEM, that vouch for the server, instead of the system's certificates. It is read for
    /// each connection. Without `sslmode` in the address, `verify-full` holds then.
    postgres_certificates: Option<PathBuf>, "postgres.certificates" = "";
    /// The file of the certificate that the server asks for, in PEM. It is read for each connection.
    postgres_client_certificate: Option<PathBuf>, "postgres.client_certificate" = "";
    /// The file of that certificate's key, in PEM. It is read for each connection.
    postgres_client_key: Option<PathBuf>, "postgres.client_key" = "";
    /// The schema that has the timers. Nodes that name the same schema of a database share its timers.
    postgres_schema: String, "postgres.schema" = "tourbillon";
    /// Whether the start makes the schema, and brings it to the version of this program.
    postgres_migrate: bool, "postgres.migrate" = "true";
    /// The greatest number of connections to the server.
    postgres_connections: u32, "postgres.connections" = "8";
    /// The name of this node for people; the host's name if it is empty.
    postgres_node: Option<String>, "postgres.node" = "";
    /// The time without a sign of life after which other nodes take the shards of a node. From a second to an hour.
    postgres_ttl: Duration, "postgres.ttl" = "10s";

    /// The URL of a collector to which spans of OpenTelemetry are sent, by OTLP over HTTP; `/v1/traces` is its path if
    /// it has none. The program needs the feature `otel` for it.
    telemetry_endpoint: Option<Endpoint>, "telemetry.endpoint" = "";
    /// The name of the service in its spans.
    telemetry_service_name: String, "telemetry.service_name" = "tourbillond";
    /// The share of the traces that begin here which is recorded, from 0 to 1. For a trace that a caller brings, the
    /// caller's flag decides.
    telemetry_share: Share, "telemetry.share" = "1";

    /// The least grave lines of the log that are written: `error`, `warn`, `info`, or `debug` with a line for each
    /// request.
    log_level: LevelFilter, "log.level" = "info";
    /// The form of the log's lines: `text`, or `json` with an object in each line.
    log_format: log::Form, "log.format" = "text";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_rows_of_the_table_are_sound() {
        let config = Config::default();
        let mut names = BTreeSet::new();
        for setting in SETTINGS {
            assert_eq!((setting.get)(&config), setting.default, "{}", setting.key);
            assert!(setting.help().ends_with('.'), "{}", setting.key);
            assert!(names.insert(setting.flag()) && names.insert(setting.variable()), "{}", setting.key);
        }
    }
}
