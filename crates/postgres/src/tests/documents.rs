//! Tests shared documents: processes that write the same document, lost answers, kills of the server, and a pool.

use super::server::{connect, open};
use crate::{Connect, PostgresStore, SharedDocument};
use pollster::block_on;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_fault::{Bouncer, Postgres, Proxy, eventually_some};

fn number_in(document: Option<SharedDocument>) -> (u64, u64) {
    document.map_or((0, 0), |document| {
        (document.version, String::from_utf8(document.value).unwrap().parse().unwrap())
    })
}

/// Adds one to the number in the document `sum`. Repeats this if another process changes the document first.
fn add(store: &PostgresStore) -> Result<(), StoreError> {
    loop {
        let (version, sum) = number_in(block_on(store.document("sum"))?);
        let next = (sum + 1).to_string();
        if block_on(store.replace_document("sum", version, Some(next.as_bytes())))?.is_some() {
            return Ok(());
        }
    }
}

fn sum(store: &PostgresStore) -> u64 {
    number_in(block_on(store.document("sum")).unwrap()).1
}

#[test]
fn a_document_is_replaced_only_by_who_has_read_it() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (one, two) = (open(&server), open(&server));
    let other = PostgresStore::builder().schema("other").poll(None);
    let other = block_on(other.open(&connect(&server))).unwrap();
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
    assert!(block_on(one.replace_document("n", version, None)).unwrap().is_none(), "of an old version");
    assert_eq!(block_on(one.replace_document("n", second.version, None)).unwrap(), Some(0));
    assert_eq!(block_on(two.document("n")).unwrap(), None);
    assert!(block_on(two.replace_document("n", 0, Some(b""))).unwrap().is_some());
    let third = block_on(two.document("n")).unwrap().unwrap();
    assert!(third.value.is_empty() && third.version != second.version, "no version comes back: {third:?}");
    assert_eq!(block_on(two.document("m")).unwrap(), None, "documents have names");
    assert_eq!(block_on(other.document("n")).unwrap(), None, "schemas have documents of their own");
    for name in ["n".repeat(256), "a\0b".to_owned()] {
        let refused = block_on(one.replace_document(&name, 0, Some(b""))).unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Limit);
    }
    let large = vec![7; (4 << 20) + 1];
    let refused = block_on(one.replace_document("large", 0, Some(&large))).unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Limit);
    assert!(block_on(one.replace_document("large", 0, Some(&large[1..]))).unwrap().is_some());
    assert_eq!(block_on(two.document("large")).unwrap().unwrap().value, large[1..]);
}

#[test]
fn no_change_of_a_document_is_lost_among_many_at_any_level_of_isolation() {
    const EACH: u64 = 40;
    let Some(server) = Postgres::start(&["default_transaction_isolation=serializable"]) else { return };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = open(&server);
                (0..EACH).for_each(|_| add(&store).unwrap());
            });
        }
    });
    assert_eq!(sum(&open(&server)), 4 * EACH);
}

#[test]
fn no_change_of_a_document_is_lost_behind_a_pool_in_transaction_mode() {
    const EACH: u64 = 40;
    let Some(server) = Postgres::start(&[]) else { return };
    let Some(pool) = Bouncer::start(&server) else { return };
    let open = || {
        let connect = Connect::to(&pool.url()).unwrap();
        block_on(PostgresStore::builder().poll(None).open(&connect)).unwrap()
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let store = open();
                (0..EACH).for_each(|_| add(&store).unwrap());
            });
        }
    });
    assert_eq!(sum(&open()), 3 * EACH);
}

/// The answer of the statement is lost after its commit. The store finds the version that it has drawn.
#[test]
fn a_change_whose_answer_is_lost_is_made_once() {
    let Some(server) = Postgres::start(&[]) else { return };
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())));
    let address = format!("postgresql://postgres@{}/postgres", proxy.address());
    let connect = Connect::to(&address).unwrap().response_timeout(Duration::from_secs(1));
    let store = block_on(PostgresStore::builder().poll(None).open(&connect)).unwrap();
    for round in 1..=12 {
        if round % 3 == 0 {
            proxy.lose_after(0);
        }
        let document = block_on(store.document("sum"));
        // The lost answer may be the answer to this read.
        let (version, sum) = number_in(document.unwrap_or_else(|_| block_on(store.document("sum")).unwrap()));
        proxy.lose_after(0);
        let value = (sum + 1).to_string();
        assert!(block_on(store.replace_document("sum", version, Some(value.as_bytes()))).unwrap().is_some());
        assert_eq!(sum + 1, round);
    }
    assert!(proxy.lost_replies() >= 12, "{}", proxy.lost_replies());
    // The answer to a removal is lost. The row has the version of the removal.
    let (version, _) = number_in(block_on(store.document("sum")).unwrap());
    proxy.lose_after(0);
    assert!(block_on(store.replace_document("sum", version, None)).unwrap().is_some());
    assert_eq!(block_on(store.document("sum")).unwrap(), None);
    // The answer to the creation after a removal is lost.
    proxy.lose_after(1);
    assert!(block_on(store.replace_document("sum", 0, Some(b"7"))).unwrap().is_some());
    assert_eq!(number_in(block_on(store.document("sum")).unwrap()).1, 7);
    assert!(proxy.lost_replies() >= 14, "{}", proxy.lost_replies());
}

