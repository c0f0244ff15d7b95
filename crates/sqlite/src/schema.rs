//! Creates the tables, and brings them up to date by numbered migrations.
//!
//! The names of all tables begin with `tourbillon_`, so that the tables can stand beside a program's own tables. The
//! table `tourbillon_migrations` has a row for each migration that has run. A program refuses a database with a
//! migration that it does not know.

use crate::error::{Result, failed};
use rusqlite::{Connection, OptionalExtension as _, params};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{StoreError, StoreErrorKind};

/// The migrations, in order. The number of a migration is its place in this list, counted from 1. A published migration
/// never changes.
const MIGRATIONS: &[(&str, &str)] = &[("the first tables", include_str!("schema_1.sql"))];

/// The version of the schema that this crate writes: the number of its last migration. A new format of the stored
/// records also needs a new version.
pub const SCHEMA: u32 = 1;

/// Returns the version of the schema in a database, which is the number of the last migration. Returns `None` if the
/// database has no tables of this crate.
///
/// # Errors
///
/// Fails if the database cannot be read.
///
/// # Examples
///
/// ```
/// use tourbillon_sqlite::{SCHEMA, migrate, rusqlite::Connection, schema};
///
/// let mut connection = Connection::open_in_memory()?;
/// assert_eq!(schema(&connection)?, None);
/// migrate(&mut connection)?;
/// assert_eq!(schema(&connection)?, Some(SCHEMA));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn schema(connection: &Connection) -> Result<Option<u32>> {
    let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'tourbillon_migrations'";
    let is_there = connection.query_row(sql, [], |_| Ok(())).optional().map_err(failed)?.is_some();
    if !is_there {
        return Ok(None);
    }
    let sql = "SELECT max(version) FROM tourbillon_migrations";
    connection.query_row(sql, [], |row| row.get(0)).map_err(failed)
}

/// Creates the tables of this crate in a database, or brings them up to date. All missing migrations run in one
/// transaction. Processes that migrate at the same time wait for each other.
///
/// [`SqliteStore`](crate::SqliteStore) calls this function when it opens a database. A process that only creates timers
/// may call it, too.
///
/// # Errors
///
/// Fails with [`StoreErrorKind::NewerSchema`] if a later version of this crate has migrated the database. Fails if the
/// database cannot be written, or if the connection is in a transaction.
pub fn migrate(connection: &mut Connection) -> Result<()> {
    if schema(connection)?.is_some_and(|version| version == SCHEMA) {
        return Ok(());
    }
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(failed)?;
    let version = schema(&transaction)?;
    refuse_newer(version)?;
    transaction
        .execute_batch(
            "CREATE TABLE IF NOT EXISTS tourbillon_migrations (
                version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied TEXT NOT NULL
            )",
        )
        .map_err(failed)?;
    for (number, (name, sql)) in (1_u32..).zip(MIGRATIONS).skip(version.unwrap_or(0) as usize) {
        transaction.execute_batch(sql).map_err(failed)?;
        let sql = "INSERT INTO tourbillon_migrations VALUES (?, ?, datetime('now'))";
        transaction.execute(sql, params![number, name]).map_err(failed)?;
    }
    transaction.commit().map_err(failed)
}

fn refuse_newer(version: Option<u32>) -> Result<()> {
    match version {
        Some(version) if version > SCHEMA => {
            let message = format!(
                "the tables have version {version}, and the latest version that this program knows is {SCHEMA}"
            );
            Err(StoreError::new(StoreErrorKind::NewerSchema, message))
        }
        _ => Ok(()),
    }
}

/// Fails unless the database has exactly the schema of this crate.
pub(crate) fn require(connection: &Connection) -> Result<()> {
    let mut query = match connection.prepare_cached("SELECT max(version) FROM tourbillon_migrations") {
        Ok(query) => query,
        Err(_) if schema(connection)?.is_none() => {
            let message = "the database has no tables of timers: open it by SqliteStore, or call migrate";
            return Err(StoreError::new(StoreErrorKind::OlderSchema, message));
        }
        Err(error) => return Err(failed(error)),
    };
    let version: Option<u32> = query.query_row([], |row| row.get(0)).map_err(failed)?;
    refuse_newer(version)?;
    if version != Some(SCHEMA) {
        let version = version.unwrap_or(0);
        let message =
            format!("the tables have version {version}, and this program needs {SCHEMA}: call migrate");
        return Err(StoreError::new(StoreErrorKind::OlderSchema, message));
    }
    Ok(())
}

/// Returns the moment at which the store forgets the id of a timer that ends at `now`.
pub(crate) fn forgets(now: UtcMillis) -> UtcMillis {
    now + core::time::Duration::from_secs(3_600)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon_durable::store::dry_run::RECORD_VERSION;

    #[test]
    fn the_version_stands_for_the_migrations_and_for_the_form_of_records() {
        assert_eq!(SCHEMA as usize, MIGRATIONS.len());
        // Records in a new format need a migration, which rewrites them. No release has written records before the
        // fourth version.
        assert_eq!((SCHEMA, RECORD_VERSION), (1, 4));
    }

    #[test]
    fn a_newer_schema_is_refused_and_stays_as_it_is() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        connection.execute("INSERT INTO tourbillon_migrations VALUES (2, 'later', '')", []).unwrap();
        for refused in [migrate(&mut connection), require(&connection)] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::NewerSchema);
            assert!(error.to_string().contains("version 2"), "{error}");
        }
        assert_eq!(schema(&connection).unwrap(), Some(2));
    }

    #[test]
    fn a_database_without_tables_says_so() {
        let connection = Connection::open_in_memory().unwrap();
        assert_eq!(require(&connection).unwrap_err().kind(), StoreErrorKind::OlderSchema);
    }
}
