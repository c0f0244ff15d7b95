//! Checks the pages against the rules of accessibility in axe-core.
//!
//! axe-core is not a dependency of the project. `npm pack axe-core` fetches its file `axe.min.js`, and `TOURBILLON_AXE`
//! names the path of this file. Without the variable, the test says that it is skipped.

use crate::driver::Browser;
use crate::looks::{pages, seeded};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_breaks_a_rule_of_accessibility() {
    let Some(file) = std::env::var_os("TOURBILLON_AXE") else {
        eprintln!("skipped: TOURBILLON_AXE does not name the file axe.min.js of axe-core");
        return;
    };
    let axe = std::fs::read_to_string(file).unwrap();
    let Some(browser) = Browser::start().await else { return };
    let rig = seeded(60, false).await;
    let mut found = Vec::new();
    for (name, url) in &pages(&rig).await {
        browser.go(url).await;
        browser.run(&axe).await;
        for width in [390, 1_440] {
            browser.width(width).await;
            // The dark theme changes colours alone.
            for (scheme, options) in
                [("light", json!({})), ("dark", json!({ "runOnly": ["color-contrast"] }))]
            {
                browser.scheme(scheme).await;
                let answer = browser
                    .answer(&format!(
                        "axe.run(document, {options}).then((all) => all.violations.map((one) => \
                         `${{one.id}}: ${{one.nodes.slice(0, 3).map((node) => node.html).join(' ')}}`))"
                    ))
                    .await;
                assert!(answer.is_array(), "{answer}");
                if answer != json!([]) {
                    found.push(format!("{name}, {scheme}, {width}: {answer}"));
                }
            }
        }
    }
    // The test adds a violation to the page, to see that axe-core finds it.
    browser
        .value("document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=\"/ui/icon.svg\">')")
        .await;
    let answer = browser.answer("axe.run(document).then((all) => all.violations.map((one) => one.id))").await;
    assert!(answer.to_string().contains("image-alt"), "{answer}");
    assert!(found.is_empty(), "{}", found.join("\n"));
}
