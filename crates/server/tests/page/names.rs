//! Tests pages of a namespace whose name the service itself would refuse. A library or a caller in SQL has stored its
//! timers.

use crate::rig::{Page, Rig, percent};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use tourbillon_durable::state::State;
use tourbillon_durable::store::{MemoryStore, TimerStore};

const ODD: &str = "a&b/c ü?#%+\"";

/// Makes a store with a pending, a parked and two dead timers, and a schedule. All of them are in the namespace
/// [`ODD`], in which only a library can store timers.
async fn odd_store() -> Arc<dyn TimerStore> {
    let plain: Arc<dyn TimerStore> = Arc::new(MemoryStore::default());
    let rig = Rig::on(Arc::clone(&plain)).await;
    rig.api("PUT", "/v1/namespaces/plain", "", json!({})).await;
    let callback = json!({ "url": format!("http://{}/500", rig.receiver) });
    for (key, timer) in [
        ("far", json!({ "delay_ms": 3_600_000, "labels": ["l"], "callback": callback })),
        ("queued", json!({ "delay_ms": 0, "pull": { "queue": "q" } })),
        ("dead", json!({ "policy": { "attempts": 1 }, "callback": callback })),
        ("gone", json!({ "policy": { "attempts": 1 }, "callback": callback })),
    ] {
        rig.api("PUT", &format!("/v1/namespaces/plain/timers/{key}"), "", timer).await;
    }
    let schedule = json!({ "cron": "30 2 * * *", "pull": { "queue": "q" } });
    rig.api("PUT", "/v1/namespaces/plain/schedules/nightly", "", schedule).await;
    rig.until("/ui/dead?namespace=plain", "2 in the namespace").await;
    rig.until("/ui/timers?phase=parked", "queued").await;
    drop(rig);
    let mut timers = Vec::new();
    let each = |timer: &tourbillon_durable::timer::Timer| {
        let mut timer = timer.clone();
        timer.namespace = timer.namespace.replace("plain", ODD).into();
        if let State::Parked(reason) = &mut timer.state {
            *reason = reason.replace("plain", ODD).into();
        }
        timers.push(timer);
        true
    };
    plain.export(Box::new(each)).await.unwrap();
    let odd = Arc::new(MemoryStore::default());
    odd.import(timers).await.unwrap();
    odd
}

/// Returns the addresses to which a page links.
fn links(page: &Page) -> Vec<String> {
    let links = page.text.split(r#" href=""#).skip(1);
    links.map(|rest| rest.split('"').next().unwrap().replace("&#38;", "&")).collect()
}

/// Returns the first address on a page that contains `part`.
fn link(page: &Page, part: &str) -> String {
    let links = links(page);
    links.iter().find(|link| link.contains(part)).unwrap_or_else(|| panic!("{part}: {links:?}")).clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_keep_a_name_with_any_characters() {
    let rig = Rig::on_filled(odd_store().await).await;
    let mut left: Vec<String> = ["/ui/", "/ui/access"].map(str::to_owned).into();
    let mut seen = BTreeSet::new();
    while let Some(path) = left.pop() {
        // Each list can be turned round, and that list again.
        let (path, is_new) = match path.split_once('#').map_or(&*path, |(path, _)| path) {
            path if path.contains("order=") => continue,
            path => (path.to_owned(), seen.insert(path.to_owned())),
        };
        if is_new {
            let page = rig.get(&path).await;
            assert_eq!(page.status, 200, "{path}: {}", page.text);
            left.extend(links(&page).into_iter().filter(|link| link.starts_with("/ui/")));
        }
    }
    for part in ["/ui/timers/", "/ui/schedules/"] {
        let part = format!("{part}{}/", percent(ODD));
        assert!(seen.iter().any(|path| path.starts_with(&part)), "{part} is not in {seen:#?}");
    }
    let namespace =
        url::form_urlencoded::Serializer::new(String::new()).append_pair("namespace", ODD).finish();
    for list in ["timers", "dead", "ended", "schedules", "dead/groups"] {
        let list = format!("/ui/{list}?{namespace}");
        assert!(seen.iter().any(|path| path.starts_with(&list)), "{list} is not in {seen:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_lead_back_to_a_namespace_with_any_name() {
    let rig = Rig::on_filled(odd_store().await).await;
    let dead = rig.get("/ui/dead").await;
    let mark = dead.mark();
    let post = async |path: &str, fields: &[(&str, &str)]| {
        let fields = [&[("mark", &*mark), ("namespace", ODD)], fields].concat();
        let answer = rig.post(path, "", &[], &fields).await;
        assert_eq!(answer.status, 303, "{path}: {}", answer.text);
        let page = rig.get(answer.to()).await;
        assert_eq!(page.status, 200, "{path} leads to {}: {}", answer.to(), page.text);
        page.text
    };
    let pending = rig.get("/ui/timers?phase=pending").await;
    let far = link(&pending, "/ui/timers/");
    for (path, fields, words) in [
        (format!("{far}/pause"), &[][..], "The timer is paused."),
        (format!("{far}/resume"), &[], "The timer was resumed."),
        (format!("{far}/cancel"), &[("confirm", "cancel")], "The timer was cancelled."),
        (format!("{far}/cancel"), &[("confirm", "cancel")], "There was no such timer any more."),
        (format!("{}/replay", link(&dead, "/ui/timers/")), &[("from", "dead")], "delivered again"),
    ] {
        let page = post(&path, fields).await;
        assert!(page.contains(words), "{path} has no {words:?}: {page}");
    }
    let schedule = link(&rig.get("/ui/schedules").await, "/nightly");
    for (verb, words) in [("pause", "The schedule is paused."), ("resume", "The schedule goes on.")] {
        assert!(post(&format!("{schedule}/{verb}"), &[]).await.contains(words), "{verb}");
    }
    let page = post(&format!("{schedule}/delete"), &[("confirm", "remove")]).await;
    assert!(page.contains("The schedule was removed."), "{page}");
    // The replayed timer has died again by then.
    let dead = rig.until("/ui/dead", "2 in ").await;
    let chosen = dead.text.split(r#"form="chosen" value=""#).nth(1).unwrap().split('"').next().unwrap();
    let chosen = chosen.replace("&#38;", "&").replace("&#34;", "\"");
    let page = post("/ui/dead/chosen/drop", &[("timer", &*chosen), ("confirm", "drop")]).await;
    assert!(page.contains("The chosen timers were dropped."), "{page}");
    let page = post("/ui/many/drop", &[("confirm", "drop")]).await;
    assert!(page.contains("Timers of a&#38;b/c ü?#%+&#34;"), "{page}");
}