/// The wait for the lost answer takes longer than the patience of the settings. The statement is repeated once
/// nevertheless.
#[test]
fn a_lost_answer_that_takes_all_patience_is_looked_for_once() {
    let Some(server) = Postgres::start(&[]) else { return };
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())));
    let address = format!("postgresql://postgres@{}/postgres", proxy.address());
    let time = Duration::from_secs(2);
    let connect = Connect::to(&address).unwrap().response_timeout(time).patience(time);
    let store = block_on(PostgresStore::builder().poll(None).open(&connect)).unwrap();
    proxy.lose_after(0);
    let version = block_on(store.replace_document("n", 0, Some(b"a"))).unwrap().unwrap();
    let found = block_on(store.document("n")).unwrap().unwrap();
    assert_eq!((proxy.lost_replies(), found), (1, SharedDocument { version, value: b"a".to_vec() }));
}

/// The answer to a creation is lost. Before the statement is sent again, another process removes the document.
#[test]
fn a_creation_whose_answer_is_lost_brings_no_document_back_that_was_removed() {
    let Some(server) = Postgres::start(&[]) else { return };
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())));
    let address = format!("postgresql://postgres@{}/postgres", proxy.address());
    let connect = Connect::to(&address).unwrap().response_timeout(Duration::from_secs(2));
    let one = block_on(PostgresStore::builder().poll(None).open(&connect)).unwrap();
    let two = open(&server);
    for round in 0..2 {
        // In the second round, the first of two statements finds that the name belonged to another document.
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
        assert_eq!(proxy.lost_replies(), round + 1);
    }
}

/// A delayed statement arrives after its repetition has created the document.
#[test]
fn a_creation_that_comes_late_finds_another_version() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let late = "SELECT is_replaced FROM tourbillon.replace_document('n', 0, 'a', 5)";
    assert_eq!((server.sql(late), server.sql(late)), ("t".to_owned(), "f".to_owned()));
    assert!(block_on(store.replace_document("n", 5, None)).unwrap().is_some());
    assert_eq!(server.sql(late), "f");
    assert_eq!(block_on(store.document("n")).unwrap(), None);
    assert!(
        block_on(store.replace_document("n", 0, None)).unwrap().is_some(),
        "there is none, as was expected"
    );
    assert!(block_on(store.replace_document("n", 0, Some(b"b"))).unwrap().is_some());
    assert_eq!(server.sql(late), "f");
    assert_eq!(block_on(store.document("n")).unwrap().unwrap().value, b"b");
}

/// Processes change a document while the server is killed. Each change that was answered is there afterwards, and no
/// change was made twice.
#[test]
fn a_kill_of_the_server_loses_no_change_of_a_document_and_doubles_none() {
    let Some(mut server) = Postgres::start(&["fsync=on"]) else { return };
    let (acknowledged, unknown) = (AtomicU64::new(0), AtomicU64::new(0));
    let connect = connect(&server).patience(Duration::from_secs(2));
    let stores: Vec<_> =
        (0..3).map(|_| block_on(PostgresStore::builder().poll(None).open(&connect)).unwrap()).collect();
    for _ in 0..3 {
        thread::scope(|scope| {
            for store in &stores {
                scope.spawn(|| {
                    let begin = Instant::now();
                    while begin.elapsed() < Duration::from_millis(1_500) {
                        match add(store) {
                            Ok(()) => acknowledged.fetch_add(1, Ordering::Relaxed),
                            Err(error) if error.kind() == StoreErrorKind::Unknown => {
                                unknown.fetch_add(1, Ordering::Relaxed)
                            }
                            Err(error) => {
                                assert!(error.is_transient(), "{error}");
                                0
                            }
                        };
                    }
                });
            }
            thread::sleep(Duration::from_millis(400));
            server.kill();
            thread::sleep(Duration::from_millis(200));
            server.run();
        });
    }
    let (acknowledged, unknown) = (acknowledged.into_inner(), unknown.into_inner());
    let sum = sum(&stores[0]);
    eprintln!("{acknowledged} changes were answered, {unknown} unknown, and {sum} were made");
    assert!(acknowledged > 30 && (acknowledged..=acknowledged + unknown).contains(&sum));
}

/// A failover to a replica without the last commits brings an earlier version back. Here the test sets the rows back.
#[test]
fn a_version_that_a_failover_has_lost_is_no_other_documents_version() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (one, two) = (open(&server), open(&server));
    assert!(block_on(one.replace_document("n", 0, Some(b"a"))).unwrap().is_some());
    let first = block_on(one.document("n")).unwrap().unwrap();
    let _kept = server.sql("CREATE TABLE replica AS SELECT * FROM tourbillon.document");
    assert!(block_on(one.replace_document("n", first.version, Some(b"b"))).unwrap().is_some());
    let lost = block_on(one.document("n")).unwrap().unwrap();
    let _back =
        server.sql("DELETE FROM tourbillon.document; INSERT INTO tourbillon.document SELECT * FROM replica");
    assert!(block_on(two.replace_document("n", first.version, Some(b"c"))).unwrap().is_some());
    assert!(
        block_on(one.replace_document("n", lost.version, Some(b"d"))).unwrap().is_none(),
        "it was computed from a lost value"
    );
    assert_eq!(block_on(two.document("n")).unwrap().unwrap().value, b"c");
}
