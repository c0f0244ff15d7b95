//! Tests stores whose connections have TLS, through a network with faults.

use super::rig::{Files, Secure};
use crate::PostgresStore;
use crate::tests::network::{half_open, lose_a_claim, lose_replies, through_proxy_with, when_damaged};
use tourbillon_fault::{Authority, Postgres, Proxy};

/// Runs a test on a store whose connections have TLS, and pass a proxy.
fn with_tls(test: impl FnOnce(&Postgres, &Proxy, &PostgresStore)) {
    let (authority, files) = (Authority::new("ours"), Files::new());
    let rules = "hostssl all owner 127.0.0.1/32 trust\n";
    let own = authority.server(&["127.0.0.1"]);
    let Some(secure) = Secure::start(&own, &authority.pem(), rules) else { return };
    let _made = secure.0.sql("CREATE ROLE owner LOGIN SUPERUSER");
    let ours = files.put("ours.pem", &authority.pem());
    let words = format!("sslmode=verify-full&sslrootcert={}", ours.display());
    let (proxy, store) = through_proxy_with(&secure.0, "owner", &words);
    test(&secure.0, &proxy, &store);
}

#[test]
fn replies_under_tls_that_are_lost_make_no_second_timer_and_lose_none() {
    with_tls(lose_replies);
}

#[test]
fn a_claim_under_tls_whose_reply_is_lost_is_recovered() {
    with_tls(lose_a_claim);
}

#[test]
fn half_open_connections_with_tls_are_given_up_and_replaced() {
    with_tls(|_, proxy, store| half_open(proxy, store));
}

/// A record with a flipped bit fails its check, so the outcome of the call is not known. Later calls have connections
/// of their own.
#[test]
fn replies_under_tls_that_are_damaged_are_not_believed() {
    with_tls(when_damaged);
}
