//! Subscriptions: a connection of their own, which is made again for as long as it takes.

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

/// The pauses between attempts.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);

/// The pause between two questions whether the server is still there, and how long it may take to answer.
const QUESTION: Duration = Duration::from_secs(2);
const REPLY: Duration = Duration::from_secs(2);

/// The pause before a second look at a primary that seems to have changed.
const AGAIN: Duration = Duration::from_millis(200);

/// How long a connection may take to be made and to subscribe, with the steps of Sentinel.
const ATTEMPT: Duration = Duration::from_secs(15);

/// Calls the ear with the end of the subscription, even if its future is dropped.
struct Hearing(Arc<Ear>);

impl Drop for Hearing {
    fn drop(&mut self) {
        (self.0)(Heard::End);
    }
}

/// Calls `ear` with the messages of some channels, for ever. In a cluster, whose servers pass all messages on to each
/// other, the subscription is at the primary that has the key `beside`, which then knows whether this process has its
/// connection. While this process has no connection to that primary, another server passes the messages on.
pub(super) async fn listen(dial: &Dial, routes: &Routes, beside: &[u8], channels: &[Vec<u8>], ear: Arc<Ear>) {
    let (mut pause, mut is_refused) = (SHORTEST, false);
    for attempt in 0.. {
        // A primary that accepts no further connection is tried every other time.
        let primary = routes.connected_owner(beside).filter(|_| !is_refused);
        is_refused = primary.is_some();
        let at_primary = primary.as_ref().map(|address| dial.to_node(address));
        let mut changes = dial.roles().changes();
        let end = Arc::new(Notify::new());
        let on_push = {
            let (ear, end) = (Arc::clone(&ear), Arc::clone(&end));
            move |push: PushInfo| match (push.kind, push.data.as_slice()) {
                (PushKind::Message, [_, Value::BulkString(message)]) => ear(Heard::Message(message)),
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
            // If the server disappears without closing the connection, only an unanswered question shows it.
            loop {
                let next = if elsewhere.is_some() { AGAIN } else { QUESTION };
                match timeout(next, select(pin!(end.notified()), pin!(changes.changed()))).await {
                    // Other nodes publish at the new primary from now on.
                    Ok(Either::Right((Ok(()), _)) | Either::Left(_)) => break,
                    Ok(Either::Right((Err(_), _))) | Err(_) => {}
                }
                let ping = redis::cmd("PING");
                let Ok(Ok(_)) = timeout(REPLY, connection.send_packed_command(&ping)).await else { break };
                pause = SHORTEST;
                // A single map of the slots may be old.
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
