//! Tests of the administration of namespaces.

use super::*;
use crate::service::Service;
use crate::settings::Settings;
use crate::state::NamespaceStorage;
use crate::state::double::{self, Documents, Node};
use crate::state::end_removals;
use core::sync::atomic::Ordering;
use std::sync::Mutex;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{Call, Durability, Hooked, IfPresent, Op, TimerStore};
use tourbillon_durable::timer::Timer;

/// Opens a node of the deployment with these documents.
fn node(documents: &Documents) -> (TempDir, Arc<Hooked<Node>>, Service) {
    let folder = tempfile::tempdir().unwrap();
    let store = double::node(documents, 1);
    let service = Service::open_on_double(Settings::new(folder.path()), Arc::clone(&store) as _).unwrap();
    (folder, store, service)
}

/// Returns the namespaces of another node of the deployment.
fn other(documents: &Documents) -> Namespaces {
    Namespaces::open(NamespaceStorage::Shared(double::node(documents, 2))).unwrap()
}

/// Begins to remove the namespace `shop`. Returns the task of the removal once the namespace is marked.
async fn removal(service: &Service) -> JoinHandle<Result<(), Problem>> {
    let removal = tokio::spawn({
        let service = service.clone();
        async move { service.namespace_admin().remove("shop").await }
    });
    while service.namespaces().get("shop").is_some() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    removal
}

