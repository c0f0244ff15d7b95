//! Faults of one server.

use super::given::{Given, Outcome};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_fault::Server;
use tourbillon_fault::history::{Cause, Moment, Terms};
use tourbillon_fault::run::{Load, Stage, Target, moment};

const NO_SERVER: Outcome = Outcome::Skipped("no redis-server");

/// How old changes can be that `appendfsync everysec` loses with a process: a write waits for the disk for two seconds.
const EVERYSEC: u64 = 3_000_000;

fn begin(given: &Given, arguments: &[&str]) -> Option<(Server, Stage)> {
    let server = Server::start(arguments)?;
    let mut stage = given.stage(Target::single(server.url()));
    given.begin(&mut stage, Load::default());
    Some((server, stage))
}

/// How a server ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    /// By SIGKILL, and loses nothing.
    Sudden,
    /// By SIGKILL, and may lose changes that it has not written.
    Lossy,
    /// By `SHUTDOWN`.
    InOrder,
}

/// The last moment at which the file's buffer was empty. All changes that were answered before are with the operating
/// system, which outlives the process.
fn written(server: &Server) -> Moment {
    let begun = moment();
    loop {
        let asked = moment();
        if server.info("aof_buffer_length").as_deref() == Some("0") {
            return asked;
        }
        if asked - begun > 1_000_000 {
            return begun.saturating_sub(EVERYSEC);
        }
    }
}

fn end_again_and_again(given: &mut Given, fsync: &str, death: Death) -> Outcome {
    let arguments = ["--appendonly", "yes", "--appendfsync", fsync];
    let Some((mut server, mut stage)) = begin(given, &arguments) else { return NO_SERVER };
    let mut terms = Terms::default();
    given.again(Duration::from_secs(4), |given| {
        stage.harm(Cause::Server, |_| {
            if death == Death::InOrder {
                server.shut_down();
            } else {
                let from = written(&server);
                server.kill();
                if death == Death::Lossy {
                    terms.lossy.push((from, moment()));
                }
            }
            thread::sleep(given.up_to(Duration::from_secs(2)));
            server.restart();
        });
        stage.await_progress(10);
    });
    stage.finish(terms).into()
}

/// An append-only file that is synchronised always loses nothing.
pub(super) fn killed_always(given: &mut Given) -> Outcome {
    end_again_and_again(given, "always", Death::Sudden)
}

/// A server that synchronises every second may lose changes that it has not written yet.
pub(super) fn killed_everysec(given: &mut Given) -> Outcome {
    end_again_and_again(given, "everysec", Death::Lossy)
}

/// A server that is restarted in order loses nothing, though it synchronises only every second.
pub(super) fn restarted(given: &mut Given) -> Outcome {
    end_again_and_again(given, "everysec", Death::InOrder)
}

/// The server stands still: connections stay, and nothing is answered.
pub(super) fn stopped(given: &mut Given) -> Outcome {
    let Some((server, mut stage)) = begin(given, &[]) else { return NO_SERVER };
    given.again(Duration::from_secs(4), |given| {
        let time = given.up_to(Duration::from_secs(4));
        stage.harm(Cause::Server, |_| {
            server.stop();
            thread::sleep(time);
            server.go_on();
        });
        stage.await_progress(10);
    });
    stage.finish(Terms::default()).into()
}

/// The scripts are forgotten under load, and another client's script holds the server up.
pub(super) fn scripts(given: &mut Given) -> Outcome {
    let Some((server, mut stage)) = begin(given, &["--busy-reply-threshold", "50"]) else { return NO_SERVER };
    given.again(Duration::from_secs(2), |given| {
        for _ in 0..20 {
            server.command(&["SCRIPT", "FLUSH"]);
            thread::sleep(Duration::from_millis(20));
        }
        let time = given.up_to(Duration::from_secs(2));
        stage.harm(Cause::Server, |_| {
            thread::scope(|scope| {
                let busy = scope.spawn(|| {
                    // Ends with an error, as it is killed.
                    drop(server.try_query::<redis::Value>(&["EVAL", "while true do end", "0"]));
                });
                thread::sleep(time);
                let begun = Instant::now();
                while !busy.is_finished() && begun.elapsed() < Duration::from_secs(60) {
                    drop(server.try_query::<redis::Value>(&["SCRIPT", "KILL"]));
                    thread::sleep(Duration::from_millis(20));
                }
            });
        });
        stage.await_progress(10);
    });
    stage.finish(Terms::default()).into()
}

/// No memory is left for a time: changes are refused, and nothing is lost.
pub(super) fn memory(given: &mut Given) -> Outcome {
    let Some((server, mut stage)) = begin(given, &[]) else { return NO_SERVER };
    given.again(Duration::from_secs(3), |given| {
        let time = given.up_to(Duration::from_secs(3));
        stage.harm(Cause::Server, |_| {
            server.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
            thread::sleep(time);
            server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        });
        stage.await_progress(10);
    });
    stage.finish(Terms::default()).into()
}

/// A server that was killed takes long to read its data again, and answers with `LOADING` until then.
pub(super) fn loaded(given: &mut Given) -> Outcome {
    let arguments = ["--appendonly", "yes", "--appendfsync", "always", "--key-load-delay", "200"];
    let Some((mut server, mut stage)) = begin(given, &arguments) else { return NO_SERVER };
    given.again(Duration::from_secs(8), |_| {
        // The fewer changes to read, the shorter it takes.
        server.command(&["BGREWRITEAOF"]);
        stage.harm(Cause::Server, |_| server.restart());
        stage.await_progress(10);
    });
    stage.finish(Terms::default()).into()
}

/// All data is gone: each node says so, and nothing is mixed.
pub(super) fn flushed(given: &mut Given) -> Outcome {
    let Some((server, mut stage)) = begin(given, &[]) else { return NO_SERVER };
    thread::sleep(given.time);
    let begin = Instant::now();
    let mut terms = Terms::default();
    stage.harm(Cause::Server, |_| server.command(&["FLUSHALL"]));
    while !stage.nodes.iter().all(|node| node.closed().is_some()) {
        if begin.elapsed() > Duration::from_secs(60) {
            stage.problems.push("a node did not notice that all data is gone".to_owned());
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    terms.lossy.push((0, u64::MAX));
    stage.finish_without_store(terms).into()
}
