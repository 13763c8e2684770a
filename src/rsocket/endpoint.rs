//! The queue pair of a stream connection with its completion queue and
//! memory: creation and posting. What is posted when is decided in
//! [`super::connection`].

use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::cm::id::Id;
use crate::cm::qp;
use crate::error::{Error, Result};
use crate::lock::OnceCell;
use crate::verbs::bindings::{
    IBV_QPT_RC, IBV_SEND_INLINE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, ibv_recv_wr, ibv_sge,
    ibv_wc,
};
use crate::verbs::{dispatch, failure};

use super::carrier::{Carrier, Places, Write, with_requests};
use super::completion::{Completions, QueuePair};
use super::flow::CONTROL_SLOTS;
use super::memory::{Access, Region};
use super::settings::{MAX_QUEUE, Settings};
use super::spare;
use super::wire::{
    BIG_ENDIAN, ConnData, MAPPING_LEN, Mapping, Message, TARGET_LEN, TARGETS, Target, WORD_LEN,
};

/// Work request identifier of every receive.
pub const RECEIVE: u64 = u64::MAX;
/// Least entries of a queue.
const MIN_QUEUE: u16 = 16;
/// Entries of a queue below which memory does not matter.
const SMALL_QUEUE: u16 = 128;
/// Receives posted by one call.
const RECEIVE_BATCH: usize = 32;

/// Entries of a send queue where `wanted` are wanted. Devices make queues a power
/// of two long, and soft-RoCE leaves one entry of it empty. Where much of that would
/// be of no use, the next lower one is taken: the entries of 384 sends are half the
/// memory of a connection, which is cleared for each.
fn fitting(wanted: u16) -> u16 {
    let whole = wanted.saturating_add(1).checked_next_power_of_two();
    match whole {
        Some(whole) if wanted >= SMALL_QUEUE && wanted <= whole / 4 * 3 => {
            (whole / 2).saturating_sub(1)
        }
        _ => wanted,
    }
}

/// A queue pair and all it needs.
#[derive(Debug)]
pub struct Endpoint {
    id: Arc<Id>,
    carrier: Carrier,
    /// Left to others when dropped.
    completions: ManuallyDrop<Completions>,
    /// Data on its way, then room for one control payload per control slot.
    /// Made when first needed, as many connections send nothing that is not
    /// inline.
    send: OnceCell<Region>,
    /// Received data, then the target list and the peer's mappings, then the
    /// messages that travel alone.
    receive: Option<Region>,
    places: Places,
    send_length: usize,
    receive_length: usize,
    send_queue: u16,
    receive_queue: u16,
    inline: usize,
    mappings: u16,
}

impl Endpoint {
    /// Makes the endpoint of an identifier that is bound to a device, ready to
    /// connect or accept.
    ///
    /// # Errors
    /// `ENOTSUP` on devices other than InfiniBand and RoCE, else what
    /// libibverbs says.
    pub fn new(id: &Arc<Id>, settings: &Settings) -> Result<Self> {
        let device = id.require_device()?;
        let carrier = Carrier::of(device.transport()).ok_or(Error::new(
            libc::ENOTSUP,
            "use sockets over RDMA on a device of this kind",
        ))?;
        let most = u16::try_from(device.max_qp_wr())
            .unwrap_or(MAX_QUEUE)
            .clamp(MIN_QUEUE, MAX_QUEUE);
        let room = most / carrier.requests();
        let send_queue = fitting(settings.send_queue).clamp(MIN_QUEUE.min(room), room);
        let sends = send_queue.saturating_mul(carrier.requests());
        let mut receive_queue = settings.receive_queue.clamp(MIN_QUEUE, most);
        // The peer's control messages take receives as well.
        let receives = receive_queue
            .saturating_add(carrier.spare_receives())
            .min(most);
        if carrier == Carrier::Send {
            // Without one the connection would break.
            receive_queue = receives.saturating_sub(carrier.spare_receives());
        }
        let entries = u32::from(sends).saturating_add(u32::from(receives));
        let completions = match spare::take(&device, entries) {
            Some(spare) => spare,
            None => Completions::new(Arc::clone(&device), entries)?,
        };
        let mut endpoint = Self {
            id: Arc::clone(id),
            carrier,
            completions: ManuallyDrop::new(completions),
            send: OnceCell::new(),
            receive: None,
            places: Places::new(receives),
            send_length: settings.send_buffer as usize,
            receive_length: (settings.receive_buffer as usize).next_multiple_of(TARGET_LEN),
            send_queue,
            receive_queue,
            inline: usize::from(settings.inline).max(carrier.receive_length()),
            mappings: settings.mappings,
        };
        let pd = device.pd()?;
        let length = endpoint.words() + usize::from(receives) * carrier.receive_length();
        // SAFETY: the device, which the identifier keeps, keeps its domain.
        endpoint.receive = Some(unsafe { Region::new(pd, length, Access::RemoteWrite) }?);
        let pair = QueuePair {
            qp_type: IBV_QPT_RC,
            sends,
            send_parts: 2,
            receives,
            inline: endpoint.inline,
        };
        endpoint.inline = pair.create(id, &endpoint.completions)?;
        if endpoint.inline < carrier.receive_length() {
            return Err(Error::new(
                libc::ENOTSUP,
                "use sockets over RDMA on a device without inline data",
            ));
        }
        if endpoint.inline < MAPPING_LEN {
            // Control messages need it, and they cannot fail.
            endpoint.prepare_buffer()?;
        }
        endpoint.post_receives(usize::from(receives))?;
        Ok(endpoint)
    }

