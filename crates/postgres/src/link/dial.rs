//! Makes a connection, with TLS as the settings ask.

use super::connect::Connect;
use super::error::{Failure, io};
use super::tls::{Connector, Fault, Mode, Stream, refusal};
use core::error::Error as _;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Connection, Error, Socket};
use tourbillon_durable::store::{StoreError, StoreErrorKind};

/// A client, and its connection: a future that must be polled while the client is used.
pub(crate) type Dialled = (Client, Connection<Socket, Stream>);

impl Connect {
    /// Makes a connection. Fails if this takes longer than the response timeout.
    pub(crate) async fn dial(&self) -> Result<Dialled, Failure> {
        let late = || Failure::Lost(io("no connection to PostgreSQL: the server has not answered in time"));
        timeout(self.response_timeout, self.attempt()).await.unwrap_or_else(|_| Err(late()))
    }

    async fn attempt(&self) -> Result<Dialled, Failure> {
        let mode = self
            .mode()
            .map_err(|error| Failure::Failed(StoreError::new(StoreErrorKind::Limit, error.to_string())))?;
        let mut config = self.config.clone();
        config.ssl_mode(match mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        });
        let connector = Connector::new(mode, self.tls.clone(), self.is_direct());
        let error = match config.connect(connector.clone()).await {
            Ok(dialled) => return Ok(dialled),
            Err(error) => error,
        };
        let fault = connector.fault();
        // As in libpq, the mode `prefer` falls back to a connection without TLS if the handshake fails, or if the
        // server refuses a connection with TLS for this user.
        let is_refused = error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
        if mode != Mode::Prefer || !connector.has_begun() || (fault.is_none() && !is_refused) {
            return Err(failure(&error, fault.map(|fault| fault.to_string())));
        }
        config.ssl_mode(SslMode::Disable);
        let with_tls = fault.map_or_else(|| described(&error), |fault| fault.to_string());
        config.connect(connector).await.map_err(|error| failure(&error, Some(with_tls)))
    }
}

/// Returns the failure of an attempt to connect. `with_tls` is the reason why a handshake of the same attempt failed,
/// or why the server refused a connection with TLS.
fn failure(error: &Error, with_tls: Option<String>) -> Failure {
    let reason = described(error);
    let more = with_tls.filter(|more| *more != reason);
    let more = more.map_or_else(String::new, |more| format!("; with TLS: {more}"));
    let message = format!("no connection to PostgreSQL: {reason}{more}");
    let class = error.code().map_or("", |code| code.code().get(..2).unwrap_or(""));
    let is_final = fault_of(error).is_some_and(|fault| fault.is_final);
    match class {
        // The user, the password or the database is wrong. Another attempt does not help.
        "28" | "3D" => Failure::Failed(StoreError::new(StoreErrorKind::Closed, message)),
        _ if is_final => Failure::Failed(io(message)),
        _ => Failure::Lost(io(message)),
    }
}

fn fault_of(error: &Error) -> Option<&Fault> {
    error.source()?.downcast_ref()
}

fn described(error: &Error) -> String {
    if let Some(fault) = fault_of(error) {
        return fault.to_string();
    }
    let Some(source) = error.source() else { return error.to_string() };
    let refused = source.downcast_ref().and_then(refusal);
    refused.unwrap_or_else(|| format!("{error}: {source}"))
}
