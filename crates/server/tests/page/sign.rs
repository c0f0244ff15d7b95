//! Tests signing in, the roles of visitors, and forms that other sites send.

use crate::rig::{Rig, percent};
use axum::http::{StatusCode, header};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_signs_in_with_a_token_and_gets_a_cookie_that_is_not_the_token() {
    let (rig, tokens) = Rig::with_tokens(&[&["--role", "admin"]]).await;
    let page = rig.get("/ui/timers?q=a").await;
    assert_eq!(
        (page.status, page.to()),
        (StatusCode::SEE_OTHER, &*format!("/ui/sign-in?to={}", percent("/ui/timers?q=a")))
    );
    let form = rig.get(page.to()).await;
    assert!(form.text.contains(r#"value="/ui/timers?q=a""#), "{}", form.text);
    for wrong in ["", "tb_admin_x", &tokens[0][1..]] {
        let page = rig.post("/ui/sign-in", "", &[], &[("token", wrong)]).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN);
        assert!(page.text.contains("not known") && !page.headers.contains_key(header::SET_COOKIE));
    }
    let page = rig.post("/ui/sign-in", "", &[], &[("token", &tokens[0]), ("to", "/ui/dead")]).await;
    assert_eq!((page.status, page.to()), (StatusCode::SEE_OTHER, "/ui/dead"));
    let cookie = page.headers[header::SET_COOKIE].to_str().unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    // Over TLS the cookie would be `Secure`. Without TLS, browsers would not keep such a cookie.
    assert!(!cookie.contains("Secure") && !cookie.contains(&tokens[0][9..]), "{cookie}");
    let cookie = page.cookie();
    let page = rig.get_as("/ui/timers", &cookie).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(!page.text.contains(&tokens[0]));

    let mark = page.mark();
    let out = rig.post("/ui/sign-out", &cookie, &[], &[("mark", &mark)]).await;
    assert_eq!(out.to(), "/ui/sign-in");
    assert_eq!(
        rig.get_as("/ui/timers", &cookie).await.status,
        StatusCode::SEE_OTHER,
        "the session has ended"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_the_cookie_is_secure() {
    let mut token = String::new();
    let rig = Rig::start_with(|settings| {
        settings.over_tls = true;
        token = crate::rig::token(settings, &["--role", "reader"]);
    })
    .await;
    let page = rig.post("/ui/sign-in", "", &[], &[("token", &token)]).await;
    let cookie = page.headers[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("__Host-tourbillon=") && cookie.ends_with("; Secure"), "{cookie}");
    assert_eq!(rig.get_as("/ui/timers", &page.cookie()).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_revoked_ends_its_sessions() {
    let (rig, tokens) = Rig::with_tokens(&[
        &["--role", "admin", "--name", "first"],
        &["--role", "reader", "--name", "second"],
    ])
    .await;
    let (admin, mark) = rig.sign_in(&tokens[0]).await;
    let (reader, _) = rig.sign_in(&tokens[1]).await;
    let page = rig.get_as("/ui/access", &admin).await.text;
    let (before, _) = page.split_once("<td>second</td>").unwrap();
    let id = before.rsplit(r#"<td class="id">"#).next().unwrap().split('<').next().unwrap().to_owned();
    let fields = [("mark", &*mark), ("id", &id)];
    let refused = rig.post("/ui/access/tokens/revoke", &admin, &[], &fields).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "it is not confirmed");
    assert_eq!(rig.get_as("/ui/timers", &reader).await.status, StatusCode::OK);
    let fields = [("mark", &*mark), ("id", &id), ("confirm", &id)];
    assert_eq!(rig.post("/ui/access/tokens/revoke", &admin, &[], &fields).await.to(), "/ui/access");
    assert_eq!(rig.get_as("/ui/timers", &reader).await.status, StatusCode::SEE_OTHER);

    // A new token is shown once, and is valid.
    let fields = [("mark", &*mark), ("name", "third"), ("role", "writer"), ("namespace", "default")];
    let page = rig.post("/ui/access/tokens/make", &admin, &[], &fields).await.text;
    let (_, rest) = page.split_once(r#"<pre id="secret">"#).unwrap();
    let token = rest.split('<').next().unwrap();
    assert!(token.starts_with("tb_writer_"), "{token}");
    let (writer, _) = rig.sign_in(token).await;
    assert!(rig.get_as("/ui/timers", &writer).await.text.contains("writer of default"));
    assert!(!rig.get_as("/ui/access", &admin).await.text.contains(token));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_sees_no_payload_and_has_no_button_and_no_other_namespace() {
    let (rig, tokens) = Rig::with_tokens(&[
        &["--role", "admin"],
        &["--role", "reader", "--namespace", "default"],
        &["--role", "writer", "--namespace", "default"],
    ])
    .await;
    rig.api("PUT", "/v1/namespaces/shop", &tokens[0], json!({})).await;
    let timer = json!({ "delay_ms": 60_000, "pull": { "queue": "q", "body": "the secret body" } });
    let placed = rig.api("POST", "/v1/namespaces/default/timers", &tokens[0], timer).await;
    let path = format!("/ui/timers/default/{}", placed["id"].as_str().unwrap());
    let (reader, mark) = rig.sign_in(&tokens[1]).await;
    let page = rig.get_as(&path, &reader).await;
    assert!(
        page.text.contains("shown to writers") && !page.text.contains("the secret body"),
        "{}",
        page.text
    );
    assert!(!page.text.contains("Fire now") && !page.text.contains("Cancel…"), "{}", page.text);
    for verb in ["fire", "pause", "cancel"] {
        let fields = [("mark", &*mark), ("confirm", "cancel")];
        let page = rig.post(&format!("{path}/{verb}"), &reader, &[], &fields).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{verb}");
    }
    let fields = [("mark", &*mark), ("namespace", "default"), ("label", "a"), ("confirm", "a")];
    assert_eq!(rig.post("/ui/many/cancel", &reader, &[], &fields).await.status, StatusCode::FORBIDDEN);
    for path in [
        "/ui/timers?namespace=shop",
        "/ui/dead?namespace=shop",
        "/ui/endpoints",
        "/ui/nodes",
        "/ui/access",
        "/ui/timers/shop/x",
    ] {
        assert_eq!(rig.get_as(path, &reader).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    let overview = rig.get_as("/ui/", &reader).await;
    assert!(overview.status == StatusCode::OK && !overview.text.contains("shop"), "{}", overview.text);

    let (writer, _) = rig.sign_in(&tokens[2]).await;
    let page = rig.get_as(&path, &writer).await.text;
    assert!(page.contains("the secret body") && page.contains("Fire now"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_of_other_sites_change_nothing() {
    let rig = Rig::start().await;
    let id = rig.put("k", 204, json!({ "delay_ms": 60_000 })).await;
    let path = format!("/ui/timers/default/{id}");
    let (mark, own) = (rig.get(&path).await.mark(), format!("http://{}", rig.address));
    let cancel = format!("{path}/cancel");
    let good = [("mark", &*mark), ("confirm", "cancel")];
    for (headers, fields) in [
        (&[("origin", "http://evil.example")][..], &good[..]),
        (&[("origin", "null")], &good),
        (&[("sec-fetch-site", "cross-site")], &good),
        (&[("sec-fetch-site", "same-site")], &good),
        (&[("origin", &*own)], &[("confirm", "cancel")]),
        (&[("origin", &*own)], &[("mark", ""), ("confirm", "cancel")]),
        (&[("origin", &*own)], &[("mark", "guessed"), ("confirm", "cancel")]),
        (&[("host", "evil.example")], &good),
    ] {
        let page = rig.post(&cancel, "", headers, fields).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{headers:?} {fields:?}");
    }
    // A page of another site may have a name that its owner resolves to this machine. The service refuses the requests
    // of such a page.
    let mut request = http::Request::get(rig.url("/ui/"))
        .body(http_body_util::Full::<axum::body::Bytes>::default())
        .unwrap();
    request.headers_mut().insert("host", "evil.example".parse().unwrap());
    assert_eq!(rig.raw(request).await.status, StatusCode::FORBIDDEN);
    assert!(rig.get(&path).await.text.contains("pending"));
    let page = rig.post(&cancel, "", &[("origin", &own)], &good).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_that_anybody_sends_is_small() {
    let (rig, tokens) = Rig::with_tokens(&[&["--role", "admin"]]).await;
    let long = "x".repeat(4_096);
    let page = rig.post("/ui/sign-in", "", &[], &[("token", &tokens[0]), ("to", &long)]).await;
    assert_eq!(page.status, StatusCode::PAYLOAD_TOO_LARGE, "{}", page.text);
    assert!(!page.headers.contains_key(header::SET_COOKIE));
    let page = rig.post("/ui/sign-in", "", &[], &[("token", &tokens[0]), ("to", &long[..3_900])]).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_ins_of_one_token_end_no_session_of_another() {
    let (rig, tokens) = Rig::with_tokens(&[&["--role", "admin"], &["--role", "reader"]]).await;
    let (admin, _) = rig.sign_in(&tokens[0]).await;
    for _ in 0..1_100 {
        let page = rig.post("/ui/sign-in", "", &[], &[("token", &tokens[1])]).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER);
    }
    assert_eq!(rig.get_as("/ui/access", &admin).await.status, StatusCode::OK);
}
