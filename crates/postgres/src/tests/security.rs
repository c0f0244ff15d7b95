//! Tests row-level security: of a caller's own table, and of the tables of a deployment. Also tests which functions and
//! tables a caller without rights of its own can use.

use crate::{Connect, PostgresStore};
use std::time::Duration;
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Leased, Limit, Op, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::{Postgres, eventually};

/// Opens the deployment as a role.
fn open(server: &Postgres, role: &str) -> Result<PostgresStore, StoreError> {
    let connect = Connect::to(&server.url_of(role)).unwrap();
    pollster::block_on(PostgresStore::builder().poll(None).migrate(role == "owner").open(&connect))
}

/// Makes the roles: `owner`, which opens the deployment and is not a superuser, `node` with the rights of a node, and
/// `app`, which may use the schema. Returns the store of the owner.
fn roles(server: &Postgres) -> PostgresStore {
    let _roles = server.sql(
        "CREATE ROLE owner LOGIN; CREATE ROLE node LOGIN; CREATE ROLE app LOGIN;
         GRANT CREATE ON DATABASE postgres TO owner; GRANT CREATE ON SCHEMA public TO app",
    );
    let store = open(server, "owner").unwrap();
    let rights = "GRANT USAGE ON SCHEMA tourbillon TO node, app;
                  GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tourbillon TO node;
                  GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tourbillon TO node";
    let _granted = server.try_sql("owner", rights).unwrap();
    store
}

fn claim(store: &PostgresStore, number: u64) -> Vec<Leased> {
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    pollster::block_on(store.claim(by, number, Limit { timers: 100, bytes: u64::MAX }, None)).unwrap().leased
}

/// A transaction of a tenant sees the tenant's orders alone. The functions run with the rights of the owner of the
/// timers, so the policies of the caller's table do not concern them.
#[test]
fn a_caller_under_row_level_security_keeps_timers_with_its_rows() {
    let Some(server) = Postgres::start(&[]) else { return };
    drop(roles(&server));
    let node = open(&server, "node").unwrap();
    let table = "CREATE TABLE orders (
                     number int PRIMARY KEY, tenant text NOT NULL, state text NOT NULL DEFAULT 'open');
                 ALTER TABLE orders ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
                 CREATE POLICY own ON orders USING (tenant = current_setting('shop.tenant'))";
    let _made = server.try_sql("app", table).unwrap();
    let run_as = |tenant: &str, statements: &str| {
        server.try_sql("app", &format!("SET shop.tenant = '{tenant}'; {statements}"))
    };
    let order = |number: u32, tenant: &str| {
        format!(
            "SELECT tourbillon.schedule('timeout', key => 'order {number}', delay => '1 hour');
             INSERT INTO orders VALUES ({number}, '{tenant}')"
        )
    };
    for number in [1, 2] {
        let _id = run_as("a", &order(number, "a")).unwrap();
    }
    let error = run_as("a", &order(3, "b")).unwrap_err();
    assert!(error.contains("42501"), "{error}");
    let stored = || server.sql("SELECT string_agg(key, ', ' ORDER BY key) FROM tourbillon.timer");
    assert_eq!(stored(), "order 1, order 2", "the row of another tenant took its timer back");
    assert_eq!(run_as("b", "SELECT count(*) FROM orders").unwrap(), "0", "the policy is in force");
    let moved = "UPDATE orders SET state = 'late' WHERE number = 1;
                 SELECT tourbillon.move_to('order 1', delay => '0'), phase FROM tourbillon.look('order 1')";
    assert_eq!(run_as("a", moved).unwrap(), "moved|pending");
    let cancelled = "UPDATE orders SET state = 'paid' WHERE number = 2; SELECT tourbillon.cancel('order 2')";
    assert_eq!(run_as("a", cancelled).unwrap(), "cancelled");
    let [leased] = &claim(&node, 1)[..] else { panic!("one timer is due") };
    let (id, token) = (leased.timer.id, leased.token);
    let closed = format!(
        "UPDATE orders SET state = 'closed' WHERE number = 1;
         SELECT tourbillon.done('{id}', '{:016x}{:016x}')",
        token.incarnation, token.claim
    );
    let _done = run_as("a", &closed).unwrap();
    let states = "SELECT string_agg(number || ' ' || state, ', ' ORDER BY number) FROM orders";
    assert_eq!((run_as("a", states).unwrap(), stored()), ("1 closed, 2 paid".into(), String::new()));
    assert_eq!(pollster::block_on(node.check()).unwrap(), []);
}

