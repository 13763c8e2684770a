//! A datagram queue pair, bound to one local address, with its completion
//! queue and memory: creation, sending, polling. To whom data goes and what
//! is done with received data is decided elsewhere.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | `receive` | slots for what arrives |
//! | `health` | failure, renewal and loss of the queue pair |

mod health;
mod receive;

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;

use crate::abi::rdma_cm_id;
use crate::cm::device::Transport;
use crate::cm::{address, qp};
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::verbs::bindings::{
    IBV_QPT_UD, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WC_SUCCESS, IBV_WR_SEND, ibv_send_wr,
    ibv_sge, ibv_wc,
};
use crate::verbs::{dispatch, failure};

use super::super::completion::{BATCH, Completions, QueuePair};
use super::super::events::{Channel, OwnedId};
use super::super::memory::{Access, Region};
use super::super::settings::Settings;
use super::super::vectors::Cursor;
use super::header;
use super::path::{self, Handle};

use health::Health;
pub use receive::Arrival;

/// Most bytes of header and data.
pub const SLOT: usize = 2048;
/// Bytes that the device puts before what it receives.
const GRH_LEN: usize = 40;
/// Queue key of all datagram sockets, also the kernel's.
const QKEY: u32 = crate::abi::RDMA_UDP_QKEY;
/// Bit in work request identifiers that tells receives from sends.
const RECEIVE: u64 = 1 << 32;

/// A queue pair and all it needs.
#[derive(Debug)]
pub struct Endpoint {
    // Dropped in this order, the queue pair before all.
    id: OwnedId,
    completions: Completions,
    send: Region,
    receive: Region,
    source: SocketAddr,
    /// Bytes of a receive slot.
    stride: usize,
    /// Most bytes of header and data that fit into one packet.
    most: usize,
    inline: usize,
    free: Vec<u16>,
    /// What the sends on their way need, by their slots.
    busy: Vec<Option<Arc<Handle>>>,
    armed: bool,
    health: Health,
    /// The program was told that it is gone.
    told: bool,
    /// Receives that the device has.
    posted: usize,
    /// Receive slots that the device gets once the queue pair works again.
    idle: Vec<u16>,
}

impl Endpoint {
    /// The endpoint of the local address `source`, which names a host and a
    /// port, receiving from now on.
    ///
    /// # Errors
    /// `ENODEV` if the address belongs to no RDMA device, `ENOTSUP` if that
    /// has no datagrams, `EADDRINUSE`, else what the kernel or libibverbs
    /// says.
    ///
    /// # Safety
    /// The channel outlives the endpoint.
    pub unsafe fn new(channel: &Channel, source: SocketAddr, settings: &Settings) -> Result<Self> {
        // SAFETY: the caller vouches for the channel.
        let id = unsafe { OwnedId::datagram(channel) }?;
        // The port is the UDP socket's, which may share it (SO_REUSEADDR): it
        // says whether the port is free, and the identifier needs none.
        let mut host = source;
        host.set_port(0);
        address::bind(&id, &SockAddr::from(host))?;
        let device = id
            .device()
            .ok_or(Error::new(libc::ENODEV, "find the device of an address"))?;
        if device.transport() != Transport::InfiniBand {
            return Err(Error::new(
                libc::ENOTSUP,
                "use datagrams on a device without them",
            ));
        }
        let mtu = path::port_mtu(&device, id.port_num())?;
        let stride = (GRH_LEN + mtu.max(SLOT)).next_multiple_of(64);
        let most = u16::try_from(device.max_queue()).unwrap_or(u16::MAX).max(1);
        let (sends, receives) = (
            settings.send_queue.min(most),
            settings.receive_queue.min(most),
        );
        let entries = u32::from(sends).saturating_add(u32::from(receives));
        let completions = Completions::new(Arc::clone(&device), entries)?;
        let pd = device.pd()?;
        let region = |slots: u16, stride: usize| {
            let length = usize::from(slots).saturating_mul(stride);
            // SAFETY: the device, which the identifier keeps, keeps its domain.
            unsafe { Region::new(pd, length, Access::Local) }
        };
        let mut endpoint = Self {
            send: region(sends, SLOT)?,
            receive: region(receives, stride)?,
            id,
            completions,
            source,
            stride,
            most: mtu.min(SLOT),
            inline: usize::from(settings.inline),
            free: (0..sends).collect(),
            busy: (0..sends).map(|_| None).collect(),
            armed: false,
            health: Health::Works,
            told: false,
            posted: 0,
            idle: Vec::new(),
        };
        let pair = QueuePair {
            qp_type: IBV_QPT_UD,
            sends,
            send_parts: 1,
            receives,
            inline: endpoint.inline,
        };
        // SAFETY: the endpoint drops the identifier, and with it the queue pair,
        // before the queue.
        endpoint.inline = unsafe { pair.create(&endpoint.id, &endpoint.completions) }?;
        for slot in 0..receives {
            endpoint.release(slot)?;
        }
        log::debug!("{}: datagrams of {source}", endpoint.id.as_ref());
        Ok(endpoint)
    }

    /// The local address.
    pub fn source(&self) -> SocketAddr {
        self.source
    }

