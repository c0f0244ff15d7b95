//! Tests receivers, timers and claims at the queues.

use super::arrival::{BUFFERED, Found};
use super::buffers::ASSEMBLY;
use super::*;
use crate::delivery::parked_index::ParkedIndex;
use crate::delivery::permits::Wanted;
use crate::delivery::reason::Reason;
use crate::delivery::retry_pause::RetryPause;
use core::future::{pending, ready};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;
use tourbillon_api::{Claim, Problem, ProblemKind};
use tourbillon_durable::{UtcMillis, Verdict};

fn claim(number: usize) -> Claim {
    let name = format!("{number:032x}");
    serde_json::from_value(serde_json::json!({
        "claim": name, "id": name, "labels": [], "scheduled": "2026-01-01T00:00:00Z", "attempt": 1,
        "until": "2026-01-01T00:00:00Z", "body": "",
    }))
    .unwrap()
}

/// Opens claims of a namespace until its limit is reached.
fn fill(queues: &Arc<PullQueues>, namespace: &str, number: &mut usize) -> Vec<OpenClaim> {
    let reason = Reason::Queue(namespace.into(), "q".into());
    let (sender, _claims) = mpsc::unbounded_channel();
    queues.lock().receivers.replace(&reason, 1_000, sender);
    let mut open = Vec::new();
    loop {
        *number += 1;
        let is_wanted = queues.wanted(&reason, Instant::now()) != Wanted::Nothing;
        let mut arrival = queues.arrive(&reason, namespace, UtcMillis::default());
        assert_eq!(matches!(arrival.find(), Found::Receiver), is_wanted);
        match arrival.hand_over(&claim(*number), false) {
            Some(claim) => open.push(claim),
            None => {
                assert!(!is_wanted && queues.lock().claims.starved().contains(&reason));
                return open;
            }
        }
    }
}

#[test]
fn a_namespace_whose_receivers_hang_leaves_claims_to_others() {
    let queues = Arc::new(PullQueues::new(Arc::default(), 64, false));
    let mut number = 0;
    let first = fill(&queues, "a", &mut number);
    let second = fill(&queues, "b", &mut number);
    let third = fill(&queues, "c", &mut number);
    assert_eq!((first.len(), second.len(), third.len()), (48, 12, 3));
    assert_eq!(queues.open(), 63);
    drop(first);
    assert!(
        queues.lock().claims.starved().is_empty(),
        "the end of a claim shows the others that there is room"
    );
    assert!(!fill(&queues, "c", &mut number).is_empty());
    drop((second, third));
    assert!(queues.lock().claims.are_gone(), "nothing is kept of those that have gone");
    assert!(queues.lock().receivers.are_gone(), "nothing is kept of those that have gone");
}

#[tokio::test(start_paused = true)]
async fn a_fetched_timer_whose_receiver_was_taken_waits_for_the_next_one_and_another_timer_does_not() {
    let queues = Arc::new(PullQueues::new(Arc::default(), 64, true));
    let reason = Reason::Queue("a".into(), "q".into());
    let receiver = |wants: usize| {
        let (at, reason) = (Arc::clone(&queues), reason.clone());
        let Reason::Queue(namespace, queue) = reason else { unreachable!() };
        tokio::spawn(async move { at.fetch(&namespace, &queue, wants, Duration::from_secs(5)).await })
    };
    let moment = UtcMillis::from_millis;
    let first = receiver(1);
    tokio::task::yield_now().await;
    let most = queues.begin_fetch(&reason, 1);
    queues.end_fetch(&reason, most, 2);
    let (mut one, mut two) = (queues.arrive(&reason, "a", moment(1)), queues.arrive(&reason, "a", moment(2)));
    let mut other = queues.arrive(&reason, "a", moment(3));
    let began = tokio::time::Instant::now();
    let soon = Duration::from_millis(10);
    let (comes, waits) = tokio::join!(one.is_awaited(), tokio::time::timeout(soon, two.is_awaited()));
    assert!(comes);
    assert!(waits.is_err(), "another one is about to be handed over");
    assert!(other.is_awaited().await, "it was not fetched, and does not wait");
    let _open = other.hand_over(&claim(3), false).unwrap();
    assert!(one.hand_over(&claim(1), false).is_none(), "the receiver has what it wants");
    assert_eq!(first.await.unwrap().unwrap().len(), 1);
    let mut late = queues.arrive(&reason, "a", moment(4));
    assert!(!late.is_awaited().await, "it was not fetched");
    let waits = async {
        assert!(one.is_awaited().await);
        (one.hand_over(&claim(1), false).unwrap(), began.elapsed())
    };
    let comes = async {
        tokio::time::sleep_until(began + Duration::from_millis(600)).await;
        receiver(1).await.unwrap().unwrap()
    };
    let ((_open, waited), claims) = tokio::join!(waits, comes);
    assert_eq!((waited, claims.len()), (Duration::from_millis(600), 1));
    assert!(!two.is_awaited().await, "nobody comes");
    assert_eq!(began.elapsed(), BUFFERED, "it waits for a second from its arrival on");
    // A timer that has found a receiver, but leaves without it, wakes the next timer.
    let most = queues.begin_fetch(&reason, 1);
    queues.end_fetch(&reason, most, 2);
    let last = receiver(1);
    tokio::task::yield_now().await;
    let (mut goes, mut next) =
        (queues.arrive(&reason, "a", moment(5)), queues.arrive(&reason, "a", moment(6)));
    assert!(goes.is_awaited().await);
    let comes = async {
        assert!(next.is_awaited().await);
        next.hand_over(&claim(6), false).unwrap()
    };
    let leaves = async {
        tokio::time::sleep(soon).await;
        drop(goes);
    };
    let (_open, ()) = tokio::join!(comes, leaves);
    assert_eq!(last.await.unwrap().unwrap().len(), 1);
    assert!(queues.lock().buffers.are_empty(), "nothing is left there");
}

