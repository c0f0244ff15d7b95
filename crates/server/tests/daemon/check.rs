//! Tests that `tourbillond check` names each damaged part: a timer by its key and id, a page by its offset, and a file
//! by its name.

use crate::clients::{Http, far, timer};
use crate::process::{Daemon, folder, run, text, token};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

fn check(folder: &Path) -> (bool, Vec<String>) {
    let check = run(folder, &["check", "--json", "--data", "data"]);
    let shown: Value = serde_json::from_str(&text(&check.stdout))
        .unwrap_or_else(|error| panic!("{error}: {}", text(&check.stderr)));
    let faults = shown["faults"].as_array().unwrap().iter().map(|fault| fault.as_str().unwrap().to_owned());
    (check.status.success(), faults.collect())
}

#[tokio::test]
async fn a_check_names_a_damaged_timer_a_page_and_the_files_beside_the_store() {
    let folder = folder();
    let admin = token(folder.path(), &["--data", "data", "--role", "admin"]);
    let mut daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address).with_token(&admin);
    let mut body = far();
    let mut ids = Vec::new();
    for key in ["a", "b", "c"] {
        body["callback"]["body"] = json!(format!("a body that a bit is flipped in: {key}"));
        let made = http.send("PUT", &timer(key), &body).await;
        assert_eq!(made.status, 201, "{}", made.json);
        ids.push(made.json["id"].as_str().unwrap().to_owned());
    }
    let made = http.send("PUT", "/v1/namespaces/n", &json!({})).await;
    assert!(made.status.is_success(), "{}", made.json);
    daemon.signal(Signal::TERM);
    assert!(daemon.end(Duration::from_secs(20)).success(), "{}", daemon.log());
    assert_eq!(check(folder.path()), (true, vec![]));

    let data = folder.path().join("data");
    let store = data.join("timers.redb");
    let whole = std::fs::read(&store).unwrap();
    let mut damaged = whole.clone();
    let wanted = b"a body that a bit is flipped in: b";
    let places = (0..damaged.len() - wanted.len()).filter(|at| whole[*at..].starts_with(wanted));
    let mut places: Vec<usize> = places.collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| damaged[*at] ^= 4);
    std::fs::write(&store, &damaged).unwrap();
    let (is_sound, faults) = check(folder.path());
    assert!(!is_sound);
    let at = places.pop().unwrap() / 4_096 * 4_096;
    let page = |fault: &String| fault.starts_with("pages: the ") && fault.contains("timers.redb are damaged");
    assert!(
        faults.iter().any(|fault| page(fault) && fault.contains(&format!("offset {at} of"))),
        "{faults:?}"
    );
    let named = |fault: &String| fault.contains(&ids[1]) && fault.contains(r#"reads as key "b""#);
    assert!(faults.iter().any(named), "{faults:?}");
    assert_eq!(std::fs::read(&store).unwrap(), damaged, "a check of damaged pages changes nothing");
    std::fs::write(&store, &whole).unwrap();

    for name in ["namespaces.json", "tokens.json"] {
        let path = data.join(name);
        let whole = std::fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        // Change a letter of a name or a digit of a hash, so the file stays valid JSON.
        let at = damaged.iter().rposition(u8::is_ascii_alphanumeric).unwrap();
        damaged[at] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let (is_sound, faults) = check(folder.path());
        assert!(!is_sound && faults.len() == 1, "{faults:?}");
        assert!(faults[0].contains(name) && faults[0].contains("its checksum differs"), "{faults:?}");
        let serve = run(folder.path(), &["serve", "--data", "data", "--listen", "127.0.0.1:0"]);
        assert!(!serve.status.success() && text(&serve.stderr).contains(name), "{serve:?}");
        std::fs::write(&path, &whole).unwrap();
    }
    // The service sets the damaged record aside. `tourbillond mend` removes the record once `check` has named it.
    std::fs::write(&store, &damaged).unwrap();
    let mut daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address).with_token(&admin);
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let (_, metrics) = http.bytes("GET", "/metrics").await.unwrap();
        if text(&metrics)
            .lines()
            .any(|line| line.starts_with("tourbillon_quarantined") && line.ends_with(" 1"))
        {
            break;
        }
        assert!(Instant::now() < until, "{}", text(&metrics));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    daemon.signal(Signal::TERM);
    assert!(daemon.end(Duration::from_secs(20)).success(), "{}", daemon.log());
    let (is_sound, faults) = check(folder.path());
    assert!(!is_sound && faults.iter().any(named), "{faults:?}");
    let mended = run(folder.path(), &["mend", "--data", "data"]);
    assert!(text(&mended.stdout).contains("1 damaged records were removed"), "{mended:?}");
    assert_eq!(check(folder.path()), (true, vec![]));
    let mended = run(folder.path(), &["mend", "--json", "--data", "data"]);
    assert_eq!(serde_json::from_str::<Value>(&text(&mended.stdout)).unwrap(), json!({ "forgotten": 0 }));

    std::fs::write(data.join("operations.json"), "{").unwrap();
    let (is_sound, faults) = check(folder.path());
    assert!(!is_sound && faults[0].contains("operations.json"), "{faults:?}");
}

#[test]
fn a_mend_of_a_file_refuses_the_flag_for_a_deployment_in_redis() {
    let folder = folder();
    let refused = run(folder.path(), &["mend", "--anew", "--data", "data"]);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(text(&refused.stderr).contains("--anew is for a deployment in Redis"), "{refused:?}");
}
