//! Answers requests of receivers that fetch timers from a queue. A claim is a fetched timer whose delivery has not
//! ended.

use super::answer::{Answer, Refused};
use super::scope::{Body, Name, Within, Writer};
use crate::client::Waits;
use crate::convert::is_name;
use crate::delivery::unanswered;
use axum::Json;
use core::time::Duration;
use http::StatusCode;
use tourbillon_api::{ClaimRequest, Claims, Nack, Problem, ProblemKind, Renewed};
use tourbillon_durable::{Health, Verdict};

/// The greatest number of timers that a single request may fetch.
const MOST_CLAIMS: u32 = 100;
/// The longest time for which a request may wait for timers, in milliseconds.
const LONGEST_WAIT_MS: u64 = 20_000;
/// The longest pause that a receiver may request before the timer is delivered again, in milliseconds. The limit is a
/// day, as for the header `Retry-After`.
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

/// Rejects a claim: the delivery failed. The timer is then delivered again or becomes dead.
#[utoipa::path(
    post, path = "/v1/namespaces/{namespace}/claims/{claim}/nack", tag = "claims", request_body(content = Nack, example = json!({ "error": "the printer is out of paper" })),
    responses(
        (status = 204, description = "The store has the end of the delivery, as with an acknowledgement."),
        (status = 409, description = "The claim has ended.", body = Problem),
    )
)]
pub(super) async fn nack(scope: Within<Writer>, Name(claim): Name, body: Body<Nack>) -> Answer<StatusCode> {
    let nack = scope.read(body).await?;
    let Nack { error, retry_after_ms, dead } = nack;
    if retry_after_ms.is_some_and(|pause| pause > LONGEST_PAUSE_MS) {
        return Err(Refused(Problem::field("/retry_after_ms", format!("at most {LONGEST_PAUSE_MS} ms"))));
    }
    let error: Box<str> =
        error.as_deref().filter(|error| !error.is_empty()).unwrap_or("the receiver refused the timer").into();
    let verdict = if dead {
        Verdict::Dead(error)
    } else {
        Verdict::Retry { error, after: retry_after_ms.map(Duration::from_millis) }
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
