//! Tests the program with its timers in PostgreSQL: timers of the HTTP interface and of SQL functions, kills of the
//! program and of the server, restores, and starts that are refused. Without PostgreSQL, the tests say that they were
//! skipped.

use crate::backup::{filled, lines, sealed};
use crate::clients::{Http, far, timer};
use crate::process::{Daemon, SOON, folder, program, run, text, until};
use crate::receiver::{Received, Receiver};
use rustix::process::Signal;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tourbillon_durable::timer::TimerId;
use tourbillon_fault::{Authority, Postgres};

/// Starts a service on the server. Its data folder is `data`.
pub(crate) fn serve(folder: &Path, server: &Postgres, data: &str) -> Daemon {
    let url = server.url();
    let arguments = [
        "--callbacks-allow-http",
        "--callbacks-allow-private",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data,
        "--postgres-server",
        &url,
        "--postgres-ttl",
        "1s",
        "--deliveries-lease",
        "2s",
    ];
    Daemon::spawn(program(folder, &arguments))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_of_http_and_of_sql_are_delivered_from_postgres() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (folder, receiver) = (folder(), Receiver::start(Duration::ZERO).await);
    let mut daemon = serve(folder.path(), &server, "one");
    let http = Http::new(daemon.address);
    let made = http.send("PUT", &timer("k"), &far()).await;
    assert_eq!(made.status, 201, "{}", made.json);
    let id = made.json["id"].as_str().unwrap();
    let seen = server.sql("SELECT id, phase FROM tourbillon.look('k', 'default')");
    assert_eq!(seen, format!("{id}|pending"));
    let call = format!(
        "SELECT tourbillon.schedule_callback('{}', data => '{{\"a\": 1}}', delay => '100 ms', key => 'c',
             labels => '{{sql}}', policy => '{{\"attempts\": 3}}')",
        receiver.url("/sql")
    );
    let called = server.sql(&call);
    let shown = http.get(&timer("c")).await;
    // The timer may have been delivered already.
    if shown.status == 200 {
        assert_eq!((&shown.json["policy"]["attempts"], &shown.json["labels"]), (&json!(3), &json!(["sql"])));
        assert_eq!(shown.json["policy"]["timeout_ms"], 15_000, "{}", shown.json);
    }
    until("the callback of SQL arrives", || receiver.count() == 1).await;
    let received = receiver.log().remove(0);
    assert_eq!((received.path.as_str(), &received.id), ("/sql", &called));
    let queued = server.sql("SELECT tourbillon.schedule_queue('q', data => '{\"b\": 2}')");
    let wanted = json!({ "max": 1, "wait_ms": 10_000 });
    let claims = http.send("POST", "/v1/namespaces/default/queues/q/claims", &wanted).await;
    let claim = &claims.json["claims"][0];
    assert_eq!(claim["timer"]["id"].as_str().or(claim["id"].as_str()), Some(&*queued), "{}", claims.json);
    let end = format!("/v1/namespaces/default/claims/{}/ack", claim["claim"].as_str().unwrap());
    assert!(http.send("POST", &end, &json!({})).await.status.is_success());
    let nodes = http.get("/v1/nodes").await.json;
    assert_eq!((&nodes["shared"], &nodes["nodes"][0]["shards"]), (&json!(true), &json!(16)), "{nodes}");
    let again =
        run(folder.path(), &["--postgres-server", &server.url(), "--data", "one", "--listen", "127.0.0.1:0"]);
    assert!(text(&again.stderr).contains("another service uses this folder"), "{again:?}");
    daemon.signal(Signal::TERM);
    assert!(daemon.end(SOON).success(), "{}", daemon.log());
    assert!(!folder.path().join("one/timers.redb").exists(), "no file has timers");
    let check = run(folder.path(), &["check", "--data", "one", "--postgres-server", &server.url()]);
    assert_eq!(text(&check.stdout), "the schema tourbillon (version 1): 1 timers, 0 faults\n", "{check:?}");

    // A check names what refuses a start. The timer could also be one of a program.
    let arguments = ["--data", "one", "--listen", "127.0.0.1:0", "--postgres-server", &server.url()];
    let _of_programs = server.sql("UPDATE tourbillon.setting SET service = false");
    let check = run(folder.path(), &["check", "--data", "one", "--postgres-server", &server.url()]);
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    assert!(text(&check.stdout).contains("those of programs"), "{check:?}");
    let refused = run(folder.path(), &arguments);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("those of programs"), "{refused:?}");
    let _of_service = server.sql("UPDATE tourbillon.setting SET service = true");

    // A document that cannot be read is named by a check, and ends a start.
    assert!(!folder.path().join("one/namespaces.json").exists(), "no file has the namespaces");
    let _damaged = server.sql(
        "INSERT INTO tourbillon.document VALUES ('namespaces', 7, '{')
        ON CONFLICT (name) DO UPDATE SET value = '{'",
    );
    let check = run(folder.path(), &["check", "--data", "one", "--postgres-server", &server.url()]);
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    assert!(text(&check.stdout).contains("the shared document of the namespaces: "), "{check:?}");
    let refused = run(folder.path(), &arguments);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
}

