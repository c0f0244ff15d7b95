//! Tests calls in transactions of a program's own connections. Each test has one body, which runs with sqlx, with
//! tokio-postgres and with diesel.
#![cfg(unix)]

use diesel::connection::{Connection as _, SimpleConnection as _};
use diesel_async::AsyncPgConnection;
use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
use pollster::block_on;
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use std::sync::LazyLock;
use std::time::Duration;
use tokio::runtime::Runtime;
use tourbillon_durable::plan::{MissedInstants, Plan};
use tourbillon_durable::policy::{Backoff, Misfire, Policy};
use tourbillon_durable::state::{Phase, Token};
use tourbillon_durable::store::{Claimant, IfPresent, Leased, Limit, TimerStore};
use tourbillon_durable::timer::{Address, KeyOf, Timer, TimerId};
use tourbillon_durable::{Changed, Due, Kind, Limits, Placed, Spec, UtcMillis};
use tourbillon_fault::{Postgres, eventually};
use tourbillon_postgres::tourbillon_api::{self as api, CancelResult, NewTimer};
use tourbillon_postgres::{Call, CallError, CallErrorKind, Connect, PostgresStore, Transactional};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Job(u64);

impl Kind for Job {
    const NAME: &'static str = "job";
}

/// Drives the connections of the asynchronous drivers.
static TOKIO: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

const HOUR: Duration = Duration::from_secs(3_600);

enum Driver {
    Sqlx(PgConnection),
    TokioPostgres(tokio_postgres::Client),
    Diesel(Box<AsyncConnectionWrapper<AsyncPgConnection>>),
}

/// A schema for the tests of a driver, and a function that connects by it.
type Entry = (&'static str, fn(&str) -> Driver);

const DRIVERS: [Entry; 3] = [
    ("sqlx", |url| Driver::Sqlx(TOKIO.block_on(PgConnection::connect(url)).unwrap())),
    ("tokio_postgres", |url| {
        let connect = async {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
            drop(tokio::spawn(connection));
            client
        };
        Driver::TokioPostgres(TOKIO.block_on(connect))
    }),
    ("diesel", |url| Driver::Diesel(Box::new(AsyncConnectionWrapper::establish(url).unwrap()))),
];

/// Returns the future, which may run in a task of any thread.
fn send<F: Future + Send>(future: F) -> F {
    future
}

impl Driver {
    fn call<A>(&mut self, call: &Call<A>) -> Result<A, CallError> {
        match self {
            Self::Sqlx(connection) => TOKIO.block_on(send(call.with_sqlx(connection))),
            Self::TokioPostgres(client) => TOKIO.block_on(send(call.with_tokio_postgres(client))),
            Self::Diesel(connection) => call.with_diesel(&mut **connection),
        }
    }

    /// Runs statements without values.
    #[track_caller]
    fn sql(&mut self, sql: &str) {
        match self {
            Self::Sqlx(connection) => {
                let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
                let _done = TOKIO.block_on(sql.execute(connection)).unwrap();
            }
            Self::TokioPostgres(client) => TOKIO.block_on(client.batch_execute(sql)).unwrap(),
            Self::Diesel(connection) => connection.batch_execute(sql).unwrap(),
        }
    }
}

/// A deployment in a schema of its own, and a connection of a user who may only use the schema.
struct Place<'a> {
    server: &'a Postgres,
    schema: &'static str,
    store: PostgresStore,
    timers: Transactional,
    driver: Driver,
}

