//! Tests calls to a server with lost replies, ended connections and errors.

use super::{COUNT, call, count, counted, open, run, single};
use crate::RedisStore;
use crate::link::{Connect, Link, SyncPolicy};
use crate::script::Script;
use core::time::Duration;
use redis::Value;
use std::thread;
use std::time::Instant;
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Limit, Op, Outcome, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::{Fate, Proxy, Server, eventually, eventually_some, free_port};

/// A script that makes a change and then fails.
static HALF: Script = Script::new("half", "redis.call('INCR', KEYS[1]) return redis.call('NONSENSE')");
static OWN_ERROR: Script = Script::new("own_error", "return redis.error_reply('FENCED by another')");
static LARGE: Script = Script::new("large", "redis.call('SET', KEYS[1], string.rep('x', ARGV[1])) return 1");

#[test]
fn a_script_is_sent_by_name_and_with_its_text_where_the_server_does_not_have_it() {
    let Some(server) = Server::start(&[]) else { return };
    let session = open(&single(&server.url()));
    assert_eq!(count(&session, "a").expect("a count"), 1);
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(count(&session, "a").expect("a count"), 2);
    assert_eq!(count(&session, "a").expect("a count"), 3);
    let sent: String = server.query(&["INFO", "commandstats"]);
    // Two calls by name have failed. Two calls with the text and another call by name have run.
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
    drop(session.run(call(&COUNT, &["b"], &["1"])));
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
    // Later calls use another connection.
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
    // A waiting call is sent once there is a connection.
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
        // Only a call may notice that the connection has ended.
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
    // There is no connection now: the operating system accepts a new connection to the stopped server, but the server
    // does not answer the greeting.
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
fn the_longest_durations_are_no_error() {
    const LONGEST: Duration = Duration::MAX;
    let Some(server) = Server::start(&[]) else { return };
    let sync = SyncPolicy::Wait { replicas: 0, timeout: LONGEST };
    let connect = Connect::single(&server.url()).expect("a URL").sync(sync).patience(LONGEST);
    let connect = connect.response_timeout(LONGEST).connection_timeout(LONGEST);
    let builder = RedisStore::builder("d").shards(1).poll(Some(LONGEST)).may_lose(LONGEST);
    let store = pollster::block_on(builder.open(&connect)).expect("a store");
    let timer = Timer::new(TimerId::from_u128(1), "kind", store.now());
    let place = vec![Op::Place(Box::new(timer), IfPresent::Reject)];
    let outcomes = pollster::block_on(store.apply(place, Durability::PowerLoss)).expect("an outcome");
    assert_eq!(outcomes, [Outcome::Created(TimerId::from_u128(1))]);
    let by = Claimant { incarnation: 5, lease: Duration::from_secs(60) };
    let limit = Limit { timers: 1, bytes: u64::MAX };
    // The first claim leaves out a shard that the background thread is just asking for due timers.
    let leased = (1..10_000).map(|claim| {
        thread::sleep(Duration::from_millis(1));
        pollster::block_on(store.claim(by, claim, limit, None)).expect("an answer").leased
    });
    assert_eq!(leased.map(|leased| leased.len()).find(|number| *number > 0), Some(1));
    assert!(store.node.pause_of_sweep() > Duration::from_secs(1));
}
