//! Scenarios with the timers in PostgreSQL. The nodes are processes of `tourbillond`. Half of the operations are
//! requests to the nodes. The other half are calls of SQL functions, in transactions that stay open for up to five
//! seconds, or longer in one scenario.

use super::given::{Given, Outcome};
use super::network;
use rustix::process::Signal;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_fault::history::{Cause, Terms};
use tourbillon_fault::run::{Daemons, Load, Stage, moment};
use tourbillon_fault::{Authority, Bouncer, Fate, Postgres, Proxy};

const NO_SERVER: Outcome = Outcome::Skipped("no PostgreSQL");
const NO_PROGRAM: &str =
    "there is no tourbillond beside this program (cargo build -p tourbillon-server, in the same profile)";

/// The longest time for which a transaction of a client stays open, except in [`committed_late`].
const LONGEST: Duration = Duration::from_secs(5);

/// The number of operations in a second in all scenarios but [`killed`].
const CALM: u32 = 300;

/// The number of operations that the clients begin in a second in [`killed`], if the machine is fast enough. About four
/// of five operations create a timer, so the clients create 1,000 timers a second. The other operations move or cancel
/// a timer.
const RATE: u32 = 1_250;

/// The greatest number of callbacks that a node sends at a time.
const WORKERS: usize = 128;

/// The number of clients that use SQL. Each has one transaction at a time, for two and a half seconds on average, with
/// twenty operations on average.
const TRANSACTIONS_AT_A_TIME: u64 = 80;

/// Returns the program that the machine lacks for the scenarios; `None` if it lacks nothing.
pub(super) fn missing() -> Option<&'static str> {
    if Postgres::is_installed() {
        return Daemons::on("").is_none().then_some(NO_PROGRAM);
    }
    Some("there is no PostgreSQL (apt-get install postgresql)")
}

/// Starts a server. It answers a change only when the change is on its disk.
fn start() -> Result<Postgres, Outcome> {
    Postgres::start(&["fsync=on"]).ok_or(NO_SERVER)
}

/// Prepares a run whose clients and nodes connect to `url`, without TLS.
fn stage_at(url: String) -> Result<Stage, Outcome> {
    let Some(daemons) = Daemons::on(url) else { return Err(Outcome::Skipped(NO_PROGRAM)) };
    let mut stage = Stage::of_daemons(daemons);
    stage.workers = WORKERS;
    Ok(stage)
}

fn url_of_nodes(port: u16) -> String {
    format!("postgresql://node@127.0.0.1:{port}/postgres?sslmode=verify-full")
}

/// Prepares a run on a server, which demands TLS on the nodes' connections. The nodes connect to the port `port` of
/// this machine: the server's own port, or the port of a proxy before the server.
fn stage_with_tls(server: &mut Postgres, port: u16) -> Result<Stage, Outcome> {
    let Some(daemons) = Daemons::on(server.url()) else { return Err(Outcome::Skipped(NO_PROGRAM)) };
    let authority = Authority::new("the authority of the run");
    let own = authority.server(&["127.0.0.1"]);
    server.secure(&own, &authority.pem(), "hostssl all node 127.0.0.1/32 trust\n");
    let _made = server.sql("CREATE ROLE node LOGIN SUPERUSER");
    let mut stage = Stage::of_daemons(daemons.with_tls(url_of_nodes(port), authority.pem()));
    stage.workers = WORKERS;
    Ok(stage)
}

/// Starts a server, and prepares a run on it.
fn prepare() -> Result<(Postgres, Stage), Outcome> {
    let mut server = start()?;
    let port = server.port();
    let stage = stage_with_tls(&mut server, port)?;
    Ok((server, stage))
}

/// Starts the clients, which begin `rate` operations in a second.
fn load(given: &Given, stage: &mut Stage, rate: u32) {
    let load = Load { rate: rate / 2, moves: 5, series: false, ..Load::default() };
    stage.start_clients(Load { clients: 8, batch: 1, ..load }, given.seed);
    let clients = TRANSACTIONS_AT_A_TIME * u64::from(rate) / u64::from(RATE);
    stage.start_clients_of_sql(Load { clients: clients.max(4), batch: 40, ..load }, LONGEST, given.seed);
}

fn begin(given: &Given, rate: u32) -> Result<(Postgres, Stage), Outcome> {
    let (server, mut stage) = prepare()?;
    stage.start_nodes(3);
    load(given, &mut stage, rate);
    Ok((server, stage))
}

/// Runs without any fault, so no delivery may be repeated.
pub(super) fn quiet(given: &mut Given) -> Outcome {
    let (_server, stage) = match begin(given, CALM) {
        Ok(begun) => begun,
        Err(outcome) => return outcome,
    };
    thread::sleep(given.time);
    stage.finish(Terms::default()).into()
}

/// The name of the node that is stopped, and the moment at which it was stopped. `None` if no node is stopped.
type Still = Option<(String, u64)>;

