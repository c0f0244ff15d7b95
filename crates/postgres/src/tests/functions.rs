//! Tests the functions for callers: their outcomes, and the arguments that they refuse.

use super::server::{connect, open, open_of_service};
use crate::PostgresStore;
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::policy::{Backoff, Guarantee, Policy};
use tourbillon_durable::state::{State, Token};
use tourbillon_durable::store::{Claimant, Durability, IfPresent, Leased, Limit, Op, Outcome, TimerStore};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::Postgres;

fn claim(store: &PostgresStore, number: u64) -> Vec<Leased> {
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(30) };
    pollster::block_on(store.claim(by, number, Limit { timers: 100, bytes: u64::MAX }, None)).unwrap().leased
}

fn get(store: &PostgresStore, key: &str) -> Option<Timer> {
    pollster::block_on(store.get(key.into())).unwrap()
}

fn apply(store: &PostgresStore, op: Op) -> Outcome {
    pollster::block_on(store.apply(vec![op], Durability::PowerLoss)).unwrap().remove(0)
}

fn token_text(token: Token) -> String {
    format!("{:016x}{:016x}", token.incarnation, token.claim)
}

fn user(server: &Postgres) {
    let grants = "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA tourbillon TO app;
                  GRANT CREATE ON SCHEMA public TO app;";
    let _done = server.sql(grants);
}

/// Checks that the statement fails with this SQLSTATE. Runs it as a user whose only right is the use of the schema.
#[track_caller]
fn refuses(server: &Postgres, statement: &str, code: &str) {
    let error = server.try_sql("app", statement).unwrap_err();
    assert!(error.contains(code), "{statement}: {error}");
}

