//! Tests the functions for callers at all levels of isolation, beside commits of others after the caller's snapshot.

use super::server::open;
use super::session::{Psql, await_idle, await_sessions};
use crate::PostgresStore;
use std::time::Duration;
use tourbillon_durable::store::{Claimant, Limit, TimerStore};
use tourbillon_fault::Postgres;

/// The levels of isolation. The value is `true` if each statement has a snapshot of its own at this level.
const LEVELS: [(&str, bool); 4] = [
    ("READ UNCOMMITTED", true),
    ("READ COMMITTED", true),
    ("REPEATABLE READ", false),
    ("SERIALIZABLE", false),
];

/// The calls whose answer depends on whether the timer with the key has a lease, and their answers with a lease. `ID`
/// stands for the id of the timer.
const CALLS: [(&str, &str); 8] = [
    ("tourbillon.cancel('KEY')", "in-flight"),
    ("tourbillon.cancel(id => 'ID')", "in-flight"),
    ("tourbillon.move_to('KEY', delay => '1 hour')", "leased"),
    (
        "outcome || ' ' || was FROM tourbillon.place('mail', key => 'KEY', if_present => 'replace')",
        "replaced leased",
    ),
    (
        "outcome || ' ' || was FROM tourbillon.place('mail', key => 'KEY', if_present => 'replace-keep-due')",
        "replaced leased",
    ),
    (
        "outcome || ' ' || was FROM tourbillon.place('mail', key => 'KEY', if_present => 'replace-only',
             replaces => 'ID')",
        "replaced leased",
    ),
    (
        "outcome || ' ' || was FROM tourbillon.place('mail', key => 'KEY', if_present => 'keep')",
        "kept leased",
    ),
    ("outcome || ' ' || was FROM tourbillon.place('mail', key => 'KEY')", "exists leased"),
];

/// Calls that find a timer of another transaction with the same key or id, and their answers.
const MEETS: [(&str, &str); 6] = [
    ("tourbillon.place('mail', key => 'KEY')", "exists"),
    ("tourbillon.place('mail', key => 'KEY', if_present => 'keep')", "kept"),
    ("tourbillon.place('mail', key => 'KEY', if_present => 'replace')", "replaced"),
    ("tourbillon.place('mail', key => 'KEY', if_present => 'replace-keep-due')", "replaced"),
    ("tourbillon.place('mail', key => 'KEY', id => 'ID')", "repeated"),
    ("tourbillon.place('mail', id => 'ID')", "repeated"),
];

/// Claims all due timers as a runtime does. Returns their ids.
fn claim(store: &PostgresStore, number: u64) -> Vec<String> {
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let limit = Limit { timers: 100, bytes: u64::MAX };
    let claimed = pollster::block_on(store.claim(by, number, limit, None)).unwrap();
    claimed.leased.into_iter().map(|leased| leased.timer.id.to_string()).collect()
}

fn schedule(server: &Postgres, key: &str) -> String {
    server.sql(&format!("SELECT tourbillon.schedule('mail', key => '{key}')"))
}

fn begin(server: &Postgres, level: &str) -> Psql {
    let mut caller = Psql::new(server);
    caller.send(&format!("BEGIN ISOLATION LEVEL {level}; SELECT FROM tourbillon.setting;"));
    await_idle(server, 1);
    caller
}

