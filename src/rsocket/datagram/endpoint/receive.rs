//! What a datagram queue pair receives: posting its slots, and where data lies
//! in them.

use std::net::SocketAddr;
use std::ptr;

use crate::error::Result;
use crate::verbs::bindings::{ibv_recv_wr, ibv_sge};
use crate::verbs::{dispatch, failure};

use super::super::super::vectors::Cursor;
use super::super::header;
use super::{Endpoint, GRH_LEN, RECEIVE};

/// Where a received datagram lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Who sent it.
    pub source: SocketAddr,
    /// The receive slot, to be given back by [`Endpoint::release`].
    pub slot: u16,
    /// Where in the receive memory the data begins.
    pub offset: usize,
    /// Bytes of data.
    pub length: usize,
}

impl Endpoint {
    /// Gives a receive slot back to the device, now or when that can use it.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn release(&mut self, slot: u16) -> Result<()> {
        if !self.works() {
            self.idle.push(slot);
            return Ok(());
        }
        let mut part = ibv_sge {
            addr: self.receive.address(self.receive_offset(slot)),
            length: self.stride as u32,
            lkey: self.receive.local_key(),
        };
        let mut wr = ibv_recv_wr {
            wr_id: RECEIVE | u64::from(slot),
            next: ptr::null_mut(),
            sg_list: &mut part,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair lives as long as the endpoint; the request
        // and its part live until the call ends.
        let status = unsafe { dispatch::post_recv(self.id.qp(), &mut wr, &mut bad) };
        if status == 0 {
            self.posted = self.posted.saturating_add(1);
            return Ok(());
        }
        let error = failure(status, "post a receive");
        if self.is_loss(&error) {
            return Ok(());
        }
        Err(error)
    }

    fn receive_offset(&self, slot: u16) -> usize {
        usize::from(slot).saturating_mul(self.stride)
    }

    /// A copy of the data of an arrival.
    pub fn read(&self, arrival: &Arrival) -> Vec<u8> {
        let mut data = vec![0; arrival.length];
        let pointer = self.receive.pointer(arrival.offset, arrival.length);
        if let Some(from) = pointer {
            // SAFETY: bytes of a slot that the device has filled and not been
            // given back, and room for as many.
            unsafe { ptr::copy_nonoverlapping(from, data.as_mut_ptr(), data.len()) };
        }
        data
    }

    /// Copies the data of an arrival to `target`, as much as fits.
    pub fn copy(&self, arrival: &Arrival, target: &mut Cursor<'_>) {
        let length = arrival.length.min(target.remaining());
        if let Some(data) = self.receive.pointer(arrival.offset, length) {
            // SAFETY: bytes of a slot that the device has filled and not been
            // given back; the program's buffers do not lie in it.
            unsafe { target.write(data, length) };
        }
    }

    /// What has arrived in a slot with `bytes` bytes; `None` if it is no
    /// datagram of a socket.
    pub(super) fn parse(&self, slot: u16, bytes: usize) -> Option<Arrival> {
        let start = self.receive_offset(slot).checked_add(GRH_LEN)?;
        let data = bytes.min(self.stride).checked_sub(GRH_LEN)?;
        let head: [u8; header::MAX_LEN] = self.receive.read(start);
        let (source, length) = header::read_direct(head.get(..data.min(header::MAX_LEN))?)?;
        Some(Arrival {
            source: same_scope(source, self.source),
            slot,
            offset: start.saturating_add(length),
            length: data.saturating_sub(length),
        })
    }
}

/// A link-local peer is on the link of the local address; the header does not
/// say so.
fn same_scope(peer: SocketAddr, local: SocketAddr) -> SocketAddr {
    match (peer, local) {
        (SocketAddr::V6(mut peer), SocketAddr::V6(local)) if peer.ip().is_unicast_link_local() => {
            peer.set_scope_id(local.scope_id());
            peer.into()
        }
        _ => peer,
    }
}
