//! Checks, repairs and opens the deployment of a service in Redis or PostgreSQL.

use super::open_error::OpenError;
use crate::settings::{PostgresSettings, RedisSettings};
use pollster::block_on;
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_postgres::PostgresStore;
use tourbillon_redis::{Mended, RedisBuilder, RedisStore, Report};
use tracing::error;

/// The name of the document in Redis that exists while a restore runs.
pub(super) const RESTORING: &str = "restoring";

fn builder(redis: &RedisSettings) -> RedisBuilder {
    let builder = RedisStore::builder(redis.deployment.as_str()).node(redis.node.as_str()).ttl(redis.ttl);
    match redis.shards {
        Some(shards) => builder.shards(shards),
        None => builder,
    }
}

/// Checks the Redis servers and the timers on them. Fails if the servers cannot be used.
pub(crate) fn checked(redis: &RedisSettings) -> Result<Report, OpenError> {
    let report = block_on(builder(redis).check(&redis.connect));
    // The check fails only if the settings cannot work. The kind `Limit` marks an error of the configuration, after
    // which systemd does not start the program again.
    let report =
        report.map_err(|error| OpenError::Store(StoreError::caused_by(StoreErrorKind::Limit, error)))?;
    match report.is_refused() {
        // Silent servers may answer later, so systemd may start the program again.
        true if report.is_unanswered() => Err(OpenError::NoServers(report)),
        true => Err(OpenError::Servers(report)),
        false => Ok(report),
    }
}

/// Makes the lost shards of the deployment on Redis accept timers again. A shard is lost if its server has lost the
/// data of the shard. With `is_anew`, recreates an empty deployment instead, after the servers have lost all of its
/// data.
pub(crate) fn mend(redis: &RedisSettings, is_anew: bool) -> Result<Mended, StoreError> {
    match is_anew {
        true => block_on(builder(redis).make_anew(&redis.connect)),
        false => block_on(builder(redis).mend(&redis.connect)),
    }
}

/// Opens the deployment on Redis. Creates it if it does not exist.
pub(crate) fn open_store(redis: &RedisSettings) -> Result<RedisStore, StoreError> {
    let tell = |time| {
        error!(target: "set-back", "the data in Redis have gone back by {time:?}: the changes of this time are lost");
    };
    block_on(builder(redis).may_lose(redis.may_lose).on_set_back(tell).open(&redis.connect))
}

/// Opens the schema in PostgreSQL. With `migrates`, creates the schema or migrates it to this version.
pub(crate) fn open_postgres(
    postgres: &PostgresSettings,
    migrates: bool,
) -> Result<PostgresStore, StoreError> {
    let builder = PostgresStore::builder()
        .schema(postgres.schema.as_str())
        .node(postgres.node.as_str())
        .ttl(postgres.ttl)
        .listen(postgres.listens)
        .migrate(migrates);
    block_on(builder.open(&postgres.connect))
}
