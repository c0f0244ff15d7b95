//! Keeps track of the primary by the events of the Sentinels.

use core::time::Duration;
use redis::ConnectionAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The longest time for which calls are held back during a failover. It is shorter than the default patience of a call.
const LONGEST: Duration = Duration::from_secs(4);
/// After a Sentinel has named a server as the primary, connections to any other server are not used for this time.
pub(super) const FRESH: Duration = Duration::from_secs(3);

/// The host and port under which the Sentinels know a server.
pub(crate) type Named = (Box<str>, u16);

/// Stores the primary that the events of the Sentinels name, and holds calls back during a failover.
#[derive(Debug)]
pub(crate) struct Roles {
    /// The moment until which calls are held back because a failover is under way. `None` or a past moment holds no
    /// calls back.
    held: watch::Sender<Option<Instant>>,
    /// The primary that a Sentinel has named last, and the time of that event.
    named: Mutex<Option<(Named, Instant)>>,
    /// The number of changes of the primary that the Sentinels have reported.
    changes: watch::Sender<u64>,
}

impl Default for Roles {
    fn default() -> Self {
        Self { held: watch::channel(None).0, named: Mutex::default(), changes: watch::channel(0).0 }
    }
}

/// Returns the host and port of an address, or `None` for a local socket.
pub(crate) fn named(address: &ConnectionAddr) -> Option<Named> {
    match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some((host.as_str().into(), *port))
        }
        _ => None,
    }
}

impl Roles {
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<(Named, Instant)>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until calls are no longer held back because of a failover.
    pub(crate) async fn settled(&self) {
        let mut held = self.held.subscribe();
        loop {
            let until = *held.borrow_and_update();
            let Some(until) = until.filter(|until| *until > Instant::now()) else { return };
            // Both a change and the end of the time lead to another check. `changed` cannot fail here, because `self`
            // has the sender.
            let _changed = timeout_at(until, held.changed()).await;
        }
    }

    /// Returns a receiver that notices the next change of the primary.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns whether a server may be the primary. The result is `false` only if a Sentinel has named another server
    /// as the primary within the last [`FRESH`], or since the moment `asked`, at which the question for the primary
    /// began whose answer is `server`. A server with an unknown address, `None`, is permitted.
    pub(crate) fn permit(&self, server: Option<&Named>, asked: Instant) -> bool {
        let named = self.lock();
        // An event before the question does not count once it is old. This client may have missed a later event, and
        // would then refuse the present primary.
        let fresh = named.as_ref().filter(|(_, at)| *at >= asked || at.elapsed() < FRESH);
        fresh.is_none_or(|(primary, _)| server.is_none_or(|server| server == primary))
    }

    pub(super) fn hold(&self) {
        // Several Sentinels report several events of one failover. Only the first event holds calls back. A later event
        // must not prolong the hold, because the patience of the held calls might end first.
        self.held.send_if_modified(|held| {
            let is_new = held.is_none_or(|until| until <= Instant::now());
            if is_new {
                *held = Some(Instant::now() + LONGEST);
            }
            is_new
        });
    }

    pub(super) fn release(&self) {
        self.held.send_replace(None);
    }

    /// Records that a Sentinel has named this server as the primary.
    pub(super) fn name(&self, primary: Named) {
        let mut named = self.lock();
        let is_new = named.as_ref().is_none_or(|(known, _)| *known != primary);
        // Several events name the same server. Each of them begins the time `FRESH` again. Only the first event counts
        // as a change, because a change ends the subscription to messages, which then begins at the new primary.
        *named = Some((primary, Instant::now()));
        drop(named);
        if is_new {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_that_was_named_is_taken_for_the_primary() {
        let (roles, first, second): (_, Named, Named) = (Roles::default(), ("a".into(), 1), ("b".into(), 1));
        let mut changes = roles.changes();
        let permit = |server| roles.permit(server, Instant::now());
        assert!(permit(Some(&first)) && permit(None));
        roles.name(second.clone());
        assert!(!permit(Some(&first)) && permit(Some(&second)) && permit(None));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        roles.name(second);
        assert!(!changes.has_changed().unwrap(), "it is the same one");
    }

    #[test]
    fn a_server_that_was_named_before_an_event_is_refused_also_after_a_long_attempt_to_connect() {
        let (roles, first, second): (_, Named, Named) = (Roles::default(), ("a".into(), 1), ("b".into(), 1));
        let [asked, event, later] = [3, 2, 1].map(|times| Instant::now().checked_sub(FRESH * times).unwrap());
        *roles.lock() = Some((second.clone(), event));
        assert!(!roles.permit(Some(&first), asked) && roles.permit(Some(&second), asked));
        assert!(roles.permit(Some(&first), later), "an old event before the question");
    }
}
