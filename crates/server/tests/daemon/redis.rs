//! Tests the program on Redis: with settings from a file only, beside another node, and with a restore into Redis that
//! was killed. Without `redis-server`, the tests say that they were skipped.

use crate::clients::{Http, far, timer};
use crate::moves::{contents, fill};
use crate::process::{Daemon, SOON, folder, program, run, text};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tourbillon_durable::store::{Durability, IfPresent, Op, TimerStore as _};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::{Cluster, Server};
use tourbillon_redis::{Connect, RedisStore};

/// Writes a settings file for a service on the Redis server `server`. The lines in `more` are added to the section
/// `redis`.
fn configure(folder: &Path, server: &Server, more: &str) {
    let text = format!("[redis]\nservers = [\"{}\"]\n{more}", server.url());
    fs::write(folder.join("redis.toml"), text).unwrap();
}

/// Starts a service on the Redis servers that the settings file names. The data folder of the service is `data`.
pub(crate) fn on_redis(folder: &Path, data: &str) -> Daemon {
    let arguments = [
        "--callbacks-allow-http",
        "--callbacks-allow-private",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data,
        "--config",
        "redis.toml",
    ];
    Daemon::spawn(program(folder, &arguments))
}

fn stop(mut daemon: Daemon) {
    daemon.signal(Signal::TERM);
    assert!(daemon.end(SOON).success(), "{}", daemon.log());
}

