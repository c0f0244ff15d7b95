//! Answers requests of receivers that fetch timers from a queue. A claim is a fetched timer whose delivery has not
//! ended.

use super::answer::{Answer, Refused};
use super::scope::{Body, Name, Within, Writer};
use crate::client::Waits;
use crate::convert::is_name;
use crate::delivery::{ClaimVerdict, unanswered};
use axum::Json;
use core::time::Duration;
use futures_util::future::join_all;
use http::StatusCode;
use std::collections::{BTreeMap, BTreeSet};
use tourbillon_api::{AckAnswer, AckResult, Acks, ClaimRequest, Claims, Nack, Problem, ProblemKind, Renewed};
use tourbillon_durable::{Health, Verdict};

/// The greatest number of timers that a single request may fetch or acknowledge.
const MOST_CLAIMS: u32 = 100;
/// The longest time for which a request may wait for timers, in milliseconds.
const LONGEST_WAIT_MS: u64 = 20_000;
/// The longest pause that a receiver may request before the timer is delivered again, in milliseconds, after a failure
/// or if it puts the timer off. The limit is a day, as for the header `Retry-After`.
const LONGEST_PAUSE_MS: u64 = 86_400_000;

/// Fetches due timers from a queue.
///
/// If no timer is due, the request waits for a timer, for at most `wait_ms`. Where several nodes share the timers, any
/// node can hand over the timers of all nodes.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/queues/{queue}/claims", tag = "claims",
    request_body(content = ClaimRequest, example = json!({ "max": 10, "wait_ms": 100 })),
    responses(
        (status = 200, description = "The timers, none if none became due in time. A store that does not answer gives 503 instead of none.", body = Claims),
        (status = 429, description = "As many claims are open, or as many receivers or connections wait, as there may be.", body = Problem),
    )
)]
pub(super) async fn claim(
    scope: Within<Writer>,
    Name(queue): Name,
    // A receiver that has gone must not get timers, so the end of its connection ends the request.
    waits: Waits,
    body: Body<ClaimRequest>,
) -> Answer<Json<Claims>> {
    let request = scope.read(body).await?;
    scope.service.namespaces().require(&scope.namespace)?;
    if !is_name(&queue) {
        return Err(Refused(Problem::new(ProblemKind::NotFound, "no queue has such a name")));
    }
    let ClaimRequest { max, wait_ms } = request;
    let (max, wait) = (max.unwrap_or(1), wait_ms.unwrap_or(0));
    if !(1..=MOST_CLAIMS).contains(&max) {
        return Err(Refused(Problem::field("/max", format!("1 to {MOST_CLAIMS} timers"))));
    }
    if wait > LONGEST_WAIT_MS {
        return Err(Refused(Problem::field("/wait_ms", format!("at most {LONGEST_WAIT_MS} ms"))));
    }
    if wait > 0 {
        waits.begin()?;
    }
    let wait = Duration::from_millis(wait);
    let claims =
        scope.service.deliveries().queues().fetch(&scope.namespace, &queue, max as usize, wait).await?;
    if claims.is_empty() {
        // No due timer reaches the queue from a store that does not answer, so an empty answer would say too much.
        let fault = match scope.service.timers().health() {
            Health::StoreFails { error, .. } => Some(error.to_string()),
            Health::StoreHangs(time) => {
                Some(format!("the store has given no answer for {} s", time.as_secs()))
            }
            _ => None,
        };
        fault.map_or(Ok(()), |fault| Err(unanswered(&fault)))?;
    }
    Ok(Json(Claims { claims }))
}

