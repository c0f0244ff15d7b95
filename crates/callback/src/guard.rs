//! Decides to which addresses callbacks may be sent.
//!
//! Users of the service choose the addresses that it calls. The service may run inside a network that its users cannot
//! reach. So each address is checked just before a connection is made, after its name was resolved. A check of the
//! URL's text alone would miss three cases: a name that resolves to an internal address, a name that resolves to a
//! different address the second time, and an unusual notation of an address. The crate `url` parses the addresses in
//! URLs, in all notations.
//!
//! Ranges that IANA's registries mark as not globally reachable are blocked. So are the IPv6 ranges through which IPv4
//! addresses are reached: 6to4, Teredo, NAT64. In IPv6 only `2000::/3` is in use, so all other addresses are blocked.
//! At certain addresses, clouds serve the secrets of a machine. These addresses are blocked even if private ranges are
//! permitted.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;
use std::io;
use std::net::UdpSocket;

/// A range of addresses, such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    first: IpAddr,
    bits: u8,
}

/// The error for a text that is not a [`Range`]. The error contains the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRange(Box<str>);

impl fmt::Display for NoRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a range of addresses, as 10.0.0.0/8", self.0)
    }
}

impl core::error::Error for NoRange {}

/// Returns the bits of an address as a number. The 32 bits of an IPv4 address are the upper bits of the number.
fn number_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => u128::from(address),
    }
}

impl Range {
    const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Self {
        Self { first: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    const fn v6(first: [u16; 8], bits: u8) -> Self {
        let [a, b, c, d, e, f, g, h] = first;
        Self { first: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), bits }
    }

    /// Returns whether the range has only a single address.
    fn is_one(&self) -> bool {
        self.bits == if self.first.is_ipv4() { 32 } else { 128 }
    }

    /// Returns whether the address is in the range. A range of IPv4 addresses contains no IPv6 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        if self.first.is_ipv4() != address.is_ipv4() {
            return false;
        }
        let mask = if self.bits == 0 { 0 } else { u128::MAX << (128 - u32::from(self.bits)) };
        number_of(self.first) & mask == number_of(address) & mask
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

impl FromStr for Range {
    type Err = NoRange;

    fn from_str(text: &str) -> Result<Self, NoRange> {
        let no_range = || NoRange(text.into());
        let (first, bits) = text.split_once('/').map_or((text, None), |(first, bits)| (first, Some(bits)));
        let first: IpAddr = first.parse().map_err(|_| no_range())?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| no_range())?;
        if bits > most { Err(no_range()) } else { Ok(Self { first, bits }) }
    }
}

/// Private ranges of addresses, which are blocked unless [`Guard::allow_private`] is set.
const PRIVATE: [Range; 5] = [
    Range::v4(10, 0, 0, 0, 8),
    Range::v4(127, 0, 0, 0, 8),
    Range::v4(172, 16, 0, 0, 12),
    Range::v4(192, 168, 0, 0, 16),
    Range::v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
];

/// The ranges that are blocked even if private addresses are permitted. No receiver of callbacks has an address in
/// these ranges.
const BLOCKED: [Range; 14] = [
    Range::v4(0, 0, 0, 0, 8),
    Range::v4(100, 64, 0, 0, 10),
    Range::v4(192, 0, 0, 0, 24),
    Range::v4(192, 0, 2, 0, 24),
    Range::v4(192, 88, 99, 0, 24),
    Range::v4(198, 18, 0, 0, 15),
    Range::v4(198, 51, 100, 0, 24),
    Range::v4(203, 0, 113, 0, 24),
    Range::v4(224, 0, 0, 0, 4),
    Range::v4(240, 0, 0, 0, 4),
    Range::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    Range::v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    Range::v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
    Range::v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
];

/// The IPv6 addresses that are in use on the public internet.
const GLOBAL: Range = Range::v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// The ranges of link-local addresses. At such an address most clouds serve the metadata of a machine.
const LINK_LOCAL: [Range; 2] = [Range::v4(169, 254, 0, 0, 16), Range::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10)];

