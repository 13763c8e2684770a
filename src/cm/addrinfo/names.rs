//! Names: libc's resolver and what its answer means for RDMA.

use std::ffi::{CStr, CString, c_int};
use std::ptr;

use crate::abi::{RAI_PASSIVE, RDMA_PS_TCP, RDMA_PS_UDP};
use crate::kernel::addr::SockAddr;
use crate::verbs::bindings::{IBV_QPT_RC, IBV_QPT_UD};

use super::entry::Entry;
use super::failure::LookupError;
use super::hints::Hints;
use super::infiniband;

/// Asks libc; one entry for each of its answers that RDMA can use, in its
/// order. Blocks as long as name resolution does.
///
/// # Errors
/// libc's code; `EAI_NONAME` if RDMA can use no answer.
pub fn lookup(
    node: Option<&CStr>,
    service: Option<&CStr>,
    hints: Option<&Hints>,
) -> Result<Vec<Entry>, LookupError> {
    let answers = Answers::ask(node, service, hints)?;
    let entries: Vec<Entry> = answers
        .iter()
        .filter_map(|answer| entry(&answer, hints))
        .collect();
    if entries.is_empty() {
        return Err(LookupError::from_eai(libc::EAI_NONAME));
    }
    Ok(entries)
}

/// One answer of libc.
struct Answer {
    address: SockAddr,
    socktype: c_int,
    protocol: c_int,
    canonname: Option<CString>,
}

/// The entry for an answer; `None` for what has no counterpart in RDMA, such
/// as raw sockets.
fn entry(answer: &Answer, hints: Option<&Hints>) -> Option<Entry> {
    let default = Hints::default();
    let hints = hints.unwrap_or(&default);
    let (qp_type, port_space) = match (answer.socktype, answer.protocol) {
        (libc::SOCK_STREAM, libc::IPPROTO_TCP) => (IBV_QPT_RC, RDMA_PS_TCP),
        (libc::SOCK_DGRAM, libc::IPPROTO_UDP) => (IBV_QPT_UD, RDMA_PS_UDP),
        _ => return None,
    };
    let or_default = |hint: c_int, default: u32| if hint == 0 { default as c_int } else { hint };
    let port_space = or_default(hints.port_space, port_space);
    let address = if hints.wants_gid() {
        infiniband::from_ipv6(&answer.address, port_space)?
    } else {
        answer.address
    };
    let mut entry = Entry {
        family: address.family().into(),
        qp_type: or_default(hints.qp_type, qp_type),
        port_space,
        ..Entry::default()
    };
    if hints.passive() {
        entry.flags = RAI_PASSIVE;
        entry.src = Some(address);
        entry.src_canonname = answer.canonname.clone();
    } else {
        entry.dst = Some(address);
        entry.dst_canonname = answer.canonname.clone();
    }
    Some(entry)
}

/// libc's list of answers, owned.
struct Answers(*mut libc::addrinfo);

impl Answers {
    fn ask(
        node: Option<&CStr>,
        service: Option<&CStr>,
        hints: Option<&Hints>,
    ) -> Result<Self, LookupError> {
        let question = hints.map(|hints| hints.to_libc(node.is_some()));
        let mut list = ptr::null_mut();
        // SAFETY: null or valid strings and hints, and a place for the list.
        let code = unsafe {
            libc::getaddrinfo(
                node.map_or(ptr::null(), CStr::as_ptr),
                service.map_or(ptr::null(), CStr::as_ptr),
                question.as_ref().map_or(ptr::null(), ptr::from_ref),
                &mut list,
            )
        };
        match code {
            0 => Ok(Self(list)),
            code => Err(LookupError::from_eai(code)),
        }
    }

