//! The link against real servers, and a proxy that does harm.

use super::{Connect, Link, LinkError, Session, SyncPolicy, Tls};
use crate::examine::{Grade, check};
use crate::script::Script;
use core::time::Duration;
use pollster::block_on;
use redis::Value;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_fault::{Cluster, Fate, Proxy, Server, Watched, eventually, eventually_some, free_port};

static COUNT: Script = Script::new("count", "return redis.call('INCRBY', KEYS[1], ARGV[1])");
/// Writes, and fails then.
static HALF: Script = Script::new("half", "redis.call('INCR', KEYS[1]) return redis.call('NONSENSE')");
static OWN_ERROR: Script = Script::new("own_error", "return redis.error_reply('FENCED by another')");
static TWO: Script = Script::new("two", "return redis.call('INCR', KEYS[1]) + redis.call('INCR', KEYS[2])");
static LARGE: Script = Script::new("large", "redis.call('SET', KEYS[1], string.rep('x', ARGV[1])) return 1");

/// What a test waits for where a faster answer is of no use.
const LONG: Duration = Duration::from_secs(120);

fn open(connect: &Connect) -> Session {
    Session::open(connect).expect("a session")
}

fn single(url: &str) -> Connect {
    Connect::single(url).expect("a URL").patience(LONG).response_timeout(LONG)
}

fn run(
    session: &Session,
    script: &'static Script,
    keys: &[&str],
    arguments: &[&str],
) -> Result<Value, LinkError> {
    let bytes = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
    block_on(session.run(script, bytes(keys), bytes(arguments).into()))
}

fn count(session: &Session, key: &str) -> Result<i64, LinkError> {
    match run(session, &COUNT, &[key], &["1"])? {
        Value::Int(count) => Ok(count),
        other => panic!("a number, not {other:?}"),
    }
}

/// Counts, and waits until that is as safe as the policy asks.
fn count_safely(session: &Session, key: &str) -> Result<i64, LinkError> {
    let (keys, one) = (vec![key.as_bytes().to_vec()], vec![b"1".to_vec()]);
    let (count, witness) = block_on(session.run_before_witness(&COUNT, keys, one.into()))?;
    block_on(witness.expect("the policy has a witness").confirm())?;
    let Value::Int(count) = count else { panic!("a number, not {count:?}") };
    Ok(count)
}

/// The number in the server, which the script has counted.
fn counted(server: &Server, key: &str) -> i64 {
    server.query::<Option<i64>>(&["GET", key]).unwrap_or(0)
}

#[test]
fn a_script_is_sent_by_name_and_with_its_text_where_the_server_does_not_have_it() {
    let Some(server) = Server::start(&[]) else { return };
    let session = open(&single(&server.url()));
    assert_eq!(count(&session, "a").expect("a count"), 1);
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(count(&session, "a").expect("a count"), 2);
    assert_eq!(count(&session, "a").expect("a count"), 3);
    let sent: String = server.query(&["INFO", "commandstats"]);
    // Two by name that failed, two with the text, one by name.
    assert!(sent.contains("cmdstat_eval:calls=2"), "{sent}");
    assert!(sent.contains("cmdstat_evalsha:calls=3"), "{sent}");
}

#[test]
fn calls_share_a_connection_and_none_waits_for_another_caller() {
    let Some(server) = Server::start(&[]) else { return };
    let session = open(&single(&server.url()));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..100).for_each(|_| assert!(count(&session, "a").is_ok())));
        }
    });
    assert_eq!(counted(&server, "a"), 800);
    // A call whose future is dropped is sent all the same.
    drop(session.run(&COUNT, vec![b"b".to_vec()], vec![b"1".to_vec()].into()));
    eventually("the call arrives", || counted(&server, "b") == 1);
}

#[test]
fn a_lost_reply_leaves_open_whether_the_script_ran() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    let session = open(&single(&proxy.url()).response_timeout(Duration::from_secs(1)));
    eventually("the connection works", || count(&session, "ready").is_ok());
    proxy.doom(Fate::LoseReplies);
    let start = Instant::now();
    let error = count(&session, "a").expect_err("a lost reply");
    assert!(error.may_have_run(), "{error}");
    assert_eq!(StoreError::from(error).kind(), StoreErrorKind::Unknown);
    assert!(start.elapsed() >= Duration::from_secs(1));
    eventually("the script has run", || counted(&server, "a") == 1);
    // On another connection.
    eventually("a reply arrives", || count(&session, "a").is_ok());
}