async fn open(server: &Server) -> RedisStore {
    RedisStore::builder("tourbillon").open(&Connect::single(&server.url()).unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_daemons_run_on_redis_by_their_file_alone() {
    let Some(server) = Server::start(&["--appendonly", "yes"]) else { return };
    server.command(&["CONFIG", "SET", "requirepass", "hunter2"]);
    let folder = folder();
    fs::write(folder.path().join("password"), "hunter2\n").unwrap();
    configure(folder.path(), &server, "password_file = \"password\"\nnode = \"first\"\nshards = 8\n");
    let (one, two) = (on_redis(folder.path(), "one"), on_redis(folder.path(), "two"));
    let (http, other) = (Http::new(one.address), Http::new(two.address));
    let made = http.send("PUT", &timer("k"), &far()).await;
    assert_eq!(made.status, 201, "{}", made.json);
    let seen = other.send("GET", &timer("k"), &Value::Null).await;
    assert_eq!(seen.json["id"], made.json["id"]);
    let begun = Instant::now();
    loop {
        let nodes = other.send("GET", "/v1/nodes", &Value::Null).await.json;
        let shares: Vec<_> = nodes["nodes"].as_array().unwrap().iter().map(|node| &node["shards"]).collect();
        let has_all = shares.iter().filter_map(|shards| shards.as_u64()).sum::<u64>() == 8;
        if shares.len() == 2 && has_all {
            assert!(nodes["shared"] == true && nodes["nodes"][0]["name"] == "first", "{nodes}");
            break;
        }
        assert!(begun.elapsed() < 3 * SOON, "the nodes share the shards: {nodes}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!folder.path().join("one/timers.redb").exists(), "no file has timers");
    let again = run(folder.path(), &["--config", "redis.toml", "--data", "one", "--listen", "127.0.0.1:0"]);
    assert!(text(&again.stderr).contains("another service uses this folder"), "{again:?}");
    stop(one);
    stop(two);
    let check = run(folder.path(), &["check", "--config", "redis.toml"]);
    assert!(check.status.success(), "{check:?}");
    let lines = text(&check.stdout);
    for part in ["append-only file", "maxmemory-policy", "the deployment tourbillon: 1 timers, 0 faults"] {
        assert!(lines.contains(part), "{part} is not in {lines}");
    }
    let check = run(folder.path(), &["check", "--json", "--config", "redis.toml"]);
    let check: Value = serde_json::from_str(&text(&check.stdout)).unwrap();
    assert_eq!((&check["timers"], &check["faults"]), (&json!(1), &json!([])));
    assert!(check["servers"].as_array().is_some_and(|lines| !lines.is_empty()), "{check}");
}

#[test]
fn a_check_on_redis_names_a_damaged_file_in_the_data_folder() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = folder();
    configure(folder.path(), &server, "");
    fs::create_dir(folder.path().join("data")).unwrap();
    fs::write(folder.path().join("data/tokens.json"), "{").unwrap();
    let check = run(folder.path(), &["check", "--json", "--config", "redis.toml", "--data", "data"]);
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    let check: Value = serde_json::from_str(&text(&check.stdout)).unwrap();
    let faults = check["faults"].as_array().unwrap();
    assert!(faults[0].as_str().unwrap().contains("tokens.json"), "{check}");
}

#[test]
fn a_check_on_redis_names_no_damaged_file_that_the_service_does_not_read() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = folder();
    configure(folder.path(), &server, "");
    fs::create_dir(folder.path().join("data")).unwrap();
    let check = || {
        let check = run(folder.path(), &["check", "--json", "--config", "redis.toml", "--data", "data"]);
        let shown: Value = serde_json::from_str(&text(&check.stdout)).unwrap();
        (check.status.success(), shown["faults"].clone())
    };
    // A check makes no deployment, so a service makes it.
    stop(on_redis(folder.path(), "other"));
    // The namespaces are in Redis, so no start reads this file.
    fs::write(folder.path().join("data/namespaces.json"), "{").unwrap();
    assert_eq!(check(), (true, json!([])));
    // A start reads the operations of a node from this file, even if the document in Redis replaces it from then on.
    fs::write(folder.path().join("data/operations.json"), "{").unwrap();
    let (is_sound, faults) = check();
    assert!(!is_sound && faults.to_string().contains("operations.json"), "{faults}");
    let serve = ["serve", "--config", "redis.toml", "--data", "data", "--listen", "127.0.0.1:0"];
    let refused = run(folder.path(), &serve);
    assert!(text(&refused.stderr).contains("operations.json"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_on_servers_that_are_not_fit_ends_as_with_a_wrong_setting() {
    let Some(server) = Server::start(&["--maxmemory-policy", "allkeys-lru"]) else { return };
    let folder = folder();
    configure(folder.path(), &server, "");
    let serve = |more: &[&str]| {
        run(folder.path(), &[&["serve", "--config", "redis.toml", "--listen", "127.0.0.1:0"], more].concat())
    };
    let refused = serve(&[]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("allkeys-lru"), "{refused:?}");
    let check = run(folder.path(), &["check", "--config", "redis.toml"]);
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    assert!(text(&check.stdout).contains("refusal"), "{check:?}");
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    drop(open(&server).await);
    let refused = serve(&["--redis-shards", "16"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("64 shards"), "{refused:?}");
    for (arguments, words) in [
        (&["--redis-servers", "redis://u:hunter2@127.0.0.1"][..], "must not have a password"),
        (&["--redis-sentinel", "a", "--redis-cluster"], "not set together"),
        (&["--redis-servers", "redis://127.0.0.1,redis://127.0.0.2"], "several are Sentinels"),
        (&["--redis-shards", "48"], "a power of two"),
        (&["--redis-sync", "wait:1"], "--redis-sync"),
        (&["--redis-username", "u"], "needs redis.password_file"),
        (&["--redis-certificates", "c"], "rediss://"),
        (&["--redis-client-key", "c"], "set together"),
        (&["--redis-deployment", "a b"], "redis.deployment"),
        (&["--redis-patience", "0s"], "redis.patience"),
    ] {
        let refused = serve(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {refused:?}");
        let error = text(&refused.stderr);
        assert!(error.contains(words) && !error.contains("hunter2"), "{arguments:?}: {error}");
    }
    let alone = run(folder.path(), &["serve", "--redis-cluster"]);
    assert!(alone.status.code() == Some(2) && text(&alone.stderr).contains("names no server"), "{alone:?}");
    drop(server);
    // A server that cannot be reached now may be back at the next start. So the exit code asks the service manager to
    // try again.
    let away = serve(&["--redis-connect-timeout", "100ms", "--redis-patience", "200ms"]);
    assert_eq!(away.status.code(), Some(1), "{away:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_its_server_has_lost_is_named_and_brought_back_by_a_command() {
    let Some(server) = Server::start(&["--appendonly", "yes"]) else { return };
    let folder = folder();
    configure(folder.path(), &server, "shards = 1\n");
    let daemon = on_redis(folder.path(), "one");
    let http = Http::new(daemon.address);
    assert_eq!(http.send("PUT", &timer("k"), &far()).await.status, 201);
    let metas: Vec<String> = server.query(&["KEYS", "tb:{tourbillon:0.*}:meta"]);
    assert_eq!(metas.len(), 1, "{metas:?}");
    server.command(&["DEL", &metas[0]]);
    let refused = http.send("PUT", &timer("another"), &far()).await;
    assert_eq!(refused.status, 503, "{}", refused.json);
    assert!(refused.json.to_string().contains("shard 0 is lost"), "{}", refused.json);
    let check = run(folder.path(), &["check", "--config", "redis.toml"]);
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    assert!(text(&check.stdout).contains("shard 0 is lost"), "{check:?}");
    let mended = run(folder.path(), &["mend", "--config", "redis.toml"]);
    assert!(mended.status.success(), "{mended:?}");
    assert!(text(&mended.stdout).contains("1 of 1 shards were lost, and are back"), "{mended:?}");
    assert_eq!(http.send("PUT", &timer("another"), &far()).await.status, 201);
    let mended = run(folder.path(), &["mend", "--json", "--config", "redis.toml"]);
    let mended: Value = serde_json::from_str(&text(&mended.stdout)).unwrap();
    let nothing = json!({ "shards": 1, "marked": [], "key": false, "silent": [], "namespaces": "kept" });
    assert_eq!(mended, nothing);

    // All data of the deployment are lost. The running service goes on once the deployment is made again, with the
    // namespaces that it knows.
    let limits = json!({ "paused": true, "allowed_hosts": ["receiver.test"] });
    assert_eq!(http.send("PUT", "/v1/namespaces/shop", &limits).await.status, 201);
    server.command(&["FLUSHALL"]);
    let condition = async |status: u16| {
        let begun = Instant::now();
        while http.get("/healthz").await.status != status {
            assert!(
                begun.elapsed() < 3 * SOON,
                "/healthz is not {status}: {}",
                http.get("/healthz").await.json
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    condition(503).await;
    // A check names the loss each time, and does not hide it by an empty deployment.
    for _ in 0..2 {
        let check = run(folder.path(), &["check", "--config", "redis.toml"]);
        assert_eq!(check.status.code(), Some(1), "{check:?}");
        assert!(text(&check.stdout).contains("the servers have no timers under this name"), "{check:?}");
    }
    let mended = run(folder.path(), &["mend", "--config", "redis.toml"]);
    assert!(text(&mended.stderr).contains("--anew"), "{mended:?}");
    let made = run(folder.path(), &["mend", "--anew", "--config", "redis.toml"]);
    assert!(made.status.success() && text(&made.stdout).contains("put its copy there"), "{made:?}");
    condition(200).await;
    assert_eq!(http.get("/v1/namespaces/shop").await.json["limits"], limits);
    // Only the documents are lost. The command for a deployment of which nothing is left drops no copy.
    server.command(&["DEL", "tb:{tourbillon}:notes"]);
    let made = run(folder.path(), &["mend", "--anew", "--config", "redis.toml"]);
    assert!(made.status.success() && text(&made.stdout).contains("put its copy there"), "{made:?}");
    assert_eq!(http.get("/v1/namespaces/shop").await.json["limits"], limits);
    assert_eq!(http.send("PUT", &timer("new"), &far()).await.status, 201);
    stop(daemon);
}

/// Tests a server that loses the shared documents, and keeps all else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_that_the_server_has_lost_are_kept_by_the_nodes_and_put_back_by_a_command() {
    let Some(server) = Server::start(&["--appendonly", "yes"]) else { return };
    let folder = folder();
    configure(folder.path(), &server, "shards = 1\n");
    let daemon = on_redis(folder.path(), "one");
    let http = Http::new(daemon.address);
    let (shop, limits) = ("/v1/namespaces/shop", json!({ "paused": true, "max_timers": 7 }));
    assert_eq!(http.send("PUT", shop, &limits).await.status, 201);
    let in_shop = "/v1/namespaces/shop/timers/k";
    assert_eq!(http.send("PUT", in_shop, &far()).await.status, 201);
    let lose = || server.command(&["DEL", "tb:{tourbillon}:notes"]);
    let ready = async |status: u16| {
        let begun = Instant::now();
        while http.get("/readyz").await.status != status {
            assert!(begun.elapsed() < SOON, "{}", http.get("/readyz").await.json);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // The key of the deployment itself is lost and made again first, which keeps the documents.
    server.command(&["DEL", "tb:{tourbillon}:deployment"]);
    let mended = run(folder.path(), &["mend", "--config", "redis.toml"]);
    let words = text(&mended.stdout);
    assert!(mended.status.success() && words.contains("its own key was lost"), "{mended:?}");
    assert!(!words.contains("namespaces"), "{words}");
    ready(200).await;
    lose();
    ready(503).await;
    assert!(http.get("/readyz").await.json.to_string().contains("tourbillond mend"));
    assert_eq!(http.get(shop).await.json["limits"], limits);
    assert_eq!(http.send("PUT", "/v1/namespaces/other", &json!({})).await.status, 503);
    let check = run(folder.path(), &["check", "--config", "redis.toml"]);
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    assert!(text(&check.stdout).contains("the shared document of the namespaces: lost"), "{check:?}");
    let mended = run(folder.path(), &["mend", "--config", "redis.toml"]);
    assert!(mended.status.success() && text(&mended.stdout).contains("put its copy there"), "{mended:?}");
    ready(200).await;
    assert_eq!(http.get(shop).await.json["limits"], limits);
    assert!(daemon.log().contains("the store has lost the document of the namespaces"), "{}", daemon.log());
    stop(daemon);
    // Without a node that runs, nobody has a copy. A start is refused until people accept the loss.
    lose();
    let refused =
        run(folder.path(), &["serve", "--config", "redis.toml", "--data", "two", "--listen", "127.0.0.1:0"]);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(text(&refused.stderr).contains("has lost the document of its namespaces"), "{refused:?}");
    let mended = run(folder.path(), &["mend", "--config", "redis.toml"]);
    assert!(mended.status.success() && text(&mended.stdout).contains("are lost"), "{mended:?}");
    let daemon = on_redis(folder.path(), "one");
    assert_eq!(Http::new(daemon.address).get(shop).await.json["limits"], json!({}));
    stop(daemon);
}

/// Creates timers one after another. Returns the number of timers that the service has accepted, and the longest time
/// for an accepted creation.
async fn place(http: &Http, kind: &str, count: usize) -> (usize, Duration) {
    let (mut made, mut slowest) = (0, Duration::ZERO);
    for number in 0..count {
        let begun = Instant::now();
        let answer = http.send("PUT", &timer(&format!("{kind}{number}")), &far()).await;
        match answer.status.as_u16() {
            201 => (made, slowest) = (made + 1, slowest.max(begun.elapsed())),
            503 => {}
            _ => panic!("{}", answer.json),
        }
    }
    (made, slowest)
}

/// Kills one of three Redis primaries together with its replica. Checks that the service still creates timers in the
/// shards of the other primaries.
async fn goes_on_without_a_primary(cluster: &mut Cluster, folder: &Path, victim: usize) {
    const COUNT: usize = 30;
    let text = format!("[redis]\nservers = {:?}\ncluster = true\npatience = \"1s\"\n", cluster.urls());
    fs::write(folder.join("redis.toml"), text).unwrap();
    let daemon = on_redis(folder, "one");
    let http = Http::new(daemon.address);
    assert_eq!(place(&http, "before", COUNT).await.0, COUNT);
    cluster.nodes[victim + 3].kill();
    cluster.nodes[victim].kill();
    let _some = place(&http, "at-once", COUNT / 3).await;
    let (made, slowest) = place(&http, "after", COUNT).await;
    eprintln!("{made} of {COUNT} are taken while a third of the shards is away, the slowest in {slowest:?}");
    assert!(made >= COUNT / 3, "{made}");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    for number in 0..6 {
        let ready = http.get("/readyz").await;
        assert_eq!(ready.status, 200, "{}", ready.json);
        let _maybe = place(&http, &format!("ready{number}"), 1).await;
    }
    stop(daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_stays_away_stops_no_creations_in_other_shards_and_leaves_a_node_ready() {
    let Some(mut cluster) = Cluster::start(&["--cluster-require-full-coverage", "no"]) else { return };
    let registry = cluster.owner(0, cluster.slot("tb:{tourbillon}:nodes")).unwrap();
    let folder = folder();
    goes_on_without_a_primary(&mut cluster, folder.path(), (registry + 1) % 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_with_the_list_of_nodes_that_stays_away_stops_no_creations_in_other_shards() {
    let Some(mut cluster) = Cluster::start(&["--cluster-require-full-coverage", "no"]) else { return };
    let registry = cluster.owner(0, cluster.slot("tb:{tourbillon}:nodes")).unwrap();
    let folder = folder();
    goes_on_without_a_primary(&mut cluster, folder.path(), registry).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_that_is_half_restored_is_opened_by_no_service_and_restored_again() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = folder();
    configure(folder.path(), &server, "");
    let daemon = Daemon::start(folder.path(), &[]);
    let backup = fill(&Http::new(daemon.address)).await;
    stop(daemon);
    fs::write(folder.path().join("backup"), &backup).unwrap();
    let restore = || {
        let ended = run(folder.path(), &["restore", "backup", "--config", "redis.toml"]);
        (ended.status.code(), text(&ended.stdout) + &text(&ended.stderr))
    };
    // A killed restore leaves behind the document `restoring`, which says that the restore has found the deployment
    // empty, and some timers. The ids of these timers may be in the
    // backup, too.
    let store = open(&server).await;
    let (timers, _) = contents(&backup);
    let id: TimerId = timers[0]["id"].as_str().unwrap().parse().unwrap();
    for id in [id, TimerId::fresh()] {
        let half = Timer { has_chosen_id: true, ..Timer::new(id, "half", store.now()) };
        store.apply(vec![Op::Place(Box::new(half), IfPresent::Reject)], Durability::PowerLoss).await.unwrap();
    }
    let long_ago = store.now().as_millis() - 1;
    let until = |moment: u64| format!("{moment} empty").into_bytes();
    assert!(
        store.replace_document("restoring", 0, Some(&until(long_ago + 3_600_000))).await.unwrap().is_some()
    );
    let (code, said) = restore();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("another restore is under way"), "{said}");
    let version = store.document("restoring").await.unwrap().unwrap().version;
    assert!(store.replace_document("restoring", version, Some(&until(long_ago))).await.unwrap().is_some());

    let serve =
        run(folder.path(), &["serve", "--config", "redis.toml", "--listen", "127.0.0.1:0", "--data", "node"]);
    assert_eq!(serve.status.code(), Some(1), "{serve:?}");
    assert!(
        text(&serve.stderr).contains("a restore into the deployment tourbillon has not ended"),
        "{serve:?}"
    );
    let (code, said) = restore();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(store.document("restoring").await.unwrap(), None);
    let daemon = on_redis(folder.path(), "node");
    let (_, again) = Http::new(daemon.address).bytes("POST", "/v1/backup").await.expect("a whole answer");
    assert_eq!(contents(&again), contents(&backup), "without what was half restored");
    stop(daemon);

    // The restore of a damaged backup leaves the deployment as it was.
    server.command(&["FLUSHALL"]);
    fs::write(folder.path().join("backup"), &backup[..backup.len() / 2]).unwrap();
    let (code, said) = restore();
    assert_eq!(code, Some(1), "{said}");
    let keys: i64 = server.query(&["DBSIZE"]);
    assert_eq!(keys, 0, "{said}");
}

/// A restore is killed after it has written its note, and before it has found out that the deployment has timers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_was_killed_before_its_check_lets_the_next_restore_remove_no_timers() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = folder();
    configure(folder.path(), &server, "");
    let daemon = on_redis(folder.path(), "node");
    let backup = fill(&Http::new(daemon.address)).await;
    stop(daemon);
    fs::write(folder.path().join("backup"), &backup).unwrap();
    let store = open(&server).await;
    let long_ago = (store.now().as_millis() - 1).to_string();
    assert!(store.replace_document("restoring", 0, Some(long_ago.as_bytes())).await.unwrap().is_some());
    let restore = run(folder.path(), &["restore", "backup", "--config", "redis.toml"]);
    let said = text(&restore.stderr);
    assert!(restore.status.code() == Some(1) && said.contains("has timers; a restore needs"), "{said}");
    assert_eq!(store.document("restoring").await.unwrap(), None);
    let daemon = on_redis(folder.path(), "node");
    let (_, again) = Http::new(daemon.address).bytes("POST", "/v1/backup").await.expect("a whole answer");
    assert_eq!(contents(&again), contents(&backup), "no timer is removed");
    stop(daemon);
}

/// A restore is killed while it stores timers. The next restore fails before it has removed them, since a
/// node is running.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_fails_after_a_killed_restore_leaves_the_note_over_its_timers() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = folder();
    configure(folder.path(), &server, "");
    let daemon = on_redis(folder.path(), "node");
    let backup = fill(&Http::new(daemon.address)).await;
    fs::write(folder.path().join("backup"), &backup).unwrap();
    let store = open(&server).await;
    let restore = || run(folder.path(), &["restore", "backup", "--config", "redis.toml"]);
    // The node, too, revokes the note's permission now and then. If it comes first, the restore removes the note.
    let mut is_left = false;
    for _ in 0..10 {
        let killed = format!("{} empty", store.now().as_millis() - 1);
        assert!(store.replace_document("restoring", 0, Some(killed.as_bytes())).await.unwrap().is_some());
        let refused = restore();
        assert!(text(&refused.stderr).contains("stop its nodes first"), "{refused:?}");
        is_left = store.document("restoring").await.unwrap().is_some();
        if is_left {
            break;
        }
    }
    assert!(is_left, "no service opens the deployment");
    stop(daemon);
    let serve = run(folder.path(), &["serve", "--config", "redis.toml", "--listen", "127.0.0.1:0"]);
    assert!(text(&serve.stderr).contains("has not ended: run `tourbillond restore` again"), "{serve:?}");
    // The next restore may still remove the timers, and need not wait.
    let restored = restore();
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(store.document("restoring").await.unwrap(), None);
    let daemon = on_redis(folder.path(), "node");
    let (_, again) = Http::new(daemon.address).bytes("POST", "/v1/backup").await.expect("a whole answer");
    assert_eq!(contents(&again), contents(&backup));
    stop(daemon);
}

/// Asks a node how many shards each live node owns. Returns a number of shards for each live node.
async fn shares(http: &Http) -> Vec<u64> {
    let view = http.send("GET", "/v1/nodes", &Value::Null).await.json;
    let live = view["nodes"].as_array().unwrap().iter().filter(|node| node["live"] == true);
    live.filter_map(|node| node["shards"].as_u64()).collect()
}

/// Waits until `nodes` nodes have divided the shards among themselves. Returns the time that this took.
async fn divided(http: &Http, nodes: usize) -> Duration {
    let begun = Instant::now();
    loop {
        let shares = shares(http).await;
        if shares.len() == nodes && shares.iter().all(|share| *share > 0) && shares.iter().sum::<u64>() == 64
        {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < 3 * SOON, "{nodes} nodes share the shards: {shares:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_is_replaced_at_once_and_one_that_sleeps_after_its_time() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = folder();
    configure(folder.path(), &server, "");
    let (one, two) = (on_redis(folder.path(), "one"), on_redis(folder.path(), "two"));
    let http = Http::new(one.address);
    divided(&http, 2).await;
    // By now, each node knows that the other's connection to the server is open.
    tokio::time::sleep(Duration::from_secs(2)).await;
    two.signal(Signal::STOP);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        let shares = shares(&http).await;
        assert_eq!(shares.len(), 2, "a node that sleeps keeps its shards for its ttl: {shares:?}");
        assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    two.signal(Signal::CONT);
    divided(&http, 2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    two.kill();
    let took = divided(&http, 1).await;
    eprintln!("the shards of the killed node were taken after {took:.2?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    // The setting `ttl` is the time after which a sleeping node loses its shards.
    configure(folder.path(), &server, "ttl = \"2s\"\n");
    let three = on_redis(folder.path(), "three");
    divided(&http, 2).await;
    three.signal(Signal::STOP);
    let took = divided(&http, 1).await;
    eprintln!("the shards of the sleeping node with a ttl of 2 s were taken after {took:.2?}");
    assert!(took > Duration::from_secs(1) && took < Duration::from_secs(6), "{took:?}");
    drop(three);
    stop(one);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_changes_is_read_again_for_each_connection() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = folder();
    server.command(&["CONFIG", "SET", "requirepass", "first"]);
    fs::write(folder.path().join("password"), "first\n").unwrap();
    configure(folder.path(), &server, "password_file = \"password\"\n");
    let daemon = on_redis(folder.path(), "data");
    let http = Http::new(daemon.address);
    assert_eq!(http.send("PUT", &timer("a"), &far()).await.status, 201);
    let command = |password: &str, words: &[&str]| server.command_as(password, words);
    command("first", &["CONFIG", "SET", "requirepass", "second"]);
    fs::write(folder.path().join("password"), "second\n").unwrap();
    command("second", &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    command("second", &["CLIENT", "KILL", "TYPE", "pubsub"]);
    let begun = Instant::now();
    loop {
        let made = http.send("PUT", &timer("b"), &far()).await;
        if made.status == 201 {
            break;
        }
        assert!(begun.elapsed() < SOON, "{}", made.json);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop(daemon);
}
