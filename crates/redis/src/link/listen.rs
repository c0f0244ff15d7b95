//! Subscriptions to channels. Each subscription has a connection of its own, which is replaced whenever it ends.

use super::Ear;
use super::dial::Dial;
use super::heard::Heard;
use super::routes::Routes;
use super::slots::Address;
use core::pin::pin;
use core::time::Duration;
use futures_util::future::{Either, select};
use redis::{PushInfo, PushKind, Value};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tourbillon_durable::timer::TimerId;

/// The shortest pause between two attempts to subscribe. Failed attempts double the pause, up to `LONGEST`.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);

/// The interval at which a subscription sends a ping to its server.
const QUESTION: Duration = Duration::from_secs(2);
const REPLY: Duration = Duration::from_secs(2);

/// The pause between two checks whether another server has become the primary. The subscription moves to the new
/// primary only if the second check confirms the change.
const AGAIN: Duration = Duration::from_millis(200);

/// The longest time for an attempt to connect and subscribe, including the questions to the Sentinels.
const ATTEMPT: Duration = Duration::from_secs(15);

/// The first pause before a subscription tries a primary again that has refused its connection. Each refusal
/// doubles the pause, up to `LONGEST_REST`. Each pause is shortened by a random part of up to a third, so that
/// nodes that were refused at the same moment do not all come back at the same moment.
const SHORTEST_REST: Duration = Duration::from_secs(4);
const LONGEST_REST: Duration = Duration::from_secs(30);

/// Remembers a primary that refuses subscriptions, for example because of its limit of clients. Without this
/// memory, a subscription at another server would end every few seconds to try the primary, and miss messages each
/// time.
#[derive(Default)]
struct Refusals {
    /// The primary that has refused the last attempt, and the moment from which it may be tried again.
    last: Option<(Address, Instant)>,
    rest: Duration,
}

impl Refusals {
    fn permit(&self, primary: &Address, now: Instant) -> bool {
        self.last.as_ref().is_none_or(|(refused, until)| refused != primary || now >= *until)
    }

    fn note(&mut self, primary: Address, now: Instant) {
        let is_again = self.last.as_ref().is_some_and(|(refused, _)| *refused == primary);
        self.rest = if is_again { (self.rest * 2).min(LONGEST_REST) } else { SHORTEST_REST };
        // The last bytes of a fresh id are random.
        let [.., random] = TimerId::fresh().as_u128().to_be_bytes();
        self.last = Some((primary, now + self.rest - self.rest / 3 * u32::from(random) / 256));
    }
}

/// Dropping this value reports the end of a subscription, so the end is reported even if the subscription's future is
/// dropped.
struct Hearing(Arc<Ear>);

impl Drop for Hearing {
    fn drop(&mut self) {
        (self.0)(Heard::End);
    }
}

/// Calls `ear` with the messages of `channels`, for ever. In a cluster, subscribes at the primary that has the key
/// `beside`, so that this primary knows whether this process is connected. Without a connection to that primary,
/// subscribes at another server, which gets all messages as well.
pub(super) async fn listen(dial: &Dial, routes: &Routes, beside: &[u8], channels: &[Vec<u8>], ear: Arc<Ear>) {
    let (mut pause, mut refusals) = (SHORTEST, Refusals::default());
    for attempt in 0.. {
        let primary = routes.connected_owner(beside).filter(|owner| refusals.permit(owner, Instant::now()));
        let at_primary = primary.as_ref().map(|address| dial.to_node(address));
        // A change of the primary during this attempt must end the new subscription. So changes count from here on.
        let mut changes = dial.roles().changes();
        let end = Arc::new(Notify::new());
        let on_push = {
            let (ear, end) = (Arc::clone(&ear), Arc::clone(&end));
            move |push: PushInfo| match (push.kind, push.data.as_slice()) {
                (PushKind::Message, [_, Value::BulkString(message)]) => ear(Heard::Message(message)),
                // The connection may end before the loop waits. `notify_one` keeps the event until then.
                (PushKind::Disconnection, _) => end.notify_one(),
                _ => {}
            }
        };
        let subscribed = at_primary.as_ref().unwrap_or(dial).subscribe(channels, attempt, on_push);
        if let Ok(Ok(mut connection)) = timeout(ATTEMPT, subscribed).await {
            let _hearing = Hearing(Arc::clone(&ear));
            if primary.is_some() {
                refusals = Refusals::default();
            }
            let mut elsewhere = None;
            ear(Heard::Begin);
            // Only an unanswered ping shows that a server has disappeared without closing the connection.
            loop {
                let next = if elsewhere.is_some() { AGAIN } else { QUESTION };
                match timeout(next, select(pin!(end.notified()), pin!(changes.changed()))).await {
                    // The connection has ended, or the Sentinels name a new primary, at which other nodes publish from
                    // now on.
                    Ok(Either::Right((Ok(()), _)) | Either::Left(_)) => break,
                    Ok(Either::Right((Err(_), _))) | Err(_) => {}
                }
                let ping = redis::cmd("PING");
                let Ok(Ok(_)) = timeout(REPLY, connection.send_packed_command(&ping)).await else { break };
                // Only an answered ping resets the pause. Otherwise a server that closes each new connection at once
                // would get attempts without growing pauses.
                pause = SHORTEST;
                // A single map of the slots may be old, so a second map must confirm the change.
                let owner = routes.connected_owner(beside);
                let owner = owner.filter(|owner| {
                    primary.as_ref() != Some(owner) && refusals.permit(owner, Instant::now())
                });
                if owner.is_some() && owner == elsewhere {
                    break;
                }
                elsewhere = owner;
            }
        } else if let Some(primary) = primary {
            refusals.note(primary, Instant::now());
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_that_refuses_subscriptions_is_tried_more_and_more_rarely() {
        let [primary, other] = ["a", "b"].map(|host| Address { host: host.into(), port: 1 });
        let (mut refusals, mut now) = (Refusals::default(), Instant::now());
        let mut rest = Duration::ZERO;
        for _ in 0..20 {
            assert!(refusals.permit(&primary, now));
            refusals.note(primary.clone(), now);
            let longer = refusals.rest;
            assert!(longer > rest && longer >= SHORTEST_REST || longer == LONGEST_REST, "{longer:?}");
            assert!(refusals.permit(&other, now), "it has refused nothing");
            assert!(!refusals.permit(&primary, now + longer / 3 * 2 - Duration::from_millis(1)));
            (now, rest) = (now + longer, longer);
        }
        assert_eq!(rest, LONGEST_REST);
        // Until the next attempt, the node has no connection to the primary by which other nodes know that it lives.
        assert!(rest <= Duration::from_secs(30));
        refusals.note(other, now);
        assert_eq!(refusals.rest, SHORTEST_REST);
    }
}