#[test]
fn a_half_open_connection_is_replaced() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    let session = open(&single(&proxy.url()).response_timeout(Duration::from_secs(1)));
    eventually("the connection works", || count(&session, "ready").is_ok());
    proxy.doom(Fate::Silence);
    let error = count(&session, "a").expect_err("silence");
    assert!(error.may_have_run(), "{error}");
    eventually("a reply arrives", || count(&session, "b").is_ok());
    assert_eq!(counted(&server, "a"), 0, "what was lost on the way has not run");
    assert!(proxy.accepted() >= 2);
}

#[test]
fn a_cut_connection_leaves_open_whether_the_script_ran_and_is_replaced() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    let session = open(&single(&proxy.url()));
    eventually("the connection works", || count(&session, "ready").is_ok());
    proxy.doom(Fate::LoseReplies);
    let lost = proxy.lost_replies();
    let error = thread::scope(|scope| {
        let call = scope.spawn(|| count(&session, "a"));
        eventually("the reply is lost", || proxy.lost_replies() > lost);
        proxy.cut();
        call.join().expect("a call").expect_err("a cut connection")
    });
    assert!(error.may_have_run(), "{error}");
    assert_eq!(counted(&server, "a"), 1);
    assert_eq!(count(&session, "a").expect("a reply"), 2);
}

#[test]
fn the_end_of_a_connection_is_noticed_without_a_call() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    let session = open(&single(&proxy.url()));
    for round in 1..=3 {
        assert_eq!(count(&session, "a").expect("a reply, though the connection ended"), round);
        let before = proxy.accepted();
        proxy.cut();
        eventually("another connection is made", || proxy.accepted() > before);
    }
}

#[test]
fn without_a_connection_a_call_waits_and_surely_has_not_run() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    proxy.greet(Fate::Refuse);
    let impatient = open(&single(&proxy.url()).patience(Duration::from_millis(300)));
    let error = count(&impatient, "a").expect_err("no connection");
    assert!(!error.may_have_run(), "{error}");
    let text = error.to_string();
    assert!(text.contains("no connection to 127.0.0.1"), "{text}");
    assert_eq!(StoreError::from(error).kind(), StoreErrorKind::Io);
    // A call that waits is sent once there is a connection.
    let session = open(&single(&proxy.url()));
    thread::scope(|scope| {
        let call = scope.spawn(|| count(&session, "a"));
        let before = proxy.accepted();
        eventually("more attempts", || proxy.accepted() > before + 2);
        proxy.greet(Fate::Pass);
        assert_eq!(call.join().expect("a call").expect("a reply"), 1);
    });
}

#[test]
fn a_server_that_is_killed_and_started_again_needs_no_new_client() {
    let Some(mut server) = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let session = open(&single(&server.url()));
    for round in 1..=3 {
        let mut runs = 0;
        // The connection's end may be seen only by a call.
        eventually("a call succeeds", || {
            runs += 1;
            count(&session, &format!("round {round}, {runs}")).is_ok()
        });
        assert_eq!(count(&session, "kept").expect("a reply"), round);
        server.kill();
        server.restart();
    }
    eventually("a call succeeds", || count(&session, "ready").is_ok());
    assert_eq!(counted(&server, "kept"), 3);
}

#[test]
fn a_stopped_server_is_waited_for_no_longer_than_the_limit() {
    let Some(server) = Server::start(&[]) else { return };
    let connect = single(&server.url())
        .response_timeout(Duration::from_millis(500))
        .patience(Duration::from_millis(500));
    let session = open(&connect.connection_timeout(Duration::from_millis(500)));
    eventually("the connection works", || count(&session, "ready").is_ok());
    server.stop();
    let error = count(&session, "a").expect_err("no reply");
    assert!(error.may_have_run(), "{error}");
    // Now there is no connection: the system accepts one for the server, which does not answer the greeting.
    let error = eventually_some("calls that have surely not run", || {
        count(&session, "b").err().filter(|error| !error.may_have_run())
    });
    assert!(error.to_string().contains("could not be sent"), "{error}");
    server.go_on();
    eventually("a call succeeds", || count(&session, "ready").is_ok());
}

