//! Tests of losses of the document, and of the copies that nodes put back.

use super::tests::{insert, shared};
use super::*;
use crate::state::NAMESPACES;
use crate::state::double::{self, Documents, Looks};
use crate::state::{DEFAULT, ROTATION, SigningSecret, in_rotation};
use core::pin::pin;
use core::sync::atomic::Ordering;
use core::task::{Context, Waker};
use std::thread;
use tokio::sync::oneshot;
use tourbillon_api::{Moment, NamespaceLimits};

/// The documents of a deployment without the document of the namespaces, which its store has lost.
fn lose(documents: &Documents) {
    assert!(documents.lock().unwrap().remove(NAMESPACES).is_some());
}

#[test]
fn a_node_keeps_its_copy_of_a_document_that_the_store_has_lost_and_refuses_changes() {
    let documents = Documents::default();
    let (_, one) = shared(&documents, 1);
    assert!(one.are_absent());
    one.make_document().unwrap();
    insert(&one, "a");
    assert!(!one.are_absent() && one.fault().is_none());
    let former = documents.lock().unwrap().clone();
    lose(&documents);
    assert!(block_on(one.renew()).is_err());
    block_on(one.freshen());
    assert!(one.require("a").is_ok() && one.fault().is_some());
    let refused = one.try_change(|stored| {
        let _removed = stored.namespaces.remove("a");
        Ok::<_, ()>(())
    });
    assert!(refused.unwrap_err().to_string().contains("tourbillond mend"));
    assert!(one.make_document().is_ok(), "the node knows a document, so it makes none");
    assert!(!documents.lock().unwrap().contains_key(NAMESPACES));
    // The server's own backup is restored.
    *documents.lock().unwrap() = former;
    block_on(one.renew()).unwrap();
    assert!(one.require("a").is_ok() && one.fault().is_none());
    insert(&one, "b");
}

#[test]
fn a_change_finds_the_loss_of_the_document_by_itself() {
    let documents = Documents::default();
    let (_, one) = shared(&documents, 1);
    insert(&one, "a");
    lose(&documents);
    assert!(one.change(|stored| drop(stored.namespaces.remove("a"))).is_err());
    assert!(one.require("a").is_ok() && one.fault().is_some());
}

/// Makes the document that a mend makes.
fn mend(documents: &Documents) {
    let storage = NamespaceStorage::Shared(double::node(documents, 9));
    let awaiting = StoredNamespaces { copies: Copies::Awaited, ..StoredNamespaces::default() };
    assert!(block_on(storage.replace(0, &awaiting)).unwrap().is_some());
}

/// Waits until the next change has a later moment than all changes before, also if those ran ahead of the clock.
fn later() {
    thread::sleep(Duration::from_millis(20));
}

fn document(documents: &Documents) -> StoredNamespaces {
    block_on(NamespaceStorage::Shared(double::node(documents, 9)).read()).unwrap().1
}

#[test]
fn one_node_puts_its_copy_into_the_document_that_a_mend_has_made() {
    let documents = Documents::default();
    let ((_, one), (_, other)) = (shared(&documents, 1), shared(&documents, 2));
    insert(&one, "a");
    block_on(other.renew()).unwrap();
    lose(&documents);
    assert!(block_on(one.renew()).is_err() && block_on(other.renew()).is_err());
    mend(&documents);
    let (_, starting) = shared(&documents, 4);
    assert!(starting.are_absent());
    // A change of a node without a copy ends no wait.
    insert(&starting, "c");
    assert_eq!(document(&documents).copies, Copies::Awaited);
    block_on(other.renew()).unwrap();
    insert(&other, "b");
    // The other node has put the same copy back.
    other.change(|stored| drop(stored.namespaces.remove("a"))).unwrap();
    for node in [&one, &starting] {
        block_on(node.renew()).unwrap();
        assert_eq!(node.all(), other.all());
        assert!(node.require("a").is_err() && node.require("b").is_ok() && node.require("c").is_ok());
        assert!(!node.are_absent());
    }
    assert_eq!(document(&documents).copies, Copies::Back);
}