/// Lets the stopped node run on, and records its pause in the history. Does nothing if no node is stopped.
fn go_on(stage: &mut Stage, still: &mut Still) {
    let Some((name, since)) = still.take() else { return };
    if let Some(node) = stage.nodes.iter().find(|node| node.name() == name) {
        node.go_on();
    }
    stage.note(Cause::Pause, Some(&name), since, moment());
}

/// Kills or stops one of three nodes every ten seconds, while clients begin [`RATE`] operations a second. Three times
/// out of four, the node is killed. The other time, it is stopped for longer than a lease. Every 25 s, the server is
/// killed and started again.
pub(super) fn killed(given: &mut Given) -> Outcome {
    let rate = std::env::var("TOURBILLON_FAULT_RATE").ok().and_then(|rate| rate.parse().ok()).unwrap_or(RATE);
    let (mut server, mut stage) = match begin(given, rate) {
        Ok(begun) => begun,
        Err(outcome) => return outcome,
    };
    let (begun, pause) = (Instant::now(), Duration::from_secs(10).min(given.time / 4));
    let (mut next, mut crash) = (begun + pause, begun + pause * 5 / 2);
    let (mut kills, mut stops, mut crashes, mut still) = (0, 0, 0, None);
    while next.min(crash) < begun + given.time {
        thread::sleep(next.min(crash).saturating_duration_since(Instant::now()));
        if crash <= next {
            crash += pause * 5 / 2;
            stage.harm(Cause::Crash, |_| {
                server.kill();
                thread::sleep(given.up_to(Duration::from_secs(1)));
                server.run();
            });
            crashes += 1;
            continue;
        }
        next += pause;
        go_on(&mut stage, &mut still);
        let node = given.rng.usize(..stage.nodes.len());
        if (kills + stops) % 4 == 2 {
            still = Some((stage.nodes[node].name().to_owned(), moment()));
            stage.nodes[node].stop();
            stops += 1;
            continue;
        }
        stage.kill(node);
        kills += 1;
        // The killed node is replaced after a pause.
        thread::sleep(given.up_to(Duration::from_secs(1)));
        stage.start_nodes(1);
    }
    thread::sleep((begun + given.time).saturating_duration_since(Instant::now()));
    go_on(&mut stage, &mut still);
    let seconds = begun.elapsed().as_secs_f64();
    let mut row = stage.finish(Terms::default());
    let rate = row.findings.acknowledged as f64 / seconds;
    row.notes.push(format!(
        "{kills} nodes killed and {stops} stopped in {seconds:.0} s, one every {pause:?}; the server killed {crashes} \
         times; {rate:.0} timers a second"
    ));
    row.into()
}

/// Ends sessions of the nodes and of the clients at random, at any point of their transactions.
pub(super) fn terminated(given: &mut Given) -> Outcome {
    let (server, mut stage) = match begin(given, CALM) {
        Ok(begun) => begun,
        Err(outcome) => return outcome,
    };
    given.again(Duration::from_secs(1), |_| {
        stage.harm(Cause::Network, |_| {
            let _ended = server.sql(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < 0.5",
            );
        });
        stage.await_progress(10);
    });
    stage.finish(Terms::default()).into()
}

/// Shifts the time of day of some nodes by an hour forwards or backwards. No timer may be early, and no node may take
/// over a lease early.
pub(super) fn clocks(given: &mut Given) -> Outcome {
    let (_server, mut stage) = match prepare() {
        Ok(begun) => begun,
        Err(outcome) => return outcome,
    };
    if !stage.start_shifted_nodes(&[3_600, -3_600, 0]) {
        return Outcome::Skipped("no faketime (apt-get install faketime)");
    }
    load(given, &mut stage, CALM);
    thread::sleep(given.time);
    stage.finish(Terms::default()).into()
}

/// Stops all processes of the server for a time. Its connections stay open, and it answers nothing.
pub(super) fn stopped(given: &mut Given) -> Outcome {
    let (server, mut stage) = match begin(given, CALM) {
        Ok(begun) => begun,
        Err(outcome) => return outcome,
    };
    given.again(Duration::from_secs(4), |given| {
        let time = given.up_to(Duration::from_secs(4));
        stage.harm(Cause::Server, |_| {
            server.signal_all(Signal::STOP);
            thread::sleep(time);
            server.signal_all(Signal::CONT);
        });
        stage.await_progress(10);
    });
    stage.finish(Terms::default()).into()
}

/// Puts a proxy between the nodes and the server. The proxy delays, cuts, silences and refuses connections, and loses
/// requests and replies.
pub(super) fn harmed(given: &mut Given) -> Outcome {
    let prepared = start().and_then(|mut server| {
        let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())));
        let stage = stage_with_tls(&mut server, proxy.address().port())?;
        Ok((server, proxy, stage))
    });
    let (_server, proxy, mut stage) = match prepared {
        Ok(prepared) => prepared,
        Err(outcome) => return outcome,
    };
    stage.start_nodes(3);
    load(given, &mut stage, CALM);
    network::harm(given, &mut stage, &proxy);
    stage.finish(Terms::default()).into()
}