#[test]
fn a_timer_of_sql_is_the_timer_that_the_library_would_store() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    user(&server);
    let policy = r#"{"attempts": 3, "max_age_ms": 60000, "timeout_ms": 2500, "misfire_within_ms": 9000,
                     "guarantee": "at-most-once", "backoff": {"kind": "exponential", "first_ms": 50, "max_ms": 1500}}"#;
    let statement = format!(
        "SELECT tourbillon.schedule('mail', '{{\"to\": 4}}', delay => '1 hour', key => 'k',
             labels => '{{b,a,b,a,b,a,b,a,b}}', policy => '{policy}', trace => '00-1', id => '00000000-0000-0000-0000-000000000011')"
    );
    let before = store.now();
    assert_eq!(server.try_sql("app", &statement).unwrap(), "00000000-0000-0000-0000-000000000011");
    let timer = get(&store, "k").unwrap();
    let hour = Duration::from_secs(3_600);
    assert!(timer.due + Duration::from_secs(1) >= before + hour && timer.due <= store.now() + hour);
    let wanted = Timer {
        key: Some("k".into()),
        payload: tourbillon_durable::timer::Payload(br#"{"to": 4}"#.as_slice().into()),
        labels: vec!["a".into(), "b".into()],
        policy: Policy {
            attempts: 3,
            max_age: Some(Duration::from_secs(60)),
            timeout: Duration::from_millis(2_500),
            misfire: tourbillon_durable::policy::Misfire::Within(Duration::from_secs(9)),
            guarantee: Guarantee::AtMostOnce,
            backoff: Backoff::Exponential {
                first: Duration::from_millis(50),
                max: Duration::from_millis(1_500),
            },
            ..Policy::default()
        },
        created: timer.created,
        trace: Some("00-1".into()),
        has_chosen_id: true,
        ..Timer::new(TimerId::from_u128(0x11), "mail", timer.due)
    };
    assert_eq!(timer, wanted);
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

#[test]
fn the_five_modes_have_the_outcomes_of_the_store() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    user(&server);
    let sql = |statement: &str| server.try_sql("app", statement).unwrap();
    let place = |arguments: &str| {
        let placed = sql(&format!(
            "SELECT outcome, id, old, was FROM tourbillon.place('mail', 'x', key => 'k', {arguments})"
        ));
        placed.split('|').map(str::to_owned).collect::<Vec<_>>()
    };
    let first = place("delay => '1 hour'");
    assert_eq!(first[0], "created");
    assert_eq!(place("delay => '1 s'")[..3], ["exists".to_owned(), String::new(), first[1].clone()]);
    refuses(&server, "SELECT tourbillon.schedule('mail', key => 'k')", "23505");
    assert_eq!(place("if_present => 'keep'")[..2], ["kept".to_owned(), first[1].clone()]);
    let due = get(&store, "k").unwrap().due;
    let second = place("if_present => 'replace-keep-due'");
    assert_eq!((&*second[0], &second[2], &*second[3]), ("replaced", &first[1], "pending"));
    assert_eq!(get(&store, "k").map(|timer| timer.due), Some(due));
    assert_eq!(place(&format!("if_present => 'replace-only', replaces => '{}'", first[1]))[0], "exists");
    let third = place(&format!("if_present => 'replace-only', replaces => '{}'", second[1]));
    assert_eq!(third[0], "replaced");
    // The third timer is due. Once a delivery has begun, a replacement marks it.
    let [leased] = &claim(&store, 1)[..] else { panic!("one timer is due") };
    assert_eq!(leased.timer.id.to_string(), third[1]);
    let fourth = place("if_present => 'replace', delay => '1 hour'");
    assert_eq!((&*fourth[0], &*fourth[3]), ("replaced", "leased"));
    let withdrawn = pollster::block_on(store.get(leased.timer.id.into())).unwrap().unwrap();
    assert!(matches!(withdrawn.state, State::Leased(lease) if lease.withdrawn.is_some()));
    let none =
        sql("SELECT outcome FROM tourbillon.place('mail', key => 'none', if_present => 'replace-only',
                    replaces => '00000000-0000-0000-0000-000000000011')");
    assert_eq!(none, "not-found");
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

#[test]
fn a_cancel_a_move_and_a_look_have_their_outcomes() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    user(&server);
    let sql = |statement: &str| server.try_sql("app", statement).unwrap();
    let id = sql("SELECT tourbillon.schedule('mail', key => 'k', delay => '1 hour')");
    assert_eq!(sql("SELECT tourbillon.move_to('k', due => '2099-01-01T00:00:00Z')"), "moved");
    let timer = get(&store, "k").unwrap();
    assert_eq!((timer.due.to_string(), timer.scheduled), ("2099-01-01T00:00:00.000Z".into(), timer.due));
    let seen = "SELECT id, phase, due = '2099-01-01T00:00:00Z' FROM tourbillon.look('k')";
    assert_eq!(sql(seen), format!("{id}|pending|t"));
    assert_eq!(sql("SELECT tourbillon.cancel('k', id => gen_random_uuid())"), "not-found");
    assert_eq!(sql("SELECT tourbillon.cancel('k')"), "cancelled");
    assert_eq!(sql("SELECT tourbillon.cancel('k')"), "not-found");
    assert_eq!(sql("SELECT count(*) FROM tourbillon.look('k')"), "0");
    let _due = sql("SELECT tourbillon.schedule('mail', key => 'k')");
    let [leased] = &claim(&store, 1)[..] else { panic!("one timer is due") };
    assert_eq!(sql("SELECT tourbillon.move_to('k', delay => '1 s')"), "leased");
    assert_eq!(sql("SELECT phase, deliveries FROM tourbillon.look('k')"), "leased|1");
    assert_eq!(sql("SELECT tourbillon.cancel('k')"), "in-flight");
    let ended = apply(&store, Op::Release(leased.timer.id, leased.token));
    assert!(matches!(ended, Outcome::Ended { phase: tourbillon_durable::state::Phase::Withdrawn, .. }));
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

#[test]
fn an_end_in_the_transaction_of_the_caller_happens_once_or_not_at_all() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    user(&server);
    let id = TimerId::from_u128(5);
    let timer = Timer { has_chosen_id: true, ..Timer::new(id, "mail", store.now()) };
    let create = || apply(&store, Op::Place(Box::new(timer.clone()), IfPresent::Reject));
    create();
    std::thread::sleep(Duration::from_millis(5));
    let [leased] = &claim(&store, 1)[..] else { panic!("one timer is due") };
    let effect = |token: &str| {
        format!(
            "BEGIN; CREATE TABLE public.effect (id int); SELECT tourbillon.done('{id}', '{token}'); COMMIT;"
        )
    };
    let wrong = token_text(Token { claim: 9, ..leased.token });
    refuses(&server, &effect(&wrong), "TB001");
    assert_eq!(server.sql("SELECT to_regclass('public.effect') IS NULL"), "t", "the effect is taken back");
    let text = token_text(leased.token);
    // A receiver gives the name of its claim. Timers that were claimed together have one token, so the id counts, too.
    let name = |id: u128| format!("{:032x}{id:032x}{text}{:016x}", 3, 4);
    refuses(&server, &effect(&name(6)), "22023");
    refuses(&server, &effect(&name(5)[1..]), "22023");
    assert_eq!(server.sql("SELECT to_regclass('public.effect') IS NULL"), "t");
    let _done = server.try_sql("app", &effect(&name(5))).unwrap();
    refuses(&server, &format!("SELECT tourbillon.done('{id}', '{text}')"), "TB001");
    assert_eq!(pollster::block_on(store.get(id.into())).unwrap(), None);
    assert_eq!(create(), Outcome::Repeated(id), "the id is remembered");
    let stale = Outcome::Refused(tourbillon_durable::state::Refusal::Stale);
    assert_eq!(apply(&store, Op::Ack(id, leased.token)), stale, "the runtime's end comes second");
}

