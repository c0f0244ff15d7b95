//! Tests the pages in a real browser. The module `looks` says where the pictures are.

use crate::driver::Browser;
use crate::rig::{Between, Rig};
use serde_json::{Value, json};

const SLASH: &str = "/";
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

/// Starts a service for a test of the pages, and stores timers in all phases.
async fn filled() -> Rig {
    let rig = Rig::start().await;
    for number in 0..120_u64 {
        let delay = 600_000_u64 << (number % 20);
        let labels = if number % 3 == 0 { json!(["customer 4", "invoice"]) } else { json!([]) };
        rig.put(&format!("order {number:03}"), 204, json!({ "delay_ms": delay, "labels": labels })).await;
    }
    for number in 0..12 {
        rig.put(&format!("done {number}"), 204, json!({})).await;
    }
    for key in ["refund 8812", "reminder 4"] {
        rig.put(key, 500, json!({ "policy": { "attempts": 1 }, "labels": ["customer 4"] })).await;
    }
    let backoff = json!({ "kind": "fixed", "pause_ms": 3_600_000 });
    rig.put("invoice 77", 503, json!({ "policy": { "backoff": backoff } })).await;
    rig.put("nightly", 204, json!({ "delay_ms": 600_000 })).await;
    rig.api("POST", "/v1/namespaces/default/timers/nightly/pause", "", Value::Null).await;
    rig.api("PUT", "/v1/namespaces/shop", "", json!({ "rate_per_second": 100 })).await;
    rig.until("/ui/dead", "2 in all namespaces").await;
    rig.until("/ui/timers?q=invoice+77", "503").await;
    rig
}

