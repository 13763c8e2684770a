//! Socket addresses: the one place of the crate that copies them.
//!
//! Knows the three families that the RDMA connection manager accepts (IPv4,
//! IPv6 and InfiniBand), their lengths, ports and comparison, and the forms in
//! which addresses cross the borders: `struct sockaddr` of C programs, and the
//! 28-byte and 128-byte fields of kernel commands. Does not resolve names and
//! does not know whether the running kernel supports InfiniBand addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Address family of InfiniBand addresses (`struct sockaddr_ib`).
pub const AF_IB: u16 = 27;
/// Address family of IPv4 addresses.
pub const AF_INET: u16 = libc::AF_INET as u16;
/// Address family of IPv6 addresses.
pub const AF_INET6: u16 = libc::AF_INET6 as u16;

/// Size of `struct sockaddr_storage`, the largest address.
pub const STORAGE_LEN: usize = 128;
/// Size of `struct sockaddr_in6`, the address field of legacy commands.
pub const IP_STORAGE_LEN: usize = 28;

/// An InfiniBand GID as 16 bytes in network order.
pub type Gid = [u8; 16];

const _: () = {
    assert!(size_of::<libc::sockaddr_storage>() == STORAGE_LEN);
    assert!(size_of::<libc::sockaddr_in>() == 16);
    assert!(size_of::<libc::sockaddr_in6>() == IP_STORAGE_LEN);
    assert!(size_of::<SockAddr>() == STORAGE_LEN);
    assert!(align_of::<SockAddr>() >= align_of::<libc::sockaddr_storage>());
};

/// A socket address of a family that the connection manager accepts.
///
/// The bytes beyond the family's length are always zero. Two addresses are
/// equal if all their meaningful fields are; padding (`sin_zero`) does not
/// count.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct SockAddr {
    storage: [u8; STORAGE_LEN],
}

/// Length of the addresses of a family in bytes, as the kernel and C programs
/// know it: IPv4 16, IPv6 28, InfiniBand 48; `None` for any other family.
pub const fn family_len(family: u16) -> Option<usize> {
    match family {
        AF_INET => Some(16),
        AF_INET6 => Some(IP_STORAGE_LEN),
        AF_IB => Some(48),
        _ => None,
    }
}

// Offsets of fields, from <netinet/in.h> and <infiniband/ib.h>.
const FAMILY: usize = 0;
const PORT: usize = 2;
const V4_ADDR: usize = 4;
const V6_FLOWINFO: usize = 4;
const V6_ADDR: usize = 8;
const V6_SCOPE: usize = 24;
const IB_PKEY: usize = 2;
const IB_FLOWINFO: usize = 4;
const IB_ADDR: usize = 8;
const IB_SID: usize = 24;
const IB_SID_MASK: usize = 32;
const IB_SCOPE: usize = 40;

