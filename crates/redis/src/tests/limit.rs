//! Tests requests that reach their server after the limit of a store ([`RedisStore::work_until`]).

use crate::{Connect, RedisStore};
use pollster::block_on;
use std::time::Duration;
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Limit, Op, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::{Proxy, Server};

/// Requests and replies are each delayed by half of this time.
const DELAY: Duration = Duration::from_millis(800);

/// A call that changes timers.
#[derive(Clone, Copy, Debug)]
enum Call {
    Import,
    Place,
    Claim,
}

const CALLS: [Call; 3] = [Call::Import, Call::Place, Call::Claim];

fn run(store: &RedisStore, call: Call) -> Result<(), StoreError> {
    let timer = |id| Timer::new(TimerId::from_u128(id), "kind", store.now());
    match call {
        Call::Import => block_on(store.import(vec![timer(2)])),
        Call::Place => {
            let op = Op::Place(Box::new(timer(3)), IfPresent::Reject);
            block_on(store.apply(vec![op], Durability::PowerLoss)).map(drop)
        }
        Call::Claim => {
            let by = Claimant { incarnation: 5, lease: Duration::from_secs(60) };
            block_on(store.claim(by, 1, Limit { timers: 1, bytes: u64::MAX }, None)).map(drop)
        }
    }
}

#[test]
fn a_request_that_arrives_after_the_limit_of_its_store_has_no_effect() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    let open = |name: &str, url: &str| {
        let connect = Connect::single(url).unwrap();
        block_on(RedisStore::builder(name).shards(1).poll(None).open(&connect)).unwrap()
    };
    // This loads the scripts, whose texts would need several delayed pieces.
    let before = open("before", &server.url());
    CALLS.iter().for_each(|call| run(&before, *call).unwrap());
    assert!(block_on(before.replace_document("name", 0, Some(b"value"))).unwrap().is_some());
    let (store, other) = (open("d", &proxy.url()), open("d", &server.url()));
    let timer = Timer::new(TimerId::from_u128(1), "kind", other.now());
    block_on(other.import(vec![timer])).unwrap();
    let stored = block_on(other.counts()).unwrap();
    proxy.delay(DELAY);
    for call in CALLS {
        store.work_until(Some(store.now() + DELAY / 4));
        let error = run(&store, call).unwrap_err();
        assert_ne!(error.kind(), StoreErrorKind::Unknown, "{call:?}: {error}");
        assert!(error.to_string().contains("the time for this call is over"), "{call:?}: {error}");
    }
    assert_eq!(block_on(other.counts()).unwrap(), stored);
    // The document of a restore says how long the restore may work, so it has no limit itself.
    assert!(block_on(store.replace_document("name", 0, Some(b"value"))).unwrap().is_some());
    proxy.delay(Duration::ZERO);
    store.work_until(Some(store.now() + Duration::from_secs(3_600)));
    CALLS.iter().for_each(|call| run(&store, *call).unwrap());
    assert_eq!(block_on(other.counts()).unwrap().by_namespace.values().sum::<u64>(), 3);
}