/// An administrator has removed the row, or has restored the other tables only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_of_namespaces_that_postgres_has_lost_is_put_back_by_a_command() {
    let Some(server) = Postgres::start(&[]) else { return };
    let folder = folder();
    let daemon = serve(folder.path(), &server, "one");
    let http = Http::new(daemon.address);
    let (shop, limits) = ("/v1/namespaces/shop", json!({ "paused": true, "max_timers": 7 }));
    assert_eq!(http.send("PUT", shop, &limits).await.status, 201);
    let _lost = server.sql("DELETE FROM tourbillon.document");
    let begun = Instant::now();
    while http.get("/readyz").await.status != 503 {
        assert!(begun.elapsed() < SOON, "{}", http.get("/readyz").await.json);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(http.send("PUT", "/v1/namespaces/other", &json!({})).await.status, 503);
    let on_server = |words: &[&'static str]| {
        let url = server.url();
        let all = words.iter().copied().chain(["--data", "one", "--postgres-server", &url]);
        run(folder.path(), &all.collect::<Vec<_>>())
    };
    let check = on_server(&["check"]);
    assert!(text(&check.stdout).contains("the shared document of the namespaces: lost"), "{check:?}");
    let mended = on_server(&["mend"]);
    assert!(mended.status.success() && text(&mended.stdout).contains("put its copy there"), "{mended:?}");
    assert_eq!(http.get("/readyz").await.status, 200);
    assert_eq!(http.get(shop).await.json["limits"], limits);
    assert_eq!(http.send("PUT", "/v1/namespaces/other", &json!({})).await.status, 201);
    let mended = on_server(&["mend", "--json"]);
    assert_eq!(text(&mended.stdout).trim(), "{\n  \"namespaces\": \"kept\"\n}");
    let refused = on_server(&["mend", "--anew"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("--anew"), "{refused:?}");
}

/// All settings are in a file. Those of the table `[postgres]` have effects that the server shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_settings_names_the_server_and_the_schema_of_the_timers() {
    let Some(server) = Postgres::start(&[]) else { return };
    let folder = folder();
    let _role = server.sql("CREATE ROLE timers LOGIN; GRANT CREATE ON DATABASE postgres TO timers");
    let settings = format!(
        "listen = [\"127.0.0.1:0\"]\ndata = \"one\"\n\
         [callbacks]\nallow_http = true\nallow_private = true\n\
         [postgres]\nserver = \"{}\"\nschema = \"shop\"\nconnections = 3\nnode = \"by file\"\nttl = \"7s\"\n\
         response_timeout = \"1s\"\nlisten = true\n",
        server.url_of("timers")
    );
    fs::write(folder.path().join("settings.toml"), settings).unwrap();
    let mut daemon = Daemon::spawn(program(folder.path(), &["serve", "--config", "settings.toml"]));
    let http = Http::new(daemon.address);
    let made = http.send("PUT", &timer("k"), &far()).await;
    assert_eq!(made.status, 201, "{}", made.json);
    let seen = server.sql("SELECT id, key, phase, kind FROM shop.look('k', 'default')");
    assert_eq!(seen, format!("{}|k|pending|callback", made.json["id"].as_str().unwrap()));
    let node = "SELECT name, ttl FROM shop.node";
    until("the node has signed", || server.sql(node) == "by file|7000").await;
    assert_eq!(server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'tourbillon'"), "0");
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";
    until("the node listens", || server.sql(listening) == "1").await;
    assert_eq!(server.sql("SELECT n.listens FROM shop.node n"), "t");
    let sessions = "SELECT count(*) BETWEEN 2 AND 4 FROM pg_stat_activity WHERE usename = 'timers'";
    assert_eq!(server.sql(sessions), "t");
    // A change that waits for a lock is answered when the response timeout is over.
    let lock = "BEGIN; LOCK TABLE shop.timer IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(60)";
    let mut locked = server.psql("postgres").args(["-c", lock]).spawn().unwrap();
    let is_locked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    until("the table is locked", || server.sql(is_locked) == "1").await;
    let begin = Instant::now();
    let held_up = http.send("PUT", &timer("held-up"), &far()).await;
    assert_eq!(held_up.status, 503, "{}", held_up.json);
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    let _ended =
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    assert!(!locked.wait().unwrap().success());
    daemon.signal(Signal::TERM);
    assert!(daemon.end(SOON).success(), "{}", daemon.log());
    let check = run(folder.path(), &["check", "--config", "settings.toml"]);
    assert_eq!(text(&check.stdout), "the schema shop (version 1): 1 timers, 0 faults\n", "{check:?}");
}

/// Writes a backup of many timers into the file `backup`.
async fn write_large_backup(folder: &Path, count: usize) {
    let (first, timers, _) = lines(&filled(folder, 1).await);
    let copy = |number: usize| {
        let mut timer = timers[0].clone();
        timer["id"] = json!(TimerId::fresh().to_string());
        timer["key"] = json!(format!("copy {number}"));
        timer
    };
    let copies: Vec<_> = (0..count).map(copy).collect();
    fs::write(folder.join("backup"), sealed(&first, &copies)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_is_refused_beside_nodes_and_leaves_nothing_if_it_is_damaged_or_killed() {
    const COUNT: usize = 20_000;
    let Some(server) = Postgres::start(&[]) else { return };
    let folder = folder();
    write_large_backup(folder.path(), COUNT).await;
    let whole = fs::read(folder.path().join("backup")).unwrap();
    let url = server.url();
    let arguments = ["restore", "backup", "--postgres-server", &url];
    let restore = || {
        let ended = run(folder.path(), &arguments);
        (ended.status.code(), text(&ended.stdout) + &text(&ended.stderr))
    };
    fs::write(folder.path().join("backup"), &whole[..whole.len() / 2]).unwrap();
    let (code, said) = restore();
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'tourbillon'"), "0", "{said}");
    fs::write(folder.path().join("backup"), &whole).unwrap();

    let mut node = serve(folder.path(), &server, "one");
    let http = Http::new(node.address);
    let mut beside = String::new();
    until("the restore is refused beside a node", || {
        let (code, said) = restore();
        assert_eq!(code, Some(1), "{said}");
        beside = said;
        beside.contains("the schema tourbillon: stop its nodes first: ")
    })
    .await;
    assert_eq!(http.send("PUT", "/v1/namespaces/shop", &json!({ "max_timers": 7 })).await.status, 201);
    node.signal(Signal::TERM);
    assert!(node.end(SOON).success(), "{}", node.log());

    let count = "SELECT count(*) FROM tourbillon.timer";
    let under_way = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'INSERT INTO tourbillon.timer%'
        AND state LIKE ANY (ARRAY['active', 'idle in transaction'])";
    let mut killed = program(folder.path(), &arguments).spawn().unwrap();
    until("the restore has stored timers", || server.sql(under_way) == "1").await;
    killed.kill().unwrap();
    assert!(!killed.wait().unwrap().success(), "it was quicker than its end");
    until("the transaction is rolled back", || server.sql(under_way) == "0").await;
    assert_eq!(server.sql(count), "0");

    let (code, said) = restore();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("the schema tourbillon: {COUNT} timers restored")), "{said}");
    assert_eq!(server.sql(count), COUNT.to_string());
    let node = serve(folder.path(), &server, "one");
    let view = Http::new(node.address).get("/v1/namespaces/shop").await.json;
    assert_eq!(view["limits"]["max_timers"], 7, "the namespace stays: {view}");
    let (code, said) = restore();
    assert_eq!(code, Some(1), "{said}");
}

/// A node is killed in the middle of an operation. The other node ends the operation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_of_a_killed_node_is_ended_by_another() {
    const COUNT: &str = "20000";
    let Some(server) = Postgres::start(&[]) else { return };
    let folder = folder();
    let (one, two) = (serve(folder.path(), &server, "one"), serve(folder.path(), &server, "two"));
    let stored = server.sql(&format!(
        "SELECT count(tourbillon.schedule_callback('http://127.0.0.1:9999/', delay => '1 day', labels => '{{x}}'))
         FROM generate_series(1, {COUNT})"
    ));
    assert_eq!(stored, COUNT);
    let begun = Http::new(one.address);
    let begun =
        begun.send("POST", "/v1/namespaces/default/cancellations", &json!({ "label": "x" })).await.json;
    let count = "SELECT count(*) FROM tourbillon.timer";
    until("a part of the timers is cancelled", || server.sql(count) != COUNT).await;
    one.kill();
    let left = server.sql(count);
    eprintln!("{left} of {COUNT} timers were left when the node was killed");
    assert_ne!(left, "0", "the operation has ended before the kill");
    let http = Http::new(two.address);
    let path = format!("/v1/namespaces/default/operations/{}", begun["id"].as_str().unwrap());
    let begin = Instant::now();
    loop {
        let seen = http.get(&path).await.json;
        if seen["state"] == "done" {
            break;
        }
        assert!(seen["state"] == "running" && begin.elapsed() < 3 * SOON, "{seen}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    eprintln!("the other node ended the operation {:.2?} after the kill", begin.elapsed());
    assert_eq!(server.sql(count), "0");
    two.kill();
}

/// Timers that SQL has created: the id and the due moment of each, by the path of its callback.
#[derive(Default)]
struct Created(BTreeMap<String, (String, SystemTime)>);

impl Created {
    /// Creates a timer with the key `key` that is due after `delay`.
    fn create(&mut self, server: &Postgres, receiver: &Receiver, key: &str, delay: Duration) {
        let path = format!("/{key}");
        let due = (SystemTime::now() + delay).duration_since(UNIX_EPOCH).unwrap().as_millis();
        let id = server.sql(&format!(
            "SELECT tourbillon.schedule_callback('{}', due => to_timestamp({due} / 1000.0), key => '{key}')",
            receiver.url(&path)
        ));
        let due = UNIX_EPOCH + Duration::from_millis(u64::try_from(due).unwrap());
        assert_eq!(self.0.insert(path, (id, due)), None, "{key} is another timer's");
    }

    /// Checks that each timer was delivered, each time with its id, and never before its due moment. The receiver, the
    /// server and the nodes have the same clock. Returns the number of repeated deliveries.
    fn check(&self, log: &[Received]) -> usize {
        let mut paths = BTreeSet::new();
        for received in log {
            let (id, due) = &self.0[&received.path];
            assert_eq!(&received.id, id, "the id of {}", received.path);
            assert!(received.at >= *due, "{received:?} came before {due:?}");
            paths.insert(&received.path);
        }
        let lost: Vec<_> = self.0.keys().filter(|path| !paths.contains(path)).collect();
        assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), self.0.len());
        log.len() - paths.len()
    }
}