/// Cuts one of three nodes off from the server. Neither side notices: all bytes are lost, and no connection ends. Some
/// cuts are longer than the node's `ttl` and its leases, so the other nodes take over its shards and its timers.
pub(super) fn parted(given: &mut Given) -> Outcome {
    let (server, mut stage) = match prepare() {
        Ok(prepared) => prepared,
        Err(outcome) => return outcome,
    };
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())));
    stage.start_nodes(2);
    stage.connect_nodes_to(url_of_nodes(proxy.address().port()));
    stage.start_nodes(1);
    load(given, &mut stage, CALM);
    let (mut cuts, mut longer) = (0, 0);
    given.again(Duration::from_secs(5), |given| {
        let time = given.up_to(stage.lease * 2).min(given.time / 2);
        let apart = stage.nodes.len() - 1;
        stage.harm_node(apart, Cause::Network, || {
            proxy.greet(Fate::Silence);
            proxy.doom(Fate::Silence);
            thread::sleep(time);
            proxy.greet(Fate::Pass);
        });
        cuts += 1;
        longer += u32::from(time > stage.lease.max(stage.ttl));
        stage.await_progress(10);
    });
    let mut row = stage.finish(Terms::default());
    row.notes.push(format!("a node was cut off {cuts} times, {longer} times for longer than its leases"));
    row.into()
}

/// Puts a pool in transaction mode before the server, and kills the pool again and again. Nodes and clients lose their
/// connections, and the server rolls their transactions back.
pub(super) fn pooled(given: &mut Given) -> Outcome {
    let server = match start() {
        Ok(server) => server,
        Err(outcome) => return outcome,
    };
    // Each open transaction of a client has a session of its own.
    let Some(mut pool) = Bouncer::start_with(&server, "default_pool_size = 60", &[]) else {
        return Outcome::Skipped("no pgbouncer (apt-get install pgbouncer)");
    };
    let mut stage = match stage_at(pool.url()) {
        Ok(stage) => stage,
        Err(outcome) => return outcome,
    };
    stage.start_nodes(3);
    load(given, &mut stage, CALM);
    given.again(Duration::from_secs(4), |given| {
        let time = given.up_to(Duration::from_secs(2));
        stage.harm(Cause::Network, |_| {
            pool.kill();
            thread::sleep(time);
            pool.run();
        });
        stage.await_progress(10);
    });
    stage.finish(Terms::default()).into()
}

/// Kills the primary again and again, and promotes its replica. Each acknowledged change of a caller has waited for the
/// replica. Claims and ends of deliveries do not wait, so deliveries may be repeated.
pub(super) fn failed_over(given: &mut Given) -> Outcome {
    let mut primary = match start() {
        Ok(server) => server,
        Err(outcome) => return outcome,
    };
    // The setting takes effect at the next start, and the replica has a copy of it.
    let _set = primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    let mut replica = primary.replica();
    primary.shut_down();
    primary.run();
    let hosts = [&primary, &replica].map(|server| format!("127.0.0.1:{}", server.port())).join(",");
    let url = format!("postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write");
    let mut stage = match stage_at(url) {
        Ok(stage) => stage,
        Err(outcome) => return outcome,
    };
    stage.start_nodes(3);
    load(given, &mut stage, CALM);
    let mut failovers = 0;
    given.again(Duration::from_secs(6), |_| {
        stage.harm(Cause::Failover, |_| {
            primary.kill();
            replica.promote();
            // The next replica takes the place of the killed primary. Until it runs, commits wait.
            let next = replica.replica_at(primary.port());
            primary = core::mem::replace(&mut replica, next);
        });
        failovers += 1;
        stage.await_progress(10);
    });
    let mut row = stage.finish(Terms { loses_ends: true, ..Terms::default() });
    row.notes.push(format!("{failovers} replicas promoted"));
    row.into()
}

/// Lets the transactions of half of the clients stay open for up to two minutes. Nearly all timers of these
/// transactions are due before the commit.
pub(super) fn committed_late(given: &mut Given) -> Outcome {
    let (_server, mut stage) = match prepare() {
        Ok(prepared) => prepared,
        Err(outcome) => return outcome,
    };
    stage.start_nodes(3);
    let load = Load { rate: CALM / 2, moves: 5, series: false, ..Load::default() };
    stage.start_clients(Load { clients: 8, batch: 1, ..load }, given.seed);
    let of_sql = Load { clients: 40, rate: CALM / 10, batch: 40, ..load };
    stage.start_clients_of_sql(of_sql, Duration::from_secs(120), given.seed);
    thread::sleep(given.time);
    stage.finish(Terms::default()).into()
}
