//! Tests that the end of a claim is not lost once it was acknowledged. The process is killed right after its answer.
//! Runs with a store in a file, on Redis and in PostgreSQL.

use crate::clients::{Answer, Http, timer};
use crate::process::{Daemon, folder, program};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tourbillon_fault::{Postgres, Server, eventually};

/// The number of timers that a test makes and fetches in one round.
const TIMERS: usize = 60;

fn pull() -> Value {
    // After a failure the timer is retried a day later, so this test sees no retry.
    json!({ "pull": { "queue": "q" }, "policy": { "backoff": { "kind": "fixed", "pause_ms": 86_400_000 } } })
}

/// Fetches timers from the queue `q` until it has fetched `max` timers, or until the queue is empty. Returns the claims
/// (the receiver's holds on the timers).
async fn claim(http: &Http, max: usize, wait_ms: u64) -> Vec<String> {
    let mut claims = Vec::new();
    while claims.len() < max {
        let wanted = json!({ "max": max - claims.len(), "wait_ms": wait_ms });
        let answer = http.send("POST", "/v1/namespaces/default/queues/q/claims", &wanted).await;
        assert_eq!(answer.status, 200, "{}", answer.json);
        let more = answer.json["claims"].as_array().unwrap();
        if more.is_empty() {
            break;
        }
        claims.extend(more.iter().map(|claim| claim["claim"].as_str().unwrap().to_owned()));
    }
    claims
}

async fn end(http: Http, claim: String, how: &'static str) -> Answer {
    let body = if how == "nack" { json!({ "error": "not today" }) } else { Value::Null };
    http.send("POST", &format!("/v1/namespaces/default/claims/{claim}/{how}"), &body).await
}

/// Makes timers, fetches them, and ends all their claims (holds on timers) at the same time. `how` is the verb that
/// ends a claim. Kills the service once it has answered every request to end a claim.
async fn kill_after_ends(daemon: Daemon, how: &'static str) {
    let http = Http::new(daemon.address);
    let puts = (0..TIMERS).map(|number| {
        let http = http.clone();
        tokio::spawn(async move { http.send("PUT", &timer(&format!("k{number}")), &pull()).await.status })
    });
    for put in puts.collect::<Vec<_>>() {
        assert_eq!(put.await.unwrap(), 201);
    }
    let claims = claim(&http, TIMERS, 5_000).await;
    assert_eq!(claims.len(), TIMERS);
    let ends = claims.into_iter().map(|claim| tokio::spawn(end(http.clone(), claim, how)));
    for ended in ends.collect::<Vec<_>>() {
        let answer = ended.await.unwrap();
        assert_eq!(answer.status, 204, "{}", answer.json);
    }
    daemon.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_of_claims_that_were_answered_survive_a_kill() {
    for how in ["ack", "nack"] {
        let folder = folder();
        kill_after_ends(Daemon::start(folder.path(), &[]), how).await;
        let daemon = Daemon::start(folder.path(), &[]);
        let again = claim(&Http::new(daemon.address), TIMERS, 300).await;
        assert_eq!(again.len(), 0, "{how}: of {TIMERS}");
    }
}

fn on_redis(folder: &Path, server: &Server) -> Daemon {
    let text = format!("[redis]\nservers = [\"{}\"]\n", server.url());
    fs::write(folder.join("redis.toml"), text).unwrap();
    let arguments = ["--listen", "127.0.0.1:0", "--data", "data", "--config", "redis.toml"];
    Daemon::spawn(program(folder, &arguments))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_of_claims_that_were_answered_on_redis_survive_a_kill_of_the_node() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = folder();
    kill_after_ends(on_redis(folder.path(), &server), "ack").await;
    // If an acknowledged end were lost, the new node would find its timer in the store.
    let daemon = on_redis(folder.path(), &server);
    let stored = Http::new(daemon.address).get("/v1/namespaces/default/timers?limit=100").await;
    assert_eq!(stored.json["items"], json!([]), "of {TIMERS}");
}

/// A node answers that a claim (a hold on a timer) has ended only once the Redis servers have stored the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_of_a_claim_is_not_acknowledged_while_redis_does_not_answer() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = folder();
    let daemon = on_redis(folder.path(), &server);
    let http = Http::new(daemon.address);
    assert_eq!(http.send("PUT", &timer("k"), &pull()).await.status, 201);
    let claims = claim(&http, 1, 5_000).await;
    server.stop();
    let answer = end(http.clone(), claims[0].clone(), "ack").await;
    assert_eq!(answer.status, 503, "{}", answer.json);
    assert_eq!(
        (&answer.json["outcome"], &answer.json["type"]),
        (&json!("unknown"), &json!("/problems/store-unavailable"))
    );
    server.go_on();
    let begun = Instant::now();
    // The service may still store the end of the first request. Then the second request finds the claim ended, and gets
    // the status 409.
    let again = end(http.clone(), claims[0].clone(), "ack").await;
    assert!([204, 409].contains(&again.status.as_u16()), "{}", again.json);
    while http.get(&timer("k")).await.status != 404 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the timer is done");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A caller's transaction holds the timer of a claim. The process is killed right after it has answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_of_a_claim_is_not_acknowledged_while_a_transaction_holds_its_timer() {
    let Some(server) = Postgres::start(&[]) else { return };
    let start = |folder: &Path| {
        let url = server.url();
        let arguments = ["--listen", "127.0.0.1:0", "--data", "data", "--postgres-server", &url];
        let more = ["--postgres-ttl", "1s", "--deliveries-lease", "2s"];
        Daemon::spawn(program(folder, &[&arguments[..], &more].concat()))
    };
    for how in ["ack", "nack"] {
        let folder = folder();
        let daemon = start(folder.path());
        let http = Http::new(daemon.address);
        assert_eq!(http.send("PUT", &timer(how), &pull()).await.status, 201);
        let claims = claim(&http, 1, 5_000).await;
        let moved = format!("SELECT tourbillon.move_to('{how}', delay => '1 hour', namespace => 'default')");
        let call = format!("BEGIN; {moved}; SELECT pg_sleep(3); ROLLBACK;");
        std::thread::scope(|scope| {
            scope.spawn(|| server.sql(&call));
            let sleeps = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
            eventually("the timer is held", || server.sql(sleeps) == "1");
            let answer = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(end(http.clone(), claims[0].clone(), how))
            });
            assert_eq!(answer.status, 204, "{how}: {}", answer.json);
            daemon.kill();
            assert_eq!(server.sql(sleeps), "0", "{how} was answered while the timer was held");
        });
        // If the end were lost, the lease would end, and the timer would be fetched again.
        let daemon = start(folder.path());
        assert_eq!(claim(&Http::new(daemon.address), 1, 4_000).await.len(), 0, "{how}");
        daemon.kill();
    }
}