/// The former node has been suspended or cut off while the other has changed everything.
#[test]
fn of_two_copies_the_later_counts_whichever_node_is_first() {
    for order in [[0, 1], [1, 0]] {
        let documents = Documents::default();
        let ((_, former), (_, latter)) = (shared(&documents, 1), shared(&documents, 2));
        let secret = |name: &str, made| {
            let made = Moment::from_millis(made);
            SigningSecret { secret: name.into(), made, until: None }
        };
        let made = |number| Namespace { number, ..Namespace::default() };
        former
            .change(|stored| {
                stored.namespaces.extend([("shop".into(), made(1)), ("gone".into(), made(2))]);
                let default = stored.namespaces.get_mut(DEFAULT).unwrap();
                default.limits.rate_per_second = Some(100);
                default.limits.allowed_hosts = vec!["a.test".to_owned()];
                default.secrets = vec![secret("leaked", 1)];
            })
            .unwrap();
        block_on(latter.renew()).unwrap();
        later();
        latter
            .change(|stored| {
                stored.namespaces.remove("gone");
                stored.namespaces.insert("new".into(), made(3));
                stored.namespaces.get_mut("shop").unwrap().limits.paused = true;
                let default = stored.namespaces.get_mut(DEFAULT).unwrap();
                default.limits.rate_per_second = Some(1);
                default.limits.allowed_hosts = Vec::new();
                let all = [secret("leaked", 1), secret("next", 100_000_000), secret("last", 200_000_000)];
                default.secrets = in_rotation(all.into());
            })
            .unwrap();
        let expected = latter.all();
        assert_eq!(expected[DEFAULT].secrets.len(), 2, "{expected:?}");
        lose(&documents);
        mend(&documents);
        for node in order.into_iter().chain(order) {
            block_on([&former, &latter][node].renew()).unwrap();
        }
        assert_eq!((former.all(), latter.all()), (Arc::clone(&expected), expected), "{order:?}");
        assert_eq!(document(&documents).copies, Copies::Back);
    }
}

/// The copy of an earlier deployment is the first in the document.
#[test]
fn a_copy_of_an_earlier_document_does_not_take_the_place_of_a_later_one() {
    for order in [[0, 1], [1, 0]] {
        let documents = Documents::default();
        let nodes = [1, 2].map(|number| {
            let (_, node) = shared(&documents, number);
            let mut shop = Namespace { number, ..Namespace::default() };
            shop.limits.max_timers = Some(number);
            node.change(|stored| drop(stored.namespaces.insert("shop".into(), shop.clone()))).unwrap();
            lose(&documents);
            later();
            node
        });
        mend(&documents);
        for node in order.into_iter().chain(order) {
            block_on(nodes[node].renew()).unwrap();
        }
        for node in nodes {
            assert_eq!(node.get("shop").unwrap().limits.max_timers, Some(2), "{order:?}");
        }
    }
}

#[test]
fn the_servers_backup_gets_the_later_changes_of_nodes_also_after_a_restore() {
    let documents = Documents::default();
    let (_, restored) = shared(&documents, 1);
    restored.change(StoredNamespaces::refuse_earlier).unwrap();
    insert(&restored, "of-the-backup");
    let backup = documents.lock().unwrap().clone();
    drop(restored);
    lose(&documents);
    later();
    // A start makes a new document, and a client changes it. Then the server's backup takes its place.
    let (_, running) = shared(&documents, 2);
    running.make_document().unwrap();
    insert(&running, "new");
    running.change(|stored| stored.namespaces.get_mut(DEFAULT).unwrap().limits.paused = true).unwrap();
    *documents.lock().unwrap() = backup;
    block_on(running.renew()).unwrap();
    assert!(running.require("new").is_ok() && running.require("of-the-backup").is_ok());
    assert!(running.get(DEFAULT).unwrap().limits.paused);
    let (_, late) = shared(&documents, 3);
    assert_eq!(late.all(), running.all());
}

