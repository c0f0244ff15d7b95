//! Scenarios with faults of the network between nodes and a server.

use super::given::{Given, Outcome, SHARDS, works};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use tourbillon_fault::history::{Cause, Terms};
use tourbillon_fault::run::{Load, Stage, Target};
use tourbillon_fault::{Fate, Proxy, Server};

const NO_SERVER: Outcome = Outcome::Skipped("no redis-server");

/// Puts a proxy between a server and its nodes and clients. The proxy delays, cuts, silences and refuses connections,
/// and loses requests and replies.
pub(super) fn harmed(given: &mut Given) -> Outcome {
    let Some(server) = Server::start(&[]) else { return NO_SERVER };
    let proxy = Proxy::start(server.address());
    let mut stage = given.stage(Target::single(proxy.url()));
    given.begin(&mut stage, Load::default());
    harm(given, &mut stage, &proxy);
    stage.finish(Terms::default()).into()
}

/// Makes a proxy delay, cut, silence and refuse connections, and lose requests and replies, until the scenario's time
/// is over.
pub(super) fn harm(given: &mut Given, stage: &mut Stage, proxy: &Proxy) {
    given.again(Duration::from_secs(3), |given| {
        let (kind, time) = (given.rng.u8(..7), given.up_to(Duration::from_secs(2)));
        stage.harm(Cause::Network, |_| match kind {
            0 => {
                proxy.delay(Duration::from_millis(100));
                thread::sleep(time);
                proxy.delay(Duration::ZERO);
            }
            1 => (0..5).for_each(|_| {
                proxy.cut();
                thread::sleep(time / 5);
            }),
            // A round trip takes half a second, and each connection is cut with a chance of 1 in 20.
            2 => {
                proxy.delay(Duration::from_millis(250));
                (0..5).for_each(|_| {
                    thread::sleep(time / 5);
                    proxy.cut_some(|| given.rng.u8(..20) == 0);
                });
                proxy.delay(Duration::ZERO);
            }
            // The present connections lose the replies to all calls under way.
            3 => {
                proxy.doom(Fate::LoseReplies);
                thread::sleep(time);
            }
            // The present connections become half open.
            4 => {
                proxy.doom(Fate::Silence);
                thread::sleep(time);
            }
            // Requests no longer arrive at the server, but its messages still arrive at the clients.
            5 => {
                proxy.doom(Fate::LoseRequests);
                thread::sleep(time);
            }
            _ => {
                proxy.greet(Fate::Refuse);
                proxy.cut();
                thread::sleep(time);
                proxy.greet(Fate::Pass);
            }
        });
        stage.await_progress(10);
    });
}

/// A network namespace of Linux for a node's process. A virtual cable connects the namespace to the machine's own
/// network.
struct Namespace {
    name: String,
    cable: String,
    server: String,
    node: String,
}

/// The number of network namespaces that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// The directions in which a cut of the network stops packets.
#[derive(Clone, Copy)]
enum Cut {
    Both,
    ToNode,
    ToServer,
}

/// A hardware address that no interface has. Packets to this address are lost without an error.
const NOWHERE: &str = "02:00:00:00:00:99";

fn ip(words: &str) -> bool {
    let words: Vec<&str> = words.split(' ').collect();
    works(&[&["ip"], &words[..]].concat())
}

impl Namespace {
    fn new() -> Option<Self> {
        // Each namespace gets a new number, since the system removes an old namespace only after a while.
        let number = (process::id() + MADE.fetch_add(1, Ordering::Relaxed)) % 200;
        let (name, cable) = (format!("tbf{number}"), format!("tbf{number}a"));
        let (server, node) = (format!("10.213.{number}.1"), format!("10.213.{number}.2"));
        if !ip(&format!("netns add {name}")) {
            return None;
        }
        let namespace = Self { name, cable, server, node };
        let Self { name, cable, server, node } = &namespace;
        let steps = [
            format!("link add {cable} type veth peer name tbfb netns {name}"),
            format!("addr add {server}/24 dev {cable}"),
            format!("link set {cable} up"),
            format!("-n {name} addr add {node}/24 dev tbfb"),
            format!("-n {name} link set tbfb up"),
            format!("-n {name} link set lo up"),
        ];
        steps.iter().all(|step| ip(step)).then_some(namespace)
    }

    /// Makes the network lose packets in the directions that `cut` names. Neither side notices the cut.
    fn cut(&self, cut: Cut) {
        let Self { name, cable, server, node } = self;
        let neighbour = |address: &str| format!("neigh replace {address} lladdr {NOWHERE} nud permanent dev");
        assert!(match cut {
            Cut::Both => ip(&format!("link set {cable} down")),
            Cut::ToNode => ip(&format!("{} {cable}", neighbour(node))),
            Cut::ToServer => ip(&format!("-n {name} {} tbfb", neighbour(server))),
        });
    }

    fn heal(&self, cut: Cut) {
        let Self { name, cable, server, node } = self;
        assert!(match cut {
            Cut::Both => ip(&format!("link set {cable} up")),
            Cut::ToNode => ip(&format!("neigh del {node} dev {cable}")),
            Cut::ToServer => ip(&format!("-n {name} neigh del {server} dev tbfb")),
        });
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The cable ends when the namespace, which holds one of its ends, is removed.
        drop(Command::new("ip").args(["netns", "del", &self.name]).status());
    }
}

/// Puts one of three nodes into its own network, and cuts this network off. Neither side notices the cut.
pub(super) fn parted(given: &mut Given) -> Outcome {
    part(given, &[Cut::Both])
}

/// Cuts the network of one node in a single direction. Either the node's packets arrive and the server's answers are
/// lost, or the reverse.
pub(super) fn half_parted(given: &mut Given) -> Outcome {
    part(given, &[Cut::ToNode, Cut::ToServer])
}

fn part(given: &mut Given, cuts: &[Cut]) -> Outcome {
    let Some(server) = Server::start(&["--protected-mode", "no"]) else { return NO_SERVER };
    let Some(namespace) = Namespace::new() else {
        return Outcome::Skipped("no network namespaces (ip netns add)");
    };
    server.command(&["CONFIG", "SET", "bind", &format!("127.0.0.1 {}", namespace.server)]);
    let mut stage = Stage::new(Target::single(server.url()), SHARDS, &[]);
    stage.start_nodes(2);
    stage.target = Some(Target::single(format!("redis://{}:{}", namespace.server, server.port())));
    let node = stage.node(&["ip", "netns", "exec", &namespace.name].map(str::to_owned));
    let apart = stage.nodes.len();
    stage.nodes.push(node);
    stage.await_ready();
    stage.target = Some(Target::single(server.url()));
    stage.start_clients(Load::default(), given.seed);
    let mut turn = 0;
    given.again(Duration::from_secs(5), |given| {
        let cut = cuts[turn % cuts.len()];
        turn += 1;
        // Some cuts are shorter than a lease, and others are longer.
        let time = given.up_to(stage.lease * 2).min(given.time / 2);
        stage.harm_node(apart, Cause::Network, || {
            namespace.cut(cut);
            thread::sleep(time);
            namespace.heal(cut);
        });
    });
    stage.finish(Terms::default()).into()
}
