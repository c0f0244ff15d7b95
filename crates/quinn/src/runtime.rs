//! quinn's runtime on tokio, with timers of the engine.

use crate::timer::Timer;
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime};
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

/// A runtime for quinn on tokio, whose timers are those of [`tourbillon`]. Pass it to [`quinn::Endpoint::new`] in place
/// of [`quinn::TokioRuntime`].
///
/// Tasks, sockets and the present time are those of [`quinn::TokioRuntime`]. A task of the tokio runtime drives the
/// timers: see [`tourbillon::time`].
///
/// # Timers
///
/// A timer belongs to the tokio runtime in which [`new_timer`](Runtime::new_timer) is called. quinn calls it in the
/// task of a connection, so each connection has its timer in the runtime that runs the connection. Outside of a
/// runtime, and in a runtime that was built without `enable_time`, the process's own engine runs the timer. If the
/// thread has entered shards ([`Shards::enter`](tourbillon::Shards::enter)), these run the timer, by their clock: the
/// timer waits there for as long as its deadline is away.
///
/// A timer is never early, as a caller measures it with [`Instant`]. Its lateness is less than a tick of 64 µs, plus
/// the rest of tokio's millisecond, plus the time of a wake-up. If the deadline has passed, the first poll is ready. A
/// deadline that is centuries ahead never comes, and the timer may still be reset.
///
/// A timer is `Send` and may be dropped in any thread, before or after the end of its runtime. If a reset races with
/// the old deadline, the timer is ready at the new deadline and not before. The task may then be woken once for the old
/// deadline.
///
/// # Panics
///
/// A poll of a timer panics if the runtime of the timer has ended and the deadline has not come, as a poll of tokio's
/// sleep does. quinn polls timers only in tasks of the runtime, which end with the runtime. The first timer outside of
/// a runtime panics if the system refuses a thread to the process's own engine: see [`tourbillon::future::global`].
///
/// [`spawn`](Runtime::spawn) and [`wrap_udp_socket`](Runtime::wrap_udp_socket) panic outside of a tokio runtime, as
/// those of [`quinn::TokioRuntime`] do.
///
/// # Time complexity
///
/// `new_timer` allocates a box. A reset allocates nothing and moves the timer that exists. A reset to a later deadline
/// costs a store and a load, as [`Timer::arm_at`](tourbillon::Timer::arm_at) does. A reset to a moment before the
/// engine's next check of the timer costs an insertion. If the task that drives the timers would sleep beyond that
/// moment, the reset also wakes this task.
///
/// # Examples
///
/// ```
/// use quinn::{Endpoint, EndpointConfig};
/// use std::net::{Ipv4Addr, UdpSocket};
/// use std::sync::Arc;
/// use tourbillon_quinn::TokioRuntime;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
/// let client = Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime))?;
/// # assert!(client.local_addr()?.ip().is_loopback());
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioRuntime;

impl Runtime for TokioRuntime {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer::new(deadline))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        quinn::TokioRuntime.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        quinn::TokioRuntime.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        quinn::TokioRuntime.now()
    }
}