    /// Makes the memory of what is not sent inline, unless it is there.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn prepare_buffer(&self) -> Result<()> {
        let made = self.send.get_or_try_init(|| {
            let control = usize::from(CONTROL_SLOTS) * MAPPING_LEN;
            let length = self.send_length.saturating_add(control);
            let pd = self.id.require_device()?.pd()?;
            // SAFETY: the device, which the identifier keeps, keeps its domain.
            unsafe { Region::new(pd, length, Access::Local) }
        });
        made.map(|_| ())
    }

    /// The identifier.
    pub fn id(&self) -> &Arc<Id> {
        &self.id
    }

    /// Its completions.
    pub fn completions(&self) -> &Completions {
        &self.completions
    }

    /// Bytes of the send buffer.
    pub fn send_length(&self) -> usize {
        self.send_length
    }

    /// Bytes of the receive buffer.
    pub fn receive_length(&self) -> usize {
        self.receive_length
    }

    /// Entries of the send queue.
    pub fn send_queue(&self) -> u16 {
        self.send_queue
    }

    /// Data messages that fit at once.
    pub fn receive_queue(&self) -> u16 {
        self.receive_queue
    }

    /// Most bytes of an inline write.
    pub fn inline(&self) -> usize {
        self.inline
    }

    /// Mappings that the peer may expose.
    pub fn mappings(&self) -> u16 {
        self.mappings
    }

    /// What to tell the peer of this endpoint.
    pub fn conn_data(&self) -> ConnData {
        let at = |offset, length| {
            self.receive
                .as_ref()
                .map_or(Target::default(), |region| Target {
                    addr: region.address(offset),
                    key: region.remote_key(),
                    length,
                })
        };
        ConnData {
            big_endian: BIG_ENDIAN,
            counts_mappings: true,
            credits: self.receive_queue,
            mappings: self.mappings,
            target_list: at(self.receive_length, TARGETS),
            buffer: at(0, (self.receive_length / 2) as u32),
        }
    }

    /// Where in this side's memory the byte at `offset` of the receive buffer
    /// is, for the peer.
    pub fn receive_target(&self, offset: usize, length: usize) -> Target {
        self.receive
            .as_ref()
            .map_or(Target::default(), |region| Target {
                addr: region.address(offset),
                key: region.remote_key(),
                length: u32::try_from(length).unwrap_or(0),
            })
    }

    /// How its messages travel.
    pub fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// Where in the receive memory the messages that travel alone are.
    fn words(&self) -> usize {
        self.receive_length
            + TARGETS as usize * TARGET_LEN
            + usize::from(self.mappings) * MAPPING_LEN
    }

    /// The message of a completed receive, if it is one. The peer's byte order
    /// may be the `swapped` one.
    pub fn message(&self, wc: &ibv_wc, swapped: bool) -> Option<Message> {
        match (self.carrier, wc.opcode) {
            (Carrier::Immediate, IBV_WC_RECV_RDMA_WITH_IMM) => {
                // SAFETY: the opcode says that there is immediate data.
                let word = unsafe { wc.__bindgen_anon_1.imm_data };
                Some(Message::decode(u32::from_be(word)))
            }
            (Carrier::Send, IBV_WC_RECV) => {
                let offset = self.words() + self.places.take() * WORD_LEN;
                let word = self.receive.as_ref()?.read(offset);
                (wc.byte_len as usize == WORD_LEN).then(|| Message::from_word(word, swapped))
            }
            _ => None,
        }
    }

    /// The entry of this side's target list that the peer wrote, if it wrote
    /// one with the grant whose receive is complete.
    pub fn granted(&self, wc: &ibv_wc, entry: usize) -> Option<Target> {
        let offset = self.receive_length + (entry % TARGETS as usize) * TARGET_LEN;
        let region = self.receive.as_ref()?;
        match self.carrier {
            Carrier::Immediate => {
                let written = wc.byte_len as usize == TARGET_LEN;
                written.then(|| Target::decode(&region.read(offset)))
            }
            Carrier::Send => take_target(region, offset),
        }
    }

    /// The mapping that the peer exposed as `index`; empty if it did not.
    pub fn read_mapping(&self, index: u16) -> Mapping {
        let lists = self.receive_length + TARGETS as usize * TARGET_LEN;
        let offset = lists + usize::from(index) * MAPPING_LEN;
        match &self.receive {
            Some(region) if index < self.mappings => Mapping::decode(&region.read(offset)),
            _ => Mapping::default(),
        }
    }

    /// `length` received bytes at `offset` of the receive buffer; `None` if
    /// they do not lie in it.
    pub fn received(&self, offset: usize, length: usize) -> Option<*const u8> {
        let inside = offset.checked_add(length)? <= self.receive_length;
        let pointer = self.receive.as_ref()?.pointer(offset, length)?;
        inside.then_some(pointer.cast_const())
    }

    /// Room for `length` bytes at `offset` of the send buffer; `None` if they
    /// do not lie in it.
    pub fn outgoing(&self, offset: usize, length: usize) -> Option<*mut u8> {
        let inside = offset.checked_add(length)? <= self.send_length;
        let pointer = self.send.get()?.pointer(offset, length)?;
        inside.then_some(pointer)
    }

    /// Writes `length` bytes at `offset` of the send buffer, which may wrap.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn post_buffered(&self, write: &Write, offset: usize, length: usize) -> Result<()> {
        let first = length.min(self.send_length.saturating_sub(offset));
        let mut parts = [
            self.part(offset, first),
            self.part(0, length.saturating_sub(first)),
        ];
        let count = if first < length { 2 } else { 1 };
        self.post(write, parts.get_mut(..count).unwrap_or_default(), 0)
    }

    fn part(&self, offset: usize, length: usize) -> ibv_sge {
        let (addr, lkey) = self.send.get().map_or((0, 0), |region| {
            (region.address(offset), region.local_key())
        });
        ibv_sge {
            addr,
            length: length as u32,
            lkey,
        }
    }

    /// Writes `length` bytes at `data`, at most [`Endpoint::inline`].
    ///
    /// # Errors
    /// What libibverbs says.
    ///
    /// # Safety
    /// `data` is readable for `length` bytes.
    pub unsafe fn post_inline(&self, write: &Write, data: *const u8, length: usize) -> Result<()> {
        let mut parts = [ibv_sge {
            addr: data as u64,
            length: length as u32,
            lkey: 0,
        }];
        self.post(write, &mut parts, IBV_SEND_INLINE)
    }

    /// Writes a few bytes of the library's own; `slot` numbers the room they
    /// are kept in if they cannot be sent inline.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn post_bytes(&self, write: &Write, bytes: &[u8], slot: usize) -> Result<()> {
        if bytes.len() <= self.inline {
            // SAFETY: a slice is readable.
            return unsafe { self.post_inline(write, bytes.as_ptr(), bytes.len()) };
        }
        let slot = slot % usize::from(CONTROL_SLOTS);
        let offset = self.send_length + slot * MAPPING_LEN;
        if let Some(region) = self.send.get() {
            region.write(offset, bytes);
        }
        self.post(write, &mut [self.part(offset, bytes.len())], 0)
    }

    /// Writes nothing but the message.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn post_empty(&self, write: &Write) -> Result<()> {
        self.post(write, &mut [], 0)
    }

    fn post(&self, write: &Write, parts: &mut [ibv_sge], flags: u32) -> Result<()> {
        let mut bad = ptr::null_mut();
        let status = with_requests(self.carrier, write, parts, flags, |requests| {
            // SAFETY: the queue pair lives as long as the endpoint; the
            // requests and their parts live until the call ends.
            unsafe { dispatch::post_send(self.id.qp(), requests, &mut bad) }
        });
        if status != 0 {
            return Err(failure(status, "post a send"));
        }
        Ok(())
    }

    /// The memory of a message that travels alone.
    fn part_of_word(&self, place: usize) -> ibv_sge {
        let (addr, lkey) = self.receive.as_ref().map_or((0, 0), |region| {
            let offset = self.words() + place * WORD_LEN;
            (region.address(offset), region.local_key())
        });
        ibv_sge {
            addr,
            length: WORD_LEN as u32,
            lkey,
        }
    }

    /// Posts `count` receives.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn post_receives(&self, count: usize) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let batch = left.min(RECEIVE_BATCH);
            let blank = ibv_recv_wr {
                wr_id: RECEIVE,
                next: ptr::null_mut(),
                sg_list: ptr::null_mut(),
                num_sge: 0,
            };
            let mut requests = [blank; RECEIVE_BATCH];
            let mut parts = [self.part_of_word(0); RECEIVE_BATCH];
            if self.carrier == Carrier::Send {
                for (request, part) in requests.iter_mut().zip(&mut parts).take(batch) {
                    *part = self.part_of_word(self.places.post());
                    request.sg_list = part;
                    request.num_sge = 1;
                }
            }
            let mut next = ptr::null_mut();
            for request in requests.iter_mut().take(batch).rev() {
                request.next = next;
                next = request;
            }
            let mut bad = ptr::null_mut();
            // SAFETY: the queue pair lives as long as the endpoint, the list
            // with its parts until the call ends.
            let status = unsafe { dispatch::post_recv(self.id.qp(), next, &mut bad) };
            if status != 0 {
                return Err(failure(status, "post a receive"));
            }
            left = left.saturating_sub(batch);
        }
        Ok(())
    }
}