impl SockAddr {
    /// Copies the address at `address`, as a C program passes it: as many
    /// bytes as its family says. `None` for a null pointer and for families
    /// other than the three known ones.
    ///
    /// # Safety
    ///
    /// `address` is null or points to a readable `sa_family_t` (two bytes, any
    /// alignment) and, if that names a known family, to as many readable bytes
    /// as [`family_len`] says. Nobody writes to them during the call.
    pub unsafe fn from_ptr(address: *const libc::sockaddr) -> Option<Self> {
        if address.is_null() {
            return None;
        }
        // SAFETY: not null, so two readable bytes (function contract).
        let family = unsafe { address.cast::<u16>().read_unaligned() };
        let len = family_len(family)?;
        // SAFETY: a known family, so `len` readable bytes (function contract).
        let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) };
        Self::from_bytes(bytes)
    }

    /// The address at the beginning of `bytes`. `None` if its family is
    /// unknown or if there are fewer bytes than the family needs.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let family = u16::from_ne_bytes(*bytes.first_chunk()?);
        let meaningful = bytes.get(..family_len(family)?)?;
        let mut address = Self::empty();
        address.put(FAMILY, meaningful);
        Some(address)
    }

    /// The address at the beginning of `storage`; `None` if its family is
    /// unknown.
    pub fn from_storage(storage: &libc::sockaddr_storage) -> Option<Self> {
        // SAFETY: a reference to 128 bytes. They are initialised: libc's
        // `Default` zeroes them, and other storage is memory of C programs or
        // made by `to_sockaddr_storage`.
        let bytes = unsafe { &*(&raw const *storage).cast::<[u8; STORAGE_LEN]>() };
        Self::from_bytes(bytes)
    }

    /// The IPv4 address `ip` with the port `port` (host order).
    pub fn v4(ip: Ipv4Addr, port: u16) -> Self {
        let mut address = Self::with_family(AF_INET);
        address.put(PORT, &port.to_be_bytes());
        address.put(V4_ADDR, &ip.octets());
        address
    }

    /// The IPv6 address `ip` with the port `port` (host order), flow label 0
    /// and the scope (interface index) `scope`.
    pub fn v6(ip: Ipv6Addr, port: u16, scope: u32) -> Self {
        let mut address = Self::with_family(AF_INET6);
        address.put(PORT, &port.to_be_bytes());
        address.put(V6_ADDR, &ip.octets());
        address.put(V6_SCOPE, &scope.to_ne_bytes());
        address
    }

    /// The InfiniBand address with the given fields, all in host order but for
    /// the GID; the scope is 0.
    pub fn ib(pkey: u16, flow_label: u32, gid: Gid, sid: u64, sid_mask: u64) -> Self {
        let mut address = Self::with_family(AF_IB);
        address.put(IB_PKEY, &pkey.to_be_bytes());
        address.put(IB_FLOWINFO, &flow_label.to_be_bytes());
        address.put(IB_ADDR, &gid);
        address.put(IB_SID, &sid.to_be_bytes());
        address.put(IB_SID_MASK, &sid_mask.to_be_bytes());
        address
    }

    /// The address family: [`AF_INET`], [`AF_INET6`] or [`AF_IB`].
    pub fn family(&self) -> u16 {
        u16::from_ne_bytes(self.take(FAMILY))
    }

    /// Whether this is an IPv4 or IPv6 address, which the legacy commands can
    /// carry.
    pub fn is_ip(&self) -> bool {
        self.family() != AF_IB
    }

    /// The length of the address in bytes, by family.
    pub fn byte_len(&self) -> usize {
        family_len(self.family()).unwrap_or(0)
    }

    /// The meaningful bytes of the address: a `struct sockaddr_in`,
    /// `sockaddr_in6` or `sockaddr_ib`.
    pub fn as_bytes(&self) -> &[u8] {
        self.storage.get(..self.byte_len()).unwrap_or_default()
    }

    /// The address as C functions take it; valid for [`SockAddr::byte_len`] bytes
    /// as long as `self` is neither moved nor dropped.
    pub fn as_ptr(&self) -> *const libc::sockaddr {
        self.storage.as_ptr().cast()
    }

    /// The 128-byte form of kernel commands, zero beyond the address.
    pub fn to_storage_bytes(&self) -> [u8; STORAGE_LEN] {
        self.storage
    }

    /// The 28-byte form of legacy kernel commands, zero beyond the address.
    /// `None` if the address does not fit (InfiniBand).
    pub fn to_ip_storage_bytes(&self) -> Option<[u8; IP_STORAGE_LEN]> {
        self.is_ip().then(|| self.take(FAMILY))
    }

    /// The address as `struct sockaddr_storage`, zero beyond the address.
    pub fn to_sockaddr_storage(&self) -> libc::sockaddr_storage {
        // SAFETY: same size (asserted above), and any bytes make a valid
        // `sockaddr_storage`.
        unsafe { std::mem::transmute(self.storage) }
    }

    /// Writes the meaningful bytes of the address to `target` and leaves the
    /// bytes beyond them as they are.
    pub fn write_to(&self, target: &mut libc::sockaddr_storage) {
        // SAFETY: an exclusive reference to 128 bytes; any bytes make a valid
        // `sockaddr_storage`.
        let target = unsafe { &mut *(&raw mut *target).cast::<[u8; STORAGE_LEN]>() };
        for (target, byte) in target.iter_mut().zip(self.as_bytes()) {
            *target = *byte;
        }
    }

    /// The port in network order, as `rdma_get_src_port(3)` returns it; for
    /// InfiniBand addresses the low 16 bits of the service identifier.
    pub fn port_be(&self) -> u16 {
        self.port().to_be()
    }

    /// The port in host order; see [`SockAddr::port_be`].
    pub fn port(&self) -> u16 {
        u16::from_be_bytes(self.take(self.port_offset()))
    }

    /// The same address with another port (host order).
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.put(self.port_offset(), &port.to_be_bytes());
        self
    }

    /// Whether family and address proper are the same; ports, flow labels,
    /// service identifiers and padding do not count. For IPv6 the scope
    /// counts.
    pub fn same_host(&self, other: &Self) -> bool {
        self.host() == other.host()
    }

    /// Whether this is the address that stands for any local address:
    /// `0.0.0.0`, `::` or the zero GID.
    pub fn is_wildcard(&self) -> bool {
        match self.host() {
            Host::V4(ip) => ip.is_unspecified(),
            Host::V6(ip, _) | Host::Ib(ip) => ip.is_unspecified(),
        }
    }

    /// Whether this is an address of the machine itself: `127.0.0.0/8`, `::1`
    /// or the GID `::1`.
    pub fn is_loopback(&self) -> bool {
        match self.host() {
            Host::V4(ip) => ip.is_loopback(),
            Host::V6(ip, _) | Host::Ib(ip) => ip.is_loopback(),
        }
    }

    /// The GID that stands for this address on RoCE: an IPv4 address mapped
    /// into IPv6 (`::ffff:a.b.c.d`), an IPv6 address or a GID as it is.
    pub fn gid(&self) -> Gid {
        match self.host() {
            Host::V4(ip) => ip.to_ipv6_mapped().octets(),
            Host::V6(ip, _) | Host::Ib(ip) => ip.octets(),
        }
    }

    /// The address as the standard library knows it; `None` for InfiniBand.
    pub fn to_socket_addr(&self) -> Option<SocketAddr> {
        match self.host() {
            Host::V4(ip) => Some(SocketAddrV4::new(ip, self.port()).into()),
            Host::V6(ip, scope) => {
                let flowinfo = u32::from_be_bytes(self.take(V6_FLOWINFO));
                Some(SocketAddrV6::new(ip, self.port(), flowinfo, scope).into())
            }
            Host::Ib(_) => None,
        }
    }

    /// The IP address; `None` for InfiniBand.
    pub fn ip(&self) -> Option<IpAddr> {
        match self.host() {
            Host::V4(ip) => Some(ip.into()),
            Host::V6(ip, _) => Some(ip.into()),
            Host::Ib(_) => None,
        }
    }

    /// The fields particular to an InfiniBand address; `None` for others.
    pub fn ib_fields(&self) -> Option<IbFields> {
        (!self.is_ip()).then(|| IbFields {
            pkey: u16::from_be_bytes(self.take(IB_PKEY)),
            flow_label: u32::from_be_bytes(self.take(IB_FLOWINFO)),
            sid: u64::from_be_bytes(self.take(IB_SID)),
            sid_mask: u64::from_be_bytes(self.take(IB_SID_MASK)),
            scope: u64::from_be_bytes(self.take(IB_SCOPE)),
        })
    }

    fn empty() -> Self {
        Self {
            storage: [0; STORAGE_LEN],
        }
    }

    fn with_family(family: u16) -> Self {
        let mut address = Self::empty();
        address.put(FAMILY, &family.to_ne_bytes());
        address
    }

    fn port_offset(&self) -> usize {
        match self.family() {
            AF_IB => IB_SID + 6,
            _ => PORT,
        }
    }

    fn host(&self) -> Host {
        match self.family() {
            AF_INET => Host::V4(Ipv4Addr::from(self.take::<4>(V4_ADDR))),
            AF_INET6 => Host::V6(
                Ipv6Addr::from(self.take::<16>(V6_ADDR)),
                u32::from_ne_bytes(self.take(V6_SCOPE)),
            ),
            _ => Host::Ib(Ipv6Addr::from(self.take::<16>(IB_ADDR))),
        }
    }

    /// The `N` bytes at `offset`. All callers pass constants within storage.
    fn take<const N: usize>(&self, offset: usize) -> [u8; N] {
        let bytes = self.storage.get(offset..).and_then(<[u8]>::first_chunk);
        bytes.copied().unwrap_or([0; N])
    }

    /// Replaces the bytes at `offset`. All callers stay within storage.
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset.saturating_add(bytes.len());
        if let Some(target) = self.storage.get_mut(offset..end) {
            target.copy_from_slice(bytes);
        }
    }
}

