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

    /// Returns the section of the file that contains the setting. The text is empty if the setting is in no section.
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
    /// The addresses at which the service listens. An address that other machines can reach needs tokens, and TLS or
    /// `behind_proxy`.
    listen: Vec<SocketAddr>, "listen" = "127.0.0.1:7670";
    /// Further addresses, without TLS, at which `/healthz`, `/readyz` and `/metrics` alone are answered, to everybody
    /// who reaches the address. The metrics name the namespaces and the queues.
    probes: Vec<SocketAddr>, "probes" = "";
    /// Whether a proxy that provides TLS stands in front of the service. Tokens are needed all the same.
    behind_proxy: bool, "behind_proxy" = "false";
    /// The file of the tokens. By default it is `tokens.json` in the data folder.
    tokens: Option<PathBuf>, "tokens" = "";
    /// How long the stopping service waits for callbacks and requests under way. Deliveries that have not ended by
    /// then are repeated after the next start.
    drain: Duration, "drain" = "10s";

    /// The file of the certificate and its chain, in PEM.
    tls_certificate: Option<PathBuf>, "tls.certificate" = "";
    /// The file of the certificate's private key, in PEM.
    tls_key: Option<PathBuf>, "tls.key" = "";

    /// The greatest number of connections. Beyond it, a connection without a request under way is closed to make room.
    /// If there is none, the new connection gets 503, or is closed (TLS).
    max_connections: u32, "limits.connections" = "4096";
    /// The greatest size of a request's header.
    max_header: Size, "limits.header" = "16KiB";
    /// The greatest size of a request's body, for example of a batch, up to 1GiB.
    max_request: Size, "limits.request" = "8MiB";
    /// The greatest size of the body of a callback, up to 1GiB.
    max_body: Size, "limits.body" = "64KiB";
    /// The greatest number of stored timers.
    max_timers: u64, "limits.timers" = "100000000";
    /// The greatest number of timers made per second in a namespace that has no limit of its own.
    creations: u32, "limits.creations" = "50000";
    /// The greatest number of schedules in a namespace that has no limit of its own.
    max_schedules: u64, "limits.schedules" = "10000";
    /// The longest time from the creation of a timer to its due moment.
    max_delay: Duration, "limits.delay" = "36600d";

    /// The longest time for a request's header to arrive, counted from its first byte. The header of a connection's
    /// first request counts from the start of the connection. Also the longest time for a TLS handshake.
    header_timeout: Duration, "timeouts.header" = "10s";
    /// The longest time for a request's body to arrive.
    body_timeout: Duration, "timeouts.body" = "30s";
    /// The longest time for which a connection stays open between two requests.
    idle_timeout: Duration, "timeouts.idle" = "75s";
    /// The longest time to wait for a client to read a further part of an answer.
    write_timeout: Duration, "timeouts.write" = "30s";

    /// The greatest number of concurrent callbacks. Once that many run, a namespace without a callback may still run
    /// one, and such namespaces may run an eighth of the number together.
    concurrency: usize, "deliveries.concurrency" = "1024";
    /// The greatest number of timers that receivers have fetched and whose deliveries have not ended. Beyond it,
    /// namespaces without such a timer may have one each, and an eighth of the number together.
    open_claims: usize, "deliveries.open_claims" = "10000";
    /// The greatest number of concurrent callbacks of a namespace to one host. A slow host, or a host that has not been
    /// called yet, gets a quarter of this number. Several namespaces together may have a third more callbacks to the
    /// host. Beyond that, each namespace without a callback to the host may have one.
    host_concurrency: usize, "deliveries.host_concurrency" = "16";
    /// The greatest number of concurrent callbacks of a namespace to a host that answers within a tenth of a second.
    /// After each such answer, the host may get one more concurrent callback, up to this number. If
    /// `host_concurrency` is greater, that number counts.
    prompt_host_concurrency: usize, "deliveries.prompt_host_concurrency" = "256";
    /// The number of failures in a row of a namespace's callbacks to a host, or to one of its paths. After them, the
    /// host or the path gets no callbacks of this namespace for a while. Ten failures among the last twenty callbacks
    /// have the same effect, whatever this number is.
    host_failures: u32, "deliveries.host_failures" = "10";
    /// The greatest number of late deliveries per second in each namespace, for example after a downtime. A delivery is
    /// late if it begins more than five seconds after the due moment. Zero means no limit.
    catch_up_rate: u32, "deliveries.catch_up_rate" = "10000";
    /// The shortest pause after a failed delivery, even if the timer's policy sets a shorter one.
    least_pause: Duration, "deliveries.least_pause" = "1s";
    /// The length of the lease under which the service delivers a timer, from a second to a day. The service renews
    /// the lease while the delivery runs. If the process dies, the timer is delivered again once the lease has ended.
    lease: Duration, "deliveries.lease" = "30s";

    /// Whether callbacks may use `http`. Otherwise only `https` is permitted.
    allow_http: bool, "callbacks.allow_http" = "false";
    /// Whether callbacks may go to private addresses and to this machine.
    allow_private: bool, "callbacks.allow_private" = "false";
    /// Ranges of addresses to which callbacks may go even if another rule forbids it.
    allowed: Vec<Range>, "callbacks.allowed" = "";
    /// The name servers that resolve the names of receivers. By default, the system's name servers are used, as
    /// `/etc/resolv.conf` names them at the start.
    name_servers: Vec<SocketAddr>, "callbacks.name_servers" = "";
    /// A file of certificates, in PEM, that are trusted in addition to the public authorities.
    certificates: Option<PathBuf>, "callbacks.certificates" = "";
    /// The longest time to resolve a receiver's name. The connection to each of its addresses may take the same time
    /// again, and the receiver's first byte in the handshake of TLS, too.
    connect_timeout: Duration, "callbacks.connect_timeout" = "5s";

    /// The size of the store's page cache.
    cache: Size, "store.cache" = "44MiB";
    /// The space to keep free on the disk of the data folder. On a small disk, the space is an eighth of the disk, but
    /// at least 24 MiB. While less space is free, the service stores nothing new (507); deliveries, cancellations and
    /// moves continue. A file reserves half of the space, in case other programs fill the disk. Zero means no limit.
    keep_free: Size, "store.keep_free" = "64MiB";
    /// Whether the data folder may be on a file system without locks. Nothing then prevents a second service from
    /// using the folder, and each service loses timers of the other.
    without_locks: bool, "store.without_locks" = "false";
    /// The number of the store's entries that are checked for damage per second. A timer has three to six entries.
    /// Zero turns the check off. SQLite and Redis have no such check.
    scrub: u32, "store.scrub" = "250";

    /// The SQLite database that has the timers, possibly beside tables of other programs. It is made if it is missing.
    /// The other files of the service stay in the data folder. By default, a store in the data folder has the timers.
    sqlite_path: Option<PathBuf>, "sqlite.path" = "";

    /// The Redis servers that have the timers, as URLs with `redis://`, `rediss://` (TLS) or `unix://`. They are a
    /// single server, nodes of a cluster (`redis.cluster`) or Sentinels (`redis.sentinel`). By default, a store in the
    /// data folder has the timers.
    redis_servers: Vec<ServerUrl>, "redis.servers" = "";
    /// The name of the primary, as the Sentinels in `redis.servers` know it.
    redis_sentinel: Option<String>, "redis.sentinel" = "";
    /// Whether the servers are nodes of a cluster.
    redis_cluster: bool, "redis.cluster" = "false";
    /// The name of the deployment. Nodes with the same deployment share its timers.
    redis_deployment: String, "redis.deployment" = "tourbillon";
    /// The number of shards of a new deployment: a power of two up to 1024. With 0, a new deployment gets 64 shards,
    /// and an existing deployment keeps its number.
    redis_shards: u32, "redis.shards" = "0";
    /// The user name for the servers' access control list.
    redis_username: Option<String>, "redis.username" = "";
    /// The file of the user's password. It is read for each connection.
    redis_password_file: Option<PathBuf>, "redis.password_file" = "";
    /// The file of the Sentinels' password. It is read for each connection. The user name is in the Sentinels' URLs.
    redis_sentinel_password_file: Option<PathBuf>, "redis.sentinel_password_file" = "";
    /// The file of the certificate authorities, in PEM, that are trusted for the servers. They replace the system's
    /// authorities.
    redis_certificates: Option<PathBuf>, "redis.certificates" = "";
    /// The file of the client certificate that the servers ask for, in PEM.
    redis_client_certificate: Option<PathBuf>, "redis.client_certificate" = "";
    /// The file of the client certificate's private key, in PEM.
    redis_client_key: Option<PathBuf>, "redis.client_key" = "";
    /// The confirmations by replicas for which a change waits: `none`, `wait:REPLICAS:TIME` until this number of
    /// replicas has the change, or `waitaof:REPLICAS:TIME` until the change is in the append-only files of the primary
    /// and of this number of replicas.
    redis_sync: Sync, "redis.sync" = "none";
    /// The name of this node, for people. By default, it is the name of the host.
    redis_node: Option<String>, "redis.node" = "";
    /// The length of a node's lease on its shards, from 100 ms to an hour. If the node's machine or network fails, its
    /// timers wait for this time until other nodes take over its shards. The death of a process is noticed within some
    /// two seconds.
    redis_ttl: Duration, "redis.ttl" = "10s";
    /// How far the servers' data may go back in time while the service runs. A failover to a replica without the last
    /// writes sets the data back a little. If the data go back further than this, as after a restart from an older
    /// snapshot, the node refuses the data until the node is started again.
    redis_may_lose: Duration, "redis.may_lose" = "10s";
    /// The longest time to connect to a server.
    redis_connect_timeout: Duration, "redis.connect_timeout" = "2s";
    /// The longest time to wait for a server's answer. After this time, the outcome of a change is unknown.
    redis_response_timeout: Duration, "redis.response_timeout" = "5s";
    /// The longest time for which an operation waits for a connection, or for a server that cannot answer at present.
    redis_patience: Duration, "redis.patience" = "5s";

    /// The PostgreSQL server that has the timers, as a URL (`postgresql://user@host/database`) or as keywords
    /// (`host=/run user=app`), without a password. With `sslmode=verify-full`, TLS verifies the server's name. By
    /// default, a store in the data folder, or Redis, has the timers.
    postgres_server: Option<DatabaseAddress>, "postgres.server" = "";
    /// The file of the user's password. It is read at the start.
    postgres_password_file: Option<PathBuf>, "postgres.password_file" = "";
    /// The file of the certificate authorities, in PEM, that are trusted for the server. They replace the system's
    /// authorities. The file is read for each connection. With this setting, `sslmode` is `verify-full` by default.
    postgres_certificates: Option<PathBuf>, "postgres.certificates" = "";
    /// The file of the client certificate that the server asks for, in PEM. It is read for each connection.
    postgres_client_certificate: Option<PathBuf>, "postgres.client_certificate" = "";
    /// The file of the client certificate's private key, in PEM. It is read for each connection.
    postgres_client_key: Option<PathBuf>, "postgres.client_key" = "";
    /// The schema that has the timers. Nodes with the same schema of a database share its timers.
    postgres_schema: String, "postgres.schema" = "tourbillon";
    /// Whether the service makes the schema at its start, or migrates it to the version of this program.
    postgres_migrate: bool, "postgres.migrate" = "true";
    /// The greatest number of connections to the server.
    postgres_connections: u32, "postgres.connections" = "8";
    /// The name of this node, for people. By default, it is the name of the host.
    postgres_node: Option<String>, "postgres.node" = "";
    /// The time without a heartbeat after which other nodes take over a node's shards, from a second to an hour.
    postgres_ttl: Duration, "postgres.ttl" = "10s";
    /// Whether the node listens for notifications on a further connection. A notification announces a new or moved
    /// timer that is due within 250 ms. The node then need not wait for its next poll to find this timer. While a node
    /// listens, a caller's transaction with such a timer cannot be prepared (`PREPARE TRANSACTION`). A pooler in
    /// transaction mode passes no notifications on.
    postgres_listen: bool, "postgres.listen" = "false";
    /// The longest time to wait for the server's answer, which includes a wait for a lock of another transaction. After
    /// this time, the outcome of a change is unknown.
    postgres_response_timeout: Duration, "postgres.response_timeout" = "10s";
    /// The longest time for which an operation tries to connect to the server.
    postgres_patience: Duration, "postgres.patience" = "5s";

    /// The URL of an OpenTelemetry collector, to which spans are sent by OTLP over HTTP. A URL without a path gets the
    /// path `/v1/traces`. The program needs the feature `otel` for this setting.
    telemetry_endpoint: Option<Endpoint>, "telemetry.endpoint" = "";
    /// The name of the service in its spans.
    telemetry_service_name: String, "telemetry.service_name" = "tourbillond";
    /// The share of new traces that is recorded, from 0 to 1. For a trace that a caller began, the caller's flag
    /// decides.
    telemetry_share: Share, "telemetry.share" = "1";

    /// The least severe level that is logged: `error`, `warn`, `info`, or `debug`, which adds a line for each request.
    log_level: LevelFilter, "log.level" = "info";
    /// The format of log lines: `text`, or `json` with an object on each line.
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
