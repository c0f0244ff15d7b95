//! Listens to the events of the Sentinels, to notice a failover early.
//!
//! In an orderly failover the old primary goes on as a primary for some ten seconds, until the Sentinels make it a
//! replica. Writes to it in that time are lost. So a task listens to each Sentinel.
//!
//! | event | means | follows |
//! |---|---|---|
//! | `+selected-slave`, `+failover-state-send-slaveof-noone` | a replica becomes a primary in a moment | calls are *held*: they are not sent yet |
//! | `+promoted-slave`, `+switch-master` | the replica is a primary now | a connection to that server replaces the old connection; calls go on |
//! | `-failover-abort-...`, or nothing for four seconds | the old primary stays | calls go on |
//!
//! For three seconds after such an event, only the server that it names counts as the primary. A Sentinel that does not
//! know of the event yet still names the old primary, which itself claims to be a primary. A new connection is stored
//! only if its server counts as the primary at that moment (`reconnector.rs`).
//!
//! A Sentinel that sends no events stops nothing. In that case, the client notices the change when the connection ends,
//! or by the answer `READONLY`, as it would without this task.

use super::dial::Dial;
use super::primary::Named;
use super::reconnector::Reconnector;
use super::roles::Roles;
use core::time::Duration;
use redis::{PushInfo, PushKind, Value};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// The shortest pause between two attempts to listen to a Sentinel. Failed attempts double the pause, up to
/// `LONGEST_PAUSE`.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The interval between two pings of a Sentinel.
const QUESTION: Duration = Duration::from_secs(2);
const REPLY: Duration = Duration::from_secs(2);

/// An event that a Sentinel has published about the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Begins,
    IsPrimary(Named),
    Ends,
    /// The subscription to the Sentinel has ended.
    Silence,
}

/// Parses an event about the primary with this service name, or returns `None` for any other event.
fn read(service: &str, channel: &[u8], message: &[u8]) -> Option<Event> {
    let (channel, message) = (core::str::from_utf8(channel).ok()?, core::str::from_utf8(message).ok()?);
    let words: Vec<&str> = message.split(' ').collect();
    let address = |host: usize, port: usize| -> Option<Named> {
        Some(((*words.get(host)?).into(), words.get(port)?.parse().ok()?))
    };
    if channel == "+switch-master" {
        // The words are: name, old host, old port, new host, new port.
        return (words.first() == Some(&service)).then(|| address(3, 4)).flatten().map(Event::IsPrimary);
    }
    // The words are either: master, name, host, port. Or: kind, name, host, port, @, name of the primary, host, port.
    let name = match words.first() {
        Some(&"master") => words.get(1),
        _ => words.iter().position(|word| *word == "@").and_then(|at| words.get(at + 1)),
    };
    if name != Some(&service) {
        return None;
    }
    match channel {
        "+selected-slave" | "+failover-state-send-slaveof-noone" => Some(Event::Begins),
        "+promoted-slave" => address(2, 3).map(Event::IsPrimary),
        channel if channel.starts_with("-failover-abort-") => Some(Event::Ends),
        _ => None,
    }
}

/// Listens to the Sentinel at the position `place` of the settings, for ever. Holds calls back during a failover, and
/// replaces the connection after a change of the primary.
pub(super) async fn follow(
    dial: Arc<Dial>,
    place: usize,
    service: Box<str>,
    roles: Arc<Roles>,
    reconnector: Reconnector,
) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let (events, mut heard) = mpsc::unbounded_channel();
        let name = service.clone();
        let on_push = move |push: PushInfo| {
            let event = match (push.kind, push.data.as_slice()) {
                (PushKind::PMessage, [_, Value::BulkString(channel), Value::BulkString(message)]) => {
                    read(&name, channel, message)
                }
                (PushKind::Disconnection, _) => Some(Event::Silence),
                _ => None,
            };
            if let Some(event) = event {
                // The receiver is gone only after this subscription was given up.
                let _sent = events.send(event);
            }
        };
        if let Ok(Ok(mut connection)) = timeout(3 * REPLY, dial.listen_to_sentinel(place, on_push)).await {
            loop {
                match timeout(QUESTION, heard.recv()).await {
                    Ok(Some(Event::Begins)) => roles.hold(),
                    Ok(Some(Event::IsPrimary(primary))) => {
                        roles.name(primary);
                        // This happens before calls go on, so that no call takes the connection to the old primary.
                        reconnector.leave_others(&roles).await;
                        roles.release();
                    }
                    Ok(Some(Event::Ends)) => roles.release(),
                    Ok(Some(Event::Silence) | None) => break,
                    Err(_) => {
                        // Only an unanswered ping shows that a Sentinel has disappeared without closing the connection.
                        let ping = redis::cmd("PING");
                        let Ok(Ok(_)) = timeout(REPLY, connection.send_packed_command(&ping)).await else {
                            break;
                        };
                        // Only an answered ping shows that the subscription works. If a Sentinel closes each new
                        // connection at once, the pauses must become longer.
                        pause = SHORTEST_PAUSE;
                    }
                }
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_about_the_primary_are_read_and_others_are_not() {
        let at = |port| Event::IsPrimary(("10.0.0.2".into(), port));
        for (channel, message, event) in [
            ("+selected-slave", "slave 10.0.0.2:7 10.0.0.2 7 @ timers 10.0.0.1 6", Some(Event::Begins)),
            (
                "+failover-state-send-slaveof-noone",
                "slave 10.0.0.2:7 10.0.0.2 7 @ timers 10.0.0.1 6",
                Some(Event::Begins),
            ),
            ("+promoted-slave", "slave 10.0.0.2:7 10.0.0.2 7 @ timers 10.0.0.1 6", Some(at(7))),
            ("+switch-master", "timers 10.0.0.1 6 10.0.0.2 7", Some(at(7))),
            ("-failover-abort-no-good-slave", "master timers 10.0.0.1 6", Some(Event::Ends)),
            ("+switch-master", "others 10.0.0.1 6 10.0.0.2 7", None),
            ("+promoted-slave", "slave timers 10.0.0.2 7 @ others 10.0.0.1 6", None),
            ("-failover-abort-no-good-slave", "master others 10.0.0.1 6", None),
            ("+sdown", "master timers 10.0.0.1 6", None),
            ("+switch-master", "timers 10.0.0.1 6 10.0.0.2 port", None),
            ("+promoted-slave", "", None),
        ] {
            assert_eq!(read("timers", channel.as_bytes(), message.as_bytes()), event, "{channel} {message}");
        }
        assert_eq!(read("timers", b"\xff", b"\xff"), None);
    }
}
