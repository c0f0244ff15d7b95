//! Checks the settings for PostgreSQL, and makes the connection settings from them.

use super::redis::{above_zero, host_name};
use super::value::DatabaseAddress;
use super::{Config, ConfigError};
use crate::settings::PostgresSettings;
use core::ops::RangeInclusive;
use core::time::Duration;
use tourbillon_postgres::{Connect, ConnectError, Tls};

/// The permitted range of the time without a heartbeat after which a node counts as dead.
const TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3_600);

impl Config {
    /// Fails if the settings for PostgreSQL contradict each other, or have no effect. The error describes the fault.
    pub(super) fn check_postgres(&self) -> Result<(), String> {
        if self.postgres_server.is_none() {
            return self.refuse_unused("postgres.server", "PostgreSQL");
        }
        if self.postgres_client_certificate.is_some() != self.postgres_client_key.is_some() {
            return Err("postgres.client_certificate and postgres.client_key are set together or not at all"
                .to_owned());
        }
        if self.postgres_connections == 0 {
            return Err("postgres.connections: at least 1".to_owned());
        }
        if !TTL.contains(&self.postgres_ttl) {
            return Err("postgres.ttl: from a second to an hour".to_owned());
        }
        above_zero([
            ("postgres.response_timeout", self.postgres_response_timeout),
            ("postgres.patience", self.postgres_patience),
        ])
    }

    /// Returns the settings of the schema on `server` that stores the timers. Reads the files of the password and of
    /// the certificates.
    pub(super) fn postgres(&self, server: &DatabaseAddress) -> Result<PostgresSettings, ConfigError> {
        let failed = |error: ConnectError| match error {
            ConnectError::Certificate(_) => {
                ConfigError::Named(format!("the certificates for postgres.server: {error}"))
            }
            _ => ConfigError::Together(format!("postgres.server: {error}")),
        };
        let connections = usize::try_from(self.postgres_connections).unwrap_or(usize::MAX);
        let mut connect = Connect::to(&server.0)
            .map_err(failed)?
            .connections(connections)
            .response_timeout(self.postgres_response_timeout)
            .patience(self.postgres_patience);
        if let Some(path) = &self.postgres_password_file {
            connect = connect.password_from(path).map_err(|error| ConfigError::named(path, error))?;
        }
        let mut tls = Tls::new();
        if let Some(path) = &self.postgres_certificates {
            tls = tls.authority_from(path);
        }
        if let (Some(certificate), Some(key)) = (&self.postgres_client_certificate, &self.postgres_client_key)
        {
            tls = tls.certificate_from(certificate, key);
        }
        let connect = connect.tls(tls);
        // The files of TLS are read again for each connection. They are read here to report a missing file at the
        // start.
        connect.check().map_err(failed)?;
        let mut settings = PostgresSettings::new(connect, self.postgres_schema.as_str());
        settings.migrates = self.postgres_migrate;
        settings.node = self.postgres_node.clone().unwrap_or_else(host_name);
        settings.ttl = self.postgres_ttl;
        settings.listens = self.postgres_listen;
        Ok(settings)
    }
}
