//! Tests changes on the page of one node beside changes through another node.

use super::Deployment;
use crate::rig::eventually;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tourbillon_server::router;
use tower::ServiceExt as _;

pub(super) async fn the_page_of_one_node_keeps_the_limits_that_another_has_just_set(deployment: Deployment) {
    let (one, two) = (deployment.node().await, deployment.node().await);
    // Each router has its own sessions, and a form is of one session.
    let pages = router(two.service.clone());
    let ask = async |request: Request<Body>| {
        let response = pages.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    };
    let page = Request::get("/ui/access").header("host", "localhost").body(Body::empty()).unwrap();
    let (_, page) = ask(page).await;
    let (_, mark) = page.split_once(r#"name="mark" value=""#).unwrap();
    let mark = mark.split('"').next().unwrap();
    let post = async |verb: &str, name: &str| {
        let fields = [("mark", mark), ("name", name)];
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let form = Request::post(format!("/ui/access/namespaces/{verb}"))
            .header("host", "localhost")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Body::from(body))
            .unwrap();
        ask(form).await
    };
    let view = async |name: &str| two.send("GET", &format!("/v1/namespaces/{name}"), Value::Null).await.1;
    // The other node learns the changes of the first within a second. In a few of the rounds it may know them already.
    for round in 0..5 {
        let (name, limits) = (format!("n{round}"), json!({ "max_timers": round }));
        let (status, _) = one.send("PUT", &format!("/v1/namespaces/{name}"), limits).await;
        assert_eq!(status, StatusCode::CREATED);
        let (status, answer) = post("make", &name).await;
        assert_eq!(status, StatusCode::CONFLICT, "{answer}");
        eventually("the other node knows the namespace", async || {
            (view(&name).await["limits"]["max_timers"] == round).then_some(())
        })
        .await;
        let limits = json!({ "max_timers": round, "concurrency": 7 });
        let (status, _) = one.send("PUT", &format!("/v1/namespaces/{name}"), limits).await;
        assert_eq!(status, StatusCode::OK);
        let (status, answer) = post("pause", &name).await;
        assert_eq!(status, StatusCode::SEE_OTHER, "{answer}");
        let view = view(&name).await;
        assert_eq!(
            (&view["limits"]["paused"], &view["limits"]["concurrency"]),
            (&json!(true), &json!(7)),
            "{view}"
        );
        let (_, trail) = two.send("GET", "/v1/audit?limit=1", Value::Null).await;
        let detail = trail["items"][0]["detail"].as_str().unwrap().strip_prefix("paused; now ").unwrap();
        let left: Value = serde_json::from_str(detail).unwrap();
        assert_eq!(left, view["limits"], "the trail has the limits that the change has left: {trail}");
    }
    let (status, answer) = post("pause", "absent").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{answer}");
}
