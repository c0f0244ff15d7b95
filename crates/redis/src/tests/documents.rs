//! Tests shared documents of a deployment that several processes use.

use super::plain;
use crate::{Connect, RedisStore, SharedDocument};
use pollster::block_on;
use std::thread;
use std::time::Duration;
use tourbillon_durable::store::StoreErrorKind;
use tourbillon_fault::{Proxy, Server, eventually_some};

fn open(name: &str, server: &Server) -> RedisStore {
    plain::open(RedisStore::builder(name).shards(2).poll(None), server.port()).unwrap()
}

/// Opens a store whose connections go through a proxy. A lost reply uses up the whole patience of the store.
fn open_behind(proxy: &Proxy) -> RedisStore {
    let time = Duration::from_secs(2);
    let connect = Connect::single(&proxy.url()).unwrap().response_timeout(time).patience(time);
    block_on(RedisStore::builder("d").shards(2).poll(None).open(&connect)).unwrap()
}

#[test]
fn a_document_is_replaced_only_by_who_has_read_it() {
    let Some(server) = Server::start(&[]) else { return };
    let (one, two, other) = (open("d", &server), open("d", &server), open("e", &server));
    assert_eq!(block_on(one.document("n")).unwrap(), None);
    assert!(
        block_on(one.replace_document("n", 7, Some(b"a"))).unwrap().is_none(),
        "there is none to replace"
    );
    assert_eq!(
        block_on(one.replace_document("n", 0, None)).unwrap(),
        Some(0),
        "there is none, as was expected"
    );
    let first = block_on(one.replace_document("n", 0, Some(b"a"))).unwrap();
    assert!(block_on(two.replace_document("n", 0, Some(b"b"))).unwrap().is_none(), "there is one already");
    assert!(block_on(two.replace_document("n", 0, None)).unwrap().is_none(), "there is one");
    let SharedDocument { version, value } = block_on(two.document("n")).unwrap().unwrap();
    assert_eq!((value, first), (b"a".to_vec(), Some(version)));
    let replaced = block_on(two.replace_document("n", version, Some(b"\0b"))).unwrap();
    assert!(block_on(one.replace_document("n", version, Some(b"c"))).unwrap().is_none(), "of an old version");
    let second = block_on(one.document("n")).unwrap().unwrap();
    assert_eq!((&*second.value, Some(second.version)), (&b"\0b"[..], replaced));
    assert_eq!(block_on(one.replace_document("n", second.version, None)).unwrap(), Some(0));
    assert_eq!(block_on(two.document("n")).unwrap(), None);
    assert!(block_on(two.replace_document("n", 0, Some(b""))).unwrap().is_some());
    let third = block_on(two.document("n")).unwrap().unwrap();
    assert!(third.value.is_empty() && third.version != second.version, "no version comes back: {third:?}");
    assert_eq!(block_on(two.document("m")).unwrap(), None, "documents have names");
    assert_eq!(block_on(other.document("n")).unwrap(), None, "deployments have documents of their own");
    let long = "n".repeat(256);
    let refused = block_on(one.replace_document(&long, 0, Some(b""))).unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Limit);
}

#[test]
fn no_change_of_a_document_is_lost_among_many() {
    const EACH: u64 = 50;
    let Some(server) = Server::start(&[]) else { return };
    let add = |store: &RedisStore| loop {
        let document = block_on(store.document("sum")).unwrap();
        let (version, sum) = document.map_or((0, 0), |document| {
            (document.version, String::from_utf8(document.value).unwrap().parse::<u64>().unwrap())
        });
        let next = (sum + 1).to_string();
        if block_on(store.replace_document("sum", version, Some(next.as_bytes()))).unwrap().is_some() {
            return;
        }
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = open("d", &server);
                (0..EACH).for_each(|_| add(&store));
            });
        }
    });
    let sum = block_on(open("d", &server).document("sum")).unwrap().unwrap();
    assert_eq!(sum.value, (4 * EACH).to_string().as_bytes());
}

