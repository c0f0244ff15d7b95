//! Tests how the script helps a visitor. It keeps the focus, and does not refresh a list that is in use. It chooses the
//! time zone, copies keys, and shows the numbers of charts.

use crate::driver::Browser;
use crate::rig::Rig;
use serde_json::{Value, json};

/// A script that shortens all pauses of a page to a twentieth. The script also records the text that the page copies to
/// the clipboard.
const HASTE: &str = "const later = setTimeout; window.setTimeout = (call, pause) => later(call, pause / 20);
    Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.copied = text; } } });";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_focus_stays_in_a_list_that_is_refreshed_and_a_choice_holds_it() {
    let Some(browser) = Browser::start().await else { return };
    let rig = Rig::start().await;
    browser.before_each_page(HASTE).await;
    rig.put("first", 204, json!({ "delay_ms": 3_600_000 })).await;
    browser.go(&rig.url("/ui/timers")).await;
    browser.until("document.querySelector('#live').innerText === 'Live'").await;
    browser.value("document.querySelector('td.key a').focus()").await;
    rig.put("second", 204, json!({ "delay_ms": 3_600_000 })).await;
    browser.until_text("second").await;
    assert_eq!(browser.value("document.activeElement.innerText").await, "first", "the focus is where it was");
    // The timer whose link has the focus is cancelled. The list is not refreshed until the focus leaves it, and says
    // so.
    rig.api("DELETE", "/v1/namespaces/default/timers/first", "", Value::Null).await;
    browser.until("document.querySelector('#live').innerText === 'Held'").await;
    browser.until_text("first").await;
    browser.value("document.activeElement.blur()").await;
    browser.until("!document.body.innerText.includes('first')").await;
    browser.until("document.querySelector('#live').innerText === 'Live'").await;

    for key in ["a", "b"] {
        rig.put(key, 500, json!({ "policy": { "attempts": 1 } })).await;
    }
    rig.until("/ui/dead", "2 in the namespace").await;
    browser.go(&rig.url("/ui/dead")).await;
    browser.click("td.pick input").await;
    browser.until_text("1 chosen").await;
    rig.put("c", 500, json!({ "policy": { "attempts": 1 } })).await;
    rig.until("/ui/dead", "3 in the namespace").await;
    browser.until("document.querySelector('#live').innerText === 'Held'").await;
    assert_eq!(browser.value("document.querySelectorAll('td.pick input:checked').length").await, 1);
    browser.click("#all").await;
    browser.until_text("2 chosen").await;
    browser.click("#chosen button").await;
    browser.until_text("The chosen timers are delivered again.").await;
    assert!(browser.reports().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moments_are_in_utc_or_in_the_zone_of_the_browser_which_remembers_it() {
    let Some(browser) = Browser::start().await else { return };
    let rig = Rig::start().await;
    browser.zone("Asia/Kathmandu").await;
    rig.put("k", 204, json!({ "due": "2031-01-31T20:00:00Z" })).await;
    browser.go(&rig.url("/ui/timers")).await;
    browser.until_text("2031-01-31 20:00:00.000").await;
    browser.click("#zone").await;
    browser.until_text("2031-02-01 01:45:00.000").await;
    let title = browser.value("document.querySelector('td time').title").await;
    assert_eq!(title, "2031-01-31 20:00:00.000 UTC");
    browser.until_text("Due, here").await;
    // The chosen zone also applies to parts that are refreshed, and to other pages.
    rig.put("l", 204, json!({ "due": "2031-01-31T21:00:00Z" })).await;
    browser.until_text("2031-02-01 02:45:00.000").await;
    browser.go(&rig.url("/ui/timers?phase=pending")).await;
    browser.until_text("2031-02-01 01:45:00.000").await;
    browser.click("#zone").await;
    browser.until_text("2031-01-31 20:00:00.000").await;
    assert!(browser.reports().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_ids_are_copied_and_charts_say_their_numbers_under_the_pointer() {
    let Some(browser) = Browser::start().await else { return };
    let rig = Rig::start().await;
    browser.before_each_page(HASTE).await;
    let key = "order ".to_owned() + &"x".repeat(200);
    let id = rig.put(&key, 204, json!({ "delay_ms": 3_600_000 })).await;
    browser.go(&rig.url(&format!("/ui/timers/default/{id}"))).await;
    // The button says "Copied" for a moment only, and the haste makes this moment too short to be sure to see it.
    let watch = "(() => { window.said = []; \
                 const note = (changes) => said.push(...changes.map((change) => change.target.innerText)); \
                 new MutationObserver(note).observe(document.body, { childList: true, subtree: true }); })()";
    browser.value(watch).await;
    browser.click("td.id .copy").await;
    browser.until(&format!("window.copied === {}", json!(id))).await;
    browser.until("said.includes('Copied')").await;
    // In a list, the button copies the whole key, although the page shows only two lines of it.
    browser.go(&rig.url("/ui/timers")).await;
    browser.hover("td.key").await;
    browser.click("td.key .copy").await;
    browser.until(&format!("window.copied === {}", json!(key))).await;
    let lines = "(() => { const box = document.querySelector('td.key .clip'); \
                 return box.clientHeight / parseFloat(getComputedStyle(box).lineHeight); })()";
    assert!(browser.value(lines).await.as_f64().unwrap() < 2.5);
    assert_eq!(browser.value("document.querySelector('td.key a').title").await, *key);

    browser.go(&rig.url("/ui/")).await;
    browser.until("document.querySelector('#horizon rect.bar')").await;
    browser.hover("#horizon svg.chart").await;
    browser.until("!document.querySelector('#tip').hidden").await;
    browser.until("/due in|overdue/.test(document.querySelector('#tip').innerText)").await;
    browser.picture("tip").await;
    assert!(browser.reports().await.is_empty());
}