/// A function is executable by all roles unless a migration takes this right away, and runs with the rights of its
/// caller unless its definition says otherwise. A function with the owner's rights would run the objects of the
/// caller's search path if it did not set its own.
#[test]
fn a_caller_can_execute_the_functions_for_callers_alone_and_touch_no_table() {
    let Some(server) = Postgres::start(&[]) else { return };
    drop(roles(&server));
    let functions = server.sql(
        "SELECT p.proname, p.prosecdef, p.proconfig FROM pg_proc p
         WHERE p.pronamespace = 'tourbillon'::regnamespace AND has_function_privilege('app', p.oid, 'EXECUTE')
         ORDER BY p.proname COLLATE \"C\"",
    );
    let expected = [
        "cancel",
        "done",
        "look",
        "move_to",
        "own_namespace",
        "place",
        "schedule",
        "schedule_callback",
        "schedule_queue",
    ];
    let expected = expected.map(|name| format!("{name}|t|{{\"search_path=pg_catalog, pg_temp\"}}"));
    assert_eq!(functions.lines().collect::<Vec<_>>(), expected);
    let tables = server.sql(
        "SELECT c.relname FROM pg_class c
         WHERE c.relnamespace = 'tourbillon'::regnamespace AND c.relkind IN ('r', 'v', 'p', 'm', 'f')
             AND has_table_privilege('app', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')",
    );
    assert_eq!(tables, "", "tables that a caller can touch");
}

/// The timers that row-level security hides would never be delivered, and no claim would fail.
#[test]
fn a_deployment_whose_rows_may_be_hidden_is_refused() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = roles(&server);
    let tables = server.sql(
        "SELECT relname FROM pg_class WHERE relnamespace = 'tourbillon'::regnamespace AND relkind = 'r'
         ORDER BY 1",
    );
    let tables: Vec<&str> = tables.lines().collect();
    assert!(tables.contains(&"timer") && tables.contains(&"migration"), "{tables:?}");
    let alter = |tables: &[&str], change: &str| {
        for table in tables {
            let alter = format!("ALTER TABLE tourbillon.{table} {change} ROW LEVEL SECURITY");
            let _altered = server.try_sql("owner", &alter).unwrap();
        }
    };
    let refuses = |role: &str, table: &str| {
        let error = open(&server, role).expect_err(table);
        assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{role}, {table}: {error}");
        assert!(error.to_string().ends_with(&format!("the owner: {table}")), "{role}: {error}");
    };
    for table in tables.iter().copied() {
        alter(&[table], "ENABLE");
        refuses("node", table);
        alter(&[table], "DISABLE");
    }
    drop(open(&server, "node").unwrap());

    // The owner sees all rows, and so do the functions for callers.
    alter(&tables, "ENABLE");
    let again = open(&server, "owner").unwrap();
    let timer = Timer::new(TimerId::fresh(), "mail", store.now());
    let place = Op::Place(Box::new(timer), IfPresent::Reject);
    let _outcomes = pollster::block_on(again.apply(vec![place], Durability::PowerLoss)).unwrap();
    let _id = server.try_sql("app", "SELECT tourbillon.schedule('mail', key => 'k')").unwrap();
    let (mut number, mut claimed) = (0, 0);
    eventually("both timers are claimed", || {
        number += 1;
        claimed += claim(&again, number).len();
        claimed == 2
    });
    assert_eq!(server.try_sql("app", "SELECT tourbillon.cancel('k')").unwrap(), "in-flight");
    // A policy may hide any rows, so the node is refused, whatever the policy says.
    let _policy = server.try_sql("owner", "CREATE POLICY every ON tourbillon.timer USING (true)").unwrap();
    refuses("node", &tables.join(", "));
    let _bypasses = server.sql("ALTER ROLE node BYPASSRLS");
    drop(open(&server, "node").unwrap());

    // The functions run with the rights of the owner, which the security concerns from now on.
    alter(&["timer"], "FORCE");
    for role in ["owner", "node", "postgres"] {
        refuses(role, "timer");
    }
    let _bypasses = server.sql("ALTER ROLE owner BYPASSRLS");
    for role in ["owner", "node", "postgres"] {
        drop(open(&server, role).unwrap());
    }
}