#[tokio::test(start_paused = true)]
async fn fetched_timers_go_out_in_the_order_of_their_due_moments_in_whichever_order_they_arrive() {
    // `early` timers arrive before the store's answer, and `lost` timers of the fetch never arrive.
    for (early, lost) in [(0, 0), (1, 0), (3, 0), (0, 1), (2, 1)] {
        let queues = Arc::new(PullQueues::new(Arc::default(), 64, true));
        let reason = Reason::Queue("a".into(), "q".into());
        let receiver = || {
            let at = Arc::clone(&queues);
            tokio::spawn(async move { at.fetch("a", "q", 1, Duration::from_secs(5)).await.unwrap() })
        };
        let first = receiver();
        tokio::task::yield_now().await;
        let most = queues.begin_fetch(&reason, 1);
        let begun = tokio::time::Instant::now();
        for (number, due) in [3, 1, 2].into_iter().enumerate() {
            if number == early {
                queues.end_fetch(&reason, most, 3 + lost);
            }
            let (at, reason) = (Arc::clone(&queues), reason.clone());
            tokio::spawn(async move {
                let mut arrival = at.arrive(&reason, "a", UtcMillis::from_millis(due as u64));
                assert!(arrival.is_awaited().await, "the timer {due} was parked");
                let _open = arrival.hand_over(&claim(due), false).unwrap();
                tokio::time::sleep(Duration::from_secs(60)).await;
            });
            tokio::task::yield_now().await;
        }
        if early == 3 {
            queues.end_fetch(&reason, most, 3 + lost);
        }
        let mut claims = first.await.unwrap();
        let (waited, most) = (begun.elapsed(), ASSEMBLY * u32::try_from(lost).unwrap());
        assert!(waited <= most, "{waited:?}");
        for _ in 0..2 {
            claims.extend(receiver().await.unwrap());
        }
        let ids: Vec<_> = claims.into_iter().map(|claim| claim.id).collect();
        assert_eq!(ids, [1, 2, 3].map(|number| claim(number).id), "{early} early, {lost} lost");
    }
}

#[tokio::test(start_paused = true)]
async fn no_timer_is_left_in_the_buffer_that_is_due_after_a_timer_that_was_parked_again() {
    let queues = Arc::new(PullQueues::new(Arc::default(), 64, true));
    let reason = Reason::Queue("a".into(), "q".into());
    let most = queues.begin_fetch(&reason, 2);
    queues.end_fetch(&reason, most, 2);
    let arrive = |due: u64| {
        let (at, reason) = (Arc::clone(&queues), reason.clone());
        tokio::spawn(async move { at.arrive(&reason, "a", UtcMillis::from_millis(due)).is_awaited().await })
    };
    let first = arrive(1);
    tokio::time::sleep(BUFFERED / 2).await;
    let second = arrive(2);
    assert!(!first.await.unwrap());
    assert!(queues.lock().buffers.are_empty(), "a receiver could get the later timer first");
    assert!(!second.await.unwrap());
    // The next fetch waits until the store has parked both.
    let (sender, _claims) = mpsc::unbounded_channel();
    queues.lock().receivers.replace(&reason, 1, sender);
    assert!(matches!(queues.wanted(&reason, Instant::now()), Wanted::At(_)));
}