#[test]
fn a_server_that_is_busy_with_another_script_is_waited_for() {
    let Some(server) = Server::start(&["--busy-reply-threshold", "50"]) else { return };
    let session = open(&single(&server.url()));
    assert_eq!(count(&session, "a").expect("a reply"), 1);
    thread::scope(|scope| {
        scope.spawn(|| drop(server.try_query::<Value>(&["EVAL", "while true do end", "0"])));
        eventually("the server is busy", || {
            server.try_query::<Value>(&["GET", "a"]).is_err_and(|error| error.code() == Some("BUSY"))
        });
        let call = scope.spawn(|| count(&session, "a"));
        let impatient = open(&single(&server.url()).patience(Duration::from_millis(200)));
        let error = count(&impatient, "a").expect_err("a busy server");
        assert!(!error.may_have_run(), "{error}");
        eventually("the script is ended", || server.try_query::<Value>(&["SCRIPT", "KILL"]).is_ok());
        assert_eq!(call.join().expect("a call").expect("a reply"), 2);
    });
}

#[test]
fn errors_say_whether_the_script_may_have_run() {
    let Some(server) = Server::start(&[]) else { return };
    let session = open(&single(&server.url()));
    let error = run(&session, &HALF, &["half"], &[]).expect_err("an error in the middle");
    assert!(error.may_have_run(), "{error}");
    assert_eq!(counted(&server, "half"), 1);
    let error = run(&session, &OWN_ERROR, &[], &[]).expect_err("an error of the script's own");
    assert!(!error.may_have_run(), "{error}");
    assert_eq!(error.code(), Some("FENCED"));

    server.command(&["CONFIG", "SET", "maxmemory", "4mb"]);
    let error = eventually_some("a full server", || {
        let key = format!("large{}", free_port());
        run(&session, &LARGE, &[&key], &["300000"]).err()
    });
    assert!(!error.may_have_run(), "{error}");
    assert_eq!(error.code(), Some("OOM"));
    assert_eq!(StoreError::from(error).kind(), StoreErrorKind::Full);
}

#[test]
fn a_failover_of_sentinel_is_followed() {
    let Some(mut watched) = Watched::start(&[]) else { return };
    let url = watched.sentinel.url();
    let connect = Connect::sentinel([&url], Watched::NAME).expect("URLs").patience(LONG);
    let session = open(&connect.response_timeout(Duration::from_secs(5)));
    assert_eq!(count(&session, "a").expect("a reply"), 1);
    eventually("the replica has it", || counted(&watched.second, "a") == 1);
    watched.down_after(Duration::from_secs(1));
    watched.first.kill();
    // The first call may be lost with the primary; the next ones wait for the other.
    eventually("a call succeeds", || count(&session, "b").is_ok());
    assert_eq!(watched.second.info("role").as_deref(), Some("master"));
    assert_eq!(count(&session, "a").expect("a reply"), 2);
    assert_eq!(counted(&watched.second, "a"), 2);
}

#[test]
fn a_primary_that_becomes_a_replica_is_left() {
    let Some(watched) = Watched::start(&[]) else { return };
    let url = watched.sentinel.url();
    let connect = Connect::sentinel([&url], Watched::NAME).expect("URLs").patience(LONG);
    let session = open(&connect.response_timeout(LONG));
    assert_eq!(count(&session, "a").expect("a reply"), 1);
    eventually("the Sentinel changes the roles", || {
        watched.sentinel.try_query::<Value>(&["SENTINEL", "FAILOVER", Watched::NAME]).is_ok()
    });
    eventually("the roles have changed", || watched.second.info("role").as_deref() == Some("master"));
    eventually("the old primary is a replica", || watched.first.info("role").as_deref() == Some("slave"));
    eventually("a call succeeds", || count(&session, "b").is_ok());
    assert_eq!(count(&session, "c").expect("a reply"), 1);
    assert_eq!(counted(&watched.second, "c"), 1);
}