/// Family and address proper.
#[derive(PartialEq, Eq)]
enum Host {
    V4(Ipv4Addr),
    /// Address and scope.
    V6(Ipv6Addr, u32),
    /// A GID; it is written like an IPv6 address.
    Ib(Ipv6Addr),
}

/// What an InfiniBand address has besides its GID; in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IbFields {
    /// Partition key.
    pub pkey: u16,
    /// Flow label.
    pub flow_label: u32,
    /// Service identifier: port space in the upper 48 bits, port below.
    pub sid: u64,
    /// Which bits of the service identifier count.
    pub sid_mask: u64,
    /// Scope.
    pub scope: u64,
}

impl PartialEq for SockAddr {
    fn eq(&self, other: &Self) -> bool {
        let flowinfo = |address: &Self| match address.family() {
            AF_INET6 => address.take(V6_FLOWINFO),
            _ => [0; 4],
        };
        self.host() == other.host()
            && self.port() == other.port()
            && flowinfo(self) == flowinfo(other)
            && self.ib_fields() == other.ib_fields()
    }
}

impl Eq for SockAddr {}

impl From<SocketAddr> for SockAddr {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::v4(*address.ip(), address.port()),
            SocketAddr::V6(address) => {
                let mut copy = Self::v6(*address.ip(), address.port(), address.scope_id());
                copy.put(V6_FLOWINFO, &address.flowinfo().to_be_bytes());
                copy
            }
        }
    }
}

/// `192.0.2.1:7174`, `[2001:db8::1]:7174`, `[fe80::1%2]:7174`, or
/// `ib [fe80::1] sid 0x1060000 pkey 0xffff`.
impl fmt::Display for SockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host(), self.ib_fields()) {
            (Host::Ib(gid), Some(fields)) => {
                write!(
                    f,
                    "ib [{gid}] sid {:#x} pkey {:#x}",
                    fields.sid, fields.pkey
                )
            }
            (Host::V6(ip, scope), _) if scope != 0 => {
                write!(f, "[{ip}%{scope}]:{}", self.port())
            }
            (Host::V6(ip, _) | Host::Ib(ip), _) => write!(f, "[{ip}]:{}", self.port()),
            (Host::V4(ip), _) => write!(f, "{ip}:{}", self.port()),
        }
    }
}

impl fmt::Debug for SockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SockAddr({self})")
    }
}

#[cfg(test)]
mod tests;