/// Returns the address of the page that shows the timer with the key `key`.
async fn page_of(rig: &Rig, key: &str) -> String {
    let timer = rig
        .api("GET", &format!("/v1/namespaces/default/timers/{}", crate::rig::percent(key)), "", Value::Null)
        .await;
    rig.url(&format!("/ui/timers/default/{}", timer["id"].as_str().unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keyboard_searches_and_pages_are_turned() {
    let Some(browser) = Browser::start().await else { return };
    let rig = filled().await;
    browser.go(&rig.url("/ui/")).await;
    // The first element that Tab reaches is a link that skips the navigation.
    browser.press(TAB).await;
    assert_eq!(browser.value("document.activeElement.className").await, "skip");
    browser.press(SLASH).await;
    browser.until("location.pathname === '/ui/timers'").await;
    // A single key moves the focus to the search, wherever the focus was.
    browser.until("document.activeElement?.id === 'search'").await;
    browser.press(&format!("order 00{ENTER}")).await;
    browser.until("location.search.includes('q=order')").await;
    browser.until("document.querySelectorAll('td.key').length === 10").await;

    browser.go(&rig.url("/ui/timers?q=order")).await;
    browser.until("document.querySelectorAll('td.key').length === 50").await;
    let first = browser.value("document.querySelector('td.key').innerText").await;
    browser.click("#next").await;
    browser.until(&format!("document.querySelector('td.key')?.innerText !== {first}")).await;
    browser.click("#next").await;
    browser.until("document.querySelectorAll('td.key').length === 20").await;
    browser.until("!document.querySelector('#next')").await;
    // A click on a label opens the list of timers with the label.
    browser.click("a.label").await;
    browser.until("new URLSearchParams(location.search).get('label') === 'customer 4'").await;
    assert!(browser.reports().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_is_confirmed_by_typing_and_done() {
    let Some(browser) = Browser::start().await else { return };
    let rig = filled().await;
    browser.go(&page_of(&rig, "order 005").await).await;
    browser.click("details.danger summary").await;
    browser.until("document.querySelector('details.danger button').disabled").await;
    browser.type_into("#confirm", "canc").await;
    browser.until("document.querySelector('details.danger button').disabled").await;
    browser.picture("timer-cancel").await;
    browser.type_into("#confirm", "el").await;
    browser.click("details.danger button").await;
    browser.until_text("The timer was cancelled.").await;
    // A search for the ended timer's key finds it, as a search for its id does.
    assert!(rig.get("/ui/timers?q=order+005").await.to().starts_with("/ui/timers/default/"));

    browser.go(&rig.url("/ui/dead")).await;
    browser.click("td form button").await;
    browser.until_text("The timer is delivered again.").await;

    browser.go(&rig.url("/ui/timers?label=invoice")).await;
    browser.until_text("choose a namespace").await;
    browser.go(&rig.url("/ui/timers?label=invoice&namespace=default")).await;
    browser.click("details.danger summary").await;
    browser.type_into("#confirm", "invoice").await;
    browser.picture("timers-cancel").await;
    browser.click("details.danger button").await;
    browser.until("location.pathname.startsWith('/ui/operations/')").await;
    browser.until("document.querySelector('h1 .badge').innerText === 'done'").await;
    // 40 timers have the label. The timer that was cancelled above may be among them, so 39 may be left.
    browser.until("Number(document.querySelector('#changed').innerText) >= 39").await;
    browser.picture("operation").await;
    assert!(browser.reports().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_is_open_is_refreshed_unless_it_is_paused_and_survives_a_restart() {
    let Some(browser) = Browser::start().await else { return };
    let rig = Rig::start().await;
    browser.go(&rig.url("/ui/timers")).await;
    browser.until_text("No timer is stored").await;
    rig.put("first", 204, json!({ "delay_ms": 3_600_000 })).await;
    browser.until_text("first").await;
    // A page whose refreshes are paused stays as it is. Timers that are stored during the pause appear once the
    // refreshes go on.
    browser.click("#live").await;
    browser.until("document.querySelector('#live').getAttribute('aria-pressed') === 'false'").await;
    rig.put("second", 204, json!({ "delay_ms": 3_600_000 })).await;
    rig.until("/ui/timers", "second").await;
    assert_eq!(browser.value("document.body.innerText.includes('second')").await, false);
    browser.click("#live").await;
    browser.until_text("second").await;

    let (rig, ()) = rig
        .restart(async || {
            browser.until_text("The service cannot be reached").await;
            browser.picture("timers-unreachable").await;
        })
        .await;
    rig.put("third", 204, json!({ "delay_ms": 3_600_000 })).await;
    browser.until_text("third").await;
    browser.until("document.querySelector('#alarm').hidden").await;
    // After a restart, the refreshed page has the new CSRF token in its forms. So a click on its button succeeds.
    browser.go(&page_of(&rig, "third").await).await;
    let (rig, ()) = rig.restart(async || browser.until_text("The service cannot be reached").await).await;
    browser.until("document.querySelector('#alarm').hidden").await;
    browser.click(".actions form:nth-of-type(2) button").await;
    browser.until_text("The timer is paused.").await;
    drop(rig);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_signs_in_and_out_and_is_asked_again_after_a_restart() {
    let Some(browser) = Browser::start().await else { return };
    let (rig, tokens) = Rig::with_tokens(&[&["--role", "admin", "--name", "me"]]).await;
    browser.go(&rig.url("/ui/access")).await;
    browser.until("location.pathname === '/ui/sign-in'").await;
    browser.picture("sign-in").await;
    browser.type_into("#token", "tb_admin_wrong").await;
    browser.click("button.primary").await;
    browser.until_text("The token is not known").await;
    browser.type_into("#token", &tokens[0]).await;
    browser.click("button.primary").await;
    browser.until("location.pathname === '/ui/access' || location.pathname === '/ui/'").await;
    browser.until_text("admin").await;
    assert_eq!(browser.value("document.cookie").await, "", "no script sees the cookie");
    browser.go(&rig.url("/ui/access")).await;
    browser.picture("access-tokens").await;
    // The browser also reports the answers to the wrong token and to the missing icon. These are not faults of the
    // pages.
    let mut reports = browser.reports().await;
    reports.retain(|report| !report.contains("403"));
    assert!(reports.is_empty(), "{reports:?}");

    browser.go(&rig.url("/ui/timers")).await;
    let (rig, ()) = rig.restart(async || browser.until_text("The service cannot be reached").await).await;
    browser.until_text("Sign in again").await;
    browser.click("#alarm a").await;
    browser.type_into("#token", &tokens[0]).await;
    browser.click("button.primary").await;
    browser.until("location.pathname === '/ui/timers'").await;
    browser.click(".who form button").await;
    browser.until("location.pathname === '/ui/sign-in'").await;
    assert_eq!(rig.get("/ui/timers").await.status, 303);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_scripts_pages_are_read_and_forms_work() {
    let Some(browser) = Browser::start().await else { return };
    let rig = filled().await;
    browser.scripts(false).await;
    browser.go(&page_of(&rig, "order 007").await).await;
    browser.click("details.danger summary").await;
    browser.type_into("#confirm", "cancel").await;
    browser.click("details.danger button").await;
    // Permit scripts again, since the test itself runs some.
    rig.until("/ui/ended?q=order+007", ">cancelled<").await;
    browser.go(&rig.url("/ui/")).await;
    browser.picture("overview-without-scripts").await;
}

/// Presses Tab until the element of `selector` has the focus, as a user without a mouse does. Fails if an element gets
/// the focus but does not show it.
async fn tab_to(browser: &Browser, selector: &str) {
    for _ in 0..100 {
        browser.press(TAB).await;
        let outline = browser.value("getComputedStyle(document.activeElement).outlineStyle").await;
        assert_ne!(outline, "none", "a stop before {selector} cannot be seen");
        if browser.value(&format!("document.activeElement.matches({})", json!(selector))).await == true {
            return;
        }
    }
    panic!("no stop at {selector} on {}", browser.address().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_is_found_and_replayed_by_tab_and_enter_alone() {
    let Some(browser) = Browser::start().await else { return };
    let rig = filled().await;
    browser.go(&rig.url("/ui/")).await;
    tab_to(&browser, "nav a[href='/ui/dead']").await;
    browser.press(ENTER).await;
    browser.until("location.pathname === '/ui/dead' && document.readyState === 'complete'").await;
    // Go to the page of the timer, which says why the timer is dead, and go on from there.
    tab_to(&browser, "td.key a").await;
    let key = browser.value("document.activeElement.innerText").await;
    browser.press(ENTER).await;
    browser.until("location.pathname.startsWith('/ui/timers/') && document.readyState === 'complete'").await;
    browser.until_text(key.as_str().unwrap()).await;
    browser.until_text("Its only attempt failed").await;
    tab_to(&browser, "form[action$='/replay'] button").await;
    browser.press(ENTER).await;
    browser.until_text("The timer is delivered again.").await;
    // To drop a timer, a visitor types a word. This works without a mouse, too.
    rig.until("/ui/dead", "2 in all namespaces").await;
    browser.go(&rig.url("/ui/dead")).await;
    tab_to(&browser, "td.key a").await;
    browser.press(ENTER).await;
    browser.until("location.pathname.startsWith('/ui/timers/') && document.readyState === 'complete'").await;
    tab_to(&browser, "details.danger summary").await;
    browser.press(ENTER).await;
    tab_to(&browser, "#confirm").await;
    browser.press(&format!("cancel{ENTER}")).await;
    browser.until("location.pathname === '/ui/dead' || document.body.innerText.includes('cancelled')").await;
    rig.until("/ui/dead", "1 in all namespaces").await;
    assert!(browser.reports().await.is_empty());
}

/// A script that makes time pass faster for a page. The page's clocks and pauses are a hundred times as fast, and the
/// page's stream sends events without a pause. Each answer differs from the answer before. The script counts the
/// refreshes.
const HURRY: &str = r#"
    const begun = Date.now(), now = Date.now, later = setTimeout, ask = fetch;
    Date.now = () => begun + (now() - begun) * 100;
    window.setTimeout = (call, pause) => later(call, pause / 100);
    window.EventSource = class extends EventTarget {
        constructor() { super(); this.timer = setInterval(() => this.dispatchEvent(new Event("tick")), 5); }
        close() { clearInterval(this.timer); }
    };
    window.refreshed = 0;
    window.fetch = async (...what) => {
        const answer = await ask(...what), text = await answer.text();
        window.refreshed += 1;
        return { ok: answer.ok, text: async () => text.replaceAll("</table>", `<caption>${window.refreshed}</caption></table>`) };
    };
"#;

/// Fails if the page has kept the DOM nodes and listeners that hundreds of refreshes replaced. A few nodes may be left,
/// because the browser frees some of them late.
#[track_caller]
fn assert_few(before: (u64, u64), after: (u64, u64)) {
    let is_few = after.0 < before.0 * 5 && after.1 < before.1 * 5;
    assert!(is_few, "nodes and listeners: {before:?}, then {after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_is_refreshed_600_times_and_survives_a_restart_does_not_grow() {
    let Some(browser) = Browser::start().await else { return };
    let rig = filled().await;
    browser.before_each_page(HURRY).await;
    browser.go(&rig.url("/ui/timers?q=order")).await;
    browser.until("window.refreshed > 50").await;
    let before = browser.nodes().await;
    // Each hundred refreshes have their own time limit, since other tests use the processors, too.
    for refreshed in [100, 200, 300, 400, 500] {
        browser.until(&format!("window.refreshed > {refreshed}")).await;
    }
    browser.until("Number(document.querySelector('caption').innerText) > 500").await;
    let after = browser.nodes().await;
    assert_few(before, after);
    // Restart the service while the page refreshes itself.
    let (_rig, seen) = rig
        .restart(async || {
            browser.until_text("The service cannot be reached").await;
            browser.value("window.refreshed").await.as_u64().unwrap()
        })
        .await;
    browser
        .until(&format!("window.refreshed > {} && document.querySelector('#alarm').hidden", seen + 100))
        .await;
    let after = browser.nodes().await;
    assert_few(before, after);
}

/// A script that shortens all pauses of a page to a twentieth.
const HASTE: &str = "const later = setTimeout; window.setTimeout = (call, pause) => later(call, pause / 20);";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_has_ended_without_a_word_is_noticed() {
    let Some(browser) = Browser::start().await else { return };
    let rig = Rig::start().await;
    let between = Between::start(rig.address).await;
    browser.before_each_page(HASTE).await;
    browser.go(&format!("http://{}/ui/timers", between.address)).await;
    browser.until_text("No timer is stored").await;
    rig.put("first", 204, json!({ "delay_ms": 3_600_000 })).await;
    browser.until_text("first").await;
    // From now on, the proxy forwards nothing, on open and on new connections. It closes none of them.
    between.is_open.send_replace(false);
    rig.put("second", 204, json!({ "delay_ms": 3_600_000 })).await;
    browser.until_text("The service cannot be reached").await;
    browser.until("document.querySelector('#live').innerText === 'Not live'").await;
    assert_eq!(browser.value("document.body.innerText.includes('second')").await, false);
    // Only new connections are forwarded again. The connections from before stay dead.
    between.is_open.send_replace(true);
    browser.until_text("second").await;
    browser.until("document.querySelector('#alarm').hidden").await;
    browser.until("document.querySelector('#live').innerText === 'Live'").await;
}
