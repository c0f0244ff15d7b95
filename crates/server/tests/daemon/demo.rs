//! Tests that the demonstration shows the events that its text promises.

use crate::process::{folder, run, text};

#[test]
fn the_demonstration_shows_a_callback_a_repetition_and_a_cancellation() {
    let folder = folder();
    let shown = run(folder.path(), &["demo", "--exit"]);
    assert!(shown.status.success(), "{shown:?}");
    let shown = text(&shown.stdout);
    let line = |words: &[&str]| {
        let found = shown.lines().find(|line| words.iter().all(|word| line.contains(word)));
        let line = found.unwrap_or_else(|| panic!("{words:?}: {shown}"));
        line.trim_start().split(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let stored = line(&["-> the timer reminder is stored", "5 s"]);
    let arrived = line(&["<- callback /reminder", "attempt 1", "204"]);
    // Both times are rounded to a hundredth of a second.
    assert!((4.99..7.0).contains(&(arrived - stored)), "{shown}");
    let failed = line(&["<- callback /unsure", "attempt 1", "503"]);
    let repeated = line(&["<- callback /unsure", "attempt 2", "204"]);
    assert!(repeated - failed >= 1.4, "{shown}");
    line(&["-> the timer regretted is cancelled", "\"cancelled\""]);
    assert!(!shown.contains("/regretted"), "{shown}");
    assert!(shown.contains("curl -X PUT http://127.0.0.1:"), "{shown}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "it leaves no files behind");
}
