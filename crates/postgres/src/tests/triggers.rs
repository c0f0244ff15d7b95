//! Tests triggers of a caller's own table that store, replace and cancel timers. The timers belong to the transactions
//! that change the rows.

use super::server::open;
use crate::PostgresStore;
use std::time::Duration;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Claimant, Leased, Limit, TimerStore};
use tourbillon_fault::Postgres;

/// Makes the role `app`, which may use the schema of the timers and nothing else of it. The role makes a table of
/// orders. A trigger keeps a timer for each open order. Another trigger cancels the timer of an order that is closed or
/// deleted.
fn orders(server: &Postgres) {
    let _role = server.sql(
        "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA tourbillon TO app;
         GRANT CREATE ON SCHEMA public TO app",
    );
    let made = "
        CREATE TABLE orders (
            number bigint PRIMARY KEY, state text NOT NULL DEFAULT 'open',
            pause interval NOT NULL DEFAULT '0');
        CREATE FUNCTION keep_timer() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM tourbillon.schedule('timeout', jsonb_build_object('order', NEW.number),
                delay => NEW.pause, key => 'order ' || NEW.number, if_present => 'replace');
            RETURN NULL;
        END $$;
        CREATE FUNCTION cancel_timer() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM tourbillon.cancel('order ' || OLD.number);
            RETURN NULL;
        END $$;
        CREATE TRIGGER is_open AFTER INSERT OR UPDATE ON orders FOR EACH ROW WHEN (NEW.state = 'open')
            EXECUTE FUNCTION keep_timer();
        CREATE TRIGGER is_closed AFTER UPDATE ON orders FOR EACH ROW WHEN (NEW.state <> 'open')
            EXECUTE FUNCTION cancel_timer();
        CREATE TRIGGER is_gone AFTER DELETE ON orders FOR EACH ROW EXECUTE FUNCTION cancel_timer()";
    let _made = server.try_sql("app", made).unwrap();
}

/// Runs statements as the role `app`.
#[track_caller]
fn app(server: &Postgres, statements: &str) -> String {
    server.try_sql("app", statements).unwrap()
}

/// Runs statements as a role, and expects that they fail with this SQLSTATE.
#[track_caller]
fn refuses(server: &Postgres, role: &str, statements: &str, code: &str) {
    let error = server.try_sql(role, statements).unwrap_err();
    assert!(error.contains(code), "{statements}: {error}");
}

/// Returns the keys of all stored timers.
fn stored(server: &Postgres) -> String {
    server.sql("SELECT string_agg(key, ', ' ORDER BY key) FROM tourbillon.timer")
}

/// Claims as a runtime does. Returns the sorted payloads of the claimed timers.
fn claim(store: &PostgresStore, number: u64) -> Vec<String> {
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let limit = Limit { timers: 100, bytes: u64::MAX };
    let leased = pollster::block_on(store.claim(by, number, limit, None)).unwrap().leased;
    let payload = |leased: Leased| String::from_utf8(leased.timer.payload.0.to_vec()).unwrap();
    let mut payloads: Vec<String> = leased.into_iter().map(payload).collect();
    payloads.sort();
    payloads
}

#[test]
fn a_trigger_leaves_a_timer_for_each_row_that_is_committed_and_for_no_other() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    orders(&server);
    let _none = app(&server, "BEGIN; INSERT INTO orders VALUES (1); ROLLBACK");
    assert_eq!(stored(&server), "", "the transaction was rolled back");
    let _one = app(&server, "INSERT INTO orders VALUES (2)");
    assert_eq!(stored(&server), "order 2");
    refuses(&server, "app", "INSERT INTO orders VALUES (3), (4), (2)", "23505");
    assert_eq!(stored(&server), "order 2", "the statement failed after its first rows");
    let _part = app(
        &server,
        "BEGIN; INSERT INTO orders VALUES (5); SAVEPOINT here; INSERT INTO orders VALUES (6);
         ROLLBACK TO here; INSERT INTO orders VALUES (7, 'paid'); COMMIT",
    );
    assert_eq!(stored(&server), "order 2, order 5", "the order 6 was taken back, and the order 7 is paid");
    assert_eq!(claim(&store, 1), [r#"{"order": 2}"#, r#"{"order": 5}"#]);
    assert_eq!(claim(&store, 2), [""; 0], "once");
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

#[test]
fn a_trigger_cancels_the_timer_of_a_row_that_is_closed_or_deleted() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    orders(&server);
    let _four =
        app(&server, "INSERT INTO orders (number, pause) SELECT n, '1 hour' FROM generate_series(1, 4) n");
    let paid = "UPDATE orders SET state = 'paid' WHERE number = 1";
    let _none = app(&server, &format!("BEGIN; {paid}; DELETE FROM orders WHERE number = 2; ROLLBACK"));
    assert_eq!(stored(&server), "order 1, order 2, order 3, order 4", "the changes were rolled back");
    let _two = app(&server, &format!("BEGIN; {paid}; DELETE FROM orders WHERE number = 2; COMMIT"));
    assert_eq!(stored(&server), "order 3, order 4");
    // An upsert of an order that exists is an update.
    let _moved = app(
        &server,
        "INSERT INTO orders (number) VALUES (3), (8)
         ON CONFLICT (number) DO UPDATE SET pause = excluded.pause",
    );
    assert_eq!(stored(&server), "order 3, order 4, order 8", "a replaced timer leaves the other alone");
    assert_eq!(claim(&store, 1), [r#"{"order": 3}"#, r#"{"order": 8}"#], "the order 3 is due now");
    // The delivery of the order 3 has begun.
    let _late = app(&server, "UPDATE orders SET state = 'paid' WHERE number = 3");
    assert_eq!(server.sql("SELECT key FROM tourbillon.timer WHERE phase = 'c'"), "order 3");
    let _all = app(&server, "DELETE FROM orders");
    let counts = pollster::block_on(store.counts()).unwrap();
    assert_eq!((counts.of(Phase::Pending), counts.of(Phase::Leased)), (0, 2), "both are withdrawn");
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer WHERE phase = 'c'"), "2");
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

/// A trigger runs with the rights of the role that writes the row, unless its function has the rights of its owner.
#[test]
fn a_row_of_a_role_that_may_not_use_the_schema_is_refused_by_the_trigger() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    orders(&server);
    let _role = server.sql("CREATE ROLE clerk LOGIN; GRANT SELECT, INSERT ON orders TO clerk");
    refuses(&server, "clerk", "INSERT INTO orders VALUES (1)", "42501");
    assert_eq!(server.sql("SELECT count(*) FROM orders"), "0", "the row and its timer go together");
    let _owner = app(&server, "ALTER FUNCTION keep_timer() SECURITY DEFINER");
    let _row = server.try_sql("clerk", "INSERT INTO orders VALUES (1)").unwrap();
    assert_eq!(stored(&server), "order 1");
    assert_eq!(claim(&store, 1), [r#"{"order": 1}"#]);
}
