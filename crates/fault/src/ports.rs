//! Free ports.

use std::net::TcpListener;
use std::process;
use std::sync::{Mutex, PoisonError};

/// Ports from which no system takes the local port of an outgoing connection: a server that restarts finds its own
/// free.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// The last port that was given out, counted from [`FIRST`].
static LAST: Mutex<Option<u16>> = Mutex::new(None);

/// A port of the loopback interface that nothing listens at, and that this process has not been given before.
#[must_use]
pub fn free_port() -> u16 {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    // Processes begin at places of their own.
    let start = last.map_or_else(|| process::id().wrapping_mul(7919) % u32::from(COUNT), u32::from);
    for step in 1..=u32::from(COUNT) {
        let offset = u16::try_from((start + step) % u32::from(COUNT)).unwrap_or(0);
        if TcpListener::bind(("127.0.0.1", FIRST + offset)).is_ok() {
            *last = Some(offset);
            return FIRST + offset;
        }
    }
    panic!("no port is free");
}
