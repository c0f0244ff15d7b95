//! Tests how readers of events see deliveries.

use crate::service::{Naming, Service};
use crate::settings::{RedisSettings, Settings, StorePlace};
use crate::state::Subscription;
use crate::state::double::{self, Documents};
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tourbillon::ManualClock;
use tourbillon_api::{Event, EventKind, Guarantee, Moment, NewTimer, ProblemKind, Pull};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{
    Call, Durability, Hook, Hooked, MemoryStore, Op, Outcome, StoreError, StoreErrorKind, StoreFuture,
    TimerStore,
};
use tourbillon_durable::{Event as Happened, UtcMillis, Verdict};

async fn next(events: &mut Subscription) -> Event {
    tokio::time::timeout(Duration::from_secs(10), events.next()).await.expect("an event").unwrap()
}

async fn place(service: &Service, key: &str, attempts: u32) -> String {
    let pull = Pull { queue: "q".to_owned(), ..Pull::default() };
    let mut timer = NewTimer::pull(pull);
    timer.policy.attempts = Some(attempts);
    service
        .creations()
        .place("default", Naming { key: Some(key), ..Naming::default() }, &timer)
        .await
        .unwrap()
        .id
}

/// Returns the settings of a node on a Redis server.
#[cfg(unix)]
fn on_redis(server: &tourbillon_fault::Server, folder: &Path) -> Settings {
    let mut settings = Settings::new(folder);
    let connect = tourbillon_redis::Connect::single(&server.url()).unwrap();
    settings.store = StorePlace::Redis(RedisSettings::new(connect, "d"));
    settings
}

/// Fetches a timer from the queue `q`. Returns the name of the claim.
#[cfg(unix)]
async fn fetch(service: &Service) -> String {
    for _ in 0..20 {
        let claims = service.deliveries().queues().fetch("default", "q", 1, Duration::from_secs(3)).await;
        if let Some(claim) = claims.unwrap().pop() {
            return claim.claim;
        }
    }
    panic!("no timer came within a minute");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_delivery_is_shown_from_its_start_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(Settings::new(folder.path())).unwrap();
    let mut events = service.events().subscribe(None).unwrap();
    let id = place(&service, "k", 2).await;
    let parked = loop {
        let event = next(&mut events).await;
        assert_eq!(event.id.as_deref(), Some(&*id));
        if event.kind == EventKind::Parked {
            break event;
        }
        assert_eq!(event.kind, EventKind::Created);
    };
    assert_eq!(parked.detail.as_deref(), Some("queue:default/q"));
    let queues = service.deliveries().queues();
    let retry = Verdict::Retry { error: "no".into(), after: Some(Duration::ZERO) };
    let ends = [
        (retry, EventKind::Failed, Some("no"), 1),
        (Verdict::Dead("never".into()), EventKind::Dead, Some("never"), 2),
        (Verdict::Done, EventKind::Delivered, None, 1),
    ];
    for (verdict, kind, detail, attempt) in ends {
        if verdict == Verdict::Done {
            place(&service, "k", 1).await;
        }
        let claim = queues.fetch("default", "q", 1, Duration::from_secs(10)).await.unwrap().remove(0);
        service.deliveries().end_claim("default", &claim.claim, verdict).await.unwrap();
        let mut seen = Vec::new();
        let end = loop {
            let event = next(&mut events).await;
            if event.kind == kind {
                break event;
            }
            seen.push(event);
        };
        let started = seen.iter().find(|event| event.kind == EventKind::Started).expect("it has begun");
        assert_eq!((started.attempt, started.late_ms.is_some()), (Some(attempt), true), "{seen:?}");
        assert_eq!(
            (end.attempt, end.detail.as_deref(), end.took_ms.is_some()),
            (Some(attempt), detail, true)
        );
        assert_eq!((&*end.namespace, end.key.as_deref()), ("default", Some("k")));
    }
    tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
}