/// Takes the entry at `offset` if the peer has written it: a grant that
/// travels alone does not say so. An entry that was taken is zeroed; the peer
/// writes it again only when all that it granted was used. A device places the
/// 16 aligned bytes at once, but they are read in two steps: who sees the
/// second half sees the first.
fn take_target(region: &Region, offset: usize) -> Option<Target> {
    const HALF: usize = TARGET_LEN / 2;
    if region.read::<HALF>(offset + HALF) == [0; HALF] {
        return None;
    }
    fence(Ordering::Acquire);
    let target = Target::decode(&region.read(offset));
    region.write(offset, &[0; TARGET_LEN]);
    Some(target)
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Before the completion queue and the memory that it uses.
        qp::destroy(&self.id);
        // SAFETY: taken here only, and not used below.
        let completions = unsafe { ManuallyDrop::take(&mut self.completions) };
        if self.id.qp().is_null() {
            spare::keep(completions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_queue_that_would_waste_memory_is_the_next_lower_power_of_two() {
        assert_eq!(fitting(384), 255);
        assert_eq!(fitting(255), 255);
        assert_eq!(fitting(256), 255);
        assert_eq!(fitting(385), 385);
        assert_eq!(fitting(511), 511);
        assert_eq!(fitting(16), 16);
        assert_eq!(fitting(u16::MAX), u16::MAX);
    }
}
