//! Runs the examples on a server: with sqlx, in SQL, in Python and in Node.js, and the SQL of the README.
//!
//! The examples in Python and Node.js get their libraries from the registries, in a temporary folder. If Python, npm or
//! the network is missing, a line says that the test was skipped. `TOURBILLON_NO_REGISTRIES` skips both tests.
#![cfg(unix)]

#[path = "../examples/orders/shop.rs"]
mod shop;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tourbillon_fault::Postgres;
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

/// Writes a line to standard error, past the tests' captured output.
fn skipped(language: &str, reason: &str) {
    drop(writeln!(std::io::stderr(), "skipped the example in {language}: {reason}"));
}

/// Runs a command that fetches libraries. Returns whether it has succeeded.
fn fetches(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

#[track_caller]
fn output(command: &mut Command) -> String {
    let ran = command.stdin(Stdio::null()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().trim_end().to_owned()
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
    if std::env::var_os("TOURBILLON_NO_REGISTRIES").is_some() {
        return skipped("Python", "TOURBILLON_NO_REGISTRIES is set");
    }
    let folder = tempfile::tempdir().unwrap();
    let python = folder.path().join("bin/python");
    let make = Command::new("python3").args(["-m", "venv"]).arg(folder.path()).output();
    if !make.is_ok_and(|made| made.status.success()) {
        return skipped("Python", "there is no python3 with venv and pip");
    }
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "20"]);
    install.args(["--only-binary", ":all:", "psycopg[binary]==3.*"]);
    if !fetches(&mut install) {
        return skipped("Python", "psycopg cannot be fetched");
    }
    let said = output(Command::new(&python).arg(example("orders.py")).arg(server.url_of("app")));
    let lines =
        ["order 28: the customer has no address", "order 27 has its timeout already", "order 27: cancelled"];
    assert_eq!(said, lines.join("\n"));
    assert_eq!(left(&server), "27 paid\n0");
}

#[test]
fn the_example_in_node_leaves_a_paid_order_and_no_timer() {
    let Some(server) = server() else { return };
    if std::env::var_os("TOURBILLON_NO_REGISTRIES").is_some() {
        return skipped("Node.js", "TOURBILLON_NO_REGISTRIES is set");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut install = Command::new("npm");
    install.args([
        "install",
        "--silent",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--fetch-retries",
        "1",
    ]);
    install.arg("--prefix").arg(folder.path()).arg("pg@8");
    if !fetches(&mut install) {
        return skipped("Node.js", "there is no npm, or pg cannot be fetched");
    }
    // Node.js looks for libraries beside the program.
    let program = folder.path().join("orders.mjs");
    std::fs::copy(example("orders.mjs"), &program).unwrap();
    let said = output(Command::new("node").arg(&program).arg(server.url_of("app")));
    assert_eq!(said, "order 37 has its timeout already\norder 37: cancelled");
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
