//! Tests of a node's copy of the namespaces.

use super::*;
use crate::state::double::{self, Documents, Looks, Node};
use crate::state::{DEFAULT, mark, remove_marked, unmark};
use core::pin::pin;
use core::sync::atomic::Ordering;
use core::task::{Context, Waker};
use std::thread;
use tokio::sync::oneshot;
use tourbillon_durable::store::Hooked;

pub(super) fn shared(documents: &Documents, incarnation: u64) -> (Arc<Hooked<Node>>, Namespaces) {
    let node = double::node(documents, incarnation);
    let store: Arc<dyn ClusterStore> = Arc::clone(&node) as _;
    (node, Namespaces::open(NamespaceStorage::Shared(store)).unwrap())
}

pub(super) fn insert(namespaces: &Namespaces, name: &str) {
    namespaces.change(|stored| drop(stored.namespaces.insert(name.into(), Namespace::default()))).unwrap();
}

#[test]
fn a_namespace_that_was_stored_is_known_although_the_store_answers_no_read() {
    let documents = Documents::default();
    let ((node, one), (_, other)) = (shared(&documents, 1), shared(&documents, 2));
    node.hook().fails_reads.store(true, Ordering::Relaxed);
    insert(&one, "a");
    insert(&one, "b");
    assert!(one.require("a").is_ok() && one.require("b").is_ok());
    node.hook().fails_reads.store(false, Ordering::Relaxed);
    insert(&other, "c");
    insert(&one, "d");
    assert_eq!(one.all().keys().map(|name| &**name).collect::<Vec<_>>(), ["a", "b", "c", "d", DEFAULT]);
    block_on(other.renew()).unwrap();
    assert_eq!(one.all(), other.all());
}

#[test]
fn a_read_under_way_brings_no_replaced_namespaces_back() {
    let documents = Documents::default();
    let (node, one) = shared(&documents, 1);
    insert(&one, "a");
    let former = documents.lock().unwrap().clone();
    let (may_end, waits) = oneshot::channel();
    node.hook().waits.lock().unwrap().push_back((Looks::Before, waits));
    let mut context = Context::from_waker(Waker::noop());
    let mut read = pin!(one.renew());
    assert!(read.as_mut().poll(&mut context).is_pending());
    insert(&one, "b");
    may_end.send(()).unwrap();
    // The read is not used. A further read finds the change.
    assert!(read.as_mut().poll(&mut context).is_ready());
    assert!(one.require("b").is_ok());
    // The store loses the change, and gets it back.
    *documents.lock().unwrap() = former;
    block_on(one.renew()).unwrap();
    assert!(one.require("a").is_ok() && one.require("b").is_ok());
    assert!(shared(&documents, 2).1.require("b").is_ok());
    insert(&one, "c");
    assert!(one.require("c").is_ok());
}

#[test]
fn of_two_reads_under_way_neither_brings_older_namespaces_back() {
    let documents = Documents::default();
    let ((node, one), (_, other)) = (shared(&documents, 1), shared(&documents, 2));
    let ((first_may_end, first), (second_may_end, second)) = (oneshot::channel(), oneshot::channel());
    node.hook().waits.lock().unwrap().extend([(Looks::After, first), (Looks::Before, second)]);
    let mut context = Context::from_waker(Waker::noop());
    // The reads of changes overlap with those of `renew`.
    let (mut first, mut second) = (pin!(one.read()), pin!(one.read()));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    insert(&other, "a");
    first_may_end.send(()).unwrap();
    assert!(first.as_mut().poll(&mut context).is_ready());
    assert!(one.require("a").is_ok());
    second_may_end.send(()).unwrap();
    assert!(second.as_mut().poll(&mut context).is_ready());
    assert!(one.require("a").is_ok());
}

#[test]
fn calls_that_wait_for_a_read_share_the_next_read() {
    let documents = Documents::default();
    let (node, one) = shared(&documents, 1);
    let (first_may_end, first) = oneshot::channel();
    let (second_may_end, second) = oneshot::channel();
    let (_never, third) = oneshot::channel();
    let reads = [first, second, third].map(|read| (Looks::Before, read));
    node.hook().waits.lock().unwrap().extend(reads);
    let mut context = Context::from_waker(Waker::noop());
    let mut calls = [(); 3].map(|()| Box::pin(one.renew()));
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut context).is_pending());
    }
    first_may_end.send(()).unwrap();
    second_may_end.send(()).unwrap();
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut context).is_ready());
    }
    assert_eq!(node.hook().waits.lock().unwrap().len(), 1, "the reads that were not made");
}

#[test]
fn a_read_without_an_answer_holds_up_no_change() {
    let documents = Documents::default();
    let ((node, one), (_, other)) = (shared(&documents, 1), shared(&documents, 2));
    insert(&other, "a");
    let (_never, signal) = oneshot::channel();
    node.hook().waits.lock().unwrap().push_back((Looks::Before, signal));
    let mut read = pin!(one.renew());
    assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // This change must read the change of the other node.
    insert(&one, "b");
    assert!(one.require("a").is_ok() && one.require("b").is_ok());
}

