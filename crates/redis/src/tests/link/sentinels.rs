//! Tests calls behind two Sentinels that name different primaries. One of them is cut off from the other servers.

use super::{LONG, count, counted, open};
use crate::link::Connect;
use core::time::Duration;
use tourbillon_fault::{Server, Watched, eventually, watch};

/// A primary and a Sentinel that are cut off together, and the new primary with the Sentinel that knows it.
struct Parted {
    old: Server,
    new: Server,
    cut_off: Server,
    informed: Server,
}

impl Parted {
    fn start() -> Option<Self> {
        let (old, new) = (Server::start(&[])?, Server::start(&[])?);
        let (cut_off, informed) = (watch(&old, 1), watch(&new, 2));
        Some(Self { old, new, cut_off, informed })
    }
}

fn through(sentinels: [&Server; 2]) -> Connect {
    Connect::sentinel(sentinels.map(Server::url), Watched::NAME).expect("URLs").response_timeout(LONG)
}

#[test]
fn the_sentinel_that_knows_the_last_failover_names_the_primary_in_any_order() {
    let Some(parted) = Parted::start() else { return };
    let Parted { old, new, cut_off, informed } = &parted;
    for (sentinels, sum) in [([cut_off, informed], 1), ([informed, cut_off], 2)] {
        let session = open(&through(sentinels).patience(LONG));
        assert_eq!(count(&session, "a").expect("a reply"), sum);
        assert_eq!((counted(new, "a"), counted(old, "a")), (sum, 0));
    }
}

#[test]
fn a_sentinel_that_is_cut_off_names_no_primary_while_the_other_is_silent() {
    let Some(parted) = Parted::start() else { return };
    let Parted { old, new, cut_off, informed } = &parted;
    let patience = Duration::from_secs(3);
    let connect = through([cut_off, informed]).patience(patience).connection_timeout(patience / 6);
    let session = open(&connect);
    eventually("a call succeeds", || count(&session, "a").is_ok());
    informed.stop();
    new.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    // The first call may be lost with the connection.
    eventually("a call waits for a connection", || {
        let error = count(&session, "b").expect_err("nobody knows the primary");
        !error.may_have_run()
    });
    let error = count(&session, "b").expect_err("nobody knows the primary");
    assert!(!error.may_have_run() && error.to_string().contains("former primary"), "{error}");
    informed.go_on();
    eventually("a call succeeds", || count(&session, "c").is_ok());
    assert_eq!((counted(new, "c"), counted(old, "b"), counted(old, "c")), (1, 0, 0));
}