/// The addresses, outside of the link-local ranges, at which Azure, Oracle, Alibaba, AWS and Google serve a machine's
/// metadata. The metadata contains secrets.
const METADATA: [Range; 5] = [
    Range::v4(168, 63, 129, 16, 32),
    Range::v4(192, 0, 0, 192, 32),
    Range::v4(100, 100, 100, 200, 32),
    Range::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128),
    Range::v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
];

/// Decides to which addresses callbacks may be sent. The default permits all addresses that are reachable from the
/// whole internet.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Guard {
    /// Whether private addresses and the addresses of this machine are permitted: 10/8, 127/8, 172.16/12, 192.168/16,
    /// `fc00::/7` and `::1`. Link-local addresses stay blocked, as do all addresses where clouds serve metadata.
    pub allow_private: bool,
    /// Ranges that are permitted even if another rule blocks them, except the addresses in `own`. A link-local address,
    /// or another address where a cloud serves metadata, is permitted only by a range of exactly this address.
    pub allowed: Vec<Range>,
    /// The addresses at which the service that sends the callbacks listens itself. They are always blocked, because a
    /// callback could otherwise give commands to the service. An unspecified address (`0.0.0.0`, `::`) stands for every
    /// address of this machine: its port is blocked on all of this machine's addresses, and on all private addresses.
    pub own: Vec<SocketAddr>,
}

/// The reason why a destination must not be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blocked {
    /// The address is not reachable from the whole internet.
    NotGlobal(IpAddr),
    /// The service that sends the callbacks listens at this address itself: see [`Guard::own`].
    Own(SocketAddr),
    /// The host's name has no address.
    NoAddress,
    /// The scheme is neither `http` nor `https`, or `http` is not permitted.
    Scheme,
    /// The URL contains a user's name or password.
    UserInfo,
    /// The port is not permitted, or belongs to another protocol.
    Port(u16),
}

/// Writes the reason without the address. A client of the service may read this text, but must not learn to which
/// addresses names inside the service's network resolve.
impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGlobal(_) => f.write_str("the address is not reachable from the whole internet"),
            Self::Own(_) => f.write_str("the service itself listens at the address"),
            Self::NoAddress => f.write_str("the name has no address"),
            Self::Scheme => f.write_str("the scheme is not permitted"),
            Self::UserInfo => f.write_str("the URL has a user's name"),
            Self::Port(port) => write!(f, "port {port} is not permitted"),
        }
    }
}

impl core::error::Error for Blocked {}

/// Returns whether an address belongs to this machine. To find out, asks the system for the source address of a packet
/// to this address. If both addresses are equal, the address is this machine's own. No packet is sent. Returns false if
/// no route leads to the address. Returns true after any other error, to be safe.
fn is_local(address: IpAddr) -> bool {
    let any =
        if address.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    match source {
        Ok(source) => source.ip() == address,
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::AddrNotAvailable
                | io::ErrorKind::Unsupported
        ),
    }
}

/// Returns the IPv4 address inside an IPv6 address of the form `::ffff:a.b.c.d`. Returns any other address unchanged.
fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

impl Guard {
    /// Checks an address just before a connection is made.
    ///
    /// # Errors
    ///
    /// Fails if the address is blocked.
    pub fn check(&self, address: SocketAddr) -> Result<(), Blocked> {
        let ip = canonical(address.ip());
        let is_private =
            ip == IpAddr::V6(Ipv6Addr::LOCALHOST) || PRIVATE.iter().any(|range| range.contains(ip));
        for own in self.own.iter().filter(|own| own.port() == address.port()) {
            let is_of_this_machine = || is_private || ip.is_unspecified() || is_local(ip);
            if canonical(own.ip()) == ip || own.ip().is_unspecified() && is_of_this_machine() {
                return Err(Blocked::Own(address));
            }
        }
        let is_metadata = LINK_LOCAL.iter().chain(&METADATA).any(|range| range.contains(ip));
        let is_named = |range: &Range| !is_metadata || range.is_one();
        if self.allowed.iter().any(|range| range.contains(ip) && is_named(range)) {
            return Ok(());
        }
        if is_metadata || ip.is_ipv6() && !is_private && !GLOBAL.contains(ip) {
            return Err(Blocked::NotGlobal(ip));
        }
        if is_private {
            return if self.allow_private { Ok(()) } else { Err(Blocked::NotGlobal(ip)) };
        }
        if BLOCKED.iter().any(|range| range.contains(ip)) { Err(Blocked::NotGlobal(ip)) } else { Ok(()) }
    }