#[test]
fn no_timer_waits_in_the_buffer_beside_a_receiver() {
    for round in 0..2_000 {
        let queues = Arc::new(PullQueues::new(Arc::default(), 64, true));
        let reason = Reason::Queue("a".into(), "q".into());
        let most = queues.begin_fetch(&reason, 1);
        queues.end_fetch(&reason, most, 1);
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let claims = std::thread::scope(|scope| {
            let receiver = scope
                .spawn(|| runtime().block_on(queues.fetch("a", "q", 1, Duration::from_millis(900))).unwrap());
            let _open = runtime().block_on(async {
                let mut arrival = queues.arrive(&reason, "a", UtcMillis::default());
                if round % 2 == 1 {
                    std::thread::yield_now();
                }
                assert!(arrival.is_awaited().await, "round {round}");
                arrival.hand_over(&claim(1), false).unwrap()
            });
            receiver.join().unwrap()
        });
        assert_eq!(claims.len(), 1, "round {round}");
    }
}

/// Asks to end an open claim with this verdict, as a receiver does. Returns the task in which the receiver waits, and
/// the ticket with which the claim's handler answers.
async fn ordered(queues: &Arc<PullQueues>, open: &mut OpenClaim, verdict: &Verdict) -> (Waiting, EndTicket) {
    let (at, name, wanted) = (Arc::clone(queues), open.name.clone(), verdict.clone());
    let waiting = tokio::spawn(async move { at.end("a", &name, wanted).await });
    let Some(ClaimRequest::End(got, ticket)) = open.request().await else { panic!("an end") };
    assert_eq!(got, verdict.clone().into());
    (waiting, ticket)
}

type Waiting = tokio::task::JoinHandle<Option<Result<(), Problem>>>;

#[tokio::test]
async fn an_end_is_answered_once_the_store_has_it_and_the_same_end_again_with_it() {
    let queues = Arc::new(PullQueues::new(Arc::default(), 64, false));
    let mut number = 0;
    let mut claims = fill(&queues, "a", &mut number).into_iter();
    let mut open = claims.next().unwrap();
    let (first, ticket) = ordered(&queues, &mut open, &Verdict::Done).await;
    let (at, name) = (Arc::clone(&queues), open.name.clone());
    let again = tokio::spawn(async move { at.end("a", &name, Verdict::Done).await });
    let dead = queues.end("a", &open.name, Verdict::Dead("no".into())).await;
    assert_eq!(dead.unwrap().unwrap_err().kind, ProblemKind::ClaimEnded, "another end came first");
    assert!(queues.end("b", &open.name, Verdict::Done).await.unwrap().is_err(), "another namespace's claim");
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!first.is_finished() && !again.is_finished(), "the store does not have the end");
    let name = open.name.clone();
    drop(open);
    ticket.stored();
    assert!(matches!(first.await.unwrap(), Some(Ok(()))));
    assert!(matches!(again.await.unwrap(), Some(Ok(()))));
    assert!(queues.end("a", &name, Verdict::Done).await.is_none(), "the claim has gone");

    let mut open = claims.next().unwrap();
    let (waiting, ticket) = ordered(&queues, &mut open, &Verdict::Done).await;
    ticket.came_late();
    assert_eq!(waiting.await.unwrap().unwrap().unwrap_err().kind, ProblemKind::ClaimEnded);
    let mut open = claims.next().unwrap();
    let (waiting, ticket) = ordered(&queues, &mut open, &Verdict::Done).await;
    ticket.lost();
    let problem = waiting.await.unwrap().unwrap().unwrap_err();
    assert_eq!((problem.status, problem.outcome.as_deref()), (503, Some("unknown")));
    let mut open = claims.next().unwrap();
    let (waiting, ticket) = ordered(&queues, &mut open, &Verdict::Done).await;
    drop(ticket);
    assert!(waiting.await.unwrap().is_none(), "its handler was dropped");
    assert!(queues.endings.are_over());
}