#[test]
fn a_lease_that_begins_after_the_snapshot_is_seen_or_raises_40001() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let mut number = 0;
    for (level, sees) in LEVELS {
        for (call, wanted) in CALLS {
            number += 1;
            let key = format!("key {number}");
            let id = schedule(&server, &key);
            let call = call.replace("KEY", &key).replace("ID", &id);
            let mut caller = begin(&server, level);
            // The claim may also return the new timer of an earlier replacement.
            assert!(claim(&store, number).contains(&id));
            caller.send(&format!("SELECT {call}; COMMIT;"));
            match caller.end() {
                Ok(answer) if sees => assert_eq!(answer, wanted, "{level}: {call}"),
                Err(error) if !sees => assert!(error.contains("40001"), "{level}: {call}: {error}"),
                other => panic!("{level}: {call}: {other:?}"),
            }
            if !sees {
                // The transaction has changed nothing. Its repetition has the right answer.
                let stored = format!(
                    "SELECT phase, (SELECT count(*) FROM tourbillon.lease l WHERE l.id = t.id AND l.until > 0)
                     FROM tourbillon.timer t WHERE id = '{id}'"
                );
                assert_eq!(server.sql(&stored), "p|1", "{level}: {call}");
                let again = server.sql(&format!("BEGIN ISOLATION LEVEL {level}; SELECT {call}; COMMIT;"));
                assert_eq!(again, wanted, "{level}: {call}");
            }
        }
    }
    // Without a lease all calls succeed, and no row is left in the table `lease`.
    for (level, _) in LEVELS {
        let call = "SELECT tourbillon.schedule('mail', key => 'free', delay => '1 hour');
                    SELECT tourbillon.move_to('free', delay => '2 hours'), tourbillon.cancel('free');";
        let answer = server.sql(&format!("BEGIN ISOLATION LEVEL {level}; {call} COMMIT;"));
        assert!(answer.ends_with("moved|cancelled"), "{level}: {answer}");
    }
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.lease WHERE until = 0"), "0");
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

/// A key becomes free after the snapshot of a caller, which still sees the timer that had the key.
#[test]
fn a_key_that_is_free_since_the_snapshot_is_taken_or_raises_40001() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let mut number = 0;
    for (level, sees) in LEVELS {
        for mode in ["reject", "keep", "replace", "replace-keep-due"] {
            for is_leased in [false, true] {
                number += 1;
                let key = format!("key {number}");
                let id = schedule(&server, &key);
                if is_leased {
                    assert!(claim(&store, number).contains(&id));
                }
                let mut caller = begin(&server, level);
                let _withdrawn = server.sql(&format!("SELECT tourbillon.cancel('{key}')"));
                let place = format!("tourbillon.place('mail', key => '{key}', if_present => '{mode}')");
                caller.send(&format!("SELECT outcome FROM {place}; COMMIT;"));
                let case = format!("{level}, {mode}, leased: {is_leased}");
                match caller.end() {
                    Ok(answer) if sees => assert_eq!(answer, "created", "{case}"),
                    Err(error) if !sees => assert!(error.contains("40001"), "{case}: {error}"),
                    other => panic!("{case}: {other:?}"),
                }
            }
        }
    }
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

/// Another transaction creates a timer after the snapshot of a caller. It commits before the caller's call, or while
/// the call waits for it.
#[test]
fn a_timer_that_is_created_after_the_snapshot_is_met_or_raises_40001() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let mut number = 0;
    for (level, sees) in LEVELS {
        for (call, wanted) in MEETS {
            for is_open in [false, true] {
                number += 1;
                let (key, id) = (format!("key {number}"), format!("00000000-0000-0000-0000-{number:012}"));
                let call = call.replace("KEY", &key).replace("ID", &id);
                let mut caller = begin(&server, level);
                let mut other = Psql::new(&server);
                other.send(&format!(
                    "BEGIN; SELECT outcome FROM tourbillon.place('mail', key => '{key}', id => '{id}', delay => '1 h');"
                ));
                await_idle(&server, 2);
                if !is_open {
                    other.send("COMMIT;");
                    await_idle(&server, 1);
                }
                caller.send(&format!("SELECT outcome FROM {call}; COMMIT;"));
                if is_open {
                    await_sessions(&server, "wait_event_type = 'Lock'", 1);
                    other.send("COMMIT;");
                }
                assert_eq!(other.end(), Ok("created".into()));
                let case = format!("{level}, open: {is_open}: {call}");
                match caller.end() {
                    Ok(answer) if sees => assert_eq!(answer, wanted, "{case}"),
                    Err(error) if !sees => assert!(error.contains("40001"), "{case}: {error}"),
                    other => panic!("{case}: {other:?}"),
                }
            }
        }
        // These calls need a timer that the snapshot shows.
        for (call, answer) in [("cancel('KEY')", "cancelled"), ("move_to('KEY', delay => '2 h')", "moved")] {
            number += 1;
            let key = format!("key {number}");
            let mut caller = begin(&server, level);
            let _id = schedule(&server, &key);
            caller.send(&format!("SELECT tourbillon.{}; COMMIT;", call.replace("KEY", &key)));
            let wanted = if sees { answer } else { "not-found" };
            assert_eq!(caller.end(), Ok(wanted.into()), "{level}: {call}");
        }
    }
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

