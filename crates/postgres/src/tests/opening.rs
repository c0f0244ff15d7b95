//! Tests openings: versions of the schema, rights, and servers that take no writes.

use super::server::connect;
use crate::{Connect, PostgresStore};
use tourbillon_durable::store::{StoreError, StoreErrorKind, TimerStore};
use tourbillon_fault::Postgres;

fn open(connect: &Connect, migrates: bool) -> Result<PostgresStore, StoreError> {
    pollster::block_on(PostgresStore::builder().poll(None).migrate(migrates).open(connect))
}

#[track_caller]
fn refused(result: Result<PostgresStore, StoreError>, kind: StoreErrorKind) {
    let error = result.expect_err("the opening fails");
    assert_eq!(error.kind(), kind, "{error}");
}

#[test]
fn programs_that_start_at_once_create_one_schema() {
    let Some(server) = Postgres::start(&[]) else { return };
    let connect = connect(&server);
    std::thread::scope(|scope| {
        let opening = || open(&connect, true).map(drop);
        let openings: Vec<_> = (0..8).map(|_| scope.spawn(opening)).collect();
        for opening in openings {
            opening.join().unwrap().unwrap();
        }
    });
    assert_eq!(server.sql("SELECT count(*), max(number) FROM tourbillon.migration"), "1|1");
}

#[test]
fn a_schema_of_another_version_is_refused_and_stays() {
    let Some(server) = Postgres::start(&[]) else { return };
    let connect = connect(&server);
    refused(open(&connect, false), StoreErrorKind::Closed);
    drop(open(&connect, true).unwrap());
    drop(open(&connect, false).unwrap());
    let _newer = server.sql("INSERT INTO tourbillon.migration (number) VALUES (2)");
    refused(open(&connect, true), StoreErrorKind::NewerSchema);
    let _older = server.sql("UPDATE tourbillon.migration SET number = number - 2");
    refused(open(&connect, false), StoreErrorKind::OlderSchema);
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.migration"), "2");
}

#[test]
fn a_role_without_rights_and_a_server_without_writes_are_refused() {
    let Some(server) = Postgres::start(&[]) else { return };
    let _made = server.sql("CREATE ROLE nobody LOGIN");
    let nobody = Connect::to(&server.url_of("nobody")).unwrap();
    refused(open(&nobody, true), StoreErrorKind::ReadOnly);
    refused(open(&Connect::to(&server.url_of("missing")).unwrap(), true), StoreErrorKind::Closed);
    let store = open(&connect(&server), true).unwrap();
    let _granted = server.sql(
        "CREATE ROLE worker LOGIN; GRANT USAGE ON SCHEMA tourbillon TO worker;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tourbillon TO worker;
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tourbillon TO worker",
    );
    let worker = open(&Connect::to(&server.url_of("worker")).unwrap(), false).unwrap();
    let timer = |store: &PostgresStore| {
        let id = tourbillon_durable::timer::TimerId::fresh();
        let timer = tourbillon_durable::timer::Timer::new(id, "mail", store.now());
        let place = tourbillon_durable::store::Op::Place(Box::new(timer), Default::default());
        pollster::block_on(store.apply(vec![place], Default::default()))
    };
    timer(&worker).unwrap();
    drop(worker);
    drop(store);
    let _set = server.sql("ALTER DATABASE postgres SET default_transaction_read_only = on");
    let store = open(&connect(&server), true).unwrap();
    assert_eq!(timer(&store).unwrap_err().kind(), StoreErrorKind::ReadOnly);
}

#[test]
fn another_schema_is_a_deployment_of_its_own() {
    let Some(server) = Postgres::start(&[]) else { return };
    let connect = connect(&server);
    let open =
        |name: &str| pollster::block_on(PostgresStore::builder().schema(name).poll(None).open(&connect));
    let (_one, other) = (open("one").unwrap(), open("other_2").unwrap());
    let _id = server.sql("SELECT one.schedule('mail', key => 'k')");
    assert_eq!(pollster::block_on(other.counts()).unwrap().by_namespace.len(), 0);
    for name in ["", "One", "1", "pg_x", "a b", "a;b", "information_schema"] {
        assert_eq!(open(name).unwrap_err().kind(), StoreErrorKind::Limit, "{name}");
    }
}

/// A schema may have a name that PostgreSQL reserves as a word of SQL.
#[test]
fn a_word_of_sql_names_a_schema() {
    let Some(server) = Postgres::start(&[]) else { return };
    for name in ["create", "select", "user", "order", "table", "end"] {
        let builder = PostgresStore::builder().schema(name).poll(None);
        let store = pollster::block_on(builder.open(&connect(&server))).unwrap();
        let _id = server.sql(&format!("SELECT \"{name}\".schedule('mail', key => 'k')"));
        let counts = pollster::block_on(store.counts()).unwrap();
        assert_eq!(counts.by_namespace.len(), 1, "{name}");
        let cancel = store.transactional().cancel("k").unwrap();
        assert!(cancel.text().starts_with(&format!("SELECT \"{name}\".cancel(")), "{cancel:?}");
    }
}

/// The user has no right on the database. An administrator has made the schema for this user.
#[test]
fn a_schema_that_an_administrator_has_made_is_filled() {
    let Some(server) = Postgres::start(&[]) else { return };
    let _made = server.sql("CREATE ROLE dba LOGIN; CREATE SCHEMA mine AUTHORIZATION dba");
    let dba = Connect::to(&server.url_of("dba")).unwrap();
    let builder = || PostgresStore::builder().poll(None);
    drop(pollster::block_on(builder().schema("mine").open(&dba)).unwrap());
    assert_eq!(server.sql("SELECT max(number) FROM mine.migration"), "1");
    refused(pollster::block_on(builder().schema("other").open(&dba)), StoreErrorKind::ReadOnly);
}