async fn close(service: Service) {
    tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_another_node_has_removed_stays_removed() {
    let documents = Documents::default();
    let (_folder, store, service) = node(&documents);
    service.namespace_admin().make("shop").await.unwrap();
    service.namespace_admin().make_secret("shop").await.unwrap();
    let other = other(&documents);
    other.change(|stored| drop(stored.namespaces.remove("shop").unwrap())).unwrap();
    // This node finds that the namespaces have changed, and cannot read them again at first.
    store.hook().fails_reads.store(true, Ordering::Relaxed);
    let removal = tokio::spawn({
        let service = service.clone();
        async move { service.namespace_admin().remove("shop").await }
    });
    tokio::time::sleep(Duration::from_secs(10)).await;
    store.hook().fails_reads.store(false, Ordering::Relaxed);
    assert_eq!(removal.await.unwrap().unwrap_err().kind, ProblemKind::StoreUnavailable);
    other.renew().await.unwrap();
    assert!(other.get("shop").is_none(), "the namespace is back");
    close(service).await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_whose_answers_are_lost_leaves_the_namespace_with_its_secrets() {
    let documents = Documents::default();
    let (_folder, store, service) = node(&documents);
    service.namespace_admin().make("shop").await.unwrap();
    service.namespace_admin().make_secret("shop").await.unwrap();
    store.hook().loses_answers.store(true, Ordering::Relaxed);
    let problem = service.namespace_admin().remove("shop").await.unwrap_err();
    assert!(problem.kind == ProblemKind::StoreUnavailable && problem.outcome.is_some(), "{problem}");
    let other = other(&documents);
    while other.get("shop").is_none() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        other.renew().await.unwrap();
    }
    assert_eq!(other.get("shop").unwrap().secrets.len(), 1);
    store.hook().loses_answers.store(false, Ordering::Relaxed);
    close(service).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_stops_ends_the_wait_of_a_removal() {
    let documents = Documents::default();
    let (_folder, _store, service) = node(&documents);
    service.namespace_admin().make("shop").await.unwrap();
    let removal = removal(&service).await;
    let begun = Instant::now();
    service.begin_stop();
    assert_eq!(removal.await.unwrap().unwrap_err().kind, ProblemKind::Stopping);
    assert!(begun.elapsed() < VIEW && service.namespaces().get("shop").is_some());
    close(service).await;
}

/// Another node has admitted a creation just before it has read the mark, and the creation needs some time.
#[tokio::test(start_paused = true)]
async fn a_removal_finds_a_timer_that_another_node_has_admitted_late() {
    let documents = Documents::default();
    let (_folder, store, service) = node(&documents);
    service.namespace_admin().make("shop").await.unwrap();
    let removal = removal(&service).await;
    tokio::time::sleep(VIEW + Duration::from_secs(2)).await;
    let timer =
        Timer { namespace: "shop".into(), ..Timer::new(TimerId::fresh(), "callback", UtcMillis::MAX) };
    let op = Op::Place(Box::new(timer), IfPresent::Reject);
    store.apply(vec![op], Durability::Volatile).await.unwrap();
    assert_eq!(removal.await.unwrap().unwrap_err().kind, ProblemKind::NamespaceNotEmpty);
    assert!(service.namespaces().get("shop").is_some());
    close(service).await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_namespace_leaves_no_renewals_of_claims() {
    let documents = Documents::default();
    let (_folder, _store, service) = node(&documents);
    service.namespace_admin().make("shop").await.unwrap();
    let renewals = |name: &str| format!("renewals/{name}");
    for name in ["shop", "default"] {
        documents.lock().unwrap().insert(renewals(name), (7, b"{}".to_vec()));
    }
    service.namespace_admin().remove("shop").await.unwrap();
    let left = |name: &str| documents.lock().unwrap().contains_key(&renewals(name));
    assert_eq!((left("shop"), left("default")), (false, true));
    close(service).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_being_removed_refuses_all_requests_for_now_and_keeps_its_secrets() {
    let documents = Documents::default();
    let (_folder, _store, service) = node(&documents);
    let admin = service.namespace_admin();
    admin.make("shop").await.unwrap();
    admin.make_secret("shop").await.unwrap();
    // The process of this removal has died.
    let other = other(&documents);
    other.try_change(|stored| mark(stored, "shop", 5)).unwrap().unwrap();
    for has_read_the_mark in [false, true] {
        assert_eq!(service.namespaces().get("shop").is_none(), has_read_the_mark);
        let mut answers = vec![admin.set("shop", NamespaceLimits::default()).await.map(drop)];
        answers.push(admin.patch("shop", LimitsPatch::default()).await.map(drop));
        answers.push(admin.make("shop").await);
        answers.push(admin.pause("shop", true).await);
        answers.push(admin.make_secret("shop").await.map(drop));
        answers.push(admin.remove("shop").await);
        answers.push(service.namespaces().require_fresh("shop").await.map(drop));
        for (at, answer) in answers.into_iter().enumerate() {
            let problem = answer.unwrap_err();
            let expected = (ProblemKind::LimitReached, Some(1_000));
            assert_eq!((problem.kind, problem.retry_after_ms), expected, "request {at}: {problem}");
        }
    }
    let mut backup = Vec::new();
    service.begin_backup().unwrap().write(&mut backup).unwrap();
    assert!(String::from_utf8_lossy(&backup).contains("shop"), "the backup lacks the namespace");
    end_removals(&other, &other.stale_removals(Duration::ZERO)).unwrap();
    service.namespaces().renew().await.unwrap();
    assert_eq!(service.namespaces().get("shop").unwrap().secrets.len(), 1);
    close(service).await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_another_node_has_ended_tells_of_no_key_of_a_timer() {
    let documents = Documents::default();
    let (_folder, _store, service) = node(&documents);
    service.namespace_admin().make("shop").await.unwrap();
    let removal = removal(&service).await;
    let other = other(&documents);
    end_removals(&other, &other.stale_removals(Duration::ZERO)).unwrap();
    assert_eq!(removal.await.unwrap().unwrap_err().kind, ProblemKind::LimitReached);
    assert!(service.namespaces().get("shop").is_some());
    close(service).await;
}

/// The removal stands still for so long that another node ends it, and clients renew claims of the namespace.
#[tokio::test(start_paused = true)]
async fn a_removal_that_another_node_has_ended_leaves_the_renewals_of_claims() {
    let documents = Documents::default();
    let (_folder, store, service) = node(&documents);
    service.namespace_admin().make("shop").await.unwrap();
    let hook = {
        let (documents, other) = (Arc::clone(&documents), other(&documents));
        move |call: Call<'_>| {
            // The removal is about to count the timers.
            if matches!(call, Call::Apply(_)) {
                pollster::block_on(other.renew()).unwrap();
                end_removals(&other, &other.stale_removals(Duration::ZERO)).unwrap();
                documents.lock().unwrap().insert("renewals/shop".to_owned(), (7, b"{}".to_vec()));
            }
        }
    };
    let removal = removal(&service).await;
    assert!(store.hook().before_call.set(Box::new(hook)).is_ok());
    assert_eq!(removal.await.unwrap().unwrap_err().kind, ProblemKind::LimitReached);
    assert!(documents.lock().unwrap().contains_key("renewals/shop"), "claims end at their first end");
    close(service).await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_whose_last_answer_is_lost_leaves_no_renewals_of_claims() {
    let documents = Documents::default();
    let (_folder, store, service) = node(&documents);
    service.namespace_admin().make("shop").await.unwrap();
    documents.lock().unwrap().insert("renewals/shop".to_owned(), (7, b"{}".to_vec()));
    let removal = removal(&service).await;
    store.hook().loses_answers.store(true, Ordering::Relaxed);
    assert_eq!(removal.await.unwrap().unwrap_err().kind, ProblemKind::StoreUnavailable);
    store.hook().loses_answers.store(false, Ordering::Relaxed);
    assert!(service.namespaces().get("shop").is_none());
    assert!(!documents.lock().unwrap().contains_key("renewals/shop"));
    close(service).await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_patch_is_refused_as_invalid_although_the_namespaces_cannot_be_read() {
    let documents = Documents::default();
    let (_folder, store, service) = node(&documents);
    store.hook().fails_reads.store(true, Ordering::Relaxed);
    let patch: LimitsPatch = serde_json::from_str(r#"{"rate_per_second":0}"#).unwrap();
    let problem = service.namespace_admin().patch("shop", patch).await.unwrap_err();
    assert_eq!((problem.kind, problem.outcome), (ProblemKind::BadRequest, None));
    store.hook().fails_reads.store(false, Ordering::Relaxed);
    close(service).await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_waits_for_creations_and_not_for_backups() {
    let documents = Documents::default();
    let (_folder, _store, service) = node(&documents);
    let admin = service.namespace_admin();
    admin.make("shop").await.unwrap();
    admin.make_secret("shop").await.unwrap();
    let backup = service.begin_backup().unwrap();
    let creation = service.namespaces().require("shop").unwrap();
    let problem = admin.remove("shop").await.unwrap_err();
    assert_eq!((problem.kind, problem.retry_after_ms), (ProblemKind::LimitReached, Some(1_000)), "{problem}");
    assert!(service.namespaces().get("shop").is_some());
    drop(creation);
    admin.remove("shop").await.unwrap();
    drop(backup);
    close(service).await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_finds_a_delivery_that_begins_after_the_look_for_holders() {
    let documents = Documents::default();
    let (_folder, store, service) = node(&documents);
    service.namespace_admin().make("shop").await.unwrap();
    let held = Arc::new(Mutex::new(None));
    let hook = {
        let (held, namespaces) = (Arc::clone(&held), Arc::clone(&service.0.namespaces));
        move |call: Call<'_>| {
            // The removal has looked for holders, and is about to count the timers.
            if matches!(call, Call::Apply(_)) && namespaces.get("shop").is_none() {
                *held.lock().unwrap() = namespaces.find("shop");
            }
        }
    };
    assert!(store.hook().before_call.set(Box::new(hook)).is_ok());
    let problem = service.namespace_admin().remove("shop").await.unwrap_err();
    assert_eq!((problem.kind, problem.retry_after_ms), (ProblemKind::LimitReached, Some(1_000)), "{problem}");
    assert!(held.lock().unwrap().is_some() && service.namespaces().get("shop").is_some());
    close(service).await;
}