#[test]
fn a_change_whose_read_gets_no_answer_holds_up_no_other_read() {
    let documents = Documents::default();
    let ((node, one), (_, other)) = (shared(&documents, 1), shared(&documents, 2));
    insert(&other, "a");
    let (may_end, signal) = oneshot::channel();
    node.hook().waits.lock().unwrap().push_back((Looks::Before, signal));
    thread::scope(|scope| {
        let change = scope.spawn(|| insert(&one, "b"));
        while !node.hook().waits.lock().unwrap().is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        let mut read = pin!(one.renew());
        let is_ready = read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        may_end.send(()).unwrap();
        change.join().unwrap();
        assert!(is_ready, "the read waits for the change");
    });
    assert!(one.require("a").is_ok() && one.require("b").is_ok());
}

#[test]
fn the_holders_of_a_namespace_are_found_after_a_change_of_any_node() {
    let documents = Documents::default();
    let ((_, one), (_, other)) = (shared(&documents, 1), shared(&documents, 2));
    insert(&one, "a");
    block_on(other.renew()).unwrap();
    let held = one.get("a").unwrap();
    let limit = |most| {
        move |stored: &mut StoredNamespaces| {
            stored.namespaces.get_mut("a").unwrap().limits.max_timers = Some(most);
        }
    };
    other.change(limit(1)).unwrap();
    block_on(one.renew()).unwrap();
    one.change(limit(2)).unwrap();
    one.try_change(|stored| mark(stored, "a", 5)).unwrap().unwrap();
    // Neither a backup nor a change holds the namespace.
    let _backup = one.stored();
    assert!(one.is_held("a"));
    drop(held);
    assert!(!one.is_held("a"));
    one.change(limit(3)).unwrap();
    assert!(one.known().former.is_empty(), "values without holders are forgotten");
}

#[test]
fn each_change_of_the_copy_is_told_with_the_namespaces_that_are_new() {
    let documents = Documents::default();
    let ((_, one), (_, other)) = (shared(&documents, 1), shared(&documents, 2));
    let told = Arc::new(Mutex::new(Vec::new()));
    one.on_change({
        let told = Arc::clone(&told);
        move |new| told.lock().unwrap().push(new.join(" "))
    });
    let make = |number| {
        move |stored: &mut StoredNamespaces| {
            let made = Namespace { number, ..Namespace::default() };
            stored.namespaces.insert("a".into(), made);
        }
    };
    let renewed = || {
        block_on(one.renew()).unwrap();
        core::mem::take(&mut *told.lock().unwrap())
    };
    one.change(make(1)).unwrap();
    assert_eq!(renewed(), ["a"]);
    assert_eq!(renewed(), <[&str; 0]>::default());
    // A removal that finds timers leaves the namespace, and so does a change of it.
    other.try_change(|stored| mark(stored, "a", 5)).unwrap().unwrap();
    assert_eq!(renewed(), [""]);
    assert!(other.change(|stored| unmark(stored, "a", 5)).unwrap());
    assert_eq!(renewed(), [""]);
    other.change(|stored| stored.namespaces.get_mut("a").unwrap().limits.paused = true).unwrap();
    assert_eq!(renewed(), [""]);
    // Between two reads of this node, the other node removes the namespace and makes it again.
    other.try_change(|stored| mark(stored, "a", 6)).unwrap().unwrap();
    assert_eq!(renewed(), [""]);
    assert!(other.change(|stored| remove_marked(stored, "a", 6)).unwrap());
    other.change(make(2)).unwrap();
    assert_eq!(renewed(), ["a"]);
}

#[test]
fn a_change_that_changes_nothing_writes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("namespaces.json");
    let namespaces = Namespaces::open(NamespaceStorage::File(path.clone())).unwrap();
    assert_eq!(namespaces.try_change(|_| Err::<(), _>("no")).unwrap(), Err("no"));
    // On a full disk, a write would hide the reason of the refusal, and would keep the mark of a removal.
    assert!(!path.exists());
    insert(&namespaces, "a");
    assert!(path.exists());
    let (former, in_the_way) = (std::fs::read(&path).unwrap(), folder.path().join("namespaces.new"));
    std::fs::create_dir(&in_the_way).unwrap();
    namespaces.try_change(|stored| mark(stored, "a", 5)).unwrap().unwrap();
    assert!(namespaces.change(|stored| remove_marked(stored, "a", 5)).is_err());
    assert!(namespaces.require("a").unwrap_err().kind == ProblemKind::LimitReached);
    assert!(namespaces.change(|stored| unmark(stored, "a", 5)).unwrap());
    assert!(namespaces.require("a").is_ok());
    // The failed write may have replaced the file. So the next change writes it, whatever the change is.
    std::fs::write(&path, "{}").unwrap();
    std::fs::remove_dir(&in_the_way).unwrap();
    namespaces.change(|_| ()).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), former);
}