#[test]
fn a_change_waits_for_replicas() {
    let Some(watched) = Watched::start(&[]) else { return };
    let policy = |replicas, timeout| SyncPolicy::Wait { replicas, timeout };
    let session = open(&single(&watched.first.url()).sync(policy(1, LONG)));
    assert_eq!(count_safely(&session, "a").expect("a reply"), 1);
    assert_eq!(counted(&watched.second, "a"), 1, "it is there once the call returns");
    let session = open(&single(&watched.first.url()).sync(policy(2, Duration::from_secs(1))));
    let error = count_safely(&session, "b").expect_err("there is one replica");
    assert!(error.may_have_run(), "{error}");
    assert!(error.to_string().contains("of 2 replicas"), "{error}");
    assert_eq!(counted(&watched.first, "b"), 1);
    let report = block_on(check(&single(&watched.first.url()).sync(policy(2, LONG)))).expect("a report");
    assert!(report.to_string().contains("replicas: 1 are connected, and the policy waits for 2"), "{report}");
    assert!(report.is_refused());
    let report = block_on(check(&single(&watched.first.url()))).expect("a report");
    assert!(report.to_string().contains("min-replicas-to-write 0") && !report.is_refused(), "{report}");
}

/// Between a script and the wait for it, the roles change: what the new primary's replica has says nothing then.
#[test]
fn no_other_server_vouches_for_a_change() {
    let Some(watched) = Watched::start(&[]) else { return };
    let url = watched.sentinel.url();
    let connect = Connect::sentinel([&url], Watched::NAME).expect("URLs").patience(LONG);
    let sync = SyncPolicy::Wait { replicas: 1, timeout: Duration::from_secs(1) };
    let session = open(&connect.response_timeout(Duration::from_secs(5)).sync(sync));
    eventually("the replica confirms", || count_safely(&session, "w").is_ok());
    assert_eq!(count_safely(&session, "a").expect("a reply"), 1);
    // The replica stands alone from now on, and does not get the change.
    watched.second.command(&["REPLICAOF", "NO", "ONE"]);
    let (keys, one) = (vec![b"a".to_vec()], vec![b"1".to_vec()]);
    let (_, witness) = block_on(session.run_before_witness(&COUNT, keys, one.into())).expect("an answer");
    watched.first.command(&["REPLICAOF", "127.0.0.1", &watched.second.port().to_string()]);
    eventually("the old primary follows", || {
        watched.first.info("master_link_status").as_deref() == Some("up")
    });
    assert_eq!(counted(&watched.first, "a"), 1, "the change is lost");
    let error = block_on(witness.expect("the policy has a witness").confirm()).expect_err("it is lost");
    assert!(error.may_have_run(), "{error}");
}

#[test]
fn a_server_without_waitaof_is_an_error_before_anything_runs() {
    let Some(server) = Server::start(&[]) else { return };
    if server.try_query::<Value>(&["WAITAOF", "0", "0", "0"]).is_ok() {
        return;
    }
    let policy = SyncPolicy::WaitAof { replicas: 0, timeout: Duration::from_secs(1) };
    let session = open(&single(&server.url()).sync(policy).patience(Duration::from_millis(500)));
    eventually("the reason is in the error", || {
        let error = count(&session, "a").expect_err("no WAITAOF");
        assert!(!error.may_have_run(), "{error}");
        error.to_string().contains("WAITAOF, which Redis has from 7.2 on")
    });
    assert_eq!(counted(&server, "a"), 0);
}

