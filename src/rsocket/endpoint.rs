//! The queue pair of a stream connection with its completion queue and
//! memory: creation and posting. What is posted when is decided in
//! [`super::connection`].

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::cancel;
use crate::cm::id::Id;
use crate::cm::qp;
use crate::error::Result;
use crate::lock::OnceCell;
use crate::verbs::bindings::{
    IBV_SEND_INLINE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, ibv_recv_wr, ibv_sge, ibv_wc,
};
use crate::verbs::{dispatch, failure};

use super::carrier::{Carrier, Places, Requests, Write};
use super::completion::Completions;
use super::flow::CONTROL_SLOTS;
use super::memory::{Access, Region};
use super::prepared::{Prepared, Sizes};
use super::settings::Settings;
use super::spare::{self, Queue};
use super::wire::{
    BIG_ENDIAN, ConnData, MAPPING_LEN, Mapping, Message, TARGET_LEN, TARGETS, Target, WORD_LEN,
};

/// Work request identifier of every receive.
pub const RECEIVE: u64 = u64::MAX;
/// Receives posted by one call.
const RECEIVE_BATCH: usize = 32;

/// A queue pair and all it needs.
#[derive(Debug)]
pub struct Endpoint {
    id: Arc<Id>,
    sizes: Sizes,
    /// Data on its way, then room for one control payload per control slot.
    /// Made when first needed, as many connections send nothing that is not
    /// inline.
    send: OnceCell<Region>,
    /// Received data, then the target list and the peer's mappings, then the
    /// messages that travel alone.
    receive: Region,
    completions: Queue,
    places: Places,
    posts_by_system_call: bool,
}

impl Endpoint {
    /// Makes the endpoint of an identifier that is bound to a device, ready to
    /// connect or accept.
    ///
    /// # Errors
    /// `ENOTSUP` on devices other than InfiniBand, RoCE and iWARP, else what
    /// libibverbs says.
    pub fn new(id: &Arc<Id>, settings: &Settings) -> Result<Self> {
        let device = id.require_device()?;
        let prepared = match spare::take_connection(&device, settings) {
            Some(prepared) => prepared,
            None => spare::with_all(|| Prepared::new(&device, settings))?,
        };
        Self::of(id, prepared)
    }