#[test]
fn what_is_not_valid_is_refused_with_its_sqlstate() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store: Arc<PostgresStore> = open(&server);
    user(&server);
    let long = "x".repeat(300);
    for (call, code) in [
        (format!("schedule('{long}')"), "22001"),
        (format!("schedule('a', key => '{long}')"), "22001"),
        ("schedule('a', labels => '{1,2,3,4,5,6,7,8,9}')".into(), "54000"),
        ("schedule('a', labels => '{NULL}')".into(), "22023"),
        ("schedule('a', payload => convert_to(repeat('x', 100000), 'UTF8'))".into(), "54000"),
        ("schedule('a', due => now(), delay => '1 s')".into(), "22023"),
        ("schedule('a', due => 'infinity')".into(), "22023"),
        ("schedule('a', delay => '200 years')".into(), "22008"),
        ("schedule('a', if_present => 'never')".into(), "22023"),
        ("schedule('a', if_present => 'replace-only')".into(), "22023"),
        ("schedule('a', policy => '{\"tries\": 3}')".into(), "22023"),
        ("schedule('a', policy => '{\"attempts\": -1}')".into(), "22023"),
        ("schedule('a', policy => '{\"attempts\": 1001}')".into(), "22023"),
        ("schedule('a', policy => '{\"jitter_ms\": 5}')".into(), "0A000"),
        ("schedule('a', policy => '{\"backoff\": {\"kind\": \"fixed\"}}')".into(), "22023"),
        ("schedule('a', policy => '{\"backoff\": {\"kind\": \"fixed\", \"max_ms\": 1}}')".into(), "22023"),
        ("cancel()".into(), "22023"),
        ("move_to('k')".into(), "22023"),
        ("schedule('a', due => '1969-12-31T23:59:59Z')".into(), "22023"),
        ("schedule('a', due => '-infinity')".into(), "22023"),
        ("move_to('k', due => '1969-12-31T23:59:59Z')".into(), "22023"),
        (
            "schedule('a', policy => '{\"backoff\": {\"kind\": \"ladder\", \"pauses_ms\": [1, null]}}')"
                .into(),
            "22023",
        ),
        ("schedule('a', namespace => NULL)".into(), "22023"),
        ("cancel('k', NULL)".into(), "22023"),
        ("cancel(namespace => NULL, id => gen_random_uuid())".into(), "22023"),
        ("move_to('k', delay => '1 s', namespace => NULL)".into(), "22023"),
        ("look('k', NULL)".into(), "22023"),
        ("done(gen_random_uuid(), 'x')".into(), "22023"),
        ("leave(1)".into(), "42501"),
    ] {
        refuses(&server, &format!("SELECT tourbillon.{call}"), code);
    }
    refuses(&server, "SELECT * FROM tourbillon.timer", "42501");
    assert_eq!(pollster::block_on(store.counts()).unwrap().by_namespace.len(), 0);
    drop(connect(&server));
}

#[test]
fn what_is_not_valid_for_the_service_is_refused() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open_of_service(&server);
    let _user = server.sql("CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA service TO app");
    for (call, code) in [
        ("schedule_callback('ftp://example.com')", "22023"),
        ("schedule_callback('https://me@example.com')", "22023"),
        ("schedule_callback('https://example.com', method => 'TRACE')", "22023"),
        ("schedule_callback('https://example.com', headers => '{\"Host\": \"a\"}')", "22023"),
        ("schedule_callback('https://example.com', headers => '{\"a b\": \"a\"}')", "22023"),
        ("schedule_callback('https://example.com', policy => '{\"timeout_ms\": 30001}')", "22023"),
        ("schedule_queue('a queue')", "22023"),
        ("schedule_queue('q', namespace => NULL)", "22023"),
        ("schedule_queue('q', namespace => '')", "22023"),
        ("schedule_queue('q', namespace => E'a/b\\n')", "22023"),
        ("schedule_callback('https://example.com', namespace => '..')", "22023"),
        ("schedule_queue('q', key => '')", "22023"),
        ("schedule_queue('q', policy => '{\"timeout_ms\": 3600001}')", "22023"),
        ("schedule_callback('https://example.com', key => '')", "22023"),
        ("schedule('mail')", "0A000"),
        ("place('tourbillon/schedule', namespace => '/schedules/default')", "0A000"),
    ] {
        refuses(&server, &format!("SELECT service.{call}"), code);
    }
    assert_eq!(pollster::block_on(store.counts()).unwrap().by_namespace.len(), 0);
}
