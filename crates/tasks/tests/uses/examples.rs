//! Runs the examples, and checks their summaries.

use crate::support::within_patience;

#[allow(dead_code, reason = "its main function")]
#[path = "../../examples/idle_connections.rs"]
mod idle_connections;
#[allow(dead_code, reason = "its main function")]
#[path = "../../examples/retry_queue.rs"]
mod retry_queue;
#[allow(dead_code, reason = "its main function")]
#[path = "../../examples/session_cache.rs"]
mod session_cache;

#[test]
fn idle_connections_closes_who_is_silent_and_who_is_old() {
    let summary = within_patience(|| idle_connections::run().unwrap());
    // If the machine stands still for a third of a second, other clients are idle, too.
    assert_eq!(summary.closed_by_client + summary.idle + summary.old, 7, "{summary}");
    assert!(summary.idle >= 3 && summary.old <= 1, "{summary}");
}

#[test]
fn retry_queue_tries_each_request_as_often_as_it_takes() {
    let summary = within_patience(|| retry_queue::run().unwrap());
    // There are twenty requests of each kind. They take one to four attempts, or fail four times.
    let expected = retry_queue::Summary { attempts: 20 * (1 + 2 + 3 + 4 + 4), succeeded: 80, given_up: 20 };
    assert_eq!(summary, expected);
}

#[test]
fn session_cache_ends_each_session_by_logout_or_by_expiry() {
    let summary = session_cache::run().unwrap();
    assert_eq!((summary.logins, summary.logouts, summary.expired), (1_000, 500, 500), "{summary}");
    assert!(summary.clicks > summary.logins && summary.too_late > 0, "{summary}");
}
