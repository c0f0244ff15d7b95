//! Creates the schema, and brings it to the version of this crate when a store is opened.
//!
//! | the schema | `migrate` | the opening of the store |
//! |---|---|---|
//! | does not exist | yes | creates it |
//! | does not exist | no | fails (`Closed`) |
//! | is older | yes | runs the missing migrations |
//! | is older | no | fails (`OlderSchema`) |
//! | is of this version | | goes on |
//! | is newer | | fails (`NewerSchema`), and changes nothing |
//! | has tables whose rows may be hidden | | fails (`ReadOnly`), and changes nothing |

use crate::layout::SchemaName;
use crate::link::{Failure, Pool, Session};
use std::sync::Arc;
use tokio_postgres::types::Type;
use tourbillon_durable::store::{StoreError, StoreErrorKind};

/// The migrations in their order, numbered from 1. A migration that was published never changes.
pub(crate) const MIGRATIONS: [&[&str]; 1] =
    [&[include_str!("0001.sql"), include_str!("0001_calls.sql"), include_str!("0001_store.sql")]];

/// The version of the schema that this crate uses: the number of the last migration.
pub const VERSION: i32 = 1;

const _: () =
    assert!(MIGRATIONS.len() == 1 && VERSION == 1, "the version is the number of the last migration");

/// Returns the statements of all migrations.
#[cfg(feature = "diesel")]
pub(crate) fn sources() -> impl Iterator<Item = &'static str> {
    MIGRATIONS.into_iter().flatten().copied()
}

