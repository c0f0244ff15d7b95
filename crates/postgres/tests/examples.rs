//! Runs the examples on a server: with sqlx, in SQL, in Python and in Node.js, and the SQL of the README.
//!
//! The examples in Python and Node.js get their libraries from the registries, in a temporary folder. If Python, npm or
//! the network is missing, a line says that the test was skipped. `TOURBILLON_NO_REGISTRIES` skips both tests.
#![cfg(unix)]

#[path = "../examples/orders/shop.rs"]
mod shop;

use std::path::{Path, PathBuf};
use tourbillon_fault::{Postgres, Script};
use tourbillon_postgres::{Connect, PostgresStore};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

/// Starts a server with the schema, the table of orders, and a user `app` who may create timers.
fn server() -> Option<Postgres> {
    let server = Postgres::start(&[])?;
    let connect = Connect::to(&server.url()).unwrap();
    drop(pollster::block_on(PostgresStore::builder().poll(None).open(&connect)).unwrap());
    let table = "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA tourbillon TO app; \
                 CREATE TABLE orders (number bigint PRIMARY KEY, state text NOT NULL); \
                 GRANT ALL ON orders TO app";
    let _none = server.sql(table);
    Some(server)
}

/// Returns the orders with their states, and the number of stored timers.
fn left(server: &Postgres) -> String {
    server.sql(
        "SELECT string_agg(number || ' ' || state, ', ' ORDER BY number) FROM orders;
         SELECT count(*) FROM tourbillon.timer",
    )
}

#[test]
fn the_example_with_sqlx_closes_an_order_once() {
    let Some(server) = Postgres::start(&[]) else { return };
    shop::run(&server.url()).unwrap();
    assert_eq!(left(&server), "17 paid, 18 closed\n0");
}

#[test]
fn the_example_in_sql_leaves_a_paid_order_and_no_timer() {
    let Some(server) = server() else { return };
    // The user of the server may not read this folder, so psql reads the script from its input.
    let script = std::fs::File::open(example("orders.sql")).unwrap();
    let ran = server.psql("app").stdin(script).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let answers = String::from_utf8(ran.stdout).unwrap();
    let words: Vec<_> = answers.lines().filter(|line| !line.contains('-')).collect();
    assert_eq!(words, ["moved", "cancelled"]);
    assert_eq!(left(&server), "17 paid\n0");
}

#[test]
fn the_example_in_python_leaves_a_paid_order_and_no_timer() {
    let Some(server) = server() else { return };
    let Some(orders) = Script::python(&example("orders.py"), "psycopg[binary]==3.*") else { return };
    let lines =
        ["order 28: the customer has no address", "order 27 has its timeout already", "order 27: cancelled"];
    assert_eq!(orders.output([server.url_of("app")]), lines.join("\n"));
    assert_eq!(left(&server), "27 paid\n0");
}

#[test]
fn the_example_in_node_leaves_a_paid_order_and_no_timer() {
    let Some(server) = server() else { return };
    let Some(orders) = Script::node(&example("orders.mjs"), "pg@8") else { return };
    let lines = ["order 37 has its timeout already", "order 37: cancelled"];
    assert_eq!(orders.output([server.url_of("app")]), lines.join("\n"));
    assert_eq!(left(&server), "37 paid\n0");
}

#[test]
fn the_sql_of_the_readme_runs() {
    let Some(server) = server() else { return };
    let readme = include_str!("../README.md");
    let blocks = readme.split("```sql\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let blocks: Vec<_> = blocks.map(|(block, _)| block).collect();
    assert!(blocks.len() > 1, "{blocks:?}");
    let answers: String = blocks.iter().map(|block| server.sql(block)).collect();
    assert!(answers.contains("cancelled"), "{answers}");
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), "0");
}