#[test]
fn a_failover_that_loses_a_change_loses_it_for_no_time_and_no_later_change_of_another_node() {
    let documents = Documents::default();
    let ((_, one), (_, other)) = (shared(&documents, 1), shared(&documents, 2));
    let limit = |name: &'static str, change: fn(&mut NamespaceLimits)| {
        move |stored: &mut StoredNamespaces| {
            change(&mut stored.namespaces.entry(name.into()).or_default().limits);
        }
    };
    one.change(limit("a", |limits| limits.max_timers = Some(1))).unwrap();
    block_on(other.renew()).unwrap();
    let replica = documents.lock().unwrap().clone();
    one.change(limit("a", |limits| limits.paused = true)).unwrap();
    *documents.lock().unwrap() = replica;
    // Each document has two changes.
    other.change(limit("a", |limits| limits.rate_per_second = Some(5))).unwrap();
    for node in [&one, &other] {
        block_on(node.renew()).unwrap();
        let limits = node.get("a").unwrap().limits.clone();
        assert!(limits.paused && limits.rate_per_second == Some(5) && limits.max_timers == Some(1));
    }
}

/// The store has no memory for the copy.
#[test]
fn a_put_back_that_fails_is_shown_and_the_node_has_what_other_nodes_change() {
    let documents = Documents::default();
    let (store, one) = shared(&documents, 1);
    insert(&one, "a");
    lose(&documents);
    let (_, starting) = shared(&documents, 2);
    starting.make_document().unwrap();
    store.hook().fails_writes.store(true, Ordering::Relaxed);
    let pause = |name: &'static str| {
        let paused = move |stored: &mut StoredNamespaces| {
            stored.namespaces.entry(name.into()).or_default().limits.paused = true;
        };
        starting.change(paused).unwrap();
        block_on(one.renew()).unwrap();
        assert!(one.get(name).unwrap().limits.paused && one.require("a").is_ok(), "{name}");
        assert!(one.fault().is_some_and(|fault| fault.contains("no memory")), "{:?}", one.fault());
    };
    pause("b");
    pause(DEFAULT);
    let without_b = |stored: &mut StoredNamespaces| Ok::<_, ()>(stored.namespaces.remove("b"));
    assert!(one.try_change(without_b).is_err());
    // Nobody changes the document, and yet the next read tries again.
    block_on(one.renew()).unwrap();
    assert!(one.fault().is_some());
    store.hook().fails_writes.store(false, Ordering::Relaxed);
    block_on(one.renew()).unwrap();
    assert!(one.fault().is_none());
    block_on(starting.renew()).unwrap();
    assert!(starting.require("a").is_ok());
    assert_eq!(starting.all(), one.all());
}

/// Two nodes start before the node with the copy notices the loss, and one of them has timers in "a".
#[test]
fn nodes_that_start_after_the_loss_of_the_document_take_the_place_of_no_copy() {
    let documents = Documents::default();
    let (_, one) = shared(&documents, 1);
    insert(&one, "a");
    one.change(|stored| stored.namespaces.get_mut("a").unwrap().limits.paused = true).unwrap();
    lose(&documents);
    let ((_, starting), (_, late)) = (shared(&documents, 2), shared(&documents, 3));
    starting.make_document().unwrap();
    late.make_document().unwrap();
    insert(&late, "a");
    // A node without a copy puts none into the document.
    block_on(starting.renew()).unwrap();
    block_on(one.renew()).unwrap();
    assert!(one.get("a").unwrap().limits.paused);
    for node in [&starting, &late] {
        block_on(node.renew()).unwrap();
        assert_eq!(node.all(), one.all());
    }
    // The copy of a node that has started since is as good as another.
    lose(&documents);
    let (_, third) = shared(&documents, 4);
    third.make_document().unwrap();
    block_on(late.renew()).unwrap();
    assert!(late.get("a").unwrap().limits.paused);
    // Each later read finds the same document.
    let there = document(&documents);
    for node in [&one, &starting, &late, &third] {
        block_on(node.renew()).unwrap();
    }
    assert_eq!(document(&documents), there);
}

/// A moment after the present.
const FAR: u64 = 4_000_000_000_000;

