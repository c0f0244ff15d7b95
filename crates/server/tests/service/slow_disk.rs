//! Tests a disk whose syncs take long. The service still answers requests that need no disk.

use crate::inside::Inside;
use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tourbillon_durable::store::RedbStore;

/// A storage in memory that imitates a slow disk. The number is the time that each sync of the disk takes, in
/// milliseconds.
#[derive(Debug)]
struct Slow(InMemoryBackend, Arc<AtomicU64>);

impl StorageBackend for Slow {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        std::thread::sleep(Duration::from_millis(self.1.load(Ordering::Relaxed)));
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

/// The environment variable `TOURBILLON_SYNC_MS` is the time that a sync of the disk takes, in milliseconds. 700 by
/// default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_need_no_disk_are_answered_while_the_disk_syncs() {
    let takes: u64 = std::env::var("TOURBILLON_SYNC_MS").map_or(700, |takes| takes.parse().unwrap());
    let sync = Arc::new(AtomicU64::new(0));
    let of_places = Arc::clone(&sync);
    let make = move |_| -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(Slow(InMemoryBackend::new(), Arc::clone(&of_places))))
    };
    let store = Arc::new(RedbStore::builder().open_with(make).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let inside = Arc::new(Inside::on(&folder, store));
    sync.store(takes, Ordering::Relaxed);
    // For the first timer of a store, the store syncs its database file, which also grows.
    let at = Arc::clone(&inside);
    let far = json!({ "delay_ms": 3_600_000, "pull": { "queue": "q" } });
    let put =
        tokio::spawn(async move { at.send("PUT", "/v1/namespaces/default/timers/k", far).await.status });
    let (mut longest, mut rounds) = (Duration::ZERO, 0);
    while !put.is_finished() {
        let others =
            ["/v1/namespaces/default/timers/k", "/v1/namespaces/default/timers", "/v1/stats", "/metrics"];
        let others = others.map(|path| {
            let at = Arc::clone(&inside);
            tokio::spawn(async move { at.send("GET", path, Value::Null).await.status })
        });
        let begun = Instant::now();
        let _healthy_or_not = inside.send("GET", "/healthz", Value::Null).await;
        longest = longest.max(begun.elapsed());
        for other in others {
            assert!(other.await.unwrap().as_u16() < 500);
        }
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(put.await.unwrap(), 201);
    #[expect(clippy::print_stdout, reason = "a figure")]
    {
        println!("syncs of {takes} ms: /healthz within {longest:.1?}, {rounds} times");
    }
    sync.store(0, Ordering::Relaxed);
    assert!(rounds > 10 && longest < Duration::from_millis(200), "{rounds} rounds, {longest:?}");
    tokio::task::spawn_blocking(move || inside.service.close(Duration::ZERO)).await.unwrap();
}
