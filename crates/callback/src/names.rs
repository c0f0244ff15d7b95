//! Resolves names without blocking threads. A silent name server delays only the callbacks to its own names.
//!
//! The system's resolver blocks a thread for each look-up. Look-ups whose name server does not answer would occupy all
//! threads of a runtime, and stop other work.

use crate::shortage::Shortage;
use core::future::Future;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::pin::Pin;
use core::time::Duration;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{ResolverBuilder, TokioResolver};
use std::io;
use std::net::UdpSocket;
use std::sync::{Arc, OnceLock};
use tokio::time::timeout;

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
/// The time for which a look-up waits for the addresses of the other family, IPv4 or IPv6, once it has those of one
/// family. Some name servers answer for one family only.
const OTHER_FAMILY: Duration = Duration::from_millis(250);
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
            // Callbacks to other hosts are refused before they are sent.
            let Some(name) = dns_name(&host) else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the host has no name of DNS"));
            };
            let found = look_up(resolver, name).await.map_err(|error| words(&error))?;
            Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
        })
    })
}

/// Returns the name by which a name server knows a host. The host is a host of a URL, so all its letters are ASCII.
/// Names of hosts are not restricted to letters, digits and hyphens: some networks have names with an underscore.
/// Returns `None` if DNS cannot have such a name.
pub(crate) fn dns_name(host: &str) -> Option<Name> {
    Name::from_ascii(host).ok().filter(|name| name.iter().len() > 0)
}

/// Returns the addresses of a name, of both families. Once the addresses of one family are known, waits for those of
/// the other only for the time [`OTHER_FAMILY`]. Addresses that come later are not used, so the guard need not check
/// them.
async fn look_up(resolver: TokioResolver, name: Name) -> Result<Vec<IpAddr>, NetError> {
    let family = |kind: RecordType| {
        let (resolver, name) = (resolver.clone(), name.clone());
        Box::pin(async move {
            let found = resolver.lookup(name, kind).await?;
            let addresses = found.answers().iter().filter_map(|record| record.data.ip_addr());
            Ok::<Vec<IpAddr>, NetError>(addresses.collect())
        })
    };
    let (mut v4, mut v6) = (family(RecordType::A), family(RecordType::AAAA));
    let (first, other) = tokio::select! {
        biased;
        first = &mut v4 => (first, v6),
        first = &mut v6 => (first, v4),
    };
    let mut found = match first {
        Ok(mut found) if !found.is_empty() => {
            if let Ok(Ok(more)) = timeout(OTHER_FAMILY, other).await {
                found.extend(more);
            }
            found
        }
        first => match (first, other.await) {
            (_, Ok(found)) if !found.is_empty() => found,
            (Err(error), Err(other)) => return Err(if error.is_no_records_found() { other } else { error }),
            (Err(error), _) | (_, Err(error)) => return Err(error),
            (Ok(none), Ok(_)) => none,
        },
    };
    found.sort_by_key(IpAddr::is_ipv6);
    Ok(found)
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
    // The look-up must end before its caller gives up. Otherwise its error would be lost.
    options.timeout = time / (TRIES + 1);
    options.attempts = TRIES as usize - 1;
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
    // The resolver does not say whether it failed to open a socket. An attempt to open another socket shows this.
    if let Some(shortage) =
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).err().as_ref().and_then(Shortage::of_socket)
    {
        return io::Error::other(shortage);
    }
    match error {
        NetError::Busy => io::Error::other(Shortage("room for a look-up of a name")),
        NetError::Timeout => io::Error::new(io::ErrorKind::TimedOut, "the name server does not answer"),
        _ => io::Error::other("the name server answers with an error"),
    }
}