#[test]
fn a_cluster_is_followed_where_its_slots_move() {
    let Some(mut cluster) = Cluster::start(&[]) else { return };
    let urls = cluster.urls();
    let connect = Connect::cluster(&urls).expect("URLs").patience(LONG).response_timeout(LONG);
    let session = open(&connect);
    // Keys of all primaries.
    for index in 0..30 {
        assert_eq!(count(&session, &format!("spread{index}")).expect("a reply"), 1);
    }
    let slot = cluster.slot("{t}");
    let from = cluster.owner(0, slot).expect("a primary");
    let to = (from + 1) % 3;
    assert_eq!(run(&session, &TWO, &["{t}a", "{t}b"], &[]).expect("a reply"), Value::Int(2));

    cluster.begin_move(slot, from, to);
    // Here no key is missing.
    assert_eq!(run(&session, &TWO, &["{t}a", "{t}b"], &[]).expect("a reply"), Value::Int(4));
    // There are both; the source redirects.
    cluster.move_keys(&["{t}a", "{t}b"], from, to);
    assert_eq!(run(&session, &TWO, &["{t}a", "{t}b"], &[]).expect("a reply"), Value::Int(6));
    // One is in neither place: the server asks to try again, until the slot has moved.
    let moved = thread::scope(|scope| {
        let call = scope.spawn(|| run(&session, &TWO, &["{t}a", "{t}new"], &[]));
        eventually("the call is refused", || cluster.nodes[to].info("errorstat_TRYAGAIN").is_some());
        cluster.finish_move(slot, from, to);
        call.join().expect("a call")
    });
    assert_eq!(moved.expect("a reply"), Value::Int(5));
    // The client's map is old, or not yet.
    for expected in [9, 11, 13] {
        assert_eq!(run(&session, &TWO, &["{t}a", "{t}b"], &[]).expect("a reply"), Value::Int(expected));
    }

    // A primary dies, and its replica takes over.
    cluster.node_timeout(Duration::from_secs(2));
    for node in 0..cluster.nodes.len() {
        eventually("all see the move", || cluster.owner(node, slot) == Some(to));
    }
    let victim = cluster.owner(0, cluster.slot("{dead}")).expect("a primary");
    assert_eq!(count(&session, "{dead}").expect("a reply"), 1);
    eventually("the replica has it", || {
        let mut replica = cluster.nodes[victim + 3].connect().expect("a connection");
        let _ready: Value = redis::cmd("READONLY").query(&mut replica).expect("a reply");
        redis::cmd("GET").arg("{dead}").query::<Option<i64>>(&mut replica).ok().flatten() == Some(1)
    });
    cluster.nodes[victim].kill();
    eventually("a call succeeds", || count(&session, "{dead}").is_ok());
    let other = (0..3).find(|node| *node != victim).expect("three primaries");
    let owner = cluster.owner(other, cluster.nodes[other].query(&["CLUSTER", "KEYSLOT", "{dead}"]));
    assert_eq!(owner, Some(victim + 3));
}

#[test]
fn a_cluster_that_is_silent_is_left_and_found_again() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let urls = cluster.urls();
    let connect = Connect::cluster(&urls).expect("URLs").patience(LONG);
    let session = open(&connect.response_timeout(Duration::from_secs(1)));
    let owner = cluster.owner(0, cluster.slot("a")).expect("a primary");
    eventually("a call succeeds", || count(&session, "a").is_ok());
    cluster.nodes[owner].stop();
    let error = count(&session, "a").expect_err("no reply");
    assert!(error.may_have_run(), "{error}");
    cluster.nodes[owner].go_on();
    eventually("a call succeeds", || count(&session, "a").is_ok());
    let report = block_on(check(&connect_to(&urls))).expect("a report");
    assert!(!report.is_refused(), "{report}");
    assert_eq!(
        report.lines().iter().filter(|line| line.text().starts_with("version")).count(),
        3,
        "{report}"
    );
    // As a single server it is refused.
    let report = block_on(check(&single(&urls[0]))).expect("a report");
    assert!(report.is_refused() && report.to_string().contains("connect to it as a cluster"), "{report}");
}

