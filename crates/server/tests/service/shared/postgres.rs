//! Tests nodes in PostgreSQL beside callers that create timers in SQL.

use super::Deployment;
use crate::rig::{Receiver, Rig, eventually};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;
use tourbillon_fault::Postgres;
use tourbillon_server::{Service, Settings};

/// Stores a timer with a callback by SQL, in whichever namespace.
fn call(server: &Postgres, receiver: &Receiver, namespace: &str) -> String {
    let url = receiver.url(&format!("/{namespace}"));
    server.sql(&format!("SELECT d.schedule_callback('{url}', namespace => '{namespace}')"))
}

fn server(deployment: &Deployment) -> &Postgres {
    let Deployment::Postgres(server) = deployment else { unreachable!() };
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_of_sql_in_a_namespace_that_nobody_has_made_wait_for_it() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    let deployment = Deployment::Postgres(postgres);
    let (one, two) = (deployment.node().await, deployment.node().await);
    let mut receiver = Receiver::start().await;
    let (status, _) = one.send("PUT", "/v1/namespaces/known", json!({})).await;
    assert_eq!(status, StatusCode::CREATED);
    let _id = call(server(&deployment), &receiver, "known");
    let received = receiver.next().await;
    assert_eq!(received.path, "/known");
    let _id = call(server(&deployment), &receiver, "shop");
    eventually("the timer is parked", async || {
        (server(&deployment).sql("SELECT count(*) FROM d.timer WHERE phase = 'k'") == "1").then_some(())
    })
    .await;
    let (status, _) = two.send("PUT", "/v1/namespaces/shop", json!({})).await;
    assert_eq!(status, StatusCode::CREATED);
    let received = eventually("the callback arrives", async || Some(receiver.next().await)).await;
    assert_eq!(received.path, "/shop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_makes_the_namespaces_of_timers_that_sql_has_created() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    let deployment = Deployment::Postgres(postgres);
    let receiver = Receiver::start().await;
    drop(deployment.node().await);
    let far = format!(
        "SELECT d.schedule_callback('{}', namespace => 'shop', delay => '1 day')",
        receiver.url("/never")
    );
    let _id = server(&deployment).sql(&far);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("namespaces.json"), "{}").unwrap();
    let mut settings = Settings::new(folder.path());
    deployment.share(&mut settings);
    let service = Service::open(settings).unwrap();
    let notices = service.notices().join("\n");
    assert!(notices.contains("the namespace \"shop\" has timers and is not made"), "{notices}");
    assert!(notices.contains("namespaces.json is not used"), "{notices}");
    tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
    let node: Rig = deployment.node().await;
    let (_, view) = node.send("GET", "/v1/namespaces/shop", Value::Null).await;
    assert_eq!(view["pending"], 1, "{view}");
}