    fn iter(&self) -> impl Iterator<Item = Answer> {
        let mut next = self.0;
        std::iter::from_fn(move || {
            // SAFETY: null or a node of the list, which lives until `drop`.
            let answer = unsafe { next.as_ref() }?;
            next = answer.ai_next;
            Some(answer)
        })
        .filter_map(|answer| {
            Some(Answer {
                // SAFETY: null or an address of the length of its family.
                address: unsafe { SockAddr::from_ptr(answer.ai_addr) }?,
                socktype: answer.ai_socktype,
                protocol: answer.ai_protocol,
                canonname: (!answer.ai_canonname.is_null())
                    // SAFETY: not null, so a string of libc's.
                    .then(|| unsafe { CStr::from_ptr(answer.ai_canonname) }.to_owned()),
            })
        })
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        // SAFETY: the list came from getaddrinfo, which filled it, and is
        // freed once.
        unsafe { libc::freeaddrinfo(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{AF_IB, RAI_FAMILY, RAI_NUMERICHOST};
    use std::net::Ipv4Addr;

    fn numeric(flags: c_int, qp_type: u32, port_space: u32) -> Hints {
        Hints {
            flags: flags | RAI_NUMERICHOST,
            qp_type: qp_type as c_int,
            port_space: port_space as c_int,
            ..Hints::default()
        }
    }

    fn entries(node: &CStr, service: &CStr, hints: Option<&Hints>) -> Vec<Entry> {
        lookup(Some(node), Some(service), hints).unwrap_or_default()
    }

    #[test]
    fn a_numeric_address_is_taken_as_destination() {
        let hints = numeric(0, IBV_QPT_RC, RDMA_PS_TCP);
        let found = entries(c"192.0.2.1", c"7174", Some(&hints));
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].dst,
            Some(SockAddr::v4(Ipv4Addr::new(192, 0, 2, 1), 7174))
        );
        assert_eq!(found[0].src, None);
        assert_eq!(found[0].flags, 0);
        assert_eq!(found[0].qp_type, IBV_QPT_RC as c_int);
        assert_eq!(found[0].port_space, RDMA_PS_TCP as c_int);
    }

    #[test]
    fn a_listener_gets_a_source() {
        let hints = numeric(RAI_PASSIVE, IBV_QPT_UD, RDMA_PS_UDP);
        let found = entries(c"192.0.2.1", c"7174", Some(&hints));
        assert_eq!(found[0].flags, RAI_PASSIVE);
        assert!(found[0].src.is_some());
        assert_eq!(found[0].dst, None);
    }

    #[test]
    fn without_hints_every_kind_that_rdma_has_is_chained() {
        let found = entries(c"192.0.2.1", c"7174", None);
        let kinds: Vec<_> = found.iter().map(|entry| entry.qp_type as u32).collect();
        assert_eq!(kinds, [IBV_QPT_RC, IBV_QPT_UD]);
    }

    #[test]
    fn a_gid_becomes_an_infiniband_address() {
        let mut hints = numeric(RAI_FAMILY, IBV_QPT_RC, RDMA_PS_TCP);
        hints.family = AF_IB;
        let found = entries(c"fe80::1", c"5", Some(&hints));
        assert_eq!(found[0].family, AF_IB);
        let fields = found[0].dst.and_then(|address| address.ib_fields());
        let fields = fields.unwrap_or_else(|| panic!("no InfiniBand address"));
        assert_eq!(fields.sid, 0x0106_0005);
        assert_eq!(fields.sid_mask, u64::MAX);
        assert_eq!(fields.pkey, 0xFFFF);
        assert!(entries(c"192.0.2.1", c"5", Some(&hints)).is_empty());
    }

    #[test]
    fn the_resolver_explains_failures() {
        let code = |node, hints: &Hints| {
            lookup(Some(node), Some(c"7174"), Some(hints))
                .err()
                .map(|error| error.code())
        };
        let hints = numeric(0, 0, 0);
        assert_eq!(code(c"localhost", &hints), Some(libc::EAI_NONAME));
        let hints = numeric(0, IBV_QPT_UD, RDMA_PS_TCP);
        assert_eq!(code(c"192.0.2.1", &hints), Some(libc::EAI_SOCKTYPE));
    }
}