/// A caller replaces a timer. At the same time, another transaction creates a timer with the id of the caller's new
/// timer, under another key. The caller's transaction must be repeated, since it has withdrawn the old timer already.
#[test]
fn an_id_that_is_taken_during_a_replacement_raises_40001() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    for (number, (level, _)) in (1..).zip(LEVELS) {
        let (key, id) = (format!("key {number}"), format!("00000000-0000-0000-0000-{number:012}"));
        let old = schedule(&server, &key);
        let mut other = Psql::new(&server);
        other.send(&format!("BEGIN; SELECT tourbillon.schedule('mail', id => '{id}');"));
        await_idle(&server, 1);
        let mut caller = Psql::new(&server);
        caller.send(&format!(
            "BEGIN ISOLATION LEVEL {level};
             SELECT tourbillon.schedule('mail', key => '{key}', id => '{id}', if_present => 'replace'); COMMIT;"
        ));
        await_sessions(&server, "wait_event_type = 'Lock'", 1);
        other.send("COMMIT;");
        assert_eq!(other.end(), Ok(id));
        let error = caller.end().unwrap_err();
        assert!(error.contains("40001"), "{level}: {error}");
        assert_eq!(server.sql(&format!("SELECT id FROM tourbillon.look('{key}')")), old, "{level}");
    }
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

#[test]
fn an_end_at_each_level_needs_the_lease_that_is_there() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let (mut number, token) = (0, |number: u64| format!("{:016x}{number:016x}", 7));
    for (level, sees) in LEVELS {
        // The lease begins after the snapshot.
        number += 1;
        let id = schedule(&server, &format!("key {number}"));
        let done = |number| format!("SELECT tourbillon.done('{id}', '{}'); COMMIT;", token(number));
        for asked in [9_999, number] {
            let mut caller = begin(&server, level);
            if asked != number {
                assert_eq!(claim(&store, number), [&*id]);
                caller.send(&done(asked));
                let code = if sees { "TB001" } else { "40001" };
                let error = caller.end().unwrap_err();
                assert!(error.contains(code), "{level}: {error}");
            } else {
                // The lease is visible now.
                caller.send(&done(asked));
                assert_eq!(caller.end(), Ok(String::new()), "{level}");
            }
        }
        assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), "0");
        // An end with the right token, for a lease that the snapshot hides.
        number += 1;
        let id = schedule(&server, &format!("key {number}"));
        let done = format!("SELECT tourbillon.done('{id}', '{}'); COMMIT;", token(number));
        let mut caller = begin(&server, level);
        assert_eq!(claim(&store, number), [&*id]);
        caller.send(&done);
        match caller.end() {
            Ok(_) if sees => {}
            Err(error) if !sees => assert!(error.contains("40001"), "{level}: {error}"),
            other => panic!("{level}: {other:?}"),
        }
        if !sees {
            // An end with a wrong token, and then an end with the right token. Both have a new snapshot.
            let foreign =
                format!("BEGIN ISOLATION LEVEL {level}; SELECT tourbillon.done('{id}', '{}')", token(9_999));
            let error = server.try_sql("postgres", &foreign).unwrap_err();
            assert!(error.contains("TB001"), "{level}: {error}");
            let _done = server.sql(&format!("BEGIN ISOLATION LEVEL {level}; {done}"));
        }
        assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), "0", "{level}");
    }
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.lease"), "0");
}

