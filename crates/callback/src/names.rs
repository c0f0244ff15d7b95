//! Resolves names without blocking threads. A silent name server delays only the callbacks to its own names.
//!
//! The system's resolver blocks a thread for each look-up. Look-ups whose name server does not answer would occupy all
//! threads of a runtime, and stop other work.

use core::future::Future;
use core::net::SocketAddr;
use core::pin::Pin;
use core::time::Duration;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::{ResolverBuilder, TokioResolver};
use std::io;
use std::sync::{Arc, OnceLock};

/// The future that a [`Resolver`] returns.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// A function that resolves a host name to addresses, and combines each address with the given port.
pub type Resolver = Arc<dyn Fn(&str, u16) -> Resolving + Send + Sync>;

/// The number of times that a look-up asks the name servers. The time limit of the look-up covers all tries together.
const TRIES: u32 = 3;
/// The greatest number of names whose addresses the resolver remembers.
const CACHED: u64 = 4_096;
/// The longest time for which the resolver caches an address. For a name without an address, the longest time is
/// [`MISSED`].
const BELIEVED: Duration = Duration::from_secs(60);
const MISSED: Duration = Duration::from_secs(5);
/// The greatest number of look-ups that may be under way on one connection to a name server.
const UNDER_WAY: usize = 4_096;

/// Makes a resolver that asks the name servers in `servers`, or the system's name servers if the list is empty. Each
/// look-up may take at most `time`.
///
/// The system's names (`/etc/hosts`) and servers (`/etc/resolv.conf`) are read at the first look-up. If these files
/// cannot be read, the system's own resolver is used.
pub(crate) fn resolver(servers: Vec<SocketAddr>, time: Duration) -> Resolver {
    let made: Arc<OnceLock<TokioResolver>> = Arc::default();
    Arc::new(move |host, port| {
        if made.get().is_none()
            && let Ok(resolver) = make(&servers, time)
        {
            let _another_was_quicker = made.set(resolver);
        }
        let resolver = made.get().cloned();
        let host = host.to_owned();
        Box::pin(async move {
            let Some(resolver) = resolver else {
                return Ok(tokio::net::lookup_host((host, port)).await?.collect());
            };
            let found = resolver.lookup_ip(host).await.map_err(|error| words(&error))?;
            Ok(found.iter().map(|address| SocketAddr::new(address, port)).collect())
        })
    })
}

fn make(servers: &[SocketAddr], time: Duration) -> Result<TokioResolver, NetError> {
    let mut builder = if servers.is_empty() { TokioResolver::builder_tokio()? } else { of_servers(servers) };
    set_options(builder.options_mut(), time);
    builder.build()
}

fn of_servers(servers: &[SocketAddr]) -> ResolverBuilder<TokioRuntimeProvider> {
    let server = |address: &SocketAddr| {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
            connection.port = address.port();
            connection
        });
        NameServerConfig::new(address.ip(), true, connections.into())
    };
    let config = ResolverConfig::from_name_servers(servers.iter().map(server).collect());
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
}

fn set_options(options: &mut ResolverOpts, time: Duration) {
    // A look-up covers both families of addresses, IPv4 and IPv6. If the server answers for only one family, the
    // look-up of the other family must time out before the caller does. Otherwise the addresses found would be lost.
    options.timeout = time / (TRIES + 1);
    options.attempts = TRIES as usize - 1;
    // All addresses are needed, since the name is blocked if a single address is blocked.
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.cache_size = CACHED;
    options.positive_max_ttl = Some(BELIEVED);
    options.negative_max_ttl = Some(MISSED);
    options.max_active_requests = UNDER_WAY;
}

/// Converts an error of a look-up into an I/O error. The text of the I/O error does not name the name servers.
fn words(error: &NetError) -> io::Error {
    if error.is_no_records_found() {
        return io::Error::new(io::ErrorKind::NotFound, "the name is not known");
    }
    match error {
        NetError::Timeout => io::Error::new(io::ErrorKind::TimedOut, "the name server does not answer"),
        _ => io::Error::other("the name server answers with an error"),
    }
}