/// The moment until which the timer is put off depends on the moment of the request. A repeated request asks for the
/// same end all the same.
#[tokio::test(start_paused = true)]
async fn a_timer_that_is_put_off_twice_for_the_same_time_is_put_off_once() {
    let queues = Arc::new(PullQueues::new(Arc::default(), 64, false));
    let mut open = fill(&queues, "a", &mut 0).remove(0);
    let name = open.name.clone();
    let put_off = |seconds: u64| {
        let (at, name) = (Arc::clone(&queues), name.clone());
        let asked = ClaimVerdict::PutOff(Duration::from_secs(seconds));
        tokio::spawn(async move { at.end("a", &name, asked).await })
    };
    let first = put_off(60);
    let Some(ClaimRequest::End(asked, ticket)) = open.request().await else { panic!("an end") };
    let least = RetryPause { least: Duration::from_secs(90) };
    let moment = |seconds: u64| UtcMillis::from_millis(1_000 * seconds);
    assert_eq!(
        asked.clone().verdict(moment(5), RetryPause { least: Duration::ZERO }),
        Verdict::Snooze(moment(65))
    );
    assert_eq!(
        asked.verdict(moment(5), least),
        Verdict::Snooze(moment(95)),
        "no timer comes without a pause"
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    let again = put_off(60);
    let other = put_off(61).await.unwrap().unwrap().unwrap_err();
    assert_eq!(other.kind, ProblemKind::ClaimEnded, "another end came first");
    ticket.stored();
    assert!(matches!(first.await.unwrap(), Some(Ok(()))));
    assert!(matches!(again.await.unwrap(), Some(Ok(()))));
}

/// Checks that a receiver that asks again after its answer does not find the ended claim.
#[test]
fn an_end_that_was_answered_is_not_found_again() {
    for round in 0..20_000 {
        let endings = Arc::new(endings::Endings::default());
        let (ticket, answer) = endings.begin("a", "claim", &Verdict::Done.into());
        std::thread::scope(|threads| {
            threads.spawn(|| ticket.stored());
            while answer.borrow().is_none() {
                std::hint::spin_loop();
            }
            assert!(endings.again("a", "claim", &Verdict::Done.into()).is_none(), "round {round}");
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_does_not_wait_for_ever_for_a_store_that_does_not_answer() {
    let queues = Arc::new(PullQueues::new(Arc::default(), 64, false));
    let mut open = fill(&queues, "a", &mut 0).remove(0);
    let (waiting, ticket) = ordered(&queues, &mut open, &Verdict::Done).await;
    let problem = waiting.await.unwrap().unwrap().unwrap_err();
    assert_eq!((problem.status, problem.outcome.as_deref()), (503, Some("unknown")), "{problem}");
    let (at, name) = (Arc::clone(&queues), open.name.clone());
    let again = tokio::spawn(async move { at.end("a", &name, Verdict::Done).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    ticket.stored();
    assert!(matches!(again.await.unwrap(), Some(Ok(()))), "a receiver that asks again learns of it");
}

#[test]
fn a_claim_that_ends_makes_room_for_receivers_even_after_a_pass_that_found_no_timer() {
    let parked = Arc::new(ParkedIndex::default());
    let queues = Arc::new(PullQueues::new(Arc::clone(&parked), 64, true));
    let reason = Reason::Queue("a".into(), "q".into());
    let first = fill(&queues, "a", &mut 0);
    parked.take_marked();
    parked.begin_pass();
    parked.end_pass(HashMap::new());
    drop(first);
    assert_eq!(parked.take_marked(), [reason]);
}

/// Hands a timer over to a receiver of the queue `a/q`, whose fetch is under way.
async fn handed_over(queues: &Arc<PullQueues>, number: usize) -> OpenClaim {
    handed_over_as(queues, number, false).await
}

/// Does the same as [`handed_over`]. The timer is delivered at most once if `is_once` is true.
async fn handed_over_as(queues: &Arc<PullQueues>, number: usize, is_once: bool) -> OpenClaim {
    let reason = Reason::Queue("a".into(), "q".into());
    while queues.receivers().is_empty() {
        tokio::task::yield_now().await;
    }
    let mut arrival = queues.arrive(&reason, "a", UtcMillis::default());
    assert!(arrival.is_awaited().await);
    arrival.hand_over(&claim(number), is_once).unwrap()
}

#[tokio::test(start_paused = true)]
async fn at_a_stop_either_the_receiver_has_a_timer_or_the_timer_is_parked() {
    let queues = Arc::new(PullQueues::new(Arc::default(), 64, false));
    let fetch = |max: usize| {
        let queues = Arc::clone(&queues);
        tokio::spawn(async move { queues.fetch("a", "q", max, Duration::from_secs(5)).await.unwrap() })
    };
    let first = fetch(1);
    let mut has = handed_over(&queues, 1).await;
    assert_eq!(first.await.unwrap().len(), 1);
    // The second receiver gathers further timers while the service stops.
    let second = fetch(10);
    let mut lacks = handed_over(&queues, 2).await;
    queues.close();
    assert_eq!(second.await.unwrap(), []);
    assert!(has.is_handed_over(ready(true)).await && !lacks.is_handed_over(ready(true)).await);
    assert!(matches!(has.request().await, Some(ClaimRequest::Stop)));
}

/// Tests a stop while timers that are delivered at most once are being removed. The receiver gets the timers that the
/// store removes, because no other receiver can get them. It does not get the timers that stay stored.
#[tokio::test(start_paused = true)]
async fn a_stop_during_a_removal_keeps_no_removed_timer_from_its_receiver() {
    let queues = Arc::new(PullQueues::new(Arc::default(), 64, false));
    let at = Arc::clone(&queues);
    let fetch = tokio::spawn(async move { at.fetch("a", "q", 3, Duration::from_secs(5)).await.unwrap() });
    let mut removed = handed_over_as(&queues, 1, true).await;
    let mut refused = handed_over_as(&queues, 2, true).await;
    let mut stays = handed_over_as(&queues, 3, false).await;
    let (gate, open) = tokio::sync::oneshot::channel::<()>();
    let removed = tokio::spawn(async move { removed.is_handed_over(async { open.await.is_ok() }).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    queues.close();
    assert!(!fetch.is_finished(), "the store has not removed the timer");
    gate.send(()).unwrap();
    assert!(!refused.is_handed_over(ready(false)).await && !stays.is_handed_over(ready(true)).await);
    drop(refused);
    let got: Vec<String> = fetch.await.unwrap().into_iter().map(|claim| claim.claim).collect();
    assert_eq!(got, [claim(1).claim]);
    assert!(!removed.await.unwrap(), "the claim has ended");
    assert!(queues.end("a", &claim(1).claim, Verdict::Done).await.is_none());
}

/// Tests timers that are delivered at most once. A receiver gets such a timer only after the store has removed it. A
/// timer that the store does not remove, or not in time, keeps no other timer from the receiver.
#[tokio::test(start_paused = true)]
async fn a_receiver_gets_a_timer_at_most_once_after_the_store_has_removed_it() {
    let queues = Arc::new(PullQueues::new(Arc::default(), 64, false));
    let fetch = || {
        let queues = Arc::clone(&queues);
        tokio::spawn(async move { queues.fetch("a", "q", 4, Duration::from_secs(5)).await.unwrap() })
    };
    let first = fetch();
    let mut removed = handed_over_as(&queues, 1, true).await;
    let mut refused = handed_over_as(&queues, 2, true).await;
    let mut silent = handed_over_as(&queues, 3, true).await;
    let mut stays = handed_over_as(&queues, 4, false).await;
    let (gate, open) = tokio::sync::oneshot::channel::<()>();
    let silent = tokio::spawn(async move { silent.is_handed_over(pending()).await });
    let refused = tokio::spawn(async move { refused.is_handed_over(ready(false)).await });
    let removed = tokio::spawn(async move { removed.is_handed_over(async { open.await.is_ok() }).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!first.is_finished(), "the store has not removed the timer");
    gate.send(()).unwrap();
    let got: Vec<String> = first.await.unwrap().into_iter().map(|claim| claim.claim).collect();
    assert_eq!(got, [claim(1).claim, claim(4).claim]);
    assert!(stays.is_handed_over(ready(false)).await, "a timer at least once is not removed");
    assert_eq!((removed.await.unwrap(), refused.await.unwrap(), silent.await.unwrap()), (true, false, false));
    // A receiver that goes away during the removal lets the handler go, so that its timer is parked.
    let second = fetch();
    let mut left = handed_over_as(&queues, 5, true).await;
    let left = tokio::spawn(async move { left.is_handed_over(pending()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    second.abort();
    assert!(!left.await.unwrap());
}