#[test]
fn a_copy_that_is_put_back_keeps_what_clients_have_set_since_the_loss() {
    let documents = Documents::default();
    let (_, one) = shared(&documents, 1);
    let secret = SigningSecret { secret: "s".into(), made: Moment::from_millis(1), until: None };
    let lost = |number, most| {
        let mut lost = Namespace { number, secrets: vec![secret.clone()], ..Namespace::default() };
        lost.limits.max_timers = Some(most);
        lost
    };
    one.change(|stored| {
        let all = [("a", 7, 1), ("b", 8, 2), ("c", 6, 4), ("d", 5, 5), (DEFAULT, 0, 3)];
        stored.namespaces.extend(all.map(|(name, number, most)| (name.into(), lost(number, most))));
        stored.namespaces.get_mut(DEFAULT).unwrap().limits.rate_per_second = Some(9);
    })
    .unwrap();
    lose(&documents);
    later();
    let (_, starting) = shared(&documents, 2);
    starting.make_document().unwrap();
    // A client makes "b" anew, without limits, makes "d" and removes it, and pauses the namespace that always exists. A
    // start has found "c".
    let anew = Namespace { number: 9, ..Namespace::default() };
    starting
        .change(|stored| {
            let all = [("b", anew.clone()), ("c", Namespace::default()), ("d", anew.clone())];
            stored.namespaces.extend(all.map(|(name, namespace)| (name.into(), namespace)));
            let default = stored.namespaces.entry(DEFAULT.into()).or_default();
            default.limits.paused = true;
            // The client takes a limit away that it cannot see.
            stored.set_limits(DEFAULT, &["rate_per_second"]);
        })
        .unwrap();
    let new = SigningSecret { secret: "new".into(), made: Moment::from_millis(FAR), until: None };
    starting
        .change(|stored| {
            stored.namespaces.remove("d");
            stored.namespaces.get_mut("c").unwrap().secrets = vec![new.clone()];
        })
        .unwrap();
    block_on(one.renew()).unwrap();
    let mut default = lost(0, 3);
    default.limits.paused = true;
    let mut found = lost(6, 4);
    found.secrets.insert(0, new.clone());
    found.secrets[1].until = Some(Moment::from_millis(FAR + ROTATION));
    let expected = [("a", lost(7, 1)), ("b", anew.clone()), ("c", found), (DEFAULT, default)];
    let there = document(&documents).namespaces;
    let there = there.iter().map(|(name, namespace)| (&**name, namespace.without_changes()));
    assert_eq!(there.collect::<BTreeMap<_, _>>(), expected.into());
    block_on(starting.renew()).unwrap();
    assert_eq!(starting.all(), one.all());
}

#[test]
fn a_change_between_the_read_and_the_write_of_a_put_back_is_kept_and_so_is_the_copy() {
    let documents = Documents::default();
    let (node, one) = shared(&documents, 1);
    insert(&one, "a");
    insert(&one, "b");
    lose(&documents);
    let (_, starting) = shared(&documents, 2);
    starting.make_document().unwrap();
    let (may_end, waits) = oneshot::channel();
    node.hook().waits.lock().unwrap().push_back((Looks::Before, waits));
    let mut read = pin!(one.renew());
    let mut context = Context::from_waker(Waker::noop());
    assert!(read.as_mut().poll(&mut context).is_pending());
    insert(&starting, "c");
    may_end.send(()).unwrap();
    assert!(read.as_mut().poll(&mut context).is_ready());
    assert_eq!(one.all().keys().map(|name| &**name).collect::<Vec<_>>(), ["a", "b", "c", DEFAULT]);
    block_on(starting.renew()).unwrap();
    assert_eq!(starting.all(), one.all());
}

#[test]
fn a_document_that_people_have_chosen_takes_no_copy_also_after_changes() {
    let documents = Documents::default();
    let ((_, stale), (_, other)) = (shared(&documents, 1), shared(&documents, 2));
    insert(&stale, "a");
    block_on(other.renew()).unwrap();
    lose(&documents);
    later();
    let (_, starting) = shared(&documents, 4);
    starting.change(StoredNamespaces::refuse_earlier).unwrap();
    insert(&starting, "b");
    for node in [&stale, &other] {
        block_on(node.renew()).unwrap();
        assert_eq!(node.all(), starting.all());
        assert!(node.require("a").is_err() && node.require("b").is_ok());
    }
}