/// A kill may repeat deliveries. Each of them has the id of its timer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_nodes_and_the_server_are_killed() {
    let Some(mut server) = Postgres::start(&["fsync=on"]) else { return };
    let (folder, receiver) = (folder(), Receiver::start(Duration::ZERO).await);
    let mut created = Created::default();
    for round in 0..4 {
        let one = serve(folder.path(), &server, "one");
        let two = serve(folder.path(), &server, "two");
        for number in 0..40 {
            let delay = Duration::from_millis(number * 20);
            created.create(&server, &receiver, &format!("r{round}-{number}"), delay);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        if round % 2 == 1 {
            server.kill();
            tokio::time::sleep(Duration::from_millis(200)).await;
            server.run();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        one.kill();
        if round % 2 == 0 {
            two.kill();
        } else {
            drop(two);
        }
    }
    let last = serve(folder.path(), &server, "one");
    let count = "SELECT count(*) FROM tourbillon.timer";
    until("all timers have ended", || server.sql(count) == "0").await;
    let repeated = created.check(&receiver.log());
    eprintln!("{repeated} deliveries were repeated");
    last.kill();
    let check = run(folder.path(), &["check", "--data", "one", "--postgres-server", &server.url()]);
    assert!(check.status.success(), "{check:?}");
}

/// A node that stands still for longer than its time and its leases loses its shards and its timers to the other node.
/// The other node may repeat the deliveries that were under way. Each of them has the id of its timer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stands_still_holds_up_no_timer_for_long() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (folder, receiver) = (folder(), Receiver::start(Duration::ZERO).await);
    let (one, two) = (serve(folder.path(), &server, "one"), serve(folder.path(), &server, "two"));
    let mut created = Created::default();
    for round in 0..3 {
        for number in 0..20 {
            let delay = Duration::from_millis(number * 100);
            created.create(&server, &receiver, &format!("r{round}-{number}"), delay);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        one.signal(Signal::STOP);
        tokio::time::sleep(Duration::from_millis(3_000)).await;
        one.signal(Signal::CONT);
    }
    let count = "SELECT count(*) FROM tourbillon.timer";
    until("all timers have ended", || server.sql(count) == "0").await;
    // Wait for repeated deliveries that come late.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let repeated = created.check(&receiver.log());
    eprintln!("{repeated} deliveries were repeated");
    let takeovers = server.sql("SELECT sum(takeovers) FROM tourbillon.shard");
    assert!(takeovers.parse::<u32>().unwrap() > 0, "the other node took no shard over");
    one.kill();
    two.kill();
}

#[test]
fn a_start_on_a_schema_or_with_settings_that_do_not_fit_is_refused() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (folder, url) = (folder(), server.url());
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let refused = run(folder.path(), &[&["serve", "--listen", "127.0.0.1:0"], arguments].concat());
        let error = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(words) && !error.contains("hunter2"), "{arguments:?}: {error}");
    };
    refused(&["--postgres-server", "postgresql://u:hunter2@127.0.0.1/d"], 2, "must not have a password");
    refused(&["--postgres-server", "redis://127.0.0.1"], 2, "the address must look like");
    refused(&["--postgres-server", &url, "--redis-servers", "redis://127.0.0.1"], 2, "not set together");
    refused(&["--postgres-server", &url, "--postgres-ttl", "1ms"], 2, "postgres.ttl");
    refused(&["--postgres-server", &url, "--postgres-connections", "0"], 2, "postgres.connections");
    refused(&["--postgres-server", &url, "--postgres-response-timeout", "0s"], 2, "more than no time");
    refused(&["--postgres-password-file", "p"], 2, "names no server");
    refused(&["--postgres-certificates", "c"], 2, "postgres.certificates is for timers in PostgreSQL");
    refused(&["--postgres-server", &url, "--postgres-client-key", "k"], 2, "set together or not at all");
    refused(&["--postgres-server", &format!("{url}?sslmode=always")], 2, "sslmode is one of disable, prefer");
    refused(&["--postgres-server", &format!("{url}?sslmode=verify-ca")], 2, "needs an authority");
    let missing = ["--postgres-server", &url, "--postgres-certificates", "missing.pem"];
    refused(&missing, 1, "missing.pem cannot be read");
    let plain = format!("{url}?sslmode=disable");
    let contradiction = ["--postgres-server", &plain, "--postgres-certificates", "missing.pem"];
    refused(&contradiction, 2, "checks nothing with sslmode=disable");
    refused(&["--postgres-server", &format!("{url}?sslmode=require")], 1, "server does not support TLS");
    refused(&["--postgres-server", &url, "--postgres-schema", "A"], 2, "a schema has up to 63");
    refused(&["--postgres-server", &url, "--postgres-migrate=false"], 1, "does not exist");
    let check = run(folder.path(), &["check", "--postgres-server", &url]);
    assert!(text(&check.stderr).contains("does not exist"), "{check:?}");
    let _newer = server.sql(
        "CREATE SCHEMA tourbillon; CREATE TABLE tourbillon.migration (number int, at timestamptz);
         INSERT INTO tourbillon.migration VALUES (7, now())",
    );
    refused(&["--postgres-server", &url], 1, "the schema has version 7, and this program knows version 1");
    let answer = run(folder.path(), &["mend", "--postgres-server", &url]);
    assert_eq!(answer.status.code(), Some(1), "{answer:?}");
    assert!(
        text(&answer.stdout).contains("namespaces cannot be read: the store was written by a later"),
        "{answer:?}"
    );
}

