//! Tests a process that is killed during deliveries. Each callback arrives, and a duplicate has the same id.

use crate::clients::{Http, callback};
use crate::process::{Daemon, folder, run, text, until};
use crate::receiver::{Received, Receiver};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};
use tourbillon_api::Moment;

/// The number of clients that make timers at the same time.
const CLIENTS: usize = 16;

/// Returns the paths of the recorded callbacks, each with the ids of its callbacks.
fn ids_of(log: &[Received]) -> BTreeMap<String, BTreeSet<String>> {
    let mut ids: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for Received { path, id, .. } in log {
        ids.entry(path.clone()).or_default().insert(id.clone());
    }
    ids
}

/// Makes timers as one of the [`CLIENTS`] clients. The client's first timer has the number `first`. Returns the ids of
/// the timers by the paths of their callbacks.
async fn make(http: Http, url: String, due: Moment, first: usize, count: usize) -> BTreeMap<String, String> {
    let mut made = BTreeMap::new();
    for number in (first..count).step_by(CLIENTS) {
        let path = format!("/{number}");
        let mut timer = callback(&format!("{url}{path}"), 0);
        timer["due"] = due.to_string().into();
        timer.as_object_mut().unwrap().remove("delay_ms");
        let answer = http.send("PUT", &crate::clients::timer(&format!("k{number}")), &timer).await;
        assert_eq!(answer.status, 201, "{}", answer.json);
        made.insert(path, answer.json["id"].as_str().unwrap().to_owned());
    }
    made
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_callback_of_a_killed_service_arrives_and_duplicates_have_the_same_id() {
    let count: usize = std::env::var("TOURBILLON_DELIVERIES").map_or(400, |count| count.parse().unwrap());
    // The receiver is slow, so many deliveries are left at each kill.
    let pause = Duration::from_millis(2);
    let (folder, receiver) = (folder(), Receiver::start(pause).await);
    let mut daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    // All timers are due at the same moment, when most of them are made.
    let due = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()
        + 500
        + 2 * count as u128;
    let due = Moment::from_millis(u64::try_from(due).unwrap());
    let makers = (0..CLIENTS)
        .map(|first| tokio::spawn(make(http.clone(), receiver.url(""), due, first, count)))
        .collect::<Vec<_>>();
    let mut made = BTreeMap::new();
    for maker in makers {
        made.extend(maker.await.unwrap());
    }
    assert_eq!(made.len(), count);
    let begun = Instant::now();
    let most = Duration::from_secs(60) + Duration::from_millis(20) * u32::try_from(count).unwrap();
    let next_after = |received: usize| received + (count / 5).min(count.saturating_sub(received) / 2);
    let (mut kills, mut next_kill) = (0, next_after(receiver.count()));
    while ids_of(&receiver.log()).len() < count {
        assert!(begun.elapsed() < most, "{} of {count}: {}", ids_of(&receiver.log()).len(), daemon.log());
        if kills < 3 && receiver.count() >= next_kill {
            daemon.kill();
            kills += 1;
            next_kill = next_after(receiver.count());
            daemon = Daemon::start(folder.path(), &[]);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Wait for duplicates that come late.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let log = receiver.log();
    let made: BTreeMap<_, _> = made.into_iter().map(|(path, id)| (path, BTreeSet::from([id]))).collect();
    assert_eq!(ids_of(&log), made);
    #[expect(clippy::print_stdout, reason = "a figure")]
    {
        println!("{count} deliveries, {kills} kills, {} duplicates", log.len() - count);
    }
    assert!(kills > 0);

    // No timer is left, and the store has no fault.
    daemon.signal(Signal::TERM);
    assert!(daemon.end(Duration::from_secs(20)).success(), "{}", daemon.log());
    let check = run(folder.path(), &["check", "--json", "--data", "data"]);
    let check: Value = serde_json::from_str(&text(&check.stdout)).unwrap();
    assert_eq!(check, serde_json::json!({ "timers": 0, "faults": [] }));
}

/// A receiver may have had the callbacks that were under way when the service was killed. The next start ends the
/// leases of the killed process, and says for each that the delivery is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_after_a_kill_says_which_deliveries_are_repeated() {
    for store in [&[][..], &["--sqlite-path", "shop.db"]] {
        let (folder, receiver) = (folder(), Receiver::start(Duration::from_secs(5)).await);
        let daemon = Daemon::start(folder.path(), store);
        let http = Http::new(daemon.address);
        for number in 0..3 {
            let put = callback(&receiver.url(&format!("/{number}")), 0);
            assert_eq!(
                http.send("PUT", &crate::clients::timer(&format!("k{number}")), &put).await.status,
                201
            );
        }
        until("the callbacks are under way", || receiver.count() >= 3).await;
        // A claim may reach the disk a moment after its delivery has begun, and is not known if it is lost.
        tokio::time::sleep(Duration::from_secs(1)).await;
        daemon.kill();
        let daemon = Daemon::start(folder.path(), store);
        let http = Http::new(daemon.address);
        until("the callbacks are repeated", || receiver.count() >= 6).await;
        let page = text(&http.bytes("GET", "/metrics").await.unwrap().1);
        let repeated = r#"tourbillon_duplicates_total{cause="process-died"} 3"#;
        assert!(page.contains(repeated), "{store:?}: {page}");
        let past = http.get(&format!("{}/past", crate::clients::timer("k0"))).await.json;
        assert_eq!(past["interrupted"].as_array().map(Vec::len), Some(1), "{store:?}: {past}");
    }
}