/// Tests that a worker can tell an empty queue from a store that does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_learns_that_the_store_does_not_answer() {
    let (folder, store) = (tempfile::tempdir().unwrap(), double::node(&Documents::default(), 1));
    let service = Service::open_on_double(Settings::new(folder.path()), Arc::clone(&store) as _).unwrap();
    let queues = service.deliveries().queues();
    for wait in [Duration::ZERO, Duration::from_secs(2)] {
        assert_eq!(queues.fetch("default", "q", 1, wait).await.unwrap(), []);
        // The answer that the queue is empty counts for a second.
        tokio::time::sleep(Duration::from_secs(1)).await;
        store.hook().fails_calls.store(true, Ordering::Relaxed);
        let problem = queues.fetch("default", "q", 1, wait).await.unwrap_err();
        assert_eq!(problem.kind, ProblemKind::StoreUnavailable, "{problem:?}");
        assert!(problem.detail.contains("no answer") && problem.retry_after_ms.is_some(), "{problem:?}");
        store.hook().fails_calls.store(false, Ordering::Relaxed);
    }
    tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
}

/// Tests that claims and secrets end by the clock of the store, which is decades behind this machine's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_secrets_end_by_the_clock_of_the_store() {
    const DAY: Duration = Duration::from_secs(86_400);
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::new(clock.clone()));
    let service = Service::open_on(Settings::new(folder.path()), Arc::clone(&store)).unwrap();
    place(&service, "k", 2).await;
    // A timer without a delay becomes due up to a millisecond after it was stored.
    clock.advance(Duration::from_millis(2));
    let claim = service.deliveries().queues().fetch("default", "q", 1, 10 * Duration::from_secs(1)).await;
    let claim = claim.unwrap().remove(0);
    let hour = Moment::from(store.now() + Duration::from_secs(3_600));
    assert!(claim.until < hour, "{}", claim.until);
    let renewed = service.deliveries().renew_claim("default", &claim.claim).await.unwrap();
    assert!(renewed < hour, "{renewed}");
    service.namespace_admin().make("a").await.unwrap();
    for (age, former_until, active) in [
        (Duration::ZERO, None, 1),
        (DAY / 2, Some(DAY / 2 + DAY), 2),
        // Half a day later, the first secret has half a day left, and keeps its end.
        (DAY / 2, Some(2 * DAY), 3),
    ] {
        clock.advance(age);
        let made = service.namespace_admin().make_secret("a").await.unwrap();
        let rest = |until: Moment| until.as_millis() / 3_600_000;
        let hours = former_until.map(|until: Duration| until.as_secs() / 3_600);
        assert_eq!(made.former_until.map(rest), hours);
        let view = service.namespace_admin().view("a").await.unwrap();
        assert_eq!(view.secrets.len(), active, "{view:?}");
    }
    clock.advance(DAY / 2);
    let view = service.namespace_admin().view("a").await.unwrap();
    assert_eq!(view.secrets.len(), 2, "the first secret has ended: {view:?}");
    tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
}

/// Checks that events show the namespace and key of a timer that dies when its lease expires, although the runtime's
/// event about the lease has only the timer's id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_by_the_end_of_a_lease_is_shown_with_the_timers_names() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(Settings::new(folder.path())).unwrap();
    let mut events = service.events().subscribe(None).unwrap();
    let id = place(&service, "k", 1).await;
    let queues = service.deliveries().queues();
    let claim = queues.fetch("default", "q", 1, Duration::from_secs(10)).await.unwrap().remove(0);
    service.deliveries().end_claim("default", &claim.claim, Verdict::Dead("never".into())).await.unwrap();
    while next(&mut events).await.kind != EventKind::Dead {}
    // The timer is dead. The runtime now reports its death again, as for a lease that has expired too often.
    let phase = Phase::Dead;
    let expired = Happened::Expired { id: id.parse().unwrap(), at: UtcMillis::ZERO, phase };
    service.deliveries().observer.observe(&expired);
    let dead = next(&mut events).await;
    assert_eq!(
        (dead.kind, dead.id.as_deref(), dead.key.as_deref()),
        (EventKind::Dead, Some(&*id), Some("k"))
    );
    assert_eq!((&*dead.namespace, dead.detail.as_deref()), ("default", Some("never")));
    tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
}