impl Place<'_> {
    fn timer(&self, key: &str) -> Option<Timer> {
        block_on(self.store.get(key.into())).unwrap()
    }

    fn create(&mut self, spec: &Spec<Job>) -> TimerId {
        self.driver.call(&self.timers.schedule(spec).unwrap()).unwrap().id()
    }

    /// Claims the timers that are due.
    fn claim(&self, number: u64) -> Vec<Leased> {
        std::thread::sleep(Duration::from_millis(5));
        let by = Claimant { incarnation: 7, lease: Duration::from_secs(30) };
        block_on(self.store.claim(by, number, Limit { timers: 100, bytes: u64::MAX }, None)).unwrap().leased
    }

    /// Returns the number of rows that the transactions of the test have left.
    fn effects(&self) -> String {
        self.server.sql("SELECT count(*) FROM effects")
    }

    /// Runs a call in a transaction that rolls back, and expects this error of the server.
    #[track_caller]
    fn refuses<A>(&mut self, call: &Call<A>, kind: CallErrorKind) {
        self.driver.sql("BEGIN");
        let Err(error) = self.driver.call(call) else { panic!("it was not refused") };
        assert_eq!(error.kind(), kind, "{error}");
        self.driver.sql("ROLLBACK");
    }
}

/// Runs a test with each driver on one server.
fn with_each_driver(test: impl Fn(Place<'_>)) {
    with_each_driver_on(false, test);
}

/// Runs a test with each driver on one server. With `is_of_service`, the timers are those of the service.
fn with_each_driver_on(is_of_service: bool, test: impl Fn(Place<'_>)) {
    let Some(server) = Postgres::start(&[]) else { return };
    let _none =
        server.sql("CREATE ROLE app LOGIN; CREATE TABLE effects (job int); GRANT ALL ON effects TO app");
    for (schema, connect) in DRIVERS {
        let builder = PostgresStore::builder().schema(schema).for_service(is_of_service).poll(None);
        let store = block_on(builder.open(&Connect::to(&server.url()).unwrap())).unwrap();
        let _none = server.sql(&format!("GRANT USAGE ON SCHEMA {schema} TO app; TRUNCATE effects"));
        let driver = connect(&server.url_of("app"));
        test(Place { server: &server, schema, timers: store.transactional(), store, driver });
    }
}

#[track_caller]
fn kind<A>(result: Result<A, CallError>) -> CallErrorKind {
    let Err(error) = result else { panic!("it was not refused") };
    assert!(error.sqlstate().is_none(), "{error} comes from the server");
    error.kind()
}

#[test]
fn a_timer_exists_if_its_transaction_commits() {
    with_each_driver(|mut at| {
        let timeout = Spec::new(Job(17)).key("order 17").after(HOUR);
        for ending in ["ROLLBACK", "COMMIT"] {
            at.driver.sql("BEGIN; INSERT INTO effects VALUES (17)");
            let placed = at.driver.call(&at.timers.schedule(&timeout).unwrap()).unwrap();
            assert!(matches!(placed, Placed::Created(_)));
            let seen = at.driver.call(&at.timers.look("order 17").unwrap()).unwrap().unwrap();
            assert_eq!((seen.id, seen.phase, &*seen.kind), (placed.id(), Phase::Pending, "job"));
            assert_eq!(at.timer("order 17"), None, "others do not see it yet");
            at.driver.sql(ending);
        }
        at.timers.wake();
        let timer = at.timer("order 17").unwrap();
        assert_eq!((&*timer.payload.0, at.effects()), (&b"17"[..], "1".into()));
        // A cancel and a move that roll back change nothing.
        at.driver.sql("BEGIN");
        let moved = at.driver.call(&at.timers.move_to("order 17", Due::After(2 * HOUR)).unwrap()).unwrap();
        assert_eq!(moved, Changed::Changed);
        let cancelled = at.driver.call(&at.timers.cancel(timer.id).unwrap()).unwrap();
        assert_eq!(cancelled, CancelResult::Cancelled);
        assert_eq!(at.driver.call(&at.timers.look("order 17").unwrap()).unwrap(), None);
        at.driver.sql("ROLLBACK");
        assert_eq!(at.timer("order 17").as_ref(), Some(&timer));
        // Without a transaction, a call is one.
        assert_eq!(at.driver.call(&at.timers.cancel("order 17").unwrap()).unwrap(), CancelResult::Cancelled);
        assert_eq!(at.driver.call(&at.timers.cancel("order 17").unwrap()).unwrap(), CancelResult::NotFound);
        let moved = at.driver.call(&at.timers.move_to("order 17", Due::After(HOUR)).unwrap()).unwrap();
        assert_eq!(moved, Changed::NotFound);
        assert_eq!(block_on(at.store.check()).unwrap(), []);
    });
}

#[test]
fn a_timer_of_a_call_is_the_timer_that_the_store_makes() {
    with_each_driver(|mut at| {
        let id = TimerId::from_u128(0x17);
        let policy = Policy {
            attempts: 3,
            max_age: Some(HOUR),
            timeout: Duration::from_millis(2_500),
            misfire: Misfire::Within(Duration::from_secs(9)),
            backoff: Backoff::Ladder(vec![Duration::from_secs(1), Duration::from_micros(1_500)]),
            ..Policy::default()
        };
        let moment = UtcMillis::from_millis(2_000_000_000_123);
        let spec = Spec::new(vec![0, 255])
            .namespace("shop")
            .key("a \"quoted\" key \\u0000 of {order}")
            .label("b")
            .label("a, 'b'")
            .id(id)
            .policy(policy.clone())
            .trace("00-1")
            .at(moment);
        let call = at.timers.schedule_bytes("bytes", &spec).unwrap();
        assert_eq!(at.driver.call(&call).unwrap(), Placed::Created(id));
        assert_eq!(at.driver.call(&call).unwrap(), Placed::Repeated(id), "a call may be run again");
        let stored = block_on(at.store.get(id.into())).unwrap().unwrap();
        let op = spec.operation("bytes", vec![0, 255], at.store.now(), &Limits::default()).unwrap();
        let tourbillon_durable::store::Op::Place(wanted, _) = op else { panic!("a creation") };
        // The form of the HTTP API has whole milliseconds.
        let backoff = Backoff::Ladder(vec![Duration::from_secs(1), Duration::from_millis(2)]);
        let policy = Policy { backoff, ..policy };
        assert_eq!(stored, Timer { created: stored.created, policy, ..*wanted });
        let address = Address::Key(KeyOf { namespace: "shop".into(), key: stored.key.clone().unwrap() });
        let seen = at.driver.call(&at.timers.look(address.clone()).unwrap()).unwrap().unwrap();
        assert_eq!((seen.due, seen.scheduled, seen.created), (moment, moment, stored.created));
        assert_eq!((seen.key, seen.labels, seen.leased_until), (stored.key, stored.labels, None));
        // A delay of a year is as long in every time zone of the session.
        at.driver.sql("SET TimeZone = 'America/New_York'");
        let year = Duration::from_secs(365 * 86_400) + Duration::from_nanos(1);
        let before = at.store.now();
        let _id = at.create(&Spec::new(Job(1)).key("year").after(year));
        let due = at.timer("year").unwrap().due;
        let minute = Duration::from_secs(60);
        assert!(due + minute >= before + year && due <= at.store.now() + year + minute, "{due}");
        let seen = at.driver.call(&at.timers.look("year").unwrap()).unwrap().unwrap();
        assert_eq!(seen.due, due);
        // A moment that has passed stays the scheduled moment.
        let past = UtcMillis::from_millis(1_000);
        let _id = at.create(&Spec::new(Job(1)).key("past").at(past));
        let timer = at.timer("past").unwrap();
        assert_eq!((timer.scheduled, timer.due), (past, timer.created));
        assert_eq!(at.driver.call(&at.timers.cancel(address).unwrap()).unwrap(), CancelResult::Cancelled);
        assert_eq!(block_on(at.store.check()).unwrap(), []);
    });
}

#[test]
fn the_five_modes_of_a_key_have_their_answers_and_the_transaction_goes_on() {
    with_each_driver(|mut at| {
        let spec = |mode| Spec::new(Job(1)).key("k").after(HOUR).if_present(mode);
        at.driver.sql("BEGIN");
        let mut place = |mode| at.driver.call(&at.timers.schedule(&spec(mode)).unwrap());
        let none = place(IfPresent::ReplaceOnly(TimerId::from_u128(9)));
        assert_eq!(kind(none), CallErrorKind::NotFound);
        let first = place(IfPresent::Reject).unwrap().id();
        assert_eq!(kind(place(IfPresent::Reject)), CallErrorKind::KeyExists(Some(first)));
        assert_eq!(place(IfPresent::Keep).unwrap(), Placed::Kept { id: first, was: Phase::Pending });
        let second = place(IfPresent::Replace).unwrap();
        assert!(matches!(second, Placed::Replaced { old, was: Phase::Pending, .. } if old == first));
        let refused = place(IfPresent::ReplaceOnly(first));
        assert_eq!(kind(refused), CallErrorKind::KeyExists(Some(second.id())));
        let third = place(IfPresent::ReplaceOnly(second.id())).unwrap();
        let fourth = place(IfPresent::ReplaceKeepDue).unwrap();
        assert!(matches!(fourth, Placed::Replaced { old, .. } if old == third.id()));
        at.driver.sql("COMMIT");
        assert_eq!(at.timer("k").map(|timer| timer.id), Some(fourth.id()));
        assert_eq!(block_on(at.store.check()).unwrap(), []);
    });
}

#[test]
fn a_timer_in_delivery_is_in_flight() {
    with_each_driver(|mut at| {
        let _id = at.create(&Spec::new(Job(1)).key("k"));
        assert_eq!(at.claim(1).len(), 1);
        let moved = at.driver.call(&at.timers.move_to("k", Due::After(HOUR)).unwrap()).unwrap();
        assert_eq!(moved, Changed::Refused(Phase::Leased));
        let kept = Spec::new(Job(2)).key("k").if_present(IfPresent::Keep);
        let kept = at.driver.call(&at.timers.schedule(&kept).unwrap()).unwrap();
        assert!(matches!(kept, Placed::Kept { was: Phase::Leased, .. }));
        let seen = at.driver.call(&at.timers.look("k").unwrap()).unwrap().unwrap();
        assert_eq!((seen.phase, seen.deliveries, seen.leased_until.is_some()), (Phase::Leased, 1, true));
        assert_eq!(at.driver.call(&at.timers.cancel("k").unwrap()).unwrap(), CancelResult::InFlight);
        assert_eq!(block_on(at.store.check()).unwrap(), []);
    });
}

#[test]
fn an_effect_and_the_end_of_its_delivery_happen_once_together() {
    with_each_driver(|mut at| {
        let _id = at.create(&Spec::new(Job(1)).key("k"));
        let leased = at.claim(1).remove(0);
        let (id, token) = (leased.timer.id, leased.token);
        let old = Token { claim: token.claim + 1, ..token };
        for (token, is_held) in [(old, false), (token, true), (token, false)] {
            at.driver.sql("BEGIN; INSERT INTO effects VALUES (1)");
            match at.driver.call(&at.timers.done(id, token)) {
                Ok(()) => assert!(is_held, "the lease is lost"),
                Err(error) => {
                    assert!(!is_held && error.kind() == CallErrorKind::Lost, "{error}");
                    assert_eq!(error.sqlstate(), Some("TB001"));
                }
            }
            // PostgreSQL rolls a failed transaction back, also if its program asks for a commit.
            at.driver.sql("COMMIT");
        }
        assert_eq!((at.effects(), at.timer("k")), ("1".into(), None));
    });
}

#[test]
fn a_delivery_that_has_begun_after_the_snapshot_is_a_conflict() {
    with_each_driver(|mut at| {
        let _id = at.create(&Spec::new(Job(1)).key("k"));
        at.driver.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM effects");
        assert_eq!(at.claim(1).len(), 1);
        let cancel = at.timers.cancel("k").unwrap();
        let error = at.driver.call(&cancel).unwrap_err();
        assert_eq!((error.kind(), error.sqlstate()), (CallErrorKind::Conflict, Some("40001")), "{error}");
        at.driver.sql("ROLLBACK; BEGIN");
        assert_eq!(at.driver.call(&cancel).unwrap(), CancelResult::InFlight, "the same call, repeated");
        at.driver.sql("COMMIT");
    });
}

#[test]
fn a_deadlock_is_a_conflict() {
    with_each_driver(|mut at| {
        for key in ["a", "b"] {
            let _id = at.create(&Spec::new(Job(1)).key(key).after(HOUR));
        }
        let (cancel, schema) = (at.timers.cancel("a").unwrap(), at.schema);
        let other = format!(
            "BEGIN; SELECT {schema}.cancel('a'); SELECT pg_sleep(0.5); SELECT {schema}.cancel('b'); COMMIT"
        );
        at.driver.sql(&format!("BEGIN; SELECT {schema}.cancel('b')"));
        let server = at.server;
        std::thread::scope(|scope| {
            let other = scope.spawn(move || server.try_sql("app", &other));
            eventually("the other transaction holds a timer", || {
                let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
                server.sql(asleep) == "1"
            });
            // PostgreSQL ends this transaction or the other.
            match at.driver.call(&cancel) {
                Ok(_) => assert!(other.join().unwrap().unwrap_err().contains("40P01")),
                Err(error) => assert_eq!(error.kind(), CallErrorKind::Conflict, "{error}"),
            }
            at.driver.sql("ROLLBACK");
        });
    });
}

#[test]
fn bad_values_have_typed_errors_and_change_nothing() {
    with_each_driver(|mut at| {
        let (long, far) = ("x".repeat(300), Duration::from_secs(200 * 366 * 86_400));
        // These are refused before a statement is sent. The description stays the caller's.
        let mut jitter = Policy { jitter: HOUR, ..Policy::default() };
        let spec = || Spec::new(Job(7));
        let local = [
            (spec().key(&*long), CallErrorKind::TooLong),
            (spec().label(&*long), CallErrorKind::TooLong),
            ((0..9).fold(spec(), |spec, n| spec.label(n.to_string())), CallErrorKind::TooLong),
            (spec().after(Duration::MAX), CallErrorKind::DueTooFar),
            (spec().at(UtcMillis::MAX), CallErrorKind::DueTooFar),
            (spec().key("a\0b"), CallErrorKind::Invalid),
            (spec().label("a\0b"), CallErrorKind::Invalid),
            (spec().trace("a\0b"), CallErrorKind::Invalid),
            (spec().policy(jitter.clone()), CallErrorKind::Unsupported),
            (spec().repeat(Plan::every(HOUR), MissedInstants::Skip), CallErrorKind::Unsupported),
        ];
        for (spec, wanted) in &local {
            assert_eq!(kind(at.timers.schedule(spec)), *wanted, "{spec:?}");
            assert_eq!(spec.payload(), &Job(7));
        }
        let large = Spec::new(vec![0; 100_000]);
        assert_eq!(kind(at.timers.schedule_bytes("job", &large)), CallErrorKind::TooLong);
        assert_eq!(kind(at.timers.schedule_bytes(&long, &Spec::new(vec![]))), CallErrorKind::TooLong);
        assert_eq!(kind(at.timers.cancel("a\0b")), CallErrorKind::Invalid);
        assert_eq!(kind(at.timers.look("a\0b")), CallErrorKind::Invalid);
        assert_eq!(kind(at.timers.move_to("k", Due::After(Duration::MAX))), CallErrorKind::DueTooFar);
        assert_eq!(kind(Transactional::in_schema("Robert'); DROP TABLE")), CallErrorKind::Invalid);
        // These are refused by the server.
        let ladder = Backoff::Ladder(vec![HOUR; 33]);
        jitter = Policy { jitter: Duration::ZERO, max_age: Some(Duration::MAX), ..jitter };
        for (spec, wanted) in [
            (spec().after(99 * 366 * Duration::from_secs(86_400) + HOUR * 9_000), CallErrorKind::DueTooFar),
            (spec().at(UtcMillis::ZERO + far), CallErrorKind::DueTooFar),
            (spec().attempts(1_001), CallErrorKind::Invalid),
            (spec().backoff(ladder), CallErrorKind::Invalid),
            (spec().timeout(Duration::ZERO), CallErrorKind::Invalid),
            (spec().policy(jitter), CallErrorKind::Invalid),
            (spec().if_present(IfPresent::ReplaceOnly(TimerId::from_u128(1))), CallErrorKind::Invalid),
        ] {
            let call = at.timers.schedule(&spec).unwrap();
            at.refuses(&call, wanted);
        }
        let move_to = at.timers.move_to("k", Due::At(UtcMillis::MAX)).unwrap();
        at.refuses(&move_to, CallErrorKind::DueTooFar);
        // Keys that no timer can have are found nowhere.
        let cancel = at.timers.cancel(&*long).unwrap();
        assert_eq!(at.driver.call(&cancel).unwrap(), CancelResult::NotFound);
        assert_eq!(block_on(at.store.counts()).unwrap().of(Phase::Pending), 0);
    });
}

#[test]
fn timers_of_the_service_are_those_of_its_http_interface() {
    with_each_driver_on(true, |mut at| {
        let post = || api::Callback::post("https://shop.example/17");
        let mut callback = post().json(serde_json::json!({ "order": 17 }));
        callback.headers.insert("x-shop".into(), "a \"b\"".into());
        let policy = api::Policy { attempts: Some(3), ..api::Policy::default() };
        let timer = NewTimer::callback(callback).after_ms(60_000).label("shop").policy(policy);
        at.driver.sql("BEGIN");
        let id = at.driver.call(&at.timers.put("default", Some("k"), &timer).unwrap()).unwrap();
        at.driver.sql("COMMIT");
        let stored = block_on(at.store.get(id.into())).unwrap().unwrap();
        assert_eq!((&*stored.kind, &*stored.namespace, stored.policy.attempts), ("callback", "default", 3));
        let payload = String::from_utf8_lossy(&stored.payload.0);
        for part in ["https://shop.example/17", "POST", "application/json", "x-shop", r#"{"order":17}"#] {
            assert!(payload.contains(part), "{part}: {payload}");
        }
        let exists = at.timers.put("default", Some("k"), &timer).unwrap();
        at.refuses(&exists, CallErrorKind::KeyExists(Some(id)));
        let mut pull = api::Pull { queue: "mails".into(), ..api::Pull::default() };
        pull.body_base64 = Some("AP8=".into());
        let queued = at.timers.put("default", None, &NewTimer::pull(pull.clone())).unwrap();
        let queued = block_on(at.store.get(at.driver.call(&queued).unwrap().into())).unwrap().unwrap();
        assert_eq!(&*queued.kind, "pull");
        assert!(queued.payload.0.windows(2).any(|bytes| bytes == [0, 255]));
        let refused = |timer: &NewTimer| kind(at.timers.put("default", None, timer));
        assert_eq!(refused(&NewTimer::default()), CallErrorKind::Invalid);
        let both = NewTimer { pull: Some(pull.clone()), ..NewTimer::callback(post()) };
        assert_eq!(refused(&both), CallErrorKind::Invalid);
        pull.body = Some("a".into());
        assert_eq!(refused(&NewTimer::pull(pull.clone())), CallErrorKind::Invalid);
        pull.body = None;
        pull.body_base64 = Some("%".into());
        assert_eq!(refused(&NewTimer::pull(pull.clone())), CallErrorKind::Invalid);
        assert_eq!(refused(&NewTimer::callback(post()).after_ms(u64::MAX)), CallErrorKind::DueTooFar);
        let mut zero = post();
        zero.headers.insert("a".into(), "\0".into());
        assert_eq!(refused(&NewTimer::callback(zero)), CallErrorKind::Invalid);
        pull = api::Pull { queue: "a queue".into(), ..api::Pull::default() };
        for (timer, wanted) in [
            (NewTimer::pull(pull), CallErrorKind::Invalid),
            (NewTimer::callback(api::Callback::post("ftp://a")), CallErrorKind::Invalid),
            (NewTimer::callback(api::Callback::post("x".repeat(3_000))), CallErrorKind::TooLong),
        ] {
            let call = at.timers.put("default", None, &timer).unwrap();
            at.refuses(&call, wanted);
        }
        let jitter = api::Policy { jitter_ms: Some(1), ..api::Policy::default() };
        let call = at.timers.put("default", None, &NewTimer::callback(post()).policy(jitter)).unwrap();
        at.refuses(&call, CallErrorKind::Unsupported);
        let queued = NewTimer::pull(api::Pull { queue: "mails".into(), ..api::Pull::default() });
        for (namespace, key, timer) in [
            ("no namespace", None, NewTimer::callback(post())),
            ("default", Some(""), NewTimer::callback(post())),
            ("default", Some(""), queued),
        ] {
            let call = at.timers.put(namespace, key, &timer).unwrap();
            at.refuses(&call, CallErrorKind::Invalid);
        }
        // The key is in the namespace `default`. A key without a namespace is never one of the service's.
        at.refuses(&at.timers.cancel("k").unwrap(), CallErrorKind::Invalid);
        at.refuses(&at.timers.look("k").unwrap(), CallErrorKind::Invalid);
        at.refuses(&at.timers.schedule(&Spec::new(Job(1))).unwrap(), CallErrorKind::Unsupported);
        assert_eq!(block_on(at.store.check()).unwrap(), []);
    });
}

#[test]
fn a_missing_schema_and_a_missing_right_are_errors_of_the_database() {
    with_each_driver(|mut at| {
        let call = Transactional::in_schema("none").unwrap().cancel("k").unwrap();
        at.refuses(&call, CallErrorKind::Database);
        let _none = at.server.sql(&format!("REVOKE USAGE ON SCHEMA {} FROM app", at.schema));
        let call = at.timers.schedule(&Spec::new(Job(1))).unwrap();
        at.refuses(&call, CallErrorKind::Database);
        let error = CallError::of_sqlstate("42501", "permission denied");
        assert_eq!(
            (error.kind(), &*error.to_string()),
            (CallErrorKind::Database, "permission denied (42501)")
        );
        // A connection that is lost has no SQLSTATE, or that of the server's end.
        let ended = at
            .server
            .sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app'");
        assert_eq!(ended, "1");
        let error = at.driver.call(&at.timers.look("k").unwrap()).unwrap_err();
        assert_eq!(error.kind(), CallErrorKind::Database, "{error}");
        assert!(std::error::Error::source(&error).is_some());
    });
}

#[test]
fn an_answer_of_another_function_is_an_error() {
    let timers = Transactional::default();
    let place = timers.schedule(&Spec::new(Job(1))).unwrap();
    for answer in [None, Some(""), Some("{}"), Some("cancelled"), Some(r#"{"outcome": "created"}"#)] {
        assert_eq!(kind(place.answer(answer)), CallErrorKind::Database, "{answer:?}");
    }
    let cancel = timers.cancel("k").unwrap();
    assert_eq!(kind(cancel.answer(None)), CallErrorKind::Database);
    assert_eq!(kind(cancel.answer(Some("moved"))), CallErrorKind::Database);
    assert_eq!(kind(timers.look("k").unwrap().answer(Some("[]"))), CallErrorKind::Database);
    assert_eq!(timers.look("k").unwrap().answer(None).unwrap(), None);
    assert_eq!(
        kind(timers.done(TimerId::from_u128(1), Token { incarnation: 0, claim: u64::MAX }).answer(None)),
        CallErrorKind::Database
    );
}
