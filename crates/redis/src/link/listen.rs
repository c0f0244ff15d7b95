//! Subscriptions to channels. Each subscription has a connection of its own, which is replaced whenever it ends.

use super::Ear;
use super::dial::Dial;
use super::heard::Heard;
use super::routes::Routes;
use core::pin::pin;
use core::time::Duration;
use futures_util::future::{Either, select};
use redis::{PushInfo, PushKind, Value};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

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
    let (mut pause, mut is_refused) = (SHORTEST, false);
    for attempt in 0.. {
        // A primary that refuses the connection is tried only every other time.
        let primary = routes.connected_owner(beside).filter(|_| !is_refused);
        is_refused = primary.is_some();
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
            is_refused = false;
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
                let owner = routes.connected_owner(beside).filter(|owner| primary.as_ref() != Some(owner));
                if owner.is_some() && owner == elsewhere {
                    break;
                }
                elsewhere = owner;
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}
