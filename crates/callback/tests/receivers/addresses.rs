//! T-17: tests which addresses the connector dials.

use crate::{ATTEMPT, Receiver, answer, callback, settings};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tourbillon_callback::guard::{Blocked, Guard};
use tourbillon_callback::{Caller, CallerSettings, Failure, Outcome, Resolver};

pub(crate) fn resolver(answers: Vec<Vec<&'static str>>) -> (Resolver, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let resolver: Resolver = Arc::new(move |_, port| {
        let turn = count.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1);
        let addresses = answers[turn].iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).collect();
        Box::pin(async move { Ok(addresses) })
    });
    (resolver, asked)
}

pub(crate) async fn outcome_of(guard: Guard, resolver: Option<Resolver>, url: &str) -> Outcome {
    let mut settings = settings();
    settings.guard = guard;
    settings.resolver = resolver;
    settings.connect_timeout = Duration::from_millis(500);
    Caller::new(settings).unwrap().send(&callback(url), ATTEMPT).await
}

/// Hosts of URLs, each with the address for which the host stands. No address in the list can be reached from the whole
/// internet.
const HOSTS: &[(&str, &str)] = &[
    // Addresses of this machine and of private networks. Each range has its first and its last address here.
    ("127.0.0.1", "127.0.0.1"),
    ("127.255.255.255", "127.255.255.255"),
    ("10.0.0.0", "10.0.0.0"),
    ("10.255.255.255", "10.255.255.255"),
    ("172.16.0.0", "172.16.0.0"),
    ("172.31.255.255", "172.31.255.255"),
    ("192.168.0.0", "192.168.0.0"),
    ("192.168.255.255", "192.168.255.255"),
    ("[::1]", "::1"),
    ("[fc00::]", "fc00::"),
    ("[fd00:ec2::254]", "fd00:ec2::254"),
    ("[fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    // Other notations of IPv4 addresses.
    ("127.1", "127.0.0.1"),
    ("2130706433", "127.0.0.1"),
    ("0x7f000001", "127.0.0.1"),
    ("0x7f.1", "127.0.0.1"),
    ("0177.0.0.1", "127.0.0.1"),
    ("017700000001", "127.0.0.1"),
    ("127.0.0.1.", "127.0.0.1"),
    ("%31%32%37.0.0.1", "127.0.0.1"),
    ("\u{ff11}27.0.0.1", "127.0.0.1"),
    ("127\u{3002}0\u{3002}0\u{3002}1", "127.0.0.1"),
    ("0xa9fea9fe", "169.254.169.254"),
    ("2852039166", "169.254.169.254"),
    ("0251.0376.0251.0376", "169.254.169.254"),
    ("169.254.43518", "169.254.169.254"),
    ("0", "0.0.0.0"),
    ("0x0a.0.0.1", "10.0.0.1"),
    ("192.168.257", "192.168.1.1"),
    // IPv4 addresses within IPv6 addresses.
    ("[::ffff:127.0.0.1]", "::ffff:127.0.0.1"),
    ("[::ffff:7f00:1]", "::ffff:127.0.0.1"),
    ("[::ffff:10.0.0.1]", "::ffff:10.0.0.1"),
    ("[::ffff:169.254.169.254]", "::ffff:169.254.169.254"),
    ("[::ffff:0:127.0.0.1]", "::ffff:0:7f00:1"),
    ("[::127.0.0.1]", "::127.0.0.1"),
    ("[64:ff9b::127.0.0.1]", "64:ff9b::7f00:1"),
    ("[64:ff9b::a9fe:a9fe]", "64:ff9b::a9fe:a9fe"),
    ("[64:ff9b:1::10.0.0.1]", "64:ff9b:1::a00:1"),
    ("[2002:7f00:1::]", "2002:7f00:1::"),
    ("[2002:a9fe:a9fe::1]", "2002:a9fe:a9fe::1"),
    ("[2001:0:7f00:1::]", "2001:0:7f00:1::"),
    // Link-local addresses, where clouds keep their metadata.
    ("169.254.0.0", "169.254.0.0"),
    ("169.254.169.254", "169.254.169.254"),
    ("169.254.170.2", "169.254.170.2"),
    ("169.254.255.255", "169.254.255.255"),
    ("[fe80::1]", "fe80::1"),
    ("[febf:ffff::1]", "febf:ffff::1"),
    // Addresses of nobody, for documentation, for measurements, of operators, and of groups.
    ("0.0.0.0", "0.0.0.0"),
    ("0.255.255.255", "0.255.255.255"),
    ("[::]", "::"),
    ("100.64.0.0", "100.64.0.0"),
    ("100.100.100.200", "100.100.100.200"),
    ("100.127.255.255", "100.127.255.255"),
    ("192.0.0.0", "192.0.0.0"),
    ("192.0.0.192", "192.0.0.192"),
    ("192.0.2.1", "192.0.2.1"),
    ("192.88.99.1", "192.88.99.1"),
    ("198.18.0.0", "198.18.0.0"),
    ("198.19.255.255", "198.19.255.255"),
    ("198.51.100.1", "198.51.100.1"),
    ("203.0.113.255", "203.0.113.255"),
    ("224.0.0.1", "224.0.0.1"),
    ("239.255.255.255", "239.255.255.255"),
    ("240.0.0.0", "240.0.0.0"),
    ("255.255.255.255", "255.255.255.255"),
    ("[100::1]", "100::1"),
    ("[2001:1ff::1]", "2001:1ff::1"),
    ("[2001:db8::1]", "2001:db8::1"),
    ("[3fff::1]", "3fff::1"),
    ("[5f00::1]", "5f00::1"),
    ("[ff02::1]", "ff02::1"),
    ("[ff0e::1]", "ff0e::1"),
];

/// The test checks that each address of the table is refused before a connection is made. An address comes in three
/// ways: in a URL, as a resolver's answer, or beside a public address in a resolver's answer.
#[tokio::test]
async fn a_table_of_addresses_is_refused_by_the_connector() {
    let distinct: BTreeSet<_> = HOSTS.iter().map(|(_, address)| *address).collect();
    assert!(HOSTS.len() >= 60 && distinct.len() >= 50, "{} hosts, {} addresses", HOSTS.len(), distinct.len());
    let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::Blocked(Blocked::NotGlobal(_)));
    for (host, address) in HOSTS {
        let outcome = outcome_of(Guard::default(), None, &format!("http://{host}:8080/")).await;
        assert!(is_refused(&outcome), "{host}: {outcome:?}");
        for answers in [vec![*address], vec!["1.1.1.1", *address], vec![*address, "1.1.1.1"]] {
            let (resolver, asked) = resolver(vec![answers.clone()]);
            let outcome = outcome_of(Guard::default(), Some(resolver), "http://a.example:8080/").await;
            assert!(is_refused(&outcome), "{answers:?}: {outcome:?}");
            assert_eq!(asked.load(Ordering::Relaxed), 1);
        }
    }
}

