//! Tests the client with the service itself.

use crate::rig::Rig;
use std::time::Duration;
use tourbillon_client::api::{Callback, CancelResult, IfPresent, NewTimer, Phase, PlaceOutcome, ProblemKind};

fn timer() -> NewTimer {
    NewTimer::callback(Callback::post("http://127.0.0.1:9999/")).after_ms(3_600_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_is_made_shown_moved_and_cancelled_by_every_key() {
    let rig = Rig::start().await;
    let timers = rig.client.namespace("default");
    for key in ["order 17", "a/b", "..", ".", "?x=y#z", "50%", "ü", "a:fire", "+", "\u{1f550}"] {
        let placed = timers.place(&timer()).key(key).await.unwrap();
        assert_eq!(placed.outcome, PlaceOutcome::Created, "{key}");
        let at = timers.key(key);
        let shown = at.get().await.unwrap();
        assert_eq!((shown.key.as_deref(), &shown.id, shown.phase), (Some(key), &placed.id, Phase::Pending));
        let moved = at.move_after(Duration::from_secs(7_200)).await.unwrap();
        assert_eq!(moved.id, placed.id);
        let later = at.get().await.unwrap();
        assert!(later.due.as_millis() >= shown.due.as_millis() + 3_500_000, "{key}");
        at.move_to(shown.due).await.unwrap();
        assert_eq!(at.get().await.unwrap().due, shown.due);
        assert_eq!(at.cancel().await.unwrap().result, CancelResult::Cancelled);
        assert_eq!(at.cancel().await.unwrap().result, CancelResult::NotFound);
        assert_eq!(at.get().await.unwrap_err().problem(), Some(ProblemKind::NotFound), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_creation_is_a_repetition_a_problem_or_a_replacement() {
    let rig = Rig::start().await;
    let timers = rig.client.namespace("default");
    let timer = timer();
    let first = timers.place(&timer).idempotency_key("one").await.unwrap();
    let second = timers.place(&timer).idempotency_key("one").await.unwrap();
    assert_eq!((first.outcome, second.outcome), (PlaceOutcome::Created, PlaceOutcome::Repeated));
    assert_eq!(first.id, second.id);

    timers.place(&timer).key("k").await.unwrap();
    let error = timers.place(&timer).key("k").await.unwrap_err();
    assert_eq!(error.problem(), Some(ProblemKind::KeyExists));
    let kept = timers.place(&timer.clone().if_present(IfPresent::Keep)).key("k").await.unwrap();
    assert_eq!((kept.outcome, kept.kept.unwrap().was), (PlaceOutcome::Kept, Phase::Pending));
    let replacement = timer.clone().if_present(IfPresent::Replace);
    let placed = timers.place(&replacement).key("k").await.unwrap();
    assert_eq!(placed.outcome, PlaceOutcome::Replaced);
    assert_eq!(placed.replaced.unwrap().was, Phase::Pending);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_is_read_page_by_page_and_as_a_stream() {
    use futures_util::TryStreamExt as _;
    let rig = Rig::start().await;
    let timers = rig.client.namespace("default");
    for n in 0..7 {
        let timer = timer().label(if n % 2 == 0 { "even & so on" } else { "odd" });
        timers.place(&timer).key(&format!("k{n}")).await.unwrap();
    }
    let keys = |timers: Vec<tourbillon_client::api::Timer>| {
        let mut keys: Vec<_> = timers.into_iter().map(|timer| timer.key.unwrap()).collect();
        keys.sort_unstable();
        keys
    };
    let mut pages = timers.list().page_size(3).pages();
    let (mut all, mut count) = (Vec::new(), 0);
    while let Some(page) = pages.next_page().await.unwrap() {
        assert!(page.len() <= 3);
        all.extend(page);
        count += 1;
    }
    assert!(count >= 3);
    assert_eq!(keys(all), (0..7).map(|n| format!("k{n}")).collect::<Vec<_>>());
    let even = timers.list().label("even & so on").page_size(2).stream().try_collect().await.unwrap();
    assert_eq!(keys(even), ["k0", "k2", "k4", "k6"]);
    let dead = timers.list().phase(Phase::Dead).stream().try_collect::<Vec<_>>().await.unwrap();
    assert!(dead.is_empty());
    let error = timers.list().page_size(1_000).pages().next_page().await.unwrap_err();
    assert_eq!(error.problem(), Some(ProblemKind::BadRequest));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_a_problem() {
    let rig = Rig::start().await;
    let error = rig.client.namespace("nowhere").place(&timer()).await.unwrap_err();
    assert_eq!(error.problem(), Some(ProblemKind::NotFound));
    let error = rig.client.namespace("default").key("k").fire().await.unwrap_err();
    assert_eq!(error.problem(), Some(ProblemKind::NotFound));
    let relative = NewTimer::callback(Callback::post("nowhere"));
    let error = rig.client.namespace("default").place(&relative).await.unwrap_err();
    assert!(error.to_string().contains("/callback/url"), "{error}");
}
