//! Tests the pages of schedules.

use crate::rig::Rig;
use axum::http::StatusCode;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_shows_its_next_instants_in_its_zone_and_in_utc_and_marks_clock_changes() {
    let rig = Rig::start().await;
    // The clocks of Zurich skip 02:30 on 2031-03-30, and show it twice on 2031-10-26.
    for (key, start, planned, utc, change) in [
        (
            "moved",
            "2031-03-29",
            "2031-03-30 02:30:00",
            "2031-03-30 01:00:00",
            "clocks skip this time: it comes right after",
        ),
        (
            "doubled",
            "2031-10-25",
            "2031-10-26 02:30:00 +02:00",
            "2031-10-26 00:30:00",
            "clocks show this time twice",
        ),
    ] {
        let start = format!("{start}T00:00:00.000Z");
        rig.schedule(key, json!({ "cron": "30 2 * * *", "zone": "Europe/Zurich", "start": start })).await;
        let page = rig.get(&format!("/ui/schedules/default/{key}")).await;
        assert_eq!(page.status, StatusCode::OK);
        for part in ["In Europe/Zurich", "30 2 * * *", planned, utc, change, "0 came, 0 missed, 0 skipped"] {
            assert!(page.text.contains(part), "{key}: {part} is not in {}", page.text);
        }
        assert_eq!(page.text.matches(r#"<div class="warn">"#).count(), 1, "{}", page.text);
    }
    let list = rig.get("/ui/schedules?q=mo").await.text;
    assert!(list.contains("/ui/schedules/default/moved") && !list.contains("doubled"), "{list}");
    assert_eq!(rig.get("/ui/schedules/default/none").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_is_paused_resumed_triggered_and_removed_once_it_is_confirmed() {
    let rig = Rig::start().await;
    rig.schedule("a/b", json!({ "every_ms": 3_600_000, "start": "2040-01-01T00:00:00.000Z" })).await;
    let path = "/ui/schedules/default/a%2Fb";
    let mark = rig.get(path).await.mark();
    let act = async |verb: &str, confirm: &str| {
        rig.post(&format!("{path}/{verb}"), "", &[], &[("mark", &mark), ("confirm", confirm)]).await
    };
    let state = async || {
        rig.api("GET", "/v1/namespaces/default/schedules/a%2Fb", "", Value::Null).await["state"].clone()
    };
    for (verb, words, after) in
        [("pause", "It is paused", "paused"), ("resume", "The next occurrence is due in", "active")]
    {
        let page = act(verb, "").await;
        assert_eq!((page.status, page.to()), (StatusCode::SEE_OTHER, &*format!("{path}?done={verb}")));
        assert!(rig.get(path).await.text.contains(words), "{verb}");
        assert_eq!(state().await, after);
    }
    assert_eq!(act("trigger", "").await.status, StatusCode::SEE_OTHER);
    rig.until(path, "1 asked for").await;
    assert_eq!(act("explode", "remove").await.status, StatusCode::NOT_FOUND);
    for wrong in ["", "Remove", "a/b"] {
        assert_eq!(act("delete", wrong).await.status, StatusCode::BAD_REQUEST, "{wrong:?}");
    }
    assert_eq!(state().await, "active");
    // A form without the CSRF token of the visitor changes nothing.
    let foreign = rig.post(&format!("{path}/delete"), "", &[], &[("confirm", "remove")]).await;
    assert_eq!(foreign.status, StatusCode::FORBIDDEN);
    assert_eq!(state().await, "active");
    let gone = act("delete", "remove").await;
    assert_eq!(gone.to(), "/ui/schedules?namespace=default&done=delete");
    assert_eq!(rig.get(path).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_of_schedules_are_turned() {
    let rig = Rig::start().await;
    for number in 0..51 {
        rig.schedule(&format!("s{number:02}"), json!({ "cron": "@daily" })).await;
    }
    let first = rig.get("/ui/schedules").await.text;
    assert_eq!(first.matches(r#"<td class="key">"#).count(), 50);
    let (_, rest) = first.split_once(r#"rel="next" href=""#).unwrap();
    let next = rest.split('"').next().unwrap().replace("&#38;", "&");
    let second = rig.get(&next).await.text;
    assert_eq!(second.matches(r#"<td class="key">"#).count(), 1);
    assert!(second.contains(">s50<") && !second.contains(r#"rel="next""#), "{second}");
    // A cursor is valid only in the list that issued it.
    assert_eq!(rig.get(&format!("{next}&q=s")).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_reads_sees_schedules_and_changes_none() {
    let (rig, tokens) = Rig::with_tokens(&[
        &["--role", "admin"],
        &["--role", "reader", "--namespace", "default"],
        &["--role", "writer", "--namespace", "other"],
    ])
    .await;
    let new = json!({ "cron": "@daily", "pull": { "queue": "q" } });
    rig.api("PUT", "/v1/namespaces/default/schedules/k", &tokens[0], new).await;
    let path = "/ui/schedules/default/k";
    assert_eq!(rig.get(path).await.status, StatusCode::SEE_OTHER, "without a session");
    for (token, sees, changes) in
        [(&tokens[1], true, false), (&tokens[2], false, false), (&tokens[0], true, true)]
    {
        let (cookie, mark) = rig.sign_in(token).await;
        let page = rig.get_as(path, &cookie).await;
        assert_eq!(page.status.is_success(), sees, "{}", page.text);
        assert_eq!(page.text.contains("Trigger now"), changes, "{}", page.text);
        let list = rig.get_as("/ui/schedules?namespace=default", &cookie).await;
        assert_eq!(list.status.is_success(), sees, "{}", list.text);
        for verb in ["pause", "trigger", "delete"] {
            let fields = [("mark", &*mark), ("confirm", "remove")];
            let page = rig.post(&format!("{path}/{verb}"), &cookie, &[], &fields).await;
            let expected = if changes { StatusCode::SEE_OTHER } else { StatusCode::FORBIDDEN };
            assert_eq!(page.status, expected, "{verb}: {}", page.text);
        }
    }
}