#[tokio::test]
async fn this_machine_is_refused_in_every_notation_and_never_connected_to() {
    let receiver = Receiver::start(answer("200 OK", "")).await;
    let port = receiver.address.port();
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "[::ffff:127.0.0.1]",
        "localhost",
        "[::1]",
        "0.0.0.0",
    ] {
        let outcome = outcome_of(Guard::default(), None, &format!("http://{host}:{port}/")).await;
        assert!(matches!(outcome, Outcome::Blocked(Blocked::NotGlobal(_))), "{host}: {outcome:?}");
    }
    let mut own = Guard::default();
    (own.allow_private, own.own) = (true, vec![receiver.address]);
    let outcome = outcome_of(own, None, &receiver.url()).await;
    assert_eq!(outcome, Outcome::Blocked(Blocked::Own(receiver.address)));
    assert_eq!(receiver.connections.load(Ordering::Relaxed), 0);
}

/// The test checks a name that resolves to a public address at first, and to an inner address at the second connection.
#[tokio::test]
async fn a_name_that_changes_its_address_is_checked_each_time() {
    let receiver = Receiver::start(answer("200 OK", "")).await;
    let (resolver, asked) =
        resolver(vec![vec!["192.0.1.1"], vec!["127.0.0.1"], vec!["8.8.8.8", "127.0.0.1"], vec![]]);
    let mut settings = CallerSettings::default();
    (settings.resolver, settings.connect_timeout) = (Some(resolver), Duration::from_millis(200));
    let caller = Caller::new(settings).unwrap();
    let callback = callback(&format!("http://rebinding.example:{}/", receiver.address.port()));
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        outcomes.push(caller.send(&callback, ATTEMPT).await);
    }
    assert!(matches!(outcomes[0], Outcome::Failed { failure: Failure::Connection(_), .. }), "{outcomes:?}");
    assert!(matches!(outcomes[1], Outcome::Blocked(Blocked::NotGlobal(_))), "{outcomes:?}");
    assert!(matches!(outcomes[2], Outcome::Blocked(Blocked::NotGlobal(_))), "one is enough: {outcomes:?}");
    assert_eq!(outcomes[3], Outcome::Blocked(Blocked::NoAddress));
    assert_eq!((asked.load(Ordering::Relaxed), receiver.connections.load(Ordering::Relaxed)), (4, 0));
}
