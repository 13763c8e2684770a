//! What the caller of a lookup wants: a checked copy of its hints, and the
//! question that libc is asked for it.

use std::ffi::{c_int, c_void};

use crate::abi::{
    AF_IB, RAI_DNS, RAI_FAMILY, RAI_NOROUTE, RAI_NUMERICHOST, RAI_PASSIVE, RAI_SA, RDMA_PS_IPOIB,
    RDMA_PS_TCP, RDMA_PS_UDP, rdma_addrinfo,
};
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::verbs::bindings::{
    IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND,
};

use super::entry::Entry;

/// Size of a path record on the wire.
const RECORD_LEN: usize = 64;
/// Size of a path record with its flags in front (`struct ibv_path_data`).
const DATA_LEN: usize = 72;

/// A copy of the caller's hints.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// `RAI_…` flags.
    pub flags: c_int,
    /// Address family or 0.
    pub family: c_int,
    /// Queue pair type or 0.
    pub qp_type: c_int,
    /// Port space or 0.
    pub port_space: c_int,
    /// Local address.
    pub src: Option<SockAddr>,
    /// Remote address, used if neither node nor service is given.
    pub dst: Option<SockAddr>,
    /// Path record on the wire that restricts the route.
    pub path: Option<[u8; RECORD_LEN]>,
}

impl Hints {
    /// Copies the C structure; null is `None`.
    ///
    /// # Errors
    /// `EINVAL` if an address is shorter than its family needs or of an
    /// unknown family, or if the route is no path record.
    ///
    /// # Safety
    /// `raw` is null or points to a structure whose addresses and route are
    /// null or readable for their lengths.
    pub unsafe fn from_raw(raw: *const rdma_addrinfo) -> Result<Option<Self>> {
        if raw.is_null() {
            return Ok(None);
        }
        // SAFETY: not null; the caller vouches for the rest.
        let raw = unsafe { raw.read() };
        // SAFETY: the caller vouches for pointers and lengths.
        let (src, dst, route) = unsafe {
            (
                bytes(raw.ai_src_addr.cast(), raw.ai_src_len as usize),
                bytes(raw.ai_dst_addr.cast(), raw.ai_dst_len as usize),
                // Only one record is used, however long the route is.
                bytes(raw.ai_route, raw.ai_route_len.min(DATA_LEN)),
            )
        };
        Ok(Some(Self {
            flags: raw.ai_flags,
            family: raw.ai_family,
            qp_type: raw.ai_qp_type,
            port_space: raw.ai_port_space,
            src: src.map(address).transpose()?,
            dst: dst.map(address).transpose()?,
            path: route.map(path_record).transpose()?,
        }))
    }

    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    /// Whether results are for a listener.
    pub fn passive(&self) -> bool {
        self.has(RAI_PASSIVE)
    }

    /// Whether a service is to be looked up in the subnet administrator.
    pub fn wants_service(&self) -> bool {
        self.has(RAI_SA)
    }

    /// Whether names are asked for explicitly.
    pub fn wants_names(&self) -> bool {
        self.has(RAI_DNS)
    }

    /// Whether the node is a GID in numbers.
    pub fn wants_gid(&self) -> bool {
        self.has(RAI_FAMILY) && self.has(RAI_NUMERICHOST) && self.family == AF_IB
    }

    /// Whether only what is known already may be used for routes.
    pub fn wants_no_delay(&self) -> bool {
        self.has(RAI_NUMERICHOST) || self.has(RAI_NOROUTE)
    }

    /// The result for a caller who gave nothing but hints.
    pub fn to_entry(&self) -> Entry {
        Entry {
            flags: self.flags,
            family: self.family,
            qp_type: self.qp_type,
            port_space: self.port_space,
            dst: self.dst,
            ..Entry::default()
        }
    }

    /// The question for libc's `getaddrinfo(3)`.
    pub fn to_libc(&self, with_node: bool) -> libc::addrinfo {
        let socktype = self.socktype();
        // SAFETY: plain data for which zero is the documented "no hint".
        let mut question: libc::addrinfo = unsafe { std::mem::zeroed() };
        if self.passive() {
            question.ai_flags |= libc::AI_PASSIVE;
        }
        if self.has(RAI_NUMERICHOST) {
            question.ai_flags |= libc::AI_NUMERICHOST;
        }
        if with_node {
            question.ai_flags |= libc::AI_CANONNAME;
        }
        question.ai_family = match self.family {
            // A GID is written, and parsed, like an IPv6 address.
            AF_IB if self.wants_gid() => libc::AF_INET6,
            AF_IB => libc::AF_UNSPEC,
            family => family,
        };
        question.ai_socktype = socktype;
        question.ai_protocol = match self.port_space as u32 {
            RDMA_PS_TCP => libc::IPPROTO_TCP,
            RDMA_PS_UDP | RDMA_PS_IPOIB => libc::IPPROTO_UDP,
            crate::abi::RDMA_PS_IB if socktype == libc::SOCK_STREAM => libc::IPPROTO_TCP,
            crate::abi::RDMA_PS_IB if socktype == libc::SOCK_DGRAM => libc::IPPROTO_UDP,
            _ => 0,
        };
        question
    }