#[test]
fn documents_of_a_deployment_that_is_lost_are_no_documents() {
    let Some(server) = Server::start(&[]) else { return };
    let store = open("d", &server);
    assert!(block_on(store.replace_document("n", 0, Some(b"a"))).unwrap().is_some());
    server.command(&["FLUSHALL"]);
    assert_eq!(block_on(store.document("n")).unwrap_err().kind(), StoreErrorKind::Closed);
    let again = open("d", &server);
    assert_eq!(block_on(again.document("n")).unwrap(), None);
    let error = block_on(store.replace_document("n", 0, Some(b"b"))).unwrap_err();
    assert_eq!(
        error.kind(),
        StoreErrorKind::Closed,
        "the former deployment's processes do not mix with the new one"
    );
}

/// Tests that after a failover has lost the last writes, no new version equals the version of a lost value.
#[test]
fn a_version_that_a_failover_has_lost_is_no_other_documents_version() {
    let Some(server) = Server::start(&[]) else { return };
    let (one, two) = (open("d", &server), open("d", &server));
    assert!(block_on(one.replace_document("n", 0, Some(b"a"))).unwrap().is_some());
    let first = block_on(one.document("n")).unwrap().unwrap();
    server.command(&["COPY", "tb:{d}:notes", "tb:{d}:replica"]);
    assert!(block_on(one.replace_document("n", first.version, Some(b"b"))).unwrap().is_some());
    let lost = block_on(one.document("n")).unwrap().unwrap();
    server.command(&["RENAME", "tb:{d}:replica", "tb:{d}:notes"]);
    assert!(block_on(two.replace_document("n", first.version, Some(b"c"))).unwrap().is_some());
    assert!(
        block_on(one.replace_document("n", lost.version, Some(b"d"))).unwrap().is_none(),
        "it was computed from a lost value"
    );
    assert_eq!(block_on(two.document("n")).unwrap().unwrap().value, b"c");
}

/// Tests a change whose reply is lost. The repeated script finds the version that its first run has stored.
#[test]
fn a_change_whose_reply_is_lost_is_made_once() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    let store = open_behind(&proxy);
    // The server has the text of the script from now on. So the first reply of each later change answers the first run
    // of the script.
    assert!(block_on(store.replace_document("m", 0, Some(b"m"))).unwrap().is_some());
    let lose = |replies: usize, version: u64, value: Option<&[u8]>| {
        let lost = proxy.lost_replies();
        proxy.lose_after(replies);
        let replaced = block_on(store.replace_document("n", version, value)).unwrap();
        assert_eq!(proxy.lost_replies(), lost + 1);
        let found = block_on(store.document("n")).unwrap();
        assert_eq!(found.as_ref().map(|document| &*document.value), value);
        let version = found.map_or(0, |document| document.version);
        assert_eq!(replaced, Some(version), "{value:?}");
        version
    };
    let first = lose(0, 0, Some(b"a"));
    let second = lose(0, first, Some(b"b"));
    lose(0, second, None);
    // The first script finds that the name belonged to a document that was removed.
    lose(1, 0, Some(b"c"));
}

/// The reply to a creation is lost. Before the script is sent again, another process removes the document.
#[test]
fn a_creation_whose_reply_is_lost_brings_no_document_back_that_was_removed() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    let (one, two) = (open_behind(&proxy), open("d", &server));
    assert!(
        block_on(two.replace_document("m", 0, Some(b"m"))).unwrap().is_some(),
        "the server knows the script now"
    );
    for round in 0..2 {
        proxy.lose_after(round);
        thread::scope(|scope| {
            let created = scope.spawn(|| block_on(one.replace_document("n", 0, Some(b"a"))));
            let version = eventually_some("the document is created", || {
                Some(block_on(two.document("n")).unwrap()?.version)
            });
            assert!(block_on(two.replace_document("n", version, None)).unwrap().is_some());
            let error = created.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unknown, "{error}");
        });
        assert_eq!(block_on(two.document("n")).unwrap(), None, "it was removed");
    }
}