    /// Checks all addresses of a name. A single blocked address is enough for a refusal, because the caller may connect
    /// to any of the addresses. An attacker could give a name both a public and an internal address.
    ///
    /// # Errors
    ///
    /// Fails if an address is blocked, or if there are no addresses.
    pub fn check_all(&self, addresses: &[SocketAddr]) -> Result<(), Blocked> {
        if addresses.is_empty() {
            return Err(Blocked::NoAddress);
        }
        addresses.iter().try_for_each(|address| self.check(*address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(guard: &Guard, address: &str) -> bool {
        guard.check(SocketAddr::new(address.parse().unwrap(), 443)).is_ok()
    }

    /// Addresses of all kinds. The first flag says whether an address is permitted by default. The second flag says
    /// whether it is permitted if private addresses are allowed.
    const ADDRESSES: [(&str, bool, bool); 74] = [
        ("1.1.1.1", true, true),
        ("8.8.8.8", true, true),
        ("9.255.255.255", true, true),
        ("11.0.0.0", true, true),
        ("93.184.216.34", true, true),
        ("100.63.255.255", true, true),
        ("100.128.0.0", true, true),
        ("126.255.255.255", true, true),
        ("128.0.0.0", true, true),
        ("169.253.255.255", true, true),
        ("169.255.0.0", true, true),
        ("172.15.255.255", true, true),
        ("172.32.0.0", true, true),
        ("192.0.1.0", true, true),
        ("192.167.255.255", true, true),
        ("192.169.0.0", true, true),
        ("198.17.255.255", true, true),
        ("198.20.0.0", true, true),
        ("223.255.255.255", true, true),
        ("2606:4700:4700::1111", true, true),
        ("2a00:1450:4001::200e", true, true),
        ("2001:200::1", true, true),
        ("2003::1", true, true),
        ("::ffff:8.8.8.8", true, true),
        ("10.0.0.0", false, true),
        ("10.255.255.255", false, true),
        ("127.0.0.1", false, true),
        ("127.255.255.254", false, true),
        ("172.16.0.1", false, true),
        ("172.31.255.255", false, true),
        ("192.168.0.1", false, true),
        ("::1", false, true),
        ("fc00::1", false, true),
        ("fdff::1", false, true),
        ("::ffff:127.0.0.1", false, true),
        ("::ffff:10.0.0.1", false, true),
        ("fec0::1", false, false),
        ("feff::1", false, false),
        ("1fff::1", false, false),
        ("4000::1", false, false),
        ("8000::1", false, false),
        ("168.63.129.16", false, false),
        ("168.63.129.15", true, true),
        ("fd00:ec2::254", false, false),
        ("fd00:ec2::253", false, true),
        ("fd20:ce::254", false, false),
        ("0.0.0.0", false, false),
        ("0.1.2.3", false, false),
        ("100.64.0.1", false, false),
        ("100.127.255.255", false, false),
        ("169.254.169.254", false, false),
        ("169.254.0.1", false, false),
        ("::ffff:169.254.169.254", false, false),
        ("192.0.0.1", false, false),
        ("192.0.2.1", false, false),
        ("192.88.99.1", false, false),
        ("198.18.0.1", false, false),
        ("198.19.255.255", false, false),
        ("198.51.100.1", false, false),
        ("203.0.113.1", false, false),
        ("224.0.0.1", false, false),
        ("240.0.0.1", false, false),
        ("255.255.255.255", false, false),
        ("::", false, false),
        ("::7f00:1", false, false),
        ("64:ff9b::a9fe:a9fe", false, false),
        ("64:ff9b:1::1", false, false),
        ("100::1", false, false),
        ("2001::1", false, false),
        ("2001:db8::1", false, false),
        ("2002:7f00:1::", false, false),
        ("5f00::1", false, false),
        ("fe80::1", false, false),
        ("ff02::1", false, false),
    ];

    #[test]
    fn addresses_are_called_or_not() {
        const { assert!(ADDRESSES.len() >= 60) };
        let (default, private) = (Guard::default(), Guard { allow_private: true, ..Guard::default() });
        for (address, by_default, if_private) in ADDRESSES {
            assert_eq!(
                (check(&default, address), check(&private, address)),
                (by_default, if_private),
                "{address}"
            );
        }
    }

    #[test]
    fn own_listeners_are_never_called() {
        let everywhere = Range::from_str("0.0.0.0/0").unwrap();
        let own: Vec<SocketAddr> = vec!["127.0.0.1:7670".parse().unwrap(), "0.0.0.0:9000".parse().unwrap()];
        let guard = Guard { allow_private: true, allowed: vec![everywhere], own };
        let check = |address: &str| guard.check(address.parse().unwrap()).is_ok();
        assert!(!check("127.0.0.1:7670") && !check("[::ffff:127.0.0.1]:7670") && check("127.0.0.1:7671"));
        assert!(
            !check("127.0.0.1:9000")
                && !check("10.1.2.3:9000")
                && !check("[::1]:9000")
                && check("8.8.8.8:9000")
        );
    }

    #[test]
    fn an_unspecified_listener_is_at_every_address_of_this_machine() {
        // This socket shows the address from which this machine would reach another machine. Nothing is sent.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let own = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
        assert!(is_local(IpAddr::V4(Ipv4Addr::LOCALHOST)) && !is_local("192.0.2.1".parse().unwrap()));
        // A machine without a network has no such address, so the rest of the test is left out.
        let Ok(own) = own else { return };
        assert!(is_local(own.ip()), "{own}");
        let everywhere = Range::from_str("0.0.0.0/0").unwrap();
        let guard = Guard {
            allow_private: true,
            allowed: vec![everywhere],
            own: vec!["0.0.0.0:9000".parse().unwrap()],
        };
        let at = |port| guard.check(SocketAddr::new(own.ip(), port));
        assert_eq!(at(9_000), Err(Blocked::Own(SocketAddr::new(own.ip(), 9_000))));
        assert_eq!(at(9_001), Ok(()));
    }

    #[test]
    fn metadata_are_called_only_where_their_address_is_named() {
        let everything = ["0.0.0.0/0", "::/0", "fd00::/8"].map(|range| range.parse().unwrap());
        let wide = Guard { allow_private: true, allowed: everything.to_vec(), ..Guard::default() };
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fe80::a9fe:a9fe",
            "fd00:ec2::254",
            "fd20:ce::254",
        ] {
            assert!(!check(&wide, address), "{address}");
            let named = Guard { allowed: vec![address.parse().unwrap()], ..Guard::default() };
            assert!(check(&named, address), "{address}");
        }
        assert!(check(&wide, "fd00::1") && check(&wide, "10.0.0.1") && check(&wide, "100.64.0.1"));
    }

    #[test]
    fn one_blocked_address_is_enough() {
        let guard = Guard::default();
        let (public, inner) = ("8.8.8.8:443".parse().unwrap(), "10.0.0.1:443".parse().unwrap());
        assert_eq!(guard.check_all(&[public]), Ok(()));
        assert!(guard.check_all(&[public, inner]).is_err());
        assert_eq!(guard.check_all(&[]), Err(Blocked::NoAddress));
    }

    #[test]
    fn allowed_ranges_are_called() {
        let guard = Guard {
            allowed: vec!["10.1.0.0/16".parse().unwrap(), "fd00::7".parse().unwrap()],
            ..Guard::default()
        };
        for (address, is_called) in
            [("10.1.2.3", true), ("10.2.0.0", false), ("fd00::7", true), ("fd00::8", false)]
        {
            assert_eq!(check(&guard, address), is_called, "{address}");
        }
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "x/8"] {
            assert!(Range::from_str(wrong).is_err(), "{wrong}");
        }
    }
}
