//! Tests that the functions for callers act the same whatever collations their arguments have, and whatever settings
//! the session of the caller has.

use super::server::{open, open_of_service};
use crate::schema::MIGRATIONS;
use std::time::Duration;
use tourbillon_durable::store::{Claimant, Limit, TimerStore};
use tourbillon_fault::Postgres;

/// Calls of the SQL functions: the first list is of a program, the second of the service. The calls of a list run one
/// after the other. The columns of the row `a` have the texts of the arguments.
const CALLS: [&[&str]; 2] = [
    &[
        "tourbillon.schedule(a.kind, key => a.key, namespace => a.empty, labels => ARRAY[a.label, a.key],
            if_present => a.reject, trace => a.key, delay => '1 day') IS NULL",
        "(tourbillon.place(a.kind, key => a.key, delay => '1 day')).outcome",
        "(tourbillon.place(a.kind, key => a.key, if_present => a.keep)).outcome",
        "(tourbillon.place(a.kind, key => a.key, if_present => a.replace, labels => ARRAY[a.label])).outcome",
        "(tourbillon.place(a.kind, key => a.key, if_present => 'replace-keep-due')).outcome",
        "(tourbillon.place(a.kind, key => a.kind, if_present => 'replace-only', replaces => gen_random_uuid())).outcome",
        "tourbillon.schedule(a.kind, key => a.key, if_present => a.keep) IS NULL",
        "tourbillon.move_to(a.key, delay => '2 days', namespace => a.empty)",
        "(SELECT l.phase || l.key FROM tourbillon.look(a.key, a.empty) l)",
        "tourbillon.cancel(a.label)",
        "tourbillon.cancel(a.key, a.empty)",
        "(SELECT count(*) FROM tourbillon.look(a.key))",
    ],
    &[
        "service.schedule_queue(a.kind, key => a.key, namespace => a.own, labels => ARRAY[a.label, a.key],
            if_present => a.reject, trace => a.key, delay => '1 day') IS NULL",
        "service.schedule_queue(a.kind, key => a.key, if_present => a.keep) IS NULL",
        "service.cancel(a.label, a.own)",
        "service.move_to(a.key, delay => '2 days')",
        "service.cancel(a.key)",
        "service.schedule_callback(a.url, key => a.key, namespace => a.own, labels => ARRAY[a.label, a.key],
            if_present => a.reject, trace => a.key, method => a.method, delay => '1 day') IS NULL",
        "service.schedule_callback(a.url || a.key, key => a.key, if_present => a.replace, method => a.method,
            headers => '{\"x-a\": \"b\"}', data => '1') IS NULL",
        "(SELECT l.phase || l.key FROM service.look(a.key) l)",
        "service.cancel(a.key, a.own)",
    ],
];

const TEXTS: [(&str, &str); 11] = [
    ("kind", "mail"),
    ("key", "key-KEY"),
    ("label", "KEY-key"),
    ("empty", ""),
    ("own", "default"),
    ("reject", "reject"),
    ("keep", "keep"),
    ("replace", "replace"),
    ("url", "https://shop.example/i"),
    ("method", "POST"),
    ("token", "0123456789abcdef0123456789abcdef"),
];

/// Returns the answers to all calls. The arguments have the two collations alternately.
fn answers(server: &Postgres, collations: [&str; 2]) -> Vec<String> {
    let columns = TEXTS.iter().zip(collations.iter().cycle());
    let columns: Vec<_> = columns
        .map(|((name, text), collation)| format!("'{text}'::text COLLATE {collation} AS {name}"))
        .collect();
    let columns = columns.join(", ");
    let ask = |call: &&str| {
        server.try_sql("app", &format!("SELECT {call} FROM (SELECT {columns} OFFSET 0) a")).unwrap_or_else(
            |error| {
                panic!("{collations:?}, {call}: {error}");
            },
        )
    };
    let mut answers: Vec<_> = CALLS.iter().copied().flatten().map(ask).collect();
    for schema in ["tourbillon", "service"] {
        let done =
            format!("SELECT {schema}.done(gen_random_uuid(), a.token) FROM (SELECT {columns} OFFSET 0) a");
        let error = server.try_sql("app", &done).unwrap_err();
        assert!(error.contains("TB001"), "{collations:?}: {error}");
    }
    answers.push(server.sql("SELECT count(*) FROM tourbillon.timer"));
    answers
}

fn user(server: &Postgres) {
    let _user = server.sql("CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA tourbillon, service TO app");
}

#[test]
fn each_function_takes_texts_of_each_collation() {
    let Some(server) = Postgres::start(&[]) else { return };
    let _stores = (open(&server), open_of_service(&server));
    user(&server);
    let mut collations = vec!["\"C\"", "\"POSIX\"", "\"default\""];
    // A server may be built without ICU.
    if server.sql("SELECT count(*) > 0 FROM pg_collation WHERE collname = 'tr-x-icu'") == "t" {
        let nondeterministic = "CREATE COLLATION public.nocase (
            provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
        let _made = server.sql(nondeterministic);
        collations.extend(["\"tr-x-icu\"", "public.nocase"]);
    } else {
        eprintln!("the server has no ICU: its collations are not tested");
    }
    let wanted = answers(&server, ["\"C\"", "\"C\""]);
    for one in &collations {
        for other in &collations {
            assert_eq!(answers(&server, [one, other]), wanted, "{one}, {other}");
        }
    }
    // In a nondeterministic collation the keys would be the same. Two timers have them.
    for collation in &collations {
        let both = format!(
            "SELECT count(tourbillon.schedule('mail', key => k, delay => '1 day', if_present => 'replace'))
             FROM (SELECT unnest(ARRAY['a', 'A']) COLLATE {collation} AS k OFFSET 0) a"
        );
        assert_eq!(server.sql(&both), "2");
        assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), "2", "{collation}");
    }
}

