//! Defines the limits of connections.

use core::time::Duration;

/// The limits for the connections of a server: their number, the sizes of requests, and the longest time for each state
/// of a connection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The greatest number of connections. 4,096 by default. A 64th of the connections is reserved for clients on the
    /// service's own machine.
    pub connections: u32,
    /// The greatest size of a request's header, in bytes. 16 KiB by default, at least 8 KiB.
    pub header: usize,
    /// The greatest size of a request's body, in bytes. 8 MiB by default.
    pub body: usize,
    /// The longest time for a TLS handshake, and for the header of a request to arrive. The header of the first request
    /// counts from the start of the connection, and a later header from its first byte. 10 s by default.
    pub header_timeout: Duration,
    /// The longest time for the body of a request to arrive. 30 s by default.
    pub body_timeout: Duration,
    /// The longest time for which a connection without a running request stays open after its first request. 75 s by
    /// default.
    pub idle_timeout: Duration,
    /// The longest time to wait for a client to read a further part of an answer. After this time, the connection is
    /// closed. 30 s by default.
    pub write_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            header: 16 << 10,
            body: 8 << 20,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
        }
    }
}
