//! Distinguishes a shortage of this machine from a fault of a receiver.

use core::fmt;
use core::net::SocketAddr;
use std::io;

/// The error for a connection that this machine could not begin, because it lacks something of its own. The receiver
/// has no part in such an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage(pub(crate) &'static str);

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this machine has no free {}", self.0)
    }
}

impl core::error::Error for Shortage {}

impl Shortage {
    /// Returns the shortage that caused an error of a connection to this address, or `None` if the error has another
    /// cause.
    pub(crate) fn of(error: &io::Error, address: SocketAddr) -> Option<Self> {
        // The system also gives this error for an address of IPv6 if it has no IPv6. This is not a shortage.
        if error.kind() == io::ErrorKind::AddrNotAvailable && address.is_ipv4() {
            return Some(Self("port"));
        }
        Self::of_socket(error)
    }

    /// Returns the shortage that caused an error of a new socket, or `None` if the error has another cause.
    pub(crate) fn of_socket(error: &io::Error) -> Option<Self> {
        if error.kind() == io::ErrorKind::OutOfMemory {
            return Some(Self("memory for a connection"));
        }
        Self::of_number(error)
    }

    #[cfg(unix)]
    fn of_number(error: &io::Error) -> Option<Self> {
        use rustix::io::Errno;
        match Errno::from_io_error(error)? {
            Errno::MFILE | Errno::NFILE => Some(Self("file descriptor")),
            Errno::NOBUFS => Some(Self("memory for a connection")),
            _ => None,
        }
    }

    #[cfg(not(unix))]
    fn of_number(_: &io::Error) -> Option<Self> {
        None
    }
}