    /// Takes the local address as the UDP socket has it in the end: the identifier
    /// needs the host only.
    pub fn set_source(&mut self, source: SocketAddr) {
        self.source = source;
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> u32 {
        // SAFETY: created in `new`, and lives as long as the endpoint.
        unsafe { (*self.id.qp()).qp_num }
    }

    /// Bytes that are sent inline.
    pub fn inline(&self) -> usize {
        self.inline
    }

    /// Its completions.
    pub fn completions(&self) -> &Completions {
        &self.completions
    }

    /// Whether data of `length` bytes fits into a packet with its header.
    pub fn fits(&self, length: usize) -> bool {
        length.saturating_add(header::direct_len(self.source)) <= self.most
    }

    /// Whether its identifier is `id`.
    pub fn has_id(&self, id: *const rdma_cm_id) -> bool {
        ptr::eq(self.id.as_pointer(), id)
    }

    /// Whether a send would not wait.
    pub fn can_send(&self) -> bool {
        !self.works() || !self.free.is_empty()
    }

    /// Whether all that was sent has left, or never will.
    pub fn is_idle(&self) -> bool {
        self.is_gone() || self.free.len() == self.busy.len()
    }

    /// Sends all of `data`, which [`fits`](Self::fits), to the queue pair
    /// `qpn` that `handle` leads to.
    ///
    /// # Errors
    /// `EAGAIN` if the send queue is full, else what libibverbs says.
    pub fn send(&mut self, handle: &Arc<Handle>, qpn: u32, data: &mut Cursor<'_>) -> Result<()> {
        let slot = self
            .free
            .pop()
            .ok_or(Error::new(libc::EAGAIN, "wait for a free send"))?;
        let offset = usize::from(slot).saturating_mul(SLOT);
        let header = header::direct(self.source);
        let start = header.as_bytes().len();
        let length = data.remaining();
        let total = start.saturating_add(length);
        self.send.write(offset, header.as_bytes());
        if let Some(room) = self.send.pointer(offset.saturating_add(start), length)
            && total <= SLOT
        {
            // SAFETY: room for `length` bytes that no work request uses.
            unsafe { data.read(room, length) };
        }
        let mut part = ibv_sge {
            addr: self.send.address(offset),
            length: total.min(SLOT) as u32,
            lkey: self.send.local_key(),
        };
        // SAFETY: plain numbers and pointers, for which zero is valid.
        let mut wr: ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
        wr.wr_id = slot.into();
        wr.sg_list = &mut part;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        if total <= self.inline {
            wr.send_flags |= IBV_SEND_INLINE;
        }
        wr.wr.ud.ah = handle.as_pointer();
        wr.wr.ud.remote_qpn = qpn;
        wr.wr.ud.remote_qkey = QKEY;
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair lives as long as the endpoint; the request
        // and its part live until the call ends, the handle until it is
        // complete.
        let status = unsafe { dispatch::post_send(self.id.qp(), &mut wr, &mut bad) };
        if status != 0 {
            self.free.push(slot);
            return Err(failure(status, "post a datagram"));
        }
        if let Some(busy) = self.busy.get_mut(usize::from(slot)) {
            *busy = Some(Arc::clone(handle));
        }
        Ok(())
    }

    /// Handles what has completed and passes what has arrived to `arrived`,
    /// which says whether to keep it. Returns how much there was. What fails
    /// does not keep the rest from being handled.
    ///
    /// # Errors
    /// What libibverbs says, but if the device is gone: see
    /// [`Endpoint::take_loss`].
    pub fn progress(&mut self, mut arrived: impl FnMut(Arrival) -> bool) -> Result<usize> {
        let mut batch = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        let mut total = 0usize;
        let mut outcome = Ok(());
        while !self.is_gone() {
            let count = match self.completions.poll(&mut batch) {
                Err(error) if self.is_loss(&error) => break,
                polled => polled?,
            };
            for wc in batch.iter().take(count) {
                // SAFETY: the poll filled the first `count`.
                let handled = self.completed(unsafe { wc.assume_init_ref() }, &mut arrived);
                outcome = outcome.and(handled);
            }
            total = total.saturating_add(count);
            if count < BATCH {
                break;
            }
        }
        self.recover();
        outcome.map(|()| total)
    }

    fn completed(&mut self, wc: &ibv_wc, arrived: &mut impl FnMut(Arrival) -> bool) -> Result<()> {
        let slot = (wc.wr_id & 0xFFFF) as u16;
        let failed = wc.status != IBV_WC_SUCCESS;
        if failed {
            log::warn!(
                "{}: work request {:#x} failed, status {}",
                self.id.as_ref(),
                wc.wr_id,
                wc.status
            );
            self.fail();
        }
        if wc.wr_id & RECEIVE == 0 {
            if let Some(busy) = self.busy.get_mut(usize::from(slot)) {
                *busy = None;
                self.free.push(slot);
            }
            return Ok(());
        }
        self.posted = self.posted.saturating_sub(1);
        if failed {
            return self.release(slot);
        }
        let arrival = self.parse(slot, wc.byte_len as usize);
        if arrival.is_some_and(arrived) {
            return Ok(());
        }
        self.release(slot)
    }

    /// Makes sure that the next completion is notified; returns whether that
    /// was not so before.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn arm(&mut self) -> Result<bool> {
        if self.armed || self.is_gone() {
            return Ok(false);
        }
        match self.completions.arm() {
            Err(error) if self.is_loss(&error) => {}
            armed => {
                armed?;
                self.armed = true;
            }
        }
        Ok(true)
    }

    /// Takes the notification, if there is one. Returns `false` if there will be
    /// none any more.
    pub fn take_notification(&mut self) -> bool {
        match self.completions.take_notification() {
            Ok(taken) => self.armed &= !taken,
            Err(error) => {
                log::warn!("{}: no datagrams any more: {error}", self.id.as_ref());
                self.lose();
            }
        }
        !self.is_gone()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Before the completion queue and the memory that it uses.
        qp::destroy(&self.id);
    }
}
