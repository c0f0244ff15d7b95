//! Tests the list of dead timers, and the changes that visitors make in it.

use crate::rig::{Page, Rig};
use axum::http::StatusCode;
use serde_json::{Value, json};

/// Returns the values of all check boxes on a page.
fn boxes(page: &Page) -> Vec<String> {
    let boxes = page.text.split(r#"name="timer" form="chosen" value=""#).skip(1);
    boxes.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

/// Starts a service with dead timers in two namespaces. Three of the timers have the same last error, and two timers
/// have another error.
async fn filled() -> (Rig, String) {
    let rig = Rig::start().await;
    rig.api("PUT", "/v1/namespaces/shop", "", json!({})).await;
    for (namespace, key, status) in [
        ("default", "a", 500),
        ("default", "b", 500),
        ("default", "c", 410),
        ("shop", "d", 500),
        ("shop", "e", 503),
    ] {
        let callback = json!({ "url": format!("http://{}/{status}", rig.receiver) });
        let timer = json!({ "policy": { "attempts": 1 }, "callback": callback });
        rig.api("PUT", &format!("/v1/namespaces/{namespace}/timers/{key}"), "", timer).await;
        rig.until("/ui/dead", &format!("Choose {key}\"")).await;
    }
    let mark = rig.get("/ui/dead").await.mark();
    (rig, mark)
}

async fn phase(rig: &Rig, id: &str) -> String {
    let (namespace, id) = id.split_once('/').unwrap();
    let past = rig.api("GET", &format!("/v1/namespaces/{namespace}/ids/{id}/past"), "", Value::Null).await;
    past["phase"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_latest_comes_first_and_what_was_chosen_is_replayed_or_dropped() {
    let (rig, mark) = filled().await;
    let page = rig.get("/ui/dead").await;
    let order = ["e", "d", "c", "b", "a"].map(|key| page.text.find(&format!("Choose {key}\"")).unwrap());
    assert!(order.is_sorted(), "{}", page.text);
    let ids = boxes(&page);
    let act = async |verb: &str, chosen: &[&str], confirm: &str| {
        let mut fields = vec![("mark", &*mark), ("back", "/ui/dead?order=asc"), ("confirm", confirm)];
        fields.extend(chosen.iter().map(|id| ("timer", *id)));
        rig.post(&format!("/ui/dead/chosen/{verb}"), "", &[], &fields).await
    };
    assert_eq!(act("drop", &[&ids[0]], "").await.status, StatusCode::BAD_REQUEST, "it is not confirmed");
    assert_eq!(act("drop", &[], "drop").await.status, StatusCode::BAD_REQUEST, "nothing is chosen");
    assert_eq!(act("drop", &["default"], "drop").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(act("explode", &[&ids[0]], "drop").await.status, StatusCode::NOT_FOUND);
    let dropped = act("drop", &[&ids[0], &ids[2]], "drop").await;
    assert_eq!(dropped.to(), "/ui/dead?order=asc&done=drop-chosen");
    assert!(rig.get(dropped.to()).await.text.contains("The chosen timers were dropped."));
    assert_eq!(boxes(&rig.get("/ui/dead").await), [&*ids[1], &ids[3], &ids[4]]);
    let replayed = act("replay", &[&ids[1], &ids[3]], "").await;
    assert_eq!(replayed.to(), "/ui/dead?order=asc&done=replay-chosen");
    rig.until("/ui/dead", "3 in all namespaces").await;
    // One of the chosen timers is gone by now. The others are changed, and the page says so.
    assert_eq!(act("replay", &[&ids[0], &ids[4]], "").await.to(), "/ui/dead?order=asc&done=part");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_leaves_alone_what_is_not_dead() {
    let (rig, mark) = filled().await;
    let id = rig.put("far", 204, json!({ "delay_ms": 3_600_000 })).await;
    let id = format!("default/{id}");
    let fields = [("mark", &*mark), ("timer", &*id), ("confirm", "drop")];
    assert_eq!(rig.post("/ui/dead/chosen/drop", "", &[], &fields).await.to(), "/ui/dead?done=part");
    assert_eq!(phase(&rig, &id).await, "pending");
    let fields = [("mark", &*mark), ("namespace", "default"), ("confirm", "drop")];
    let begun = rig.post("/ui/many/drop", "", &[], &fields).await;
    rig.until(begun.to(), r#"<td id="changed">3</td>"#).await;
    assert_eq!(phase(&rig, &id).await, "pending");
    rig.until("/ui/dead", "2 in all namespaces").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_have_their_counts_and_are_replayed_or_dropped_as_a_whole() {
    let (rig, mark) = filled().await;
    let page = rig.get("/ui/dead/groups").await.text;
    let host = rig.receiver.to_string();
    assert!(page.contains("All 5 dead letters are in these groups"), "{page}");
    assert_eq!(page.matches("data-name=\"dead\">1<").count(), 3, "{page}");
    assert_eq!(page.matches("data-name=\"dead\">2<").count(), 1, "{page}");
    let (_, rest) = page.split_once(r#"<td class="key host"><a href=""#).unwrap();
    let list = rest.split('"').next().unwrap().replace("&#38;", "&");
    assert!(list.contains("namespace=default") && list.contains("error=the+receiver+answered+500"), "{list}");
    let shown = rig.get(&list).await;
    assert_eq!(boxes(&shown).len(), 2, "the largest group comes first: {}", shown.text);
    let error = page.split("error\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let group = [("mark", &*mark), ("namespace", "default"), ("place", &*host), ("error", error)];
    let drop = |confirm: &'static str| {
        let fields: Vec<_> = group.iter().copied().chain([("confirm", confirm)]).collect();
        let rig = &rig;
        async move { rig.post("/ui/many/drop", "", &[], &fields).await }
    };
    assert_eq!(drop("").await.status, StatusCode::BAD_REQUEST);
    let begun = drop("drop").await;
    rig.until(begun.to(), r#"<td id="changed">2</td>"#).await;
    rig.until("/ui/dead", "3 in all namespaces").await;
    let page = rig.get("/ui/dead/groups?namespace=default").await.text;
    assert!(page.contains("All 1 dead letters") && page.contains("410"), "{page}");
}
