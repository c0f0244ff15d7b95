//! Tests that a deployment belongs to the service or to programs, and that calls without a namespace find its timers.

use super::server::{connect, open, open_of_service};
use crate::PostgresStore;
use std::time::Duration;
use tourbillon_durable::store::{Claimant, Limit, StoreErrorKind, TimerStore};
use tourbillon_fault::Postgres;

fn open_as(
    server: &Postgres,
    schema: &str,
    is_of_service: bool,
) -> Result<PostgresStore, (StoreErrorKind, String)> {
    let builder = PostgresStore::builder().schema(schema).for_service(is_of_service).poll(None);
    let opened = pollster::block_on(builder.open(&connect(server)));
    opened.map_err(|error| (error.kind(), error.to_string()))
}

#[track_caller]
fn refuses(server: &Postgres, schema: &str, is_of_service: bool) {
    let (kind, message) = open_as(server, schema, is_of_service).expect_err("the opening fails");
    assert!(kind == StoreErrorKind::Limit && message.contains(schema), "{message}");
}

#[test]
fn a_deployment_belongs_to_the_service_or_to_programs() {
    let Some(server) = Postgres::start(&[]) else { return };
    // A program has opened the schema, and has no timers and no node yet.
    drop(open_as(&server, "empty", false).unwrap());
    let is_open_to_service = |schema: &str| {
        let any = PostgresStore::builder().schema(schema).for_any().poll(None);
        let store = pollster::block_on(any.open(&connect(&server))).unwrap();
        pollster::block_on(store.is_open_to_service()).unwrap()
    };
    assert!(is_open_to_service("empty"));
    drop(open_as(&server, "empty", false).unwrap());
    drop(open_as(&server, "empty", true).unwrap());
    refuses(&server, "empty", false);
    assert!(is_open_to_service("empty"));
    drop(open_as(&server, "empty", true).unwrap());

    let program = open_as(&server, "stored", false).unwrap();
    let _id = server.sql("SELECT stored.schedule('mail', key => 'k')");
    refuses(&server, "stored", true);
    assert!(!is_open_to_service("stored"));
    drop(program);
    drop(open_as(&server, "stored", false).unwrap());

    let program = open_as(&server, "claimed", false).unwrap();
    let by = Claimant { incarnation: program.incarnation(), lease: Duration::from_secs(30) };
    let limit = Limit { timers: 1, bytes: u64::MAX };
    assert!(pollster::block_on(program.claim(by, 1, limit, None)).unwrap().leased.is_empty());
    refuses(&server, "claimed", true);
    assert!(!is_open_to_service("claimed"));
    pollster::block_on(program.leave()).unwrap();
    drop(open_as(&server, "claimed", true).unwrap());
}

#[test]
fn nodes_of_a_service_that_start_at_once_share_one_deployment() {
    let Some(server) = Postgres::start(&[]) else { return };
    std::thread::scope(|scope| {
        let opening = || open_as(&server, "service", true).map(drop);
        let openings: Vec<_> = (0..4).map(|_| scope.spawn(opening)).collect();
        for opening in openings {
            opening.join().unwrap().unwrap();
        }
    });
}

/// Tests the calls that leave the namespace out. A key that is not found in the namespace of the deployment would be
/// taken for a timer that has ended.
#[test]
fn a_call_without_a_namespace_finds_the_timer_that_was_made_without_one() {
    let Some(server) = Postgres::start(&[]) else { return };
    let _stores = (open(&server), open_of_service(&server));
    for (schema, creation) in [
        ("tourbillon", "schedule('mail', "),
        ("tourbillon", "schedule('callback', "),
        ("service", "schedule_queue('q', "),
        ("service", "schedule_callback('https://shop.example/', "),
    ] {
        let call = |call: &str| server.sql(&format!("SELECT {schema}.{call}"));
        let _id = call(&format!("{creation} key => 'order 4', delay => '1 hour')"));
        assert_eq!(
            server.sql(&format!("SELECT phase FROM {schema}.look('order 4')")),
            "pending",
            "{creation}"
        );
        assert_eq!(call("move_to('order 4', delay => '2 hours')"), "moved", "{creation}");
        assert_eq!(call("cancel('order 4')"), "cancelled", "{creation}");
        assert_eq!(call("cancel('order 4')"), "not-found", "{creation}");
        assert_eq!(server.sql(&format!("SELECT count(*) FROM {schema}.look('order 4')")), "0");
    }
    // The service has no such namespaces, so the answer `not-found` would hide a fault.
    for namespace in ["", "/schedules/default", "a b"] {
        for call in ["cancel('k', NS)", "move_to('k', delay => '1 s', namespace => NS)", "look('k', NS)"] {
            let call = call.replace("NS", &format!("'{namespace}'"));
            let error = server.try_sql("postgres", &format!("SELECT service.{call}")).unwrap_err();
            assert!(error.contains("22023"), "{call}: {error}");
        }
    }
    let id = "00000000-0000-0000-0000-000000000011";
    for (schema, namespace) in [("service", ""), ("tourbillon", ""), ("tourbillon", "a b")] {
        let call = format!("SELECT {schema}.cancel(namespace => '{namespace}', id => '{id}')");
        assert_eq!(server.sql(&call), "not-found");
    }
    assert_eq!(server.sql("SELECT tourbillon.cancel('k', 'a b')"), "not-found");
}

#[test]
fn a_timer_that_nobody_would_deliver_is_refused() {
    let Some(server) = Postgres::start(&[]) else { return };
    let stores = (open(&server), open_of_service(&server));
    for call in [
        "tourbillon.schedule_queue('q')",
        "tourbillon.schedule_callback('https://shop.example/')",
        "service.schedule('mail', namespace => 'default')",
        "service.place('mail', namespace => 'default')",
        // The service has a form of its own for the payloads of these kinds.
        "service.schedule('callback', namespace => 'default')",
        "service.place('callback', namespace => 'default')",
        "service.schedule('pull', namespace => 'default')",
        "service.place('pull', 'x', key => '', namespace => 'default')",
    ] {
        let error = server.try_sql("postgres", &format!("SELECT {call}")).unwrap_err();
        assert!(error.contains("0A000"), "{call}: {error}");
    }
    for store in [&stores.0, &stores.1] {
        assert_eq!(pollster::block_on(store.counts()).unwrap().by_namespace.len(), 0);
    }
}
