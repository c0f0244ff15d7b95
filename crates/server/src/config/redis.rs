//! Checks the settings for Redis, and makes the connection settings from them.

use super::{Config, ConfigError};
use crate::settings::RedisSettings;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::path::Path;
use tourbillon_redis::{Connect, ConnectError, Tls};

/// The greatest number of shards in a deployment on Redis. A shard is a part of the timers.
const MOST_SHARDS: u32 = 1_024;

/// The permitted range of the time for which a node leases its shards.
const TTL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);

/// Fails if the file of a password at `path` cannot be read or is empty.
fn secret(path: &Path) -> Result<(), ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError::named(path, error))?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        return Err(ConfigError::named(path, "the file of a password is empty"));
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|error| ConfigError::named(path, error))
}

/// Fails if one of the times is zero. The error names its setting.
pub(super) fn above_zero<const N: usize>(times: [(&str, Duration); N]) -> Result<(), String> {
    match times.iter().find(|(_, time)| time.is_zero()) {
        Some((key, _)) => Err(format!("{key}: more than no time")),
        None => Ok(()),
    }
}

/// Returns the name of this host, or `node` if the system does not provide the name.
pub(super) fn host_name() -> String {
    #[cfg(unix)]
    let name = Some(rustix::system::uname().nodename().to_string_lossy().into_owned());
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").ok();
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "node".to_owned())
}

impl Config {
    /// Fails if the settings for Redis contradict each other, or have no effect. The error describes the fault.
    pub(super) fn check_redis(&self) -> Result<(), String> {
        if self.redis_servers.is_empty() {
            return self.refuse_unused("redis.servers", "Redis");
        }
        if self.redis_sentinel.is_some() && self.redis_cluster {
            return Err("redis.sentinel and redis.cluster are not set together".to_owned());
        }
        if self.redis_servers.len() > 1 && self.redis_sentinel.is_none() && !self.redis_cluster {
            return Err(
                "redis.servers: several are Sentinels, with redis.sentinel, or nodes of a cluster, with \
                        redis.cluster"
                    .to_owned(),
            );
        }
        if self.redis_sentinel_password_file.is_some() && self.redis_sentinel.is_none() {
            return Err("redis.sentinel_password_file is for redis.sentinel".to_owned());
        }
        if self.redis_username.is_some() && self.redis_password_file.is_none() {
            return Err("redis.username needs redis.password_file".to_owned());
        }
        if self.redis_client_certificate.is_some() != self.redis_client_key.is_some() {
            return Err(
                "redis.client_certificate and redis.client_key are set together or not at all".to_owned()
            );
        }
        let is_tls = self.redis_servers.iter().any(|server| server.0.scheme() == "rediss");
        let of_tls = [
            ("redis.certificates", self.redis_certificates.is_some()),
            ("redis.client_certificate", self.redis_client_certificate.is_some()),
        ];
        if let Some((key, _)) = of_tls.iter().find(|(_, is_set)| *is_set && !is_tls) {
            return Err(format!("{key} is for TLS, and no URL of redis.servers begins with rediss://"));
        }
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let name = &self.redis_deployment;
        if name.len() > 64 || !name.bytes().all(is_fit) {
            return Err("redis.deployment: 1 to 64 letters, digits, `-`, `_` and `.`".to_owned());
        }
        if self.redis_shards != 0 && (!self.redis_shards.is_power_of_two() || self.redis_shards > MOST_SHARDS)
        {
            return Err(format!("redis.shards: a power of two up to {MOST_SHARDS}, or zero"));
        }
        if !TTL.contains(&self.redis_ttl) {
            return Err("redis.ttl: from 100 ms to an hour".to_owned());
        }
        above_zero([
            ("redis.connect_timeout", self.redis_connect_timeout),
            ("redis.response_timeout", self.redis_response_timeout),
            ("redis.patience", self.redis_patience),
        ])
    }

    /// Returns the settings of the Redis deployment that stores the timers. Reads the files of passwords and
    /// certificates.
    pub(super) fn redis(&self) -> Result<RedisSettings, ConfigError> {
        let failed = |error: ConnectError| ConfigError::Together(format!("redis.servers: {error}"));
        let mut urls: Vec<_> = self.redis_servers.iter().map(|server| server.0.clone()).collect();
        if let Some(path) = &self.redis_sentinel_password_file {
            // The file is read again for each connection. It is read here to report a missing file at the start.
            secret(path)?;
            // No URL has a password here, so the call changes nothing. It fails for a URL that cannot have a password.
            if urls.iter_mut().any(|url| url.set_password(None).is_err()) {
                let message = "redis.servers: a local socket takes no password";
                return Err(ConfigError::Together(message.to_owned()));
            }
        }
        let connect = match (&self.redis_sentinel, self.redis_cluster) {
            (Some(name), _) => Connect::sentinel(&urls, name),
            (None, true) => Connect::cluster(&urls),
            (None, false) => Connect::single(urls.first().map_or("", |url| url.as_str())),
        };
        let mut connect = connect
            .map_err(failed)?
            .connection_timeout(self.redis_connect_timeout)
            .response_timeout(self.redis_response_timeout)
            .patience(self.redis_patience)
            .sync(self.redis_sync.0);
        if let Some(path) = &self.redis_password_file {
            secret(path)?;
            // Redis gives a client without a user name the user `default`.
            connect = connect.user_from(self.redis_username.as_deref().unwrap_or("default"), path);
        }
        if let Some(path) = &self.redis_sentinel_password_file {
            connect = connect.sentinel_password_from(path);
        }
        let mut tls = Tls::new();
        if let Some(path) = &self.redis_certificates {
            tls = tls.authority(read(path)?);
        }
        if let (Some(certificate), Some(key)) = (&self.redis_client_certificate, &self.redis_client_key) {
            tls = tls.certificate(read(certificate)?, read(key)?);
        }
        // The Redis client refuses TLS settings for URLs without `rediss://`, even if the settings are empty.
        if self.redis_certificates.is_some() || self.redis_client_certificate.is_some() {
            connect = connect.tls(tls);
        }
        let mut settings = RedisSettings::new(connect, self.redis_deployment.as_str());
        settings.shards = u16::try_from(self.redis_shards).ok().filter(|shards| *shards > 0);
        settings.ttl = self.redis_ttl;
        settings.may_lose = self.redis_may_lose;
        settings.node = self.redis_node.clone().unwrap_or_else(host_name);
        Ok(settings)
    }
}