#[test]
fn a_dead_primary_holds_up_the_calls_to_itself_and_no_others() {
    const CALLERS: usize = 64;
    let Some(mut cluster) = Cluster::start(&[]) else { return };
    let session = open(&connect_to(&cluster.urls()));
    eventually("a call succeeds", || count(&session, "ready").is_ok());
    let victim = cluster.owner(0, cluster.slot("victim")).expect("a primary");
    let is_on_victim = |key: &String| cluster.owner(0, cluster.slot(key)) == Some(victim);
    let (dead, living): (Vec<_>, Vec<_>) =
        (0..4 * CALLERS).map(|number| number.to_string()).partition(is_on_victim);
    cluster.nodes[victim].kill();
    let succeeded = AtomicUsize::new(0);
    thread::scope(|scope| {
        let to_dead: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let key = &dead[caller % dead.len()];
                let call = || count(&session, key).inspect(|_| _ = succeeded.fetch_add(1, Ordering::Relaxed));
                scope.spawn(call)
            })
            .collect();
        let to_living: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let key = &living[caller];
                scope.spawn(|| (0..20).for_each(|_| assert!(count(&session, key).is_ok())))
            })
            .collect();
        to_living.into_iter().for_each(|calls| calls.join().expect("replies"));
        assert_eq!(succeeded.load(Ordering::Relaxed), 0, "the primary is dead");
        cluster.nodes[victim].restart();
        for call in to_dead {
            // A call that was under way when the server was killed is lost. All others waited.
            let lost = call.join().expect("a call").err();
            assert!(lost.is_none_or(|error| error.may_have_run()));
        }
    });
    eventually("a call succeeds", || count(&session, "victim").is_ok());
}

fn connect_to(urls: &[String]) -> Connect {
    Connect::cluster(urls).expect("URLs").patience(LONG).response_timeout(LONG)
}

/// The rights that the page of the crate lists, for the keys of the tests.
fn rights() -> Vec<String> {
    let page = include_str!("../../README.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER")).expect("the page has the user");
    line.split_whitespace()
        .skip(3)
        .map(|word| if word.starts_with('>') { ">secret" } else { word }.to_owned())
        .collect()
}

#[test]
fn a_user_with_the_listed_rights_alone_can_do_all() {
    let Some(watched) = Watched::start(&[]) else { return };
    for server in [&watched.first, &watched.second] {
        let rights = rights();
        let mut words = vec!["ACL", "SETUSER", "tourbillon"];
        words.extend(rights.iter().map(String::as_str));
        // What the test's script calls.
        words.push("+incrby");
        server.command(&words);
        server.command(&["ACL", "LOG", "RESET"]);
    }
    let sync = SyncPolicy::Wait { replicas: 1, timeout: LONG };
    let direct = single(&watched.first.url()).user("tourbillon", "secret").sync(sync);
    let session = open(&direct);
    assert_eq!(count(&session, "tb:{0}a").expect("a reply"), 1);
    watched.first.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(count(&session, "tb:{0}a").expect("a reply"), 2);
    let report = block_on(check(&direct)).expect("a report");
    assert!(!report.is_refused(), "{report}");
    assert_eq!(count_safely(&session, "tb:{0}b").expect("a reply"), 1);

    let url = watched.sentinel.url();
    let by_sentinel = Connect::sentinel([&url], Watched::NAME).expect("URLs").patience(LONG);
    assert_eq!(count(&open(&by_sentinel.user("tourbillon", "secret")), "tb:{0}a").expect("a reply"), 3);

    // What was refused to it, but for the driver's name, which servers from 7.2 on take.
    let refused: Vec<Value> = watched.first.query(&["ACL", "LOG"]);
    let refused: Vec<_> = refused.iter().map(|entry| format!("{entry:?}")).collect();
    assert!(refused.iter().all(|entry| entry.contains("setinfo")), "{refused:#?}");

    let error = count(
        &open(&direct.clone().user("tourbillon", "wrong").patience(Duration::from_millis(500))),
        "tb:{0}a",
    )
    .expect_err("a wrong password");
    assert!(!error.may_have_run() && error.to_string().contains("no connection"), "{error}");
    watched.first.command(&["ACL", "SETUSER", "tourbillon", "-evalsha", "-eval"]);
    let error = count(&session, "tb:{0}a").expect_err("no right");
    assert!(!error.may_have_run(), "{error}");
    assert_eq!(error.code(), Some("NOPERM"));
}

