//! Tests the pages on paper, and on a screen with forced colours.

use crate::driver::Browser;
use crate::looks::{pages, seeded};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_paper_and_in_forced_colours_a_page_says_what_it_says_on_a_screen() {
    let Some(browser) = Browser::start().await else { return };
    let rig = seeded(60, false).await;
    let shown = |selector: &str| format!("getComputedStyle(document.querySelector('{selector}')).display");
    for (name, url) in pages(&rig).await {
        let is_wanted = ["overview", "timers", "dead", "timer-failed", "endpoints", "queues"].contains(&name);
        if !is_wanted {
            continue;
        }
        browser.go(&url).await;
        browser.width(1_280).await;
        browser.medium("screen", true).await;
        browser.picture(&format!("{name}-forced")).await;
        if name == "overview" {
            let bar =
                browser.value("getComputedStyle(document.querySelector('rect.bar')).forcedColorAdjust").await;
            assert_eq!(bar, "none", "the bars keep their colours");
        }
        browser.medium("print", false).await;
        browser.width(720).await;
        browser.picture(&format!("{name}-print")).await;
        assert_eq!(browser.value(&shown(".top nav")).await, "none", "{name}");
        assert_ne!(browser.value(&shown("main h1")).await, "none", "{name}");
        let wide = browser.value("document.documentElement.scrollWidth - innerWidth").await;
        assert!(wide.as_i64().unwrap() <= 0, "{name} on paper: {wide} too wide");
        browser.medium("screen", false).await;
    }
}