/// Checks that events show a death if a receiver ends its claim through another node, and the timer has no attempt
/// left.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_by_the_end_of_a_claim_through_another_node_is_shown_as_a_death() {
    let Some(server) = tourbillon_fault::Server::start(&[]) else { return };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let nodes = folders.each_ref().map(|folder| {
        tokio::task::block_in_place(|| Service::open(on_redis(&server, folder.path()))).unwrap()
    });
    let [one, two] = &nodes;
    let id = place(one, "k", 1).await;
    let claim = fetch(one).await;
    let mut events = two.events().subscribe(None).unwrap();
    let refused = Verdict::Retry { error: "no".into(), after: None };
    two.deliveries().end_claim("default", &claim, refused).await.unwrap();
    let end = loop {
        let event = next(&mut events).await;
        if matches!(event.kind, EventKind::Failed | EventKind::Dead) {
            break event;
        }
    };
    assert_eq!(
        (end.kind, end.id.as_deref(), end.attempt, end.detail.as_deref()),
        (EventKind::Dead, Some(&*id), Some(1), Some("no"))
    );
    for node in nodes {
        tokio::task::spawn_blocking(move || node.close(Duration::ZERO)).await.unwrap();
    }
}

/// Checks that invented names of a claim neither make the shared document of renewals longer, nor shorten the claim.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_renewed_under_invented_names_keeps_its_single_entry_and_its_time() {
    let Some(server) = tourbillon_fault::Server::start(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let node = tokio::task::block_in_place(|| Service::open(on_redis(&server, folder.path()))).unwrap();
    place(&node, "k", 1).await;
    let claim = fetch(&node).await;
    // The first 32 digits are random, and the last 16 are the moment at which the receiver got the timer.
    let (own, at) = (&claim[32..claim.len() - 16], &claim[claim.len() - 16..]);
    let store = node.namespaces().shared().unwrap();
    let renewals = async || {
        let renewals = store.document("renewals/default").await.unwrap().unwrap();
        serde_json::from_slice::<BTreeMap<String, u64>>(&renewals.value).unwrap()
    };
    // This call passes by the open claims of the node, as a renewal at another node does.
    let claims = node.deliveries().remote_claims.clone().unwrap();
    let honest = claims.renew("default", &claim).await.unwrap();
    let before = renewals().await;
    assert!(claims.rest("default", &claim).await.unwrap().is_some());
    for number in 0..5_u64 {
        let renewed = claims.renew("default", &format!("{number:032x}{own}{at}")).await;
        assert!(renewed.is_ok_and(|until| until >= honest));
        let ended = claims.renew("default", &format!("{}{own}{number:016x}", &claim[..32])).await;
        assert_eq!(ended.unwrap_err().kind, ProblemKind::ClaimEnded);
    }
    // By this name, the hour that a claim may last ends in a second.
    let begun = store.now().as_millis() + 1_000 - 3_600_000;
    let sooner = claims.renew("default", &format!("{}{own}{begun:016x}", &claim[..32])).await.unwrap();
    assert!(sooner >= honest, "{sooner} is before {honest}");
    let after = renewals().await;
    assert!(after.len() == 1 && after.values().ge(before.values()), "{before:?} {after:?}");
    tokio::task::spawn_blocking(move || node.close(Duration::ZERO)).await.unwrap();
}

/// Checks that the renewals of one process do not keep each other from being written.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_renewals_at_the_same_time_all_succeed() {
    let Some(server) = tourbillon_fault::Server::start(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let node = tokio::task::block_in_place(|| Service::open(on_redis(&server, folder.path()))).unwrap();
    place(&node, "k", 1).await;
    let claim = fetch(&node).await;
    let claims = node.deliveries().remote_claims.clone().unwrap();
    let renewals = futures_util::future::join_all((0..200).map(|_| claims.renew("default", &claim))).await;
    let refused: Vec<_> = renewals.into_iter().filter_map(Result::err).collect();
    assert!(refused.is_empty(), "{}: {}", refused.len(), refused[0]);
    tokio::task::spawn_blocking(move || node.close(Duration::ZERO)).await.unwrap();
}

