//! Tests queues of a deployment, and the ends of their timers.

use super::{Deployment, TIMERS};
use crate::rig::eventually;
use axum::http::StatusCode;
use serde_json::{Value, json};

pub(super) async fn timers_that_wait_come_to_receivers_of_a_node_in_the_order_of_their_due_moments(
    deployment: Deployment,
) {
    const COUNT: usize = 24;
    let node = deployment.node().await;
    for max in [1, 5] {
        for number in 0..COUNT {
            let timer = json!({ "delay_ms": 10 * number, "pull": { "queue": format!("q{max}") } });
            assert_eq!(node.send("POST", TIMERS, timer).await.0, StatusCode::CREATED);
        }
        eventually("all timers wait", async || {
            let (_, queues) = node.send("GET", "/v1/queues", Value::Null).await;
            let all = queues.as_array().unwrap();
            let name = format!("q{max}");
            all.iter().any(|queue| queue["queue"] == name && queue["depth"] == COUNT).then_some(())
        })
        .await;
        let path = format!("/v1/namespaces/default/queues/q{max}/claims");
        let mut due = Vec::new();
        while due.len() < COUNT {
            let (status, answer) = node.send("POST", &path, json!({ "max": max, "wait_ms": 5_000 })).await;
            assert_eq!(status, StatusCode::OK, "{answer}");
            let claims = answer["claims"].as_array().unwrap();
            assert!(!claims.is_empty(), "{due:?}");
            due.extend(claims.iter().map(|claim| claim["scheduled"].as_str().unwrap().to_owned()));
        }
        assert!(due.is_sorted(), "{max}: {due:#?}");
    }
}

pub(super) async fn a_dead_timer_that_was_dropped_at_another_node_is_shown_as_dead_by_none(
    deployment: Deployment,
) {
    let (one, two) = (deployment.node().await, deployment.node().await);
    let timer = json!({ "pull": { "queue": "q" }, "policy": { "attempts": 1 } });
    let (_, placed) = one.send("POST", TIMERS, timer).await;
    let path = format!("/v1/namespaces/default/ids/{}", placed["id"].as_str().unwrap());
    let claim = eventually("a claim", async || {
        let wish = json!({ "wait_ms": 2_000 });
        let (_, answer) = one.send("POST", "/v1/namespaces/default/queues/q/claims", wish).await;
        answer["claims"].get(0).map(|claim| claim["claim"].as_str().unwrap().to_owned())
    })
    .await;
    let nack = format!("/v1/namespaces/default/claims/{claim}/nack");
    assert_eq!(one.send("POST", &nack, json!({})).await.0, StatusCode::NO_CONTENT);
    let (_, past) = one.send("GET", &format!("{path}/past"), Value::Null).await;
    assert_eq!((&past["phase"], &past["end"]["how"]), (&json!("dead"), &json!("dead")), "{past}");
    let (_, dropped) = two.send("DELETE", &path, Value::Null).await;
    assert_eq!(dropped["result"], "cancelled");
    let (_, past) = one.send("GET", &format!("{path}/past"), Value::Null).await;
    assert_eq!(past["attempts"].as_array().unwrap().len(), 1, "{past}");
    assert!(past["phase"] != "dead" && past.get("end").is_none(), "{past}");
}
