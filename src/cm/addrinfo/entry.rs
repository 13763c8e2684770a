//! One result of a lookup, and the C list in which results travel.
//!
//! Lists are passed to C and freed by `rdma_freeaddrinfo(3)`; all of their
//! memory comes from `malloc`. Nodes that C holds are registered, so that what
//! was freed before, or never came from here, is left alone.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem;
use std::ptr;

use crate::abi::{RAI_PASSIVE, rdma_addrinfo};
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::kernel::plain::slice_bytes;
use crate::kernel::uverbs::PathData;

use super::super::registry::Registry;

/// The nodes that C holds.
pub(in crate::cm) static HANDED_OUT: Registry<()> = Registry::new();

/// One result.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// `RAI_…` flags.
    pub flags: c_int,
    /// Address family.
    pub family: c_int,
    /// Queue pair type.
    pub qp_type: c_int,
    /// Port space.
    pub port_space: c_int,
    /// Local address.
    pub src: Option<SockAddr>,
    /// Remote address.
    pub dst: Option<SockAddr>,
    /// Canonical name of the local address.
    pub src_canonname: Option<CString>,
    /// Canonical name of the remote address.
    pub dst_canonname: Option<CString>,
    /// Route, if it is known already.
    pub paths: Vec<PathData>,
    /// Goes before the private data of a connection request.
    pub connect: Vec<u8>,
}

impl Entry {
    /// Whether the entry is for a listener.
    pub fn is_passive(&self) -> bool {
        self.flags & RAI_PASSIVE != 0
    }
}

/// A list of results as C sees it, owned.
#[derive(Debug)]
pub struct List(*mut rdma_addrinfo);

// SAFETY: the list is plain memory with a single owner.
unsafe impl Send for List {}

impl List {
    /// A list of copies of `entries`, in their order.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn build(entries: &[Entry]) -> Result<Self> {
        let mut list = Self(ptr::null_mut());
        for entry in entries.iter().rev() {
            list.push_front(entry)?;
        }
        Ok(list)
    }

    fn push_front(&mut self, entry: &Entry) -> Result<()> {
        let node = allocate(mem::size_of::<rdma_addrinfo>())?.cast::<rdma_addrinfo>();
        // SAFETY: fresh zeroed memory of the right size, for which all zeroes
        // are a valid value; from here on the list owns it.
        let info = unsafe { &mut *node };
        info.ai_next = mem::replace(&mut self.0, node);
        info.ai_flags = entry.flags;
        info.ai_family = entry.family;
        info.ai_qp_type = entry.qp_type;
        info.ai_port_space = entry.port_space;
        (info.ai_src_addr, info.ai_src_len) = address(entry.src.as_ref())?;
        (info.ai_dst_addr, info.ai_dst_len) = address(entry.dst.as_ref())?;
        info.ai_src_canonname = string(entry.src_canonname.as_ref())?;
        info.ai_dst_canonname = string(entry.dst_canonname.as_ref())?;
        (info.ai_route, info.ai_route_len) = bytes(slice_bytes(&entry.paths))?;
        (info.ai_connect, info.ai_connect_len) = bytes(&entry.connect)?;
        Ok(())
    }

    /// Hands the list to C, which returns it by [`List::from_raw`].
    pub fn into_raw(mut self) -> *mut rdma_addrinfo {
        let mut node = self.0;
        while !node.is_null() {
            HANDED_OUT.insert(node as u64, ());
            // SAFETY: a node of a list that we own.
            node = unsafe { (*node).ai_next };
        }
        mem::replace(&mut self.0, ptr::null_mut())
    }

    /// Takes a list back from C, up to the first node that C does not hold: at
    /// once if `raw` is null, was taken back before or never came from here.
    pub fn from_raw(raw: *mut rdma_addrinfo) -> Self {
        let mut list = Self(raw);
        let mut place = &raw mut list.0;
        // SAFETY: `place` is in `list` or in a node just taken back, which is
        // alive and nobody else's.
        unsafe {
            while !(*place).is_null() {
                if HANDED_OUT.remove(*place as u64).is_none() {
                    log::warn!("address information that is none of the library's is not freed");
                    *place = ptr::null_mut();
                    break;
                }
                place = &raw mut (**place).ai_next;
            }
        }
        list
    }
}