/// Acknowledges a claim: the delivery succeeded, and the timer is done.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/claims/{claim}/ack", tag = "claims",
    responses(
        (status = 204, description = "The store has the end of the delivery. In a file it survives the death of the process, and some 20 ms later the loss of power."),
        (status = 409, description = "The claim has ended.", body = Problem),
    )
)]
pub(super) async fn ack(scope: Within<Writer>, Name(claim): Name) -> Answer<StatusCode> {
    scope.service.deliveries().end_claim(&scope.namespace, &claim, Verdict::Done).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Acknowledges several claims, at most 100.
///
/// Each claim has a result of its own, as if it were acknowledged alone, and the claims may come from several fetches.
/// A claim that has ended does not stop the others: its result is a problem, and the status of the answer is still 200.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/claims/ack", tag = "claims",
    request_body(content = Acks, example = json!({ "claims": ["6b1f0c5e9d2a47738e41c0b7fa935d28", "0"] })),
    responses((
        status = 200,
        description = "A result for each claim, once the store has all their ends. A claim without a problem is acknowledged.",
        body = AckAnswer,
        example = json!({ "results": [
            { "claim": "6b1f0c5e9d2a47738e41c0b7fa935d28" },
            { "claim": "0", "problem": { "type": "/problems/claim-ended", "title": "The claim has ended", "status": 409, "detail": "it was acknowledged or refused, or its time is over" } }
        ] })
    ))
)]
pub(super) async fn ack_many(scope: Within<Writer>, body: Body<Acks>) -> Answer<Json<AckAnswer>> {
    let Acks { claims } = scope.read(body).await?;
    if !is_name(&scope.namespace) {
        return Err(Refused(Problem::new(ProblemKind::NotFound, "no namespace has such a name")));
    }
    if claims.len() > MOST_CLAIMS as usize {
        let detail = format!("at most {MOST_CLAIMS} claims");
        let problem = Problem::new(ProblemKind::TooLarge, detail.clone()).with_field("/claims", detail);
        return Err(Refused(problem));
    }
    let deliveries = scope.service.deliveries();
    // A claim that is named twice ends once, and both of its results are that of this end.
    let distinct: BTreeSet<&str> = claims.iter().map(String::as_str).collect();
    // The ends go to the store together, so they share its transactions.
    let ends = distinct.iter().map(|claim| deliveries.end_claim(&scope.namespace, claim, Verdict::Done));
    let ended = join_all(ends).await.into_iter().map(Result::err);
    let problems: BTreeMap<&str, Option<Problem>> = distinct.iter().copied().zip(ended).collect();
    let result = |claim: &String| AckResult {
        claim: claim.clone(),
        problem: problems.get(claim.as_str()).cloned().flatten(),
    };
    Ok(Json(AckAnswer { results: claims.iter().map(result).collect() }))
}

/// Rejects a claim: the delivery failed. The timer is then delivered again or becomes dead.
///
/// With `snooze_ms` the delivery has not failed: the receiver puts the timer off, which counts as no attempt.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/claims/{claim}/nack", tag = "claims", request_body(content = Nack, example = json!({ "error": "the printer is out of paper" })),
    responses(
        (status = 204, description = "The store has the end of the delivery, as with an acknowledgement."),
        (status = 409, description = "The claim has ended.", body = Problem),
    )
)]
pub(super) async fn nack(scope: Within<Writer>, Name(claim): Name, body: Body<Nack>) -> Answer<StatusCode> {
    let nack = scope.read(body).await?;
    let Nack { error, retry_after_ms, dead, snooze_ms } = nack;
    for (field, pause) in [("/retry_after_ms", retry_after_ms), ("/snooze_ms", snooze_ms)] {
        if pause.is_some_and(|pause| pause > LONGEST_PAUSE_MS) {
            return Err(Refused(Problem::field(field, format!("at most {LONGEST_PAUSE_MS} ms"))));
        }
    }
    if snooze_ms.is_some() && (dead || error.is_some() || retry_after_ms.is_some()) {
        let detail = "a timer that is put off has not failed: it has no `error`, `retry_after_ms` or `dead`";
        return Err(Refused(Problem::field("/snooze_ms", detail)));
    }
    let error: Box<str> =
        error.as_deref().filter(|error| !error.is_empty()).unwrap_or("the receiver refused the timer").into();
    let verdict = match snooze_ms {
        Some(pause) => ClaimVerdict::PutOff(Duration::from_millis(pause)),
        None if dead => Verdict::Dead(error).into(),
        None => Verdict::Retry { error, after: retry_after_ms.map(Duration::from_millis) }.into(),
    };
    scope.service.deliveries().end_claim(&scope.namespace, &claim, verdict).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Renews a claim: its time limit starts again.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/claims/{claim}/renew", tag = "claims",
    responses(
        (status = 200, description = "The claim has more time. If the process dies that has handed the timer over, the claim ends.", body = Renewed),
        (status = 409, description = "The claim has ended.", body = Problem),
        (status = 429, description = "Too many claims of the namespace were renewed at nodes that have not handed them out.", body = Problem),
    )
)]
pub(super) async fn renew(scope: Within<Writer>, Name(claim): Name) -> Answer<Json<Renewed>> {
    Ok(Json(Renewed { until: scope.service.deliveries().renew_claim(&scope.namespace, &claim).await? }))
}