#[test]
fn a_call_that_waits_for_a_claim_sees_its_lease() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let _node = server.sql("SELECT tourbillon.sign(NULL, 7, 'node', '1', 1000000)");
    for (number, (level, sees)) in (1..).zip(LEVELS) {
        let key = format!("key {number}");
        let id = schedule(&server, &key);
        let mut claim = Psql::new(&server);
        claim.send(&format!(
            "BEGIN; SELECT id FROM tourbillon.claim(NULL, 7, 7, {number}, 30000, 100, 1000000, '', -1,
                 '00000000-0000-0000-0000-000000000000', NULL, '{{}}') WHERE id IS NOT NULL;"
        ));
        await_idle(&server, 1);
        let mut caller = Psql::new(&server);
        caller.send(&format!("BEGIN ISOLATION LEVEL {level}; SELECT tourbillon.cancel('{key}'); COMMIT;"));
        await_sessions(&server, "wait_event_type = 'Lock'", 1);
        claim.send("COMMIT;");
        assert_eq!(claim.end(), Ok(id), "{level}");
        match caller.end() {
            Ok(answer) if sees => assert_eq!(answer, "in-flight", "{level}"),
            Err(error) if !sees => assert!(error.contains("40001"), "{level}: {error}"),
            other => panic!("{level}: {other:?}"),
        }
    }
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

/// A function of the caller has a snapshot of its own if it is STABLE. The functions called by it take new snapshots.
#[test]
fn a_function_of_the_caller_with_several_statements_sees_the_lease() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    for (number, kind) in (1..).zip(["VOLATILE", "STABLE"]) {
        let key = format!("key {number}");
        let id = schedule(&server, &key);
        let _made = server.sql(&format!(
            "CREATE OR REPLACE FUNCTION public.late_cancel() RETURNS text LANGUAGE plpgsql {kind} AS $$
             DECLARE v_count bigint;
             BEGIN
                 SELECT count(*) INTO v_count FROM tourbillon.lease;
                 PERFORM pg_advisory_xact_lock(5);
                 RETURN tourbillon.cancel('{key}');
             END $$"
        ));
        let (mut holder, mut caller) = (Psql::new(&server), Psql::new(&server));
        holder.send("BEGIN; SELECT FROM pg_advisory_xact_lock(5);");
        await_idle(&server, 1);
        caller.send("BEGIN; SELECT public.late_cancel(); COMMIT;");
        await_sessions(&server, "wait_event_type = 'Lock'", 1);
        assert_eq!(claim(&store, number), [&*id]);
        holder.send("COMMIT;");
        assert_eq!(caller.end(), Ok("in-flight".into()), "{kind}");
    }
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

/// A timer with a chosen id is created and ended after the snapshot of a caller that repeats its creation.
#[test]
fn an_id_that_was_used_after_the_snapshot_makes_no_second_timer() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    for (number, (level, sees)) in (1..).zip(LEVELS) {
        let id = format!("00000000-0000-0000-0000-{number:012}");
        let place = format!("SELECT outcome FROM tourbillon.place('mail', id => '{id}')");
        let mut caller = begin(&server, level);
        assert_eq!(server.sql(&place), "created");
        assert_eq!(claim(&store, number), [&*id]);
        let _done = server.sql(&format!("SELECT tourbillon.done('{id}', '{:016x}{number:016x}')", 7));
        caller.send(&format!("{place}; COMMIT;"));
        match caller.end() {
            Ok(answer) if sees => assert_eq!(answer, "repeated", "{level}"),
            Err(error) if !sees => assert!(error.contains("40001"), "{level}: {error}"),
            other => panic!("{level}: {other:?}"),
        }
    }
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), "0");
}

/// A sign of life changes the row of a node while its claim waits for the row. At another level than READ COMMITTED the
/// claim would raise 40001.
#[test]
fn the_store_runs_at_read_committed_whatever_the_default_is() {
    let Some(server) = Postgres::start(&["default_transaction_isolation=serializable"]) else { return };
    let store = open(&server);
    assert_eq!(claim(&store, 1), [""; 0]);
    let id = schedule(&server, "key");
    let mut holder = Psql::new(&server);
    holder.send("BEGIN; UPDATE tourbillon.node SET seen = seen;");
    await_idle(&server, 1);
    std::thread::scope(|scope| {
        let claiming = scope.spawn(|| claim(&store, 2));
        await_sessions(&server, "wait_event_type = 'Lock'", 1);
        holder.send("COMMIT;");
        assert_eq!(claiming.join().unwrap(), [id]);
    });
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}
