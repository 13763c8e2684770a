//! The memory of a channel: receive buffers, response buffers and the pool for
//! data, one after the other in one area that is registered once.

use std::io;
use std::sync::Arc;

use super::link::ReceiveRequest;
use crate::memory::{Area, Buffer, Pool};
use crate::wire::request::MAX_TARGET_REQUEST;
use crate::wire::response::MAX_RESPONSE;

const PAGE: usize = 4096;
/// Bytes of a response buffer.
const RESPONSE_LENGTH: usize = 64;
const _: () = assert!(MAX_RESPONSE <= RESPONSE_LENGTH && MAX_TARGET_REQUEST <= RESPONSE_LENGTH);

/// Receives beyond the initiator's credits: for answers to the target's own
/// requests, which cost none.
const SPARE_RECEIVES: u16 = 4;

/// How large everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Commands under way.
    pub credits: u16,
    /// Bytes of the longest information unit from the initiator.
    pub receive: u32,
    /// Where in a command immediate data starts; it is put on a page
    /// boundary.
    pub immediate_offset: u16,
    /// Bytes for data in all.
    pub pool: usize,
    /// Most bytes of one command's data.
    pub max_transfer: usize,
}

impl Sizes {
    fn receives(&self) -> u16 {
        self.credits.saturating_add(SPARE_RECEIVES)
    }

    /// Bytes of a receive in front of its information unit, and in all.
    fn receive(&self) -> (usize, usize) {
        let first = PAGE.saturating_sub(self.immediate_offset.into());
        let stride = (first + self.receive as usize).next_multiple_of(PAGE);
        (first, stride)
    }

    /// Bytes of all receives, and of what is in front of the pool.
    fn in_front(&self) -> (usize, usize) {
        let (_, stride) = self.receive();
        let responses = usize::from(self.receives()) * stride;
        // One more, for the target's own request.
        let length = (usize::from(self.credits) + 1) * RESPONSE_LENGTH;
        (responses, (responses + length).next_multiple_of(PAGE))
    }

    /// Bytes of a channel's memory in all; as many as can be counted if there are
    /// more.
    pub fn bytes(&self) -> usize {
        let (_, front) = self.in_front();
        Pool::bytes_behind(front, self.pool, self.max_transfer).unwrap_or(usize::MAX)
    }
}

/// Receive and response buffers.
#[derive(Debug)]
pub struct Rings {
    area: Arc<Area>,
    /// Received bytes of each receive.
    lengths: Vec<u32>,
    first: usize,
    stride: usize,
    receive: u32,
    responses: usize,
    slots: u16,
}

impl Rings {
    /// Makes the memory of a channel.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(sizes: &Sizes) -> io::Result<(Self, Pool)> {
        let (first, stride) = sizes.receive();
        let (responses, front) = sizes.in_front();
        let pool = Pool::behind(front, sizes.pool, sizes.max_transfer)?;
        let rings = Self {
            area: Arc::clone(pool.area()),
            lengths: vec![0; sizes.receives().into()],
            first,
            stride,
            receive: sizes.receive,
            responses,
            slots: sizes.credits,
        };
        Ok((rings, pool))
    }

    /// Number of receives.
    pub fn receives(&self) -> u16 {
        self.slots.saturating_add(SPARE_RECEIVES)
    }

    fn offset(&self, number: u16) -> usize {
        usize::from(number) * self.stride + self.first
    }

    /// The request that posts a receive.
    pub fn request(&self, number: u16) -> Option<ReceiveRequest> {
        let pointer = self
            .area
            .pointer(self.offset(number), self.receive as usize)?;
        Some(ReceiveRequest {
            number,
            address: pointer as u64,
            length: self.receive,
        })
    }

    /// Notes how many bytes a receive has received.
    pub fn received(&mut self, number: u16, length: u32) {
        if let Some(slot) = self.lengths.get_mut(usize::from(number)) {
            *slot = length.min(self.receive);
        }
    }

    /// What a receive has received. The caller has not posted it again.
    pub fn unit(&self, number: u16) -> &[u8] {
        let length = self.lengths.get(usize::from(number)).copied().unwrap_or(0) as usize;
        match self.area.pointer(self.offset(number), length) {
            // SAFETY: initialised bytes inside the area, which lives as long
            // as `self`. The device writes to them only while the receive is
            // posted, and no buffer overlaps them but `Rings::part`, which
            // nobody writes to.
            Some(pointer) => unsafe { std::slice::from_raw_parts(pointer, length) },
            None => &[],
        }
    }

    /// A part of what a receive has received, as a command's buffer. Empty if
    /// it is not there.
    pub fn part(&self, number: u16, offset: u16, length: u32) -> Buffer {
        let start = usize::from(offset);
        let inside = self
            .unit(number)
            .get(start..)
            .is_some_and(|rest| rest.len() >= length as usize);
        if inside {
            Buffer::borrowed(&self.area, self.offset(number) + start, length as usize)
        } else {
            Buffer::empty()
        }
    }

    /// The response buffer of a slot; one past the last slot is for the
    /// target's own request. The caller has no response of it under way.
    pub fn response(&mut self, slot: u16) -> &mut [u8] {
        let offset = self.responses + usize::from(slot) * RESPONSE_LENGTH;
        match self.area.pointer(offset, RESPONSE_LENGTH) {
            // SAFETY: initialised bytes inside the area that belong to this
            // slot alone; borrowed exclusively through `self`.
            Some(pointer) if slot <= self.slots => unsafe {
                std::slice::from_raw_parts_mut(pointer, RESPONSE_LENGTH)
            },
            _ => &mut [],
        }
    }
}