/// Checks that a full document of renewals refuses only claims without an entry, and only claims of its own namespace.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_renews_too_many_claims_uses_up_no_renewals_of_another() {
    let Some(server) = tourbillon_fault::Server::start(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let node = tokio::task::block_in_place(|| Service::open(on_redis(&server, folder.path()))).unwrap();
    for key in ["known", "new"] {
        place(&node, key, 1).await;
    }
    let (known, new) = (fetch(&node).await, fetch(&node).await);
    let claims = node.deliveries().remote_claims.clone().unwrap();
    let store = node.namespaces().shared().unwrap();
    // Adds 2,000 renewals that are not over, without the renewals of 2,000 claims.
    let fill = async |document: &str| {
        let (version, mut renewals) = match store.document(document).await.unwrap() {
            Some(found) => (found.version, serde_json::from_slice(&found.value).unwrap()),
            None => (0, BTreeMap::new()),
        };
        renewals.extend((0..2_000).map(|number| (format!("{number:064x}"), u64::MAX)));
        let value = serde_json::to_vec(&renewals).unwrap();
        assert!(store.replace_document(document, version, Some(&value)).await.unwrap().is_some());
    };
    fill("renewals/other").await;
    claims.renew("default", &known).await.unwrap();
    fill("renewals/default").await;
    let refused = claims.renew("default", &new).await.unwrap_err();
    assert_eq!((refused.kind, refused.status), (ProblemKind::LimitReached, 429));
    claims.renew("default", &known).await.unwrap();
    tokio::task::spawn_blocking(move || node.close(Duration::ZERO)).await.unwrap();
}

/// A hook at which each removal of a timer at most once has no answer.
struct NoAnswer {
    /// Whether the removals take effect. Otherwise another node gets the timer, and puts it off.
    removes: bool,
}

impl Hook for NoAnswer {
    type Seen = ();

    fn see(&self, _: Call<'_>) {}

    fn answer<'a, T: Send + 'a>(
        &'a self,
        (): (),
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        pass_on()
    }

    fn apply<'a>(
        &'a self,
        store: &'a dyn TimerStore,
        ops: Vec<Op>,
        durability: Durability,
    ) -> StoreFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let [Op::Skip(id, token)] = ops[..] else { return store.apply(ops, durability).await };
            let tomorrow = store.now() + Duration::from_secs(86_400);
            let op = if self.removes { Op::Skip(id, token) } else { Op::Snooze(id, token, tomorrow) };
            store.apply(vec![op], durability).await?;
            Err(StoreError::new(StoreErrorKind::Unknown, "the answer is lost"))
        })
    }
}

/// Tests timers whose removals have no answer. Nobody knows how they have ended, and nothing of them stays in memory
/// for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_without_an_answer_leaves_its_end_open_and_no_fingerprint() {
    for removes in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Hooked::new(Arc::new(MemoryStore::default()), NoAnswer { removes }));
        let service = Service::open_on(Settings::new(folder.path()), Arc::clone(&store) as _).unwrap();
        let mut events = service.events().subscribe(None).unwrap();
        let mut timer = NewTimer::pull(Pull { queue: "q".to_owned(), ..Pull::default() });
        timer.policy.guarantee = Some(Guarantee::AtMostOnce);
        let naming = Naming { key: Some("k"), idempotency_key: Some("once"), ..Naming::default() };
        service.creations().place("default", naming, &timer).await.unwrap();
        let queues = service.deliveries().queues();
        assert_eq!(queues.fetch("default", "q", 1, Duration::from_secs(2)).await.unwrap(), []);
        let in_flight = &service.deliveries().observer.in_flight;
        if removes {
            let failed = loop {
                let event = next(&mut events).await;
                if event.kind == EventKind::Failed {
                    break event;
                }
            };
            let detail = failed.detail.unwrap();
            assert!(detail.contains("was removed") && detail.contains("unless another node"), "{detail}");
            assert_eq!(in_flight.metrics().lost.get(), 1);
        }
        let begun = Instant::now();
        while in_flight.metrics().fired.of("lost").get() == 0 || in_flight.fingerprints() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{} are left", in_flight.fingerprints());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
    }
}
