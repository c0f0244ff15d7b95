//! Tests the client with the service itself, for calls about more than a single timer.

use crate::rig::Rig;
use std::time::Duration;
use tourbillon_client::api::{
    Batch, BatchResult, Callback, CancelMany, CancelResult, Change, Delay, EventKind, Nack, NamespaceLimits,
    NewTimer, OperationState, Phase, PlaceOutcome, ProblemKind, Pull, ReplayMany,
};
use tourbillon_client::{Error, Namespace, Seen};

fn timer() -> NewTimer {
    NewTimer::callback(Callback::post("http://127.0.0.1:9999/")).after_ms(3_600_000)
}

fn pulled(body: &str) -> NewTimer {
    NewTimer::pull(Pull { queue: "mail".to_owned(), body: Some(body.to_owned()), ..Pull::default() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_is_made_shown_limited_and_removed() {
    let rig = Rig::start().await;
    let shop = rig.client.namespace("shop");
    assert_eq!(shop.view().await.unwrap_err().problem(), Some(ProblemKind::NotFound));
    let limits = NamespaceLimits { max_timers: Some(1), ..NamespaceLimits::default() };
    assert_eq!(shop.set(&limits).await.unwrap().limits, limits);
    let names: Vec<_> = rig.client.namespaces().await.unwrap().into_iter().map(|view| view.name).collect();
    assert_eq!(names, ["default", "shop"]);
    assert!(shop.rotate_secret().await.unwrap().secret.starts_with("whsec_"));
    assert_eq!(shop.view().await.unwrap().secrets.len(), 1);

    shop.place(&timer()).key("k").await.unwrap();
    assert_eq!(shop.view().await.unwrap().pending, 1);
    assert_eq!(shop.place(&timer()).await.unwrap_err().problem(), Some(ProblemKind::LimitReached));
    shop.delete().await.unwrap_err();
    shop.key("k").cancel().await.unwrap();
    shop.delete().await.unwrap();
    assert_eq!(shop.view().await.unwrap_err().problem(), Some(ProblemKind::NotFound));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_has_a_result_for_each_change() {
    let rig = Rig::start().await;
    let timers = rig.client.namespace("default");
    let put = |key: &str| Change::Put {
        key: Some(key.to_owned()),
        idempotency_key: None,
        timer: Box::new(timer()),
    };
    let changes = vec![
        put("a"),
        put("a"),
        Change::Move { key: Some("a".to_owned()), id: None, to: Delay { due: None, delay_ms: Some(60_000) } },
        Change::Cancel { key: Some("a".to_owned()), id: None },
        Change::Cancel { key: Some("b".to_owned()), id: None },
    ];
    let results = timers.batch(&Batch { changes }).await.unwrap().results;
    assert!(matches!(&results[0], BatchResult::Placed(placed) if placed.outcome == PlaceOutcome::Created));
    assert!(matches!(&results[1], BatchResult::Problem(problem) if problem.kind == ProblemKind::KeyExists));
    assert!(matches!(&results[2], BatchResult::Changed(_)));
    assert!(matches!(&results[3], BatchResult::Cancelled(done) if done.result == CancelResult::Cancelled));
    assert!(matches!(&results[4], BatchResult::Cancelled(done) if done.result == CancelResult::NotFound));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_timers_are_cancelled_by_an_operation() {
    let rig = Rig::start().await;
    let timers = rig.client.namespace("default");
    for n in 0..5 {
        let timer = if n < 3 { timer().label("l") } else { timer() };
        timers.place(&timer).key(&format!("k{n}")).await.unwrap();
    }
    let which = CancelMany { label: Some("l".to_owned()), key_prefix: None };
    let operation = timers.cancel_many(&which).await.unwrap();
    let mut last = 0;
    let operation = timers.wait_for(operation, |now| last = now.changed).await.unwrap();
    assert_eq!((operation.state, operation.changed, last), (OperationState::Done, 3, 3));
    let left = timers.list().pages().next_page().await.unwrap().unwrap();
    assert_eq!(left.len(), 2);
    assert_eq!(timers.operation("nonsense").await.unwrap_err().problem(), Some(ProblemKind::NotFound));
}

/// Makes a timer that a receiver fetches, and lets the timer die. Returns the timer's id.
async fn dead(timers: &Namespace, body: &str) -> String {
    let id = timers.place(&pulled(body)).await.unwrap().id;
    let claims = timers.queue("mail").claim(1, Duration::from_secs(10)).await.unwrap();
    let nack = Nack { error: Some("never".to_owned()), dead: true, ..Nack::default() };
    timers.nack(&claims[0].claim, &nack).await.unwrap();
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_are_fetched_acknowledged_and_refused() {
    let rig = Rig::start().await;
    let timers = rig.client.namespace("default");
    let queue = timers.queue("mail");
    assert!(queue.claim(1, Duration::ZERO).await.unwrap().is_empty());
    let id = timers.place(&pulled("hello")).await.unwrap().id;
    let claims = queue.claim(10, Duration::from_secs(10)).await.unwrap();
    assert_eq!((claims.len(), &claims[0].id, claims[0].body.as_deref()), (1, &id, Some("hello")));
    assert!(timers.renew(&claims[0].claim).await.unwrap().until >= claims[0].until);
    timers.ack(&claims[0].claim).await.unwrap();
    assert_eq!(timers.ack(&claims[0].claim).await.unwrap_err().problem(), Some(ProblemKind::ClaimEnded));

    timers.place(&pulled("later")).await.unwrap();
    let put_off = queue.claim(1, Duration::from_secs(10)).await.unwrap().remove(0);
    let nack = Nack { snooze_ms: Some(0), ..Nack::default() };
    timers.nack(&put_off.claim, &nack).await.unwrap();
    let again = queue.claim(1, Duration::from_secs(10)).await.unwrap().remove(0);
    assert_eq!((&again.id, again.attempt), (&put_off.id, 1));
    let names = [again.claim.clone(), put_off.claim.clone()];
    let results = timers.ack_many(&names).await.unwrap();
    let results: Vec<_> = results
        .into_iter()
        .map(|result| (result.claim, result.problem.map(|problem| problem.kind)))
        .collect();
    let [again, put_off] = names;
    assert_eq!(results, [(again, None), (put_off, Some(ProblemKind::ClaimEnded))]);
    let invalid = timers.ack_many(&[String::new()]).await.unwrap_err();
    assert!(matches!(invalid, Error::Invalid(_)), "{invalid}");

    let id = dead(&timers, "again").await;
    let shown = loop {
        match timers.id(&id).get().await.unwrap() {
            timer if timer.phase == Phase::Dead => break timer,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    assert!(shown.dead_since.is_some());
    assert_eq!(timers.replay(&id).await.unwrap().id, id);
    let claims = queue.claim(10, Duration::from_secs(10)).await.unwrap();
    assert_eq!((&claims[0].id, claims[0].body.as_deref()), (&id, Some("again")));
    timers.ack(&claims[0].claim).await.unwrap();
    let operation = timers.replay_many(&ReplayMany::default()).await.unwrap();
    let operation = timers.wait_for(operation, |_| ()).await.unwrap();
    assert_eq!((operation.state, operation.changed), (OperationState::Done, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_is_paused_and_resumed() {
    let rig = Rig::start().await;
    let timers = rig.client.namespace("default");
    timers.place(&timer()).key("k").await.unwrap();
    timers.key("k").pause().await.unwrap();
    assert_eq!(timers.key("k").get().await.unwrap().phase, Phase::Parked);
    timers.key("k").resume().await.unwrap();
    assert_eq!(timers.key("k").get().await.unwrap().phase, Phase::Pending);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_come_as_they_happen() {
    let rig = Rig::start().await;
    let mut events = rig.client.events(Some("default"));
    events.open().await.unwrap();
    let timers = rig.client.namespace("default");
    let id = timers.place(&timer()).key("k").await.unwrap().id;
    timers.key("k").cancel().await.unwrap();
    for kind in [EventKind::Created, EventKind::Cancelled] {
        let seen = tokio::time::timeout(Duration::from_secs(10), events.next()).await.unwrap().unwrap();
        let Seen::Event(event) = seen else { panic!("{seen:?}") };
        assert_eq!((event.kind, event.id.as_deref(), event.missed), (kind, Some(&*id), 0));
    }
    let mut nowhere = rig.client.events(Some("nowhere"));
    assert_eq!(nowhere.next().await.unwrap_err().problem(), Some(ProblemKind::NotFound));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_shows_its_numbers() {
    let rig = Rig::start().await;
    let client = &rig.client;
    let before = client.stats().await.unwrap();
    client.namespace("default").place(&timer()).await.unwrap();
    let after = client.stats().await.unwrap();
    assert_eq!((after.created - before.created, after.pending - before.pending), (1, 1));
    client.health().await.unwrap();
    assert!(client.readiness().await.unwrap().ok);
    assert!(client.metrics().await.unwrap().contains("# TYPE "));
    assert!(client.openapi().await.unwrap()["paths"]["/v1/stats"].is_object());
}
