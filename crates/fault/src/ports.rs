//! Finds free ports.

use std::net::TcpListener;
use std::process;
use std::sync::{Mutex, PoisonError};

/// The first of the [`COUNT`] ports to try. No system uses these ports for outgoing connections. So a server that
/// restarts finds its port free again.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// The port that [`free_port`] returned last, as an offset from [`FIRST`]. `None` before the first call.
static LAST: Mutex<Option<u16>> = Mutex::new(None);

/// Returns a free port of the loopback interface. Within a process, successive calls return different ports.
#[must_use]
pub fn free_port() -> u16 {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    // Each process begins its search at another place.
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
