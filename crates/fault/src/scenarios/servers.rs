//! Scenarios with faults of a single server.

use super::given::{Given, Outcome};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_fault::Server;
use tourbillon_fault::history::{Cause, Moment, Terms};
use tourbillon_fault::run::{Load, Stage, Target, moment};

const NO_SERVER: Outcome = Outcome::Skipped("no redis-server");

/// The greatest age, in microseconds, of a change that is lost when a server with `appendfsync everysec` is killed.
/// While the disk is busy, the server may write a change to its file up to two seconds late. The third second is a
/// margin.
const EVERYSEC: u64 = 3_000_000;

fn begin(given: &Given, arguments: &[&str]) -> Option<(Server, Stage)> {
    let server = Server::start(arguments)?;
    let mut stage = given.stage(Target::single(server.url()));
    given.begin(&mut stage, Load::default());
    Some((server, stage))
}

/// The way in which a scenario ends the server's process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    /// The process is killed by SIGKILL. With the server's settings, no change is lost.
    Sudden,
    /// The process is killed by SIGKILL. Changes that are not written yet may be lost.
    Lossy,
    /// The process ends in order by the command `SHUTDOWN`.
    InOrder,
}

/// Waits for up to a second until the server has written all its changes to the append-only file. Returns a moment: the
/// file has every change that the server acknowledged before this moment. These changes survive a kill of the server.
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

/// Kills a server that syncs its append-only file at each change. No change is lost.
pub(super) fn killed_always(given: &mut Given) -> Outcome {
    end_again_and_again(given, "always", Death::Sudden)
}

/// Kills a server that syncs its append-only file once a second. Changes that are not written yet may be lost.
pub(super) fn killed_everysec(given: &mut Given) -> Outcome {
    end_again_and_again(given, "everysec", Death::Lossy)
}

/// Restarts a server by `SHUTDOWN`. No change is lost, although the server syncs its file only once a second.
pub(super) fn restarted(given: &mut Given) -> Outcome {
    end_again_and_again(given, "everysec", Death::InOrder)
}

/// Stops the server's process for a time. Its connections stay open, and it answers nothing.
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

/// Flushes the server's scripts under load, and keeps the server busy with a script of another client.
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
                    // The script ends with an error, since it is killed.
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

/// Leaves the server without free memory for a time. The server refuses changes, and no acknowledged change is lost.
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

/// Restarts a server that reads its data slowly. The server answers `LOADING` for a long time.
pub(super) fn loaded(given: &mut Given) -> Outcome {
    let arguments = ["--appendonly", "yes", "--appendfsync", "always", "--key-load-delay", "200"];
    let Some((mut server, mut stage)) = begin(given, &arguments) else { return NO_SERVER };
    given.again(Duration::from_secs(8), |_| {
        // The server reads fewer changes after this, and so starts sooner.
        server.command(&["BGREWRITEAOF"]);
        stage.harm(Cause::Server, |_| server.restart());
        stage.await_progress(10);
    });
    stage.finish(Terms::default()).into()
}

/// Deletes all data of the server. Each node must notice the loss and stop.
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
