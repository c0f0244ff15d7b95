//! Receivers in other languages, which end deliveries in their own transactions in PostgreSQL. They fetch timers of a
//! queue from the service, and pass the names of their claims to the SQL function `done`.

use crate::clients::Http;
use crate::postgres::serve;
use crate::process::{Daemon, folder, until};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;
use tourbillon_fault::{Postgres, Script};

struct Shop {
    server: Postgres,
    service: Daemon,
    http: Http,
    _folder: TempDir,
}

impl Shop {
    /// Starts a server with a table of orders and a user `app` who may end deliveries, and a service.
    fn open() -> Option<Self> {
        let server = Postgres::start(&[])?;
        let folder = folder();
        let service = serve(folder.path(), &server, "one");
        let _none = server.sql(
            "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA tourbillon TO app;
             CREATE TABLE orders (number bigint PRIMARY KEY, state text NOT NULL);
             GRANT ALL ON orders TO app",
        );
        let http = Http::new(service.address);
        Some(Self { server, service, http, _folder: folder })
    }

    /// Stores an order with a timeout that is due, in the queue `orders`.
    fn order(&self, number: u32, policy: &str) {
        let _id = self.server.sql(&format!(
            "INSERT INTO orders VALUES ({number}, 'open');
             SELECT tourbillon.schedule_queue('orders', data => '{{\"order\": {number}}}', key => 'order {number}',
                 policy => '{policy}')"
        ));
    }

    async fn fetch(&self) -> Value {
        let wanted = json!({ "max": 1, "wait_ms": 20_000 });
        let fetched = self.http.send("POST", "/v1/namespaces/default/queues/orders/claims", &wanted).await;
        fetched.json["claims"][0].clone()
    }

    /// Returns the orders with their states, and the number of stored timers.
    fn left(&self) -> String {
        self.server.sql(
            "SELECT string_agg(number || ' ' || state, ', ' ORDER BY number) FROM orders;
             SELECT count(*) FROM tourbillon.timer",
        )
    }

    /// Returns the transaction in which a receiver closes an order and ends the delivery of its timeout.
    fn close(number: u32, claim: &Value) -> String {
        format!(
            "BEGIN; UPDATE orders SET state = 'closed' WHERE number = {number} AND state = 'open';
             SELECT tourbillon.done({}, {}); COMMIT",
            claim["id"].to_string().replace('"', "'"),
            claim["claim"].to_string().replace('"', "'"),
        )
    }

    async fn ack(&self, claim: &Value) -> u16 {
        let path = format!("/v1/namespaces/default/claims/{}/ack", claim["claim"].as_str().unwrap());
        self.http.send("POST", &path, &json!({})).await.status.as_u16()
    }
}

/// Runs a worker on a due timer.
async fn run_worker(make: impl FnOnce(&Path) -> Option<Script>, name: &str) {
    let Some(shop) = Shop::open() else { return };
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../postgres/examples").join(name);
    let Some(worker) = make(&example) else { return };
    shop.order(47, "{}");
    let service = format!("http://{}", shop.service.address);
    assert_eq!(worker.output([&*shop.server.url_of("app"), &service, "orders"]), "order 47: closed");
    assert_eq!(shop.left(), "47 closed\n0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_in_python_closes_an_order_and_ends_the_delivery_in_one_transaction() {
    run_worker(|example| Script::python(example, "psycopg[binary]==3.*"), "worker.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_in_node_closes_an_order_and_ends_the_delivery_in_one_transaction() {
    run_worker(|example| Script::node(example, "pg@8"), "worker.mjs").await;
}

/// A worker outlives its claim, and the timer goes to another worker. The transaction of the first rolls back whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_workers_with_a_timer_the_one_with_the_open_claim_closes_the_order() {
    let Some(shop) = Shop::open() else { return };
    shop.order(57, r#"{"timeout_ms": 1000, "attempts": 3, "backoff": {"kind": "fixed", "pause_ms": 1}}"#);
    let first = shop.fetch().await;
    let second = shop.fetch().await;
    assert_eq!(first["id"], second["id"], "{first} {second}");
    assert_ne!(first["claim"], second["claim"]);
    let refused = shop.server.try_sql("app", &Shop::close(57, &first)).unwrap_err();
    assert!(refused.contains("the lease of the timer"), "{refused}");
    assert_eq!(shop.left(), "57 open\n1");
    let _none = shop.server.sql(&Shop::close(57, &second));
    assert_eq!(shop.left(), "57 closed\n0");
    let again = shop.server.try_sql("app", &Shop::close(57, &second)).unwrap_err();
    assert!(again.contains("the lease of the timer"), "{again}");
    // Nothing is left to acknowledge, and the place in the queue is free again.
    assert_eq!(shop.ack(&second).await, 409);
    shop.order(58, "{}");
    let third = shop.fetch().await;
    assert_eq!(third["key"], "order 58", "{third}");
    assert_eq!(shop.ack(&third).await, 204);
    until("no timer is left", || shop.left() == "57 closed, 58 open\n0").await;
}
