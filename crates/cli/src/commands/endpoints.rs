//! Runs the command that lists the hosts to which callbacks go.

use crate::exit::Failure;
use crate::output::{Output, or_none, word};
use crate::parse;
use tourbillon_client::Client;
use tourbillon_client::api::Endpoint;

/// Prints the hosts to which callbacks go, one on each line, with the state of its circuit breaker and its response
/// times.
pub(crate) async fn endpoints(client: &Client, output: Output) -> Result<(), Failure> {
    let all = client.endpoints().await?;
    let columns = [
        "HOST",
        "BREAKER",
        "RUNNING",
        "PARKED",
        "SENT",
        "ERRORS",
        "RECENT ERRORS",
        "P50",
        "P99",
        "LAST ERROR",
    ];
    Ok(output.list(&all, columns, row)?)
}

fn row(endpoint: &Endpoint) -> [String; 10] {
    let breaker = word(&endpoint.breaker);
    [
        endpoint.host.clone(),
        endpoint.open_for_ms.map_or(breaker.clone(), |rest| format!("{breaker} for {}", parse::short(rest))),
        endpoint.running.to_string(),
        endpoint.parked.to_string(),
        endpoint.deliveries.to_string(),
        endpoint.errors.to_string(),
        share(endpoint.recent_errors, endpoint.recent),
        or_none(endpoint.p50_ms.map(parse::short)),
        or_none(endpoint.p99_ms.map(parse::short)),
        or_none(endpoint.last_error.as_ref()),
    ]
}

/// Returns the fraction `errors` of `all` as a percentage, rounded up, so that only a host without failures shows
/// zero. Returns an empty text if `all` is zero.
fn share(errors: u64, all: u64) -> String {
    if all == 0 {
        return String::new();
    }
    let percent = (u128::from(errors) * 100).div_ceil(u128::from(all));
    format!("{percent} %")
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn a_failure_among_many_callbacks_is_seen() {
        assert_eq!(share(0, 0), "");
        assert_eq!(share(0, 9), "0 %");
        assert_eq!(share(1, 100_000), "1 %");
        assert_eq!(share(9, 9), "100 %");
        assert_eq!(share(u64::MAX, u64::MAX), "100 %");
    }
}