    fn socktype(&self) -> c_int {
        match self.qp_type as u32 {
            IBV_QPT_RC | IBV_QPT_UC | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => libc::SOCK_STREAM,
            IBV_QPT_UD => libc::SOCK_DGRAM,
            _ => 0,
        }
    }
}

/// The bytes of a member that may be absent.
///
/// # Safety
/// `data` is null or readable for `len` bytes during `'a`.
unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Option<&'a [u8]> {
    if data.is_null() || len == 0 {
        return None;
    }
    // SAFETY: not null; the caller vouches for the rest.
    Some(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

fn address(bytes: &[u8]) -> Result<SockAddr> {
    // The family is read from two bytes, which a shorter member lacks.
    SockAddr::from_bytes(bytes).ok_or(Error::invalid("read the hints: bad address"))
}

fn path_record(route: &[u8]) -> Result<[u8; RECORD_LEN]> {
    let record = match route.len() {
        RECORD_LEN => route.first_chunk(),
        DATA_LEN.. => route
            .get(DATA_LEN - RECORD_LEN..)
            .and_then(<[u8]>::first_chunk),
        _ => None,
    };
    record
        .copied()
        .ok_or(Error::invalid("read the hints: bad route"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::RDMA_PS_IB;
    use proptest::prelude::*;

    fn hints(qp_type: u32, port_space: u32) -> Hints {
        Hints {
            qp_type: qp_type as c_int,
            port_space: port_space as c_int,
            ..Hints::default()
        }
    }

    fn question(hints: &Hints) -> (c_int, c_int) {
        let question = hints.to_libc(false);
        (question.ai_socktype, question.ai_protocol)
    }

    #[test]
    fn queue_pair_types_become_socket_types() {
        let stream = (libc::SOCK_STREAM, 0);
        assert_eq!(question(&hints(IBV_QPT_RC, 0)), stream);
        assert_eq!(question(&hints(IBV_QPT_XRC_RECV, 0)), stream);
        assert_eq!(question(&hints(IBV_QPT_UD, 0)), (libc::SOCK_DGRAM, 0));
        assert_eq!(question(&hints(0, 0)), (0, 0));
    }

    #[test]
    fn port_spaces_become_protocols() {
        let tcp = (libc::SOCK_STREAM, libc::IPPROTO_TCP);
        let udp = (libc::SOCK_DGRAM, libc::IPPROTO_UDP);
        assert_eq!(question(&hints(IBV_QPT_RC, RDMA_PS_TCP)), tcp);
        assert_eq!(question(&hints(IBV_QPT_UD, RDMA_PS_UDP)), udp);
        assert_eq!(question(&hints(IBV_QPT_UD, RDMA_PS_IPOIB)), udp);
        assert_eq!(question(&hints(IBV_QPT_RC, RDMA_PS_IB)), tcp);
        assert_eq!(question(&hints(IBV_QPT_UD, RDMA_PS_IB)), udp);
        assert_eq!(question(&hints(0, RDMA_PS_IB)), (0, 0));
    }

    #[test]
    fn a_gid_is_parsed_as_ipv6() {
        let mut hints = Hints {
            flags: RAI_FAMILY | RAI_NUMERICHOST,
            family: AF_IB,
            ..Hints::default()
        };
        assert_eq!(hints.to_libc(true).ai_family, libc::AF_INET6);
        hints.flags = RAI_FAMILY;
        assert_eq!(hints.to_libc(true).ai_family, libc::AF_UNSPEC);
        hints.family = libc::AF_INET;
        assert_eq!(hints.to_libc(true).ai_family, libc::AF_INET);
    }

    #[test]
    fn flags_are_translated() {
        let hints = Hints {
            flags: RAI_PASSIVE | RAI_NUMERICHOST | RAI_NOROUTE,
            ..Hints::default()
        };
        assert_eq!(
            hints.to_libc(false).ai_flags,
            libc::AI_PASSIVE | libc::AI_NUMERICHOST
        );
        // libc refuses to name a node that is not given.
        assert_eq!(Hints::default().to_libc(true).ai_flags, libc::AI_CANONNAME);
    }

    proptest! {
        #[test]
        fn routes_are_taken_from_either_form(route in prop::collection::vec(any::<u8>(), 0..300)) {
            match path_record(&route) {
                Ok(record) if route.len() == RECORD_LEN => prop_assert_eq!(&record[..], &route[..]),
                Ok(record) => prop_assert_eq!(&record[..], &route[8..72]),
                Err(_) => prop_assert!(route.len() != RECORD_LEN && route.len() < DATA_LEN),
            }
        }

        #[test]
        fn addresses_are_never_read_beyond_their_length(bytes in prop::collection::vec(any::<u8>(), 0..130)) {
            if let Ok(address) = address(&bytes) {
                prop_assert!(address.as_bytes().len() <= bytes.len());
            }
        }
    }
}
