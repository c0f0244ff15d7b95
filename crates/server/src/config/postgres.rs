//! Checks the settings for PostgreSQL, and makes the connection settings from them.

use super::redis::host_name;
use super::{Config, ConfigError};
use crate::settings::PostgresSettings;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::io;
use tourbillon_postgres::{Connect, ConnectError};

/// The least and the greatest time without a sign of life after which a node counts as dead.
const TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3_600);

impl Config {
    /// Fails if the settings for PostgreSQL contradict each other. The error is the reason.
    pub(super) fn check_postgres(&self) -> Result<(), String> {
        if self.postgres_server.is_none() {
            return match self.postgres_password_file {
                Some(_) => {
                    Err("postgres.password_file is for timers in PostgreSQL, and postgres.server names \
                                no server"
                        .to_owned())
                }
                None => Ok(()),
            };
        }
        if self.is_on_redis() {
            return Err("redis.servers and postgres.server are not set together".to_owned());
        }
        if self.sqlite_path.is_some() {
            return Err("sqlite.path and postgres.server are not set together".to_owned());
        }
        if self.postgres_connections == 0 {
            return Err("postgres.connections: at least 1".to_owned());
        }
        if !TTL.contains(&self.postgres_ttl) {
            return Err("postgres.ttl: from a second to an hour".to_owned());
        }
        Ok(())
    }

    /// Returns the settings of the schema in PostgreSQL that stores the timers. Returns `None` if the timers are not in
    /// PostgreSQL. Reads the file of the password.
    pub(crate) fn postgres(&self) -> Result<Option<PostgresSettings>, ConfigError> {
        let Some(server) = &self.postgres_server else { return Ok(None) };
        let failed = |error: ConnectError| ConfigError::Together(format!("postgres.server: {error}"));
        let connections = usize::try_from(self.postgres_connections).unwrap_or(usize::MAX);
        let mut connect = Connect::to(&server.0).map_err(failed)?.connections(connections);
        if let Some(path) = &self.postgres_password_file {
            connect = connect.password_from(path).map_err(|error| {
                ConfigError::Read(path.clone(), io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
            })?;
        }
        let mut settings = PostgresSettings::new(connect, self.postgres_schema.as_str());
        settings.migrates = self.postgres_migrate;
        settings.node = self.postgres_node.clone().unwrap_or_else(host_name);
        settings.ttl = self.postgres_ttl;
        Ok(Some(settings))
    }
}