impl Drop for List {
    fn drop(&mut self) {
        while !self.0.is_null() {
            // SAFETY: a node of a list that we own; it is read before it is
            // freed, and its members came from malloc or are null.
            unsafe {
                let node = self.0.read();
                for member in [
                    node.ai_src_addr.cast::<c_void>(),
                    node.ai_dst_addr.cast(),
                    node.ai_src_canonname.cast(),
                    node.ai_dst_canonname.cast(),
                    node.ai_route,
                    node.ai_connect,
                    self.0.cast(),
                ] {
                    libc::free(member);
                }
                self.0 = node.ai_next;
            }
        }
    }
}

fn allocate(len: usize) -> Result<*mut c_void> {
    // SAFETY: calloc is always sound to call.
    let memory = unsafe { libc::calloc(1, len) };
    if memory.is_null() {
        return Err(Error::new(libc::ENOMEM, "allocate address information"));
    }
    Ok(memory)
}

/// A copy of `source` in C's memory; null if it is empty.
fn bytes(source: &[u8]) -> Result<(*mut c_void, usize)> {
    if source.is_empty() {
        return Ok((ptr::null_mut(), 0));
    }
    let copy = allocate(source.len())?;
    // SAFETY: fresh memory of that length.
    unsafe { copy.copy_from_nonoverlapping(source.as_ptr().cast(), source.len()) };
    Ok((copy, source.len()))
}

fn address(source: Option<&SockAddr>) -> Result<(*mut libc::sockaddr, libc::socklen_t)> {
    let (copy, len) = bytes(source.map_or(&[], SockAddr::as_bytes))?;
    Ok((copy.cast(), len as libc::socklen_t))
}

fn string(source: Option<&CString>) -> Result<*mut c_char> {
    let (copy, _) = bytes(source.map_or(&[], |string| string.as_bytes_with_nul()))?;
    Ok(copy.cast())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::net::Ipv4Addr;

    #[test]
    fn a_list_keeps_order_and_contents() {
        let first = Entry {
            family: libc::AF_INET,
            dst: Some(SockAddr::v4(Ipv4Addr::new(192, 0, 2, 1), 7174)),
            dst_canonname: Some(c"peer".to_owned()),
            connect: vec![1, 2, 3],
            ..Entry::default()
        };
        let second = Entry {
            flags: RAI_PASSIVE,
            ..Entry::default()
        };
        let raw = match List::build(&[first, second]) {
            Ok(list) => list.into_raw(),
            Err(error) => panic!("{error}"),
        };
        // SAFETY: the list was just built.
        unsafe {
            let node = &*raw;
            assert_eq!(node.ai_family, libc::AF_INET);
            assert_eq!(node.ai_dst_len, 16);
            assert_eq!(
                SockAddr::from_ptr(node.ai_dst_addr),
                Some(SockAddr::v4(Ipv4Addr::new(192, 0, 2, 1), 7174))
            );
            assert!(node.ai_src_addr.is_null());
            assert_eq!(CStr::from_ptr(node.ai_dst_canonname), c"peer");
            assert_eq!(node.ai_connect_len, 3);
            assert!(node.ai_route.is_null());
            assert_eq!((*node.ai_next).ai_flags, RAI_PASSIVE);
            assert!((*node.ai_next).ai_next.is_null());
        }
        drop(List::from_raw(raw));
        assert!(List::from_raw(raw).0.is_null());
    }

    #[test]
    fn what_was_never_handed_out_is_not_taken_back() {
        let mut foreign = 0u64;
        assert!(List::from_raw((&raw mut foreign).cast()).0.is_null());
        assert!(List::from_raw(ptr::null_mut()).0.is_null());
    }
}