#[test]
fn tls_is_checked_on_both_sides() {
    let own_signed = |name: &str| {
        rcgen::generate_simple_self_signed([name.to_owned(), "localhost".to_owned()]).expect("a certificate")
    };
    let (ours, client, other) = (own_signed("ours"), own_signed("client"), own_signed("ours"));
    let port = free_port();
    let server = Server::start_in(|folder| {
        let file = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).expect("a file in a temporary folder");
            path.to_string_lossy().into_owned()
        };
        vec![
            "--tls-port".into(),
            port.to_string(),
            "--tls-cert-file".into(),
            file("server.crt", ours.cert.pem()),
            "--tls-key-file".into(),
            file("server.key", ours.signing_key.serialize_pem()),
            "--tls-ca-cert-file".into(),
            file("clients.crt", client.cert.pem()),
        ]
    });
    let Some(server) = server else { return };
    let url = format!("rediss://localhost:{port}");
    let tls = Tls::new()
        .authority(ours.cert.pem())
        .certificate(client.cert.pem(), client.signing_key.serialize_pem());
    let session = open(&single(&url).tls(tls.clone()));
    assert_eq!(count(&session, "a").expect("a reply"), 1);
    assert_eq!(counted(&server, "a"), 1);
    let address = format!("rediss://127.0.0.1:{port}");
    for (url, tls, reason) in [
        (&url, Tls::new().authority(ours.cert.pem()), "a client without a certificate"),
        (&url, tls.clone().authority(other.cert.pem()), "a certificate that is not trusted"),
        (&address, tls, "a certificate of another name"),
    ] {
        let brief = single(url).tls(tls).patience(Duration::from_secs(1));
        let error = count(&open(&brief), "a").expect_err(reason);
        assert!(!error.may_have_run(), "{reason}: {error}");
    }
    assert_eq!(counted(&server, "a"), 1);
}

#[test]
fn a_server_that_would_lose_timers_is_refused_with_the_reason() {
    let Some(server) = Server::start(&["--maxmemory-policy", "allkeys-lru"]) else { return };
    let report = block_on(check(&single(&server.url()))).expect("a report");
    assert!(report.is_refused(), "{report}");
    assert!(report.to_string().contains("maxmemory-policy allkeys-lru: timers would be evicted"), "{report}");
    assert!(report.to_string().contains("warning 127.0.0.1:"), "{report}");
    assert!(report.to_string().contains("no append-only file, no snapshots"), "{report}");

    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.command(&["CONFIG", "SET", "appendonly", "yes"]);
    let report = block_on(check(&single(&server.url()))).expect("a report");
    assert!(report.lines().iter().all(|line| line.grade() == Grade::Ok), "{report}");
    assert!(report.to_string().contains("synchronised each second"), "{report}");
    assert!(report.to_string().contains("clock "), "{report}");

    // An older server, as a client sees it.
    let version = server.info("redis_version").expect("a version");
    let proxy = Proxy::start(server.address());
    proxy.rewrite(&format!("redis_version:{version}"), &format!("redis_version:6{}", &version[1..]));
    let report = block_on(check(&single(&proxy.url()))).expect("a report");
    assert!(report.is_refused() && report.to_string().contains("at least 7.0 is needed"), "{report}");

    proxy.greet(Fate::Refuse);
    proxy.cut();
    let nobody = single(&proxy.url()).patience(Duration::from_millis(200));
    let report = block_on(check(&nobody)).expect("a report");
    assert!(report.is_refused() && report.to_string().contains("the servers do not answer"), "{report}");
}

#[test]
fn addresses_are_shown_and_passwords_are_not() {
    for connect in [
        Connect::single("redis://user:hidden@127.0.0.1:6379/2"),
        Connect::sentinel(["redis://:hidden@127.0.0.1:26379"], "timers"),
        Connect::cluster(["redis://user:hidden@127.0.0.1:7000"]),
    ] {
        let connect =
            connect.expect("URLs").user("name", "hidden").database(0).tls(Tls::new().authority("hidden"));
        let text = format!("{connect:?}");
        assert!(text.contains("127.0.0.1") && !text.contains("hidden"), "{text}");
    }
    for error in [
        Connect::single("http://:hidden@127.0.0.1").expect_err("no URL of Redis"),
        Connect::sentinel([""; 0], "timers").expect_err("no address"),
        Connect::cluster(["unix:///run/redis"]).expect_err("a socket"),
        Connect::cluster(["rediss://:hidden@a", "redis://b"]).expect_err("TLS for one of two"),
    ] {
        assert!(!format!("{error} {error:?}").contains("hidden"), "{error:?}");
    }
}