    /// As [`Endpoint::new`], of what was made before for such an identifier.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn of(id: &Arc<Id>, prepared: Prepared) -> Result<Self> {
        let Prepared {
            sizes,
            pair,
            receive,
            completions,
            ..
        } = prepared;
        let device = id.require_device()?;
        id.state().writes_only = true;
        // From here on, only an endpoint takes it off again before its memory goes.
        pair.attach(id)?;
        let endpoint = Self {
            id: Arc::clone(id),
            send: OnceCell::new(),
            receive,
            places: Places::new(sizes.receives),
            sizes,
            completions: completions.used(),
            posts_by_system_call: device.posts_by_system_call(),
        };
        if endpoint.sizes.inline < MAPPING_LEN {
            // Control messages need it, and they cannot fail.
            endpoint.prepare_buffer()?;
        }
        endpoint.post_receives(usize::from(endpoint.sizes.receives))?;
        Ok(endpoint)
    }

    /// Makes the memory of what is not sent inline, unless it is there.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn prepare_buffer(&self) -> Result<()> {
        let made = self.send.get_or_try_init(|| {
            let control = usize::from(CONTROL_SLOTS) * MAPPING_LEN;
            let length = self.sizes.send_length.saturating_add(control);
            let pd = self.id.require_device()?.pd()?;
            // SAFETY: the device, which the identifier keeps, keeps its domain.
            unsafe { Region::new(pd, length, Access::Local) }
        });
        made.map(|_| ())
    }

    /// As [`Endpoint::prepare_buffer`], while there is time and before it is known
    /// whether the memory is needed.
    pub fn prepare_ahead(&self) {
        if let Err(error) = self.prepare_buffer() {
            log::debug!("{}: nothing is prepared: {error}", self.id);
        }
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
        self.sizes.send_length
    }

    /// Bytes of the receive buffer.
    pub fn receive_length(&self) -> usize {
        self.sizes.receive_length
    }

    /// Entries of the send queue.
    pub fn send_queue(&self) -> u16 {
        self.sizes.send_queue
    }

    /// Data messages that fit at once.
    pub fn receive_queue(&self) -> u16 {
        self.sizes.receive_queue
    }

    /// Most bytes of an inline write.
    pub fn inline(&self) -> usize {
        self.sizes.inline
    }

    /// Mappings that the peer may expose.
    pub fn mappings(&self) -> u16 {
        self.sizes.mappings
    }

    /// What to tell the peer of this endpoint.
    pub fn conn_data(&self) -> ConnData {
        let at = |offset, length| Target {
            addr: self.receive.address(offset),
            key: self.receive.remote_key(),
            length,
        };
        ConnData {
            big_endian: BIG_ENDIAN,
            counts_mappings: true,
            credits: self.sizes.receive_queue,
            mappings: self.sizes.mappings,
            target_list: at(self.sizes.receive_length, TARGETS),
            buffer: at(0, (self.sizes.receive_length / 2) as u32),
        }
    }

    /// Where in this side's memory the byte at `offset` of the receive buffer
    /// is, for the peer.
    pub fn receive_target(&self, offset: usize, length: usize) -> Target {
        Target {
            addr: self.receive.address(offset),
            key: self.receive.remote_key(),
            length: u32::try_from(length).unwrap_or(0),
        }
    }

    /// Receives that may be missing for a while after they completed.
    pub fn late_receives(&self) -> usize {
        self.sizes.late_receives()
    }

    /// How its messages travel.
    pub fn carrier(&self) -> Carrier {
        self.sizes.carrier
    }

    /// The message of a completed receive, if it is one. The peer's byte order
    /// may be the `swapped` one.
    #[inline]
    pub fn message(&self, wc: &ibv_wc, swapped: bool) -> Option<Message> {
        match (self.sizes.carrier, wc.opcode) {
            (Carrier::Immediate, IBV_WC_RECV_RDMA_WITH_IMM) => {
                // SAFETY: the opcode says that there is immediate data.
                let word = unsafe { wc.__bindgen_anon_1.imm_data };
                Some(Message::decode(u32::from_be(word)))
            }
            (Carrier::Send, IBV_WC_RECV) => {
                let offset = self.sizes.words() + self.places.take() * WORD_LEN;
                let word = self.receive.read(offset);
                (wc.byte_len as usize == WORD_LEN).then(|| Message::from_word(word, swapped))
            }
            _ => None,
        }
    }

    /// The entry of this side's target list that the peer wrote, if it wrote
    /// one with the grant whose receive is complete.
    pub fn granted(&self, wc: &ibv_wc, entry: usize) -> Option<Target> {
        let offset = self.sizes.receive_length + (entry % TARGETS as usize) * TARGET_LEN;
        let region = &self.receive;
        match self.sizes.carrier {
            Carrier::Immediate => {
                let written = wc.byte_len as usize == TARGET_LEN;
                written.then(|| Target::decode(&region.read(offset)))
            }
            Carrier::Send => take_target(region, offset),
        }
    }

    /// The mapping that the peer exposed as `index`; empty if it did not.
    #[inline]
    pub fn read_mapping(&self, index: u16) -> Mapping {
        let lists = self.sizes.receive_length + TARGETS as usize * TARGET_LEN;
        let offset = lists + usize::from(index) * MAPPING_LEN;
        if index < self.sizes.mappings {
            Mapping::decode(&self.receive.read(offset))
        } else {
            Mapping::default()
        }
    }

    /// `length` received bytes at `offset` of the receive buffer; `None` if
    /// they do not lie in it.
    pub fn received(&self, offset: usize, length: usize) -> Option<*const u8> {
        let inside = offset.checked_add(length)? <= self.sizes.receive_length;
        let pointer = self.receive.pointer(offset, length)?;
        inside.then_some(pointer.cast_const())
    }

    /// Room for `length` bytes at `offset` of the send buffer; `None` if they
    /// do not lie in it.
    pub fn outgoing(&self, offset: usize, length: usize) -> Option<*mut u8> {
        let inside = offset.checked_add(length)? <= self.sizes.send_length;
        let pointer = self.send.get()?.pointer(offset, length)?;
        inside.then_some(pointer)
    }

    /// Writes `length` bytes at `offset` of the send buffer, which may wrap.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn post_buffered(&self, write: &Write, offset: usize, length: usize) -> Result<()> {
        let first = length.min(self.sizes.send_length.saturating_sub(offset));
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
    #[inline(always)] // as for `post`
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
        if bytes.len() <= self.sizes.inline {
            // SAFETY: a slice is readable.
            return unsafe { self.post_inline(write, bytes.as_ptr(), bytes.len()) };
        }
        let slot = slot % usize::from(CONTROL_SLOTS);
        let offset = self.sizes.send_length + slot * MAPPING_LEN;
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

    #[inline(always)] // what is known of the write saves a third of it
    fn post(&self, write: &Write, parts: &mut [ibv_sge], flags: u32) -> Result<()> {
        let mut requests = Requests::room();
        let first = requests.make(self.sizes.carrier, write, parts, flags);
        let mut bad = ptr::null_mut();
        let status = cancel::uncancelled_if(self.posts_by_system_call, || {
            // SAFETY: the queue pair lives as long as the endpoint; the
            // requests and their parts live until the call ends.
            unsafe { dispatch::post_send(self.id.qp(), first, &mut bad) }
        });
        if status != 0 {
            return Err(failure(status, "post a send"));
        }
        Ok(())
    }

    /// The memory of a message that travels alone.
    fn part_of_word(&self, place: usize) -> ibv_sge {
        ibv_sge {
            addr: self.receive.address(self.sizes.words() + place * WORD_LEN),
            length: WORD_LEN as u32,
            lkey: self.receive.local_key(),
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
            // Only as many as are needed are written.
            let mut requests = [const { MaybeUninit::uninit() }; RECEIVE_BATCH];
            let mut parts = [const { MaybeUninit::uninit() }; RECEIVE_BATCH];
            let requests = requests.get_mut(..batch).unwrap_or_default();
            let parts = parts.get_mut(..batch).unwrap_or_default();
            let words = self.sizes.carrier == Carrier::Send;
            if words {
                for part in parts.iter_mut() {
                    part.write(self.part_of_word(self.places.post()));
                }
            }
            let mut next = ptr::null_mut();
            for (request, part) in requests.iter_mut().zip(parts).rev() {
                next = request.write(ibv_recv_wr {
                    wr_id: RECEIVE,
                    next,
                    sg_list: if words {
                        part.as_mut_ptr()
                    } else {
                        ptr::null_mut()
                    },
                    num_sge: words.into(),
                });
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
        self.completions.spoilt = !self.id.qp().is_null();
    }
}
