//! Endpoints: a synchronous identifier with address, route and queue pair,
//! made in one call from address information.

use std::ptr;
use std::sync::Arc;

use crate::abi::{RAI_PASSIVE, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, rdma_addrinfo};
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::verbs::bindings::{ibv_pd, ibv_qp_init_attr};

use super::id::Id;
use super::sync::{self, Step};
use super::{address, option, qp, srq};

/// Time for each of address and route resolution, in milliseconds.
const TIMEOUT_MS: i32 = 2000;
/// Most bytes that can go before the private data of a connection request.
const MAX_CONNECT_DATA: usize = u8::MAX as usize;

/// How a listening endpoint creates the queue pairs of its connections.
///
/// Holds the program's pointers (completion queues, contexts), which it must
/// keep alive while the endpoint lives.
#[derive(Clone)]
pub struct EndpointAttr(ibv_qp_init_attr);

impl EndpointAttr {
    /// The attributes, for one queue pair.
    pub(super) fn basic_mut(&mut self) -> &mut ibv_qp_init_attr {
        &mut self.0
    }
}

/// Makes an endpoint from the first entry of address information.
///
/// A passive one is bound to the source address; `pd` and `attr` serve the
/// queue pairs of its connections. An active one has its address and route
/// resolved, and with `attr` a queue pair. Blocks for up to two seconds each
/// on address and route.
///
/// # Errors
/// `EINVAL` for addresses that are missing, of an unknown family or shorter
/// than their family needs, and for more than 255 bytes of connect data; else
/// what the single steps say. Nothing is left behind.
///
/// # Safety
/// `rai` and `attr` are null or valid. The pointers in `rai` are null or point
/// to as many readable bytes as their lengths say. `pd` and the pointers in
/// `attr` are null or point to objects that outlive the endpoint.
pub unsafe fn create(
    rai: *const rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<Arc<Id>> {
    // SAFETY: the caller vouches for the pointer.
    let rai = unsafe { rai.as_ref() }.ok_or(Error::invalid(
        "make an endpoint without address information",
    ))?;
    let id = Id::create_synchronous(
        ptr::null_mut(),
        rai.ai_port_space.cast_unsigned(),
        rai.ai_qp_type.cast_unsigned(),
    )?;
    let result = if rai.ai_flags & RAI_PASSIVE != 0 {
        // SAFETY: the caller vouches for the pointers.
        unsafe { set_up_passive(&id, rai, pd, attr) }
    } else {
        // SAFETY: as above.
        unsafe { set_up_active(&id, rai, pd, attr) }
    };
    match result {
        Ok(()) => Ok(id),
        Err(error) => {
            log::error!("{id}: endpoint not made: {error}");
            destroy(id);
            Err(error)
        }
    }
}

unsafe fn set_up_passive(
    id: &Arc<Id>,
    rai: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<()> {
    // SAFETY: the caller vouches for the pointer.
    let src = unsafe { read_addr(rai.ai_src_addr, rai.ai_src_len) }?
        .ok_or(Error::invalid("make a passive endpoint without address"))?;
    address::bind(id, &src)?;
    if !pd.is_null() {
        id.set_pd(pd);
    }
    if !attr.is_null() {
        // SAFETY: not null; the caller vouches for the pointer.
        let mut attr = unsafe { attr.read() };
        attr.qp_type = rai.ai_qp_type.cast_unsigned();
        id.state().endpoint = Some(EndpointAttr(attr));
    }
    Ok(())
}

unsafe fn set_up_active(
    id: &Arc<Id>,
    rai: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<()> {
    // SAFETY: the caller vouches for the pointers.
    let (src, dst) = unsafe {
        (
            read_addr(rai.ai_src_addr, rai.ai_src_len)?,
            read_addr(rai.ai_dst_addr, rai.ai_dst_len)?,
        )
    };
    let dst = dst.ok_or(Error::invalid("make an active endpoint without address"))?;
    // SAFETY: as above.
    let connect_data = unsafe { read_connect_data(rai) }?;
    address::resolve_addr(id, src.as_ref(), &dst, TIMEOUT_MS)?;
    if rai.ai_route_len == 0 {
        address::resolve_route(id, TIMEOUT_MS)?;
    } else {
        option::set(
            id,
            RDMA_OPTION_IB,
            RDMA_OPTION_IB_PATH,
            rai.ai_route,
            rai.ai_route_len,
        )?;
        sync::complete(id, Step::Route)?;
    }
    if !attr.is_null() {
        // SAFETY: not null; the caller vouches for all pointers.
        unsafe {
            (*attr).qp_type = rai.ai_qp_type.cast_unsigned();
            qp::create(id, pd, attr)?;
        }
    }
    id.state().connect_data = connect_data;
    Ok(())
}

/// Copies an address of which `length` bytes are readable; `None` if there is
/// none.
unsafe fn read_addr(
    addr: *const libc::sockaddr,
    length: libc::socklen_t,
) -> Result<Option<SockAddr>> {
    if addr.is_null() || length == 0 {
        return Ok(None);
    }
    let length = length as usize;
    if length > size_of::<libc::sockaddr_storage>() {
        return Err(Error::invalid("take an address longer than any family's"));
    }
    // SAFETY: the caller vouches for that many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), length) };
    SockAddr::from_bytes(bytes)
        .map(Some)
        .ok_or(Error::invalid("read an address that is cut short"))
}

unsafe fn read_connect_data(rai: &rdma_addrinfo) -> Result<Vec<u8>> {
    if rai.ai_connect.is_null() || rai.ai_connect_len == 0 {
        return Ok(Vec::new());
    }
    if rai.ai_connect_len > MAX_CONNECT_DATA {
        return Err(Error::invalid("take more than 255 bytes of connect data"));
    }
    // SAFETY: the caller vouches for that many bytes.
    let bytes =
        unsafe { std::slice::from_raw_parts(rai.ai_connect.cast::<u8>(), rai.ai_connect_len) };
    Ok(bytes.to_vec())
}

/// Destroys an endpoint with its queue pair and shared receive queue. Blocks
/// like [`Id::destroy`]. Failures are logged only.
pub fn destroy(id: Arc<Id>) {
    // Twice, since what is left the first time would be lost with the
    // identifier; usually there is nothing to do any more.
    for _ in 0..2 {
        qp::destroy(&id);
        srq::destroy(&id);
    }
    id.state().endpoint = None;
    if let Err(error) = id.destroy() {
        log::error!("endpoint not destroyed: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn addresses_shorter_than_their_family_are_refused() {
        let addr = SockAddr::v4(Ipv4Addr::new(192, 0, 2, 1), 7174);
        let read = |length| {
            // SAFETY: at most the 16 bytes that the address has.
            unsafe { read_addr(addr.as_ptr(), length) }
        };
        assert_eq!(read(16).ok().flatten(), Some(addr));
        assert_eq!(read(15).map_err(|error| error.errno()), Err(libc::EINVAL));
        assert_eq!(read(0), Ok(None));
    }
}