/// Makes the server take connections of the user `node` with TLS and a client certificate only. Returns the arguments
/// for such connections. The files of the client are in `folder`.
fn secure(folder: &Path, server: &mut Postgres) -> Vec<String> {
    let authority = Authority::new("authority");
    let client = authority.user("node");
    server.secure(
        &authority.server(&["127.0.0.1"]),
        &authority.pem(),
        "hostssl all node 127.0.0.1/32 cert\n",
    );
    let _made = server.sql("CREATE ROLE node LOGIN SUPERUSER");
    for (name, text) in
        [("ca.pem", authority.pem()), ("node.pem", client.certificate), ("node.key", client.key)]
    {
        fs::write(folder.join(name), text).unwrap();
    }
    let words = [
        "--callbacks-allow-http",
        "--callbacks-allow-private",
        "--data",
        "one",
        "--postgres-client-certificate",
        "node.pem",
        "--postgres-client-key",
        "node.key",
        "--postgres-server",
        &format!("{}?sslmode=verify-full", server.url_of("node")),
    ];
    words.map(str::to_owned).to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_reaches_a_server_that_insists_on_tls_and_on_a_certificate() {
    let Some(mut server) = Postgres::start(&[]) else { return };
    let folder = folder();
    let shared = secure(folder.path(), &mut server);
    let mut arguments: Vec<&str> = shared.iter().map(String::as_str).collect();
    // The authorities of the system do not know the server's.
    let check = run(folder.path(), &[&["check"][..], &arguments].concat());
    assert!(text(&check.stderr).contains("authorit") && !check.status.success(), "{check:?}");
    // They can be given by a variable that many programs know.
    let mut command = program(folder.path(), &[&["--listen", "127.0.0.1:0"][..], &arguments].concat());
    command.env("SSL_CERT_FILE", "ca.pem");
    let mut daemon = Daemon::spawn(command);
    let http = Http::new(daemon.address);
    assert_eq!(http.send("PUT", &timer("k"), &far()).await.status, 201);
    let seen =
        "SELECT count(*) FILTER (WHERE ssl AND client_dn = '/CN=node') > 0, count(*) FILTER (WHERE NOT ssl)
                FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'node'";
    assert_eq!(server.sql(seen), "t|0");
    daemon.signal(Signal::TERM);
    assert!(daemon.end(SOON).success(), "{}", daemon.log());
    arguments.extend(["--postgres-certificates", "ca.pem"]);
    let check = run(folder.path(), &[&["check"][..], &arguments].concat());
    assert_eq!(text(&check.stdout), "the schema tourbillon (version 1): 1 timers, 0 faults\n", "{check:?}");
}
