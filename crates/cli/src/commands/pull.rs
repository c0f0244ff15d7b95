//! Runs the commands of a receiver that fetches timers from a queue.

use crate::exit::{Code, Failure};
use crate::output::{Output, or_none};
use crate::parse;
use clap::Args;
use core::time::Duration;
use std::time::Instant;
use tourbillon_client::api::{self, Nack as Refusal, Problem};
use tourbillon_client::{Error, Namespace};

/// The queue from which timers are fetched, the greatest number of timers to fetch, and the longest wait for them.
#[derive(Debug, Args)]
pub(crate) struct Claim {
    /// The name of the queue
    queue: String,
    /// The greatest number of timers to fetch
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    max: u32,
    /// The longest time to wait for the first timer
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse::duration)]
    wait: Duration,
}

/// The greatest number of claims that the service acknowledges in a single request.
const MOST_ACKS: usize = 100;

/// The longest wait that the service permits for a single request. A longer wait is split into several requests.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// Fetches due timers from a queue and prints them, each with its claim (the id of the receiver's lease). With the
/// claim, a receiver acknowledges, rejects or renews the delivery.
pub(crate) async fn claim(claim: Claim, timers: &Namespace, output: Output) -> Result<(), Failure> {
    let queue = timers.queue(&claim.queue);
    let begin = Instant::now();
    let claims = loop {
        let rest = claim.wait.saturating_sub(begin.elapsed());
        let claims = queue.claim(claim.max, rest.min(LONGEST_WAIT)).await?;
        if !claims.is_empty() || begin.elapsed() >= claim.wait {
            break claims;
        }
    };
    if claims.is_empty() {
        return Err(Failure::shown(Code::NotFound));
    }
    output.list(&claims, ["CLAIM", "ID", "KEY", "ATTEMPT", "UNTIL", "BODY"], |claim: &api::Claim| {
        let base64 = claim.body_base64.as_ref().map(|base64| format!("{base64} (base 64)"));
        [
            claim.claim.clone(),
            claim.id.clone(),
            or_none(claim.key.as_ref()),
            claim.attempt.to_string(),
            claim.until.to_string(),
            or_none(claim.body.clone().or(base64)),
        ]
    })?;
    Ok(())
}

/// The fetched timers to acknowledge, each by its claim.
#[derive(Debug, Args)]
pub(crate) struct Ack {
    /// The claims of the timers, as the command `claim` printed them
    #[arg(required = true, value_name = "CLAIM")]
    claims: Vec<String>,
}

/// Acknowledges fetched timers, whose deliveries succeeded.
pub(crate) async fn ack(ack: Ack, timers: &Namespace) -> Result<(), Failure> {
    if let [claim] = &ack.claims[..] {
        return Ok(timers.ack(claim).await?);
    }
    let mut refused: Vec<(String, Problem)> = Vec::new();
    for claims in ack.claims.chunks(MOST_ACKS) {
        let results = timers.ack_many(claims).await?;
        refused.extend(results.into_iter().filter_map(|result| Some((result.claim, result.problem?))));
    }
    let lines: Vec<String> = refused.iter().map(|(claim, problem)| format!("{claim}: {problem}")).collect();
    // A timer whose outcome is unknown may be acknowledged. So this outcome comes before the others.
    refused.sort_by_key(|(_, problem)| problem.outcome.is_none());
    let Some((_, first)) = refused.into_iter().next() else { return Ok(()) };
    let message =
        Some(format!("{} of {} are not acknowledged: {}", lines.len(), ack.claims.len(), lines.join("; ")));
    Err(Failure { message, ..Error::Problem(Box::new(first)).into() })
}

/// The fetched timer to reject or to put off, by its claim, and the details.
#[derive(Debug, Args)]
pub(crate) struct Nack {
    /// The timer's claim, as the command `claim` printed it
    claim: String,
    /// The reason for the failure, which the service stores with the timer
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// The shortest pause before the next delivery. If the timer's policy sets a longer pause, the longer pause applies
    #[arg(long, value_name = "DURATION", value_parser = parse::millis, conflicts_with = "dead")]
    retry_after: Option<u64>,
    /// The delivery can never succeed, so the timer is dead at once
    #[arg(long)]
    dead: bool,
    /// Put the timer off for this time. The delivery has not failed, and counts as no attempt
    #[arg(long, value_name = "DURATION", value_parser = parse::millis, conflicts_with_all = ["error", "retry_after", "dead"])]
    snooze: Option<u64>,
}

/// Reports to the service that the delivery of a fetched timer has failed, or that the receiver puts the timer off.
pub(crate) async fn nack(nack: Nack, timers: &Namespace) -> Result<(), Failure> {
    let Nack { claim, error, retry_after, dead, snooze } = nack;
    let refusal = Refusal { error, retry_after_ms: retry_after, dead, snooze_ms: snooze };
    timers.nack(&claim, &refusal).await?;
    Ok(())
}

/// The fetched timer whose claim is renewed.
#[derive(Debug, Args)]
pub(crate) struct Renew {
    /// The timer's claim, as the command `claim` printed it
    claim: String,
}

/// Renews a claim: postpones the deadline by which the receiver must acknowledge or reject the fetched timer.
pub(crate) async fn renew(renew: Renew, timers: &Namespace, output: Output) -> Result<(), Failure> {
    let renewed = timers.renew(&renew.claim).await?;
    Ok(output.value(&renewed, |renewed| format!("until {}", renewed.until))?)
}
