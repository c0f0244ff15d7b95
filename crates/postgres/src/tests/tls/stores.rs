//! Tests stores on a server, and on a pool, that accept only connections with TLS.

use super::rig::{Files, Secure};
use crate::tests::session::await_sessions;
use crate::tests::standby::assert_cancels;
use crate::{Connect, PostgresStore};
use std::sync::mpsc::channel;
use std::time::Duration;
use tourbillon_durable::store::{Claimant, Limit, TimerStore};
use tourbillon_fault::{Authority, Bouncer, Postgres};

/// The condition of the sessions of a store that have TLS.
const WITH_TLS: &str = "application_name = 'tourbillon' AND
    (SELECT ssl FROM pg_stat_ssl WHERE pg_stat_ssl.pid = pg_stat_activity.pid)";

fn claim(store: &PostgresStore, number: u64) -> usize {
    let by = Claimant { incarnation: store.incarnation(), lease: Duration::from_secs(300) };
    let limit = Limit { timers: 10, bytes: u64::MAX };
    pollster::block_on(store.claim(by, number, limit, None)).unwrap().leased.len()
}

#[test]
fn all_connections_of_a_store_have_tls() {
    let (authority, files) = (Authority::new("ours"), Files::new());
    let own = authority.server(&["127.0.0.1"]);
    let rules = "hostssl all owner 127.0.0.1/32 trust\n";
    let Some(secure) = Secure::start(&own, &authority.pem(), rules) else { return };
    let _made = secure.0.sql("CREATE ROLE owner LOGIN SUPERUSER");
    let ours = files.put("ours.pem", &authority.pem());
    let words = format!("sslmode=verify-full&sslrootcert={}", ours.display());
    let connect =
        Connect::to(&secure.address("owner", &words)).unwrap().response_timeout(Duration::from_secs(1));
    let builder = PostgresStore::builder().poll(Some(Duration::from_secs(60))).listen(true);
    let store = pollster::block_on(builder.open(&connect)).unwrap();
    await_sessions(&secure.0, &format!("{WITH_TLS} AND query = 'LISTEN \"tourbillon\"'"), 1);
    assert_eq!(claim(&store, 1), 0);
    let (sender, calls) = channel();
    store.subscribe(Box::new(move || _ = sender.send(())));
    let _id = secure.0.sql("SELECT tourbillon.schedule('mail')");
    calls.recv_timeout(Duration::from_secs(10)).expect("the runtime is woken");
    assert_eq!(claim(&store, 2), 1);
    await_sessions(&secure.0, &format!("application_name = 'tourbillon' AND NOT ({WITH_TLS})"), 0);
    assert_cancels(&secure.0, &store);
}

#[test]
fn a_store_works_behind_a_pool_with_tls() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (authority, users, files) = (Authority::new("ours"), Authority::new("users"), Files::new());
    let (own, issued) = (authority.server(&["127.0.0.1"]), users.user("postgres"));
    let lines = "client_tls_sslmode = verify-full\nclient_tls_cert_file = own.pem\nclient_tls_key_file = own.key\n\
                 client_tls_ca_file = users.pem";
    let pool_files = [("own.pem", &*own.certificate), ("own.key", &*own.key), ("users.pem", &*users.pem())];
    let Some(pool) = Bouncer::start_with(&server, lines, &pool_files) else { return };
    let ours = files.put("ours.pem", &authority.pem());
    let (certificate, key) = (files.put("c.pem", &issued.certificate), files.put("c.key", &issued.key));
    let full = format!("{}?sslmode=verify-full&sslrootcert={}", pool.url(), ours.display());
    let without = Connect::to(&full).unwrap().patience(Duration::ZERO);
    let error = pollster::block_on(PostgresStore::builder().poll(None).open(&without)).unwrap_err();
    assert!(error.to_string().contains("no connection to PostgreSQL"), "{error}");
    let full = format!("{full}&sslcert={}&sslkey={}", certificate.display(), key.display());
    let connect = Connect::to(&full).unwrap().response_timeout(Duration::from_secs(1));
    let store = pollster::block_on(PostgresStore::builder().poll(None).open(&connect)).unwrap();
    let _id = server.sql("SELECT tourbillon.schedule('mail')");
    assert_eq!(claim(&store, 1), 1);
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
    // The pool takes no request without TLS and a certificate.
    assert_cancels(&server, &store);
}