/// Returns whether the schema has its table of migrations. Reads the catalog `pg_class`, because the server would look
/// up a table's name in the session's cache, which may lack a table that another session has just created.
async fn exists(session: &mut Session, name: &str) -> Result<bool, Failure> {
    let sql = "SELECT count(*) > 0 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = $1 AND c.relname = 'migration'";
    let rows = session.read(sql, &[(&name, Type::TEXT)]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// Returns the version of the schema in the database. `None` if the schema does not exist.
pub(crate) async fn version(session: &mut Session, name: &str) -> Result<Option<i32>, Failure> {
    if !exists(session, name).await? {
        return Ok(None);
    }
    let rows = session.read("SELECT max(m.number) FROM tourbillon.migration m", &[]).await?;
    Ok(Some(rows.first().and_then(|row| row.get(0)).unwrap_or(0)))
}

/// Returns the names of the tables whose rows row-level security may hide from this user, or from the owner of the
/// tables. The SQL functions for callers run with the owner's rights. `None` if there is no such table. A hidden timer
/// would never be delivered, and no error would show this.
async fn hidden(session: &mut Session, name: &str) -> Result<Option<String>, Failure> {
    let sql = "SELECT string_agg(c.relname, ', ' ORDER BY c.relname) FROM pg_class c
               JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles o ON o.oid = c.relowner
               WHERE n.nspname = $1 AND c.relrowsecurity AND (row_security_active(c.oid)
                   OR c.relforcerowsecurity AND NOT o.rolsuper AND NOT o.rolbypassrls)";
    let rows = session.read(sql, &[(&name, Type::TEXT)]).await?;
    Ok(rows.first().and_then(|row| row.get(0)))
}

/// Checks the schema. If `migrates` is set, also creates the schema or runs the missing migrations. If two processes do
/// this at the same time, the second process waits for the first, and then finds nothing to do.
///
/// # Errors
///
/// Fails as the table of this module says. Also fails if the encoding of the database is not UTF-8, or if the schema
/// must be created or migrated and the user lacks the right or the server takes no writes.
pub(crate) async fn prepare(pool: &Arc<Pool>, migrates: bool) -> Result<(), StoreError> {
    prepare_by(pool, migrates, &MIGRATIONS).await
}

/// Works as [`prepare`], but with the given migrations instead of [`MIGRATIONS`]. The schema gets the number of the
/// last given migration as its version. Tests pass other migrations.
pub(crate) async fn prepare_by(
    pool: &Arc<Pool>,
    migrates: bool,
    migrations: &[&[&str]],
) -> Result<(), StoreError> {
    let mut session = pool.session().await.map_err(Failure::into_error)?;
    let result = prepare_in(&mut session, pool.schema(), migrates, migrations).await;
    session.roll_back().await;
    result.map_err(Failure::into_error)
}

fn failed(kind: StoreErrorKind, message: String) -> Failure {
    Failure::Failed(StoreError::new(kind, message))
}

fn compared(found: i32, newest: i32, migrates: bool) -> Result<(), Failure> {
    if found > newest {
        let message = format!("the schema has version {found}, and this program knows version {newest}");
        return Err(failed(StoreErrorKind::NewerSchema, message));
    }
    if found < newest && !migrates {
        let message = format!("the schema has version {found}, and this program needs version {newest}");
        return Err(failed(StoreErrorKind::OlderSchema, message));
    }
    Ok(())
}

async fn prepare_in(
    session: &mut Session,
    schema: &SchemaName,
    migrates: bool,
    migrations: &[&[&str]],
) -> Result<(), Failure> {
    let name = schema.as_str();
    let newest = i32::try_from(migrations.len()).unwrap_or(i32::MAX);
    let sql = "SELECT current_setting('server_encoding'), current_setting('default_transaction_isolation')";
    let settings = session.read(sql, &[]).await?;
    if let Some(row) = settings.first() {
        session.set_default_level(row.get(1));
    }
    if settings.first().map(|row| row.get::<_, &str>(0)) != Some("UTF8") {
        let message = "the encoding of the database is not UTF8".to_owned();
        return Err(failed(StoreErrorKind::Limit, message));
    }
    // The table of migrations may be hidden, too. So this comes before the version.
    if let Some(tables) = hidden(session, name).await? {
        let message = format!(
            "row-level security may hide rows of the schema {name} from this user or from the owner: {tables}"
        );
        return Err(failed(StoreErrorKind::ReadOnly, message));
    }
    let found = loop {
        let found = version(session, name).await?;
        match found {
            Some(found) if found == newest => return Ok(()),
            Some(found) => compared(found, newest, migrates)?,
            None if !migrates => {
                return Err(failed(StoreErrorKind::Closed, format!("the schema {name} does not exist")));
            }
            None => {}
        }
        session.begin().await?;
        // The lock ends with the transaction. The number of the lock is a hash of the schema's name, so programs with
        // other schemas do not wait.
        let sql = "SELECT 1 FROM pg_advisory_xact_lock(hashtextextended('tourbillon: ' || $1, 0))";
        session.query(sql, &[(&name, Type::TEXT)]).await?;
        let is_same = match found {
            None => !exists(session, name).await?,
            Some(_) => version(session, name).await? == found,
        };
        if is_same {
            break found;
        }
        // Another process has migrated first. A new transaction sees all changes of that process.
        session.roll_back().await;
    };
    if found.is_none() {
        // The statement `CREATE SCHEMA IF NOT EXISTS` needs a right on the database even if the schema exists. An
        // administrator may have made the schema for a user without this right.
        let sql = "SELECT 1 FROM pg_namespace n WHERE n.nspname = $1";
        if session.read(sql, &[(&name, Type::TEXT)]).await?.is_empty() {
            session.run(&format!("CREATE SCHEMA IF NOT EXISTS {}", schema.quoted())).await?;
        }
        let sql = "CREATE TABLE tourbillon.migration (
                       number int PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp())";
        session.run(sql).await?;
    }
    let found = found.unwrap_or(0);
    for (number, parts) in (1_i32..).zip(migrations) {
        if number <= found {
            continue;
        }
        for part in *parts {
            session.run(part).await?;
        }
        let sql = "INSERT INTO tourbillon.migration (number) VALUES ($1)";
        session.query(sql, &[(&number, Type::INT4)]).await?;
    }
    session.commit().await
}

/// Checks that the deployment uses the wanted kind of clock: the server's clock, or a test clock. If the deployment has
/// no timers yet, sets the wanted kind.
pub(crate) async fn agree_on_clock(pool: &Arc<Pool>, is_test: bool) -> Result<(), StoreError> {
    let mut session = pool.session().await.map_err(Failure::into_error)?;
    let agreed = async {
        let sql = "SELECT s.test_clock FROM tourbillon.setting s";
        let is_agreed =
            |rows: &[tokio_postgres::Row]| rows.first().is_some_and(|row| row.get::<_, bool>(0) == is_test);
        if is_agreed(&session.read(sql, &[]).await?) {
            return Ok(true);
        }
        // As for the owner of the deployment, the commit waits for the disk, and for no standby.
        let sql = "UPDATE tourbillon.setting SET test_clock = $1
                   FROM (SELECT set_config('synchronous_commit', 'local', true)) AS fast
                   WHERE NOT EXISTS (SELECT 1 FROM tourbillon.timer) RETURNING test_clock";
        let rows = session.query(sql, &[(&is_test, Type::BOOL)]).await?;
        Ok::<bool, Failure>(is_agreed(&rows))
    };
    if agreed.await.map_err(Failure::into_error)? {
        return Ok(());
    }
    let message = "the deployment is on another kind of clock";
    Err(StoreError::new(StoreErrorKind::Limit, message))
}