/// Settings of a session that might change what a function reads or writes.
const SETTINGS: [&str; 24] = [
    "standard_conforming_strings = off",
    "backslash_quote = off",
    "bytea_output = 'escape'",
    "search_path = ''",
    "search_path = 'evil, pg_catalog'",
    "TimeZone = 'Asia/Kolkata'",
    "DateStyle = 'German'",
    "IntervalStyle = 'sql_standard'",
    "extra_float_digits = -15",
    "xmloption = 'document'",
    "xmlbinary = 'hex'",
    "transform_null_equals = on",
    "array_nulls = off",
    "client_encoding = 'LATIN1'",
    "row_security = off",
    "default_transaction_isolation = 'serializable'",
    "plan_cache_mode = 'force_generic_plan'",
    "quote_all_identifiers = on",
    "check_function_bodies = off",
    "lc_time = 'C'",
    "lc_monetary = 'C'",
    "lc_numeric = 'C'",
    "synchronous_commit = off",
    "enable_indexscan = off",
];

/// Makes functions and an operator that hide the server's own, if the schema `evil` is first in the `search_path`.
const EVIL: &str = "CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO app;
    CREATE FUNCTION evil.octet_length(text) RETURNS int LANGUAGE sql AS 'SELECT 0';
    CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
    CREATE FUNCTION evil.is_same(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
    CREATE OPERATOR evil.= (FUNCTION = evil.is_same, LEFTARG = text, RIGHTARG = text)";

/// Makes calls in sessions with this setting. Returns the stored timers and the answers.
fn effects(server: &Postgres, setting: &str) -> Vec<String> {
    let call = |call: &str| {
        let statements = format!("SET escape_string_warning = off; SET {setting}; SELECT {call}");
        server.try_sql("app", &statements).unwrap_or_else(|error| panic!("{setting}, {call}: {error}"))
    };
    let due = "due => '2099-01-01T00:00:00Z'";
    let policy = r#"policy => '{"attempts": 3, "max_age_ms": 9000, "timeout_ms": 2500,
        "backoff": {"kind": "ladder", "pauses_ms": [1000, 2500]}}'"#;
    let _ids = [
        call(&format!(
            "tourbillon.schedule('mail', '{{\"a\": \"b\"}}', {due}, key => 'k', labels => '{{b,a}}', {policy})"
        )),
        call(&format!(
            "service.schedule_queue('q', '{{\"a\": \"b\"}}', {due}, key => 'q', labels => '{{b,a}}', {policy})"
        )),
        call(&format!(
            "service.schedule_callback('https://1.1.1.1/', '{{\"a\": \"b\"}}', {due}, key => 'c',
                 headers => '{{\"x-a\": \"b\", \"x-b\": \"\"}}', {policy})"
        )),
    ];
    let stored = ["tourbillon", "service"].map(|schema| {
        server.sql(&format!(
            "SELECT encode(payload, 'hex'), due, labels, extra, key, namespace FROM {schema}.timer ORDER BY key"
        ))
    });
    let moved = "due => '2098-12-31T23:59:59.999Z'";
    let mut effects = Vec::from(stored);
    for (schema, key) in [("tourbillon", "k"), ("service", "q"), ("service", "c")] {
        effects.push(call(&format!("{schema}.move_to('{key}', {moved})")));
        effects.push(call(&format!(
            "extract(epoch FROM due) || phase || kind FROM {schema}.look('{key}') WHERE NOT due > 'infinity'"
        )));
        effects.push(call(&format!("{schema}.cancel('{key}')")));
    }
    effects
}

#[test]
fn each_function_acts_the_same_in_sessions_with_any_settings() {
    let Some(server) = Postgres::start(&[]) else { return };
    let _stores = (open(&server), open_of_service(&server));
    user(&server);
    let _evil = server.sql(EVIL);
    let wanted = effects(&server, "standard_conforming_strings = on");
    for setting in SETTINGS {
        assert_eq!(effects(&server, setting), wanted, "{setting}");
    }
}

/// Tests that the settings of a database reach the schema's creation and the store, too.
#[test]
fn a_database_with_other_settings_has_the_same_deployment() {
    let Some(server) = Postgres::start(&[]) else { return };
    for setting in SETTINGS {
        let is_of_database =
            !setting.starts_with("default_transaction") && !setting.starts_with("client_encoding");
        if is_of_database {
            let _set = server.sql(&format!("ALTER DATABASE postgres SET {setting}"));
        }
    }
    let _path = server.sql("ALTER DATABASE postgres SET search_path = 'evil, pg_catalog'");
    let (store, _service) = (open(&server), open_of_service(&server));
    user(&server);
    let _ids =
        server.sql("SELECT tourbillon.schedule('mail', '1', key => 'k'), service.schedule_queue('q', '1')");
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(30) };
    std::thread::sleep(Duration::from_millis(5));
    let claim = store.claim(by, 1, Limit { timers: 100, bytes: u64::MAX }, None);
    let [leased] = &pollster::block_on(claim).unwrap().leased[..] else { panic!("one timer is due") };
    assert_eq!(&*leased.timer.payload.0, b"1");
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

/// The meaning of a backslash in a literal depends on the session's setting `standard_conforming_strings`.
#[test]
fn no_statement_of_the_schema_has_a_backslash() {
    assert!(MIGRATIONS.into_iter().flatten().all(|sql| !sql.contains('\\')));
}
