//! What a connection needs of a device, made as soon as the device is known: the
//! completion queue, the memory that the peer writes to, and a queue pair without
//! identifier. It takes most of the time of setting up a connection, which is why
//! it can be made before there is one to set up. What is done with it is the
//! business of [`super::endpoint`].

use std::sync::Arc;

use crate::cm::device::Device;
use crate::cm::qp::Unattached;
use crate::error::{Error, Result};
use crate::verbs::bindings::IBV_QPT_RC;

use super::carrier::Carrier;
use super::completion::QueuePair;
use super::memory::{Access, Region};
use super::settings::{MAX_QUEUE, Settings};
use super::spare::Queue;
use super::wire::{MAPPING_LEN, TARGET_LEN, TARGETS};

/// Least entries of a queue.
const MIN_QUEUE: u16 = 16;
/// Entries of a queue below which memory does not matter.
const SMALL_QUEUE: u16 = 128;

/// Most bytes of a receive buffer that is made before it is needed.
const MOST_AHEAD: u32 = 1 << 19;

/// How much there is of everything, as settings and device have it.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// How messages travel.
    pub carrier: Carrier,
    /// Bytes of the send buffer.
    pub send_length: usize,
    /// Bytes of the receive buffer.
    pub receive_length: usize,
    /// Entries of the send queue.
    pub send_queue: u16,
    /// Data messages that fit at once.
    pub receive_queue: u16,
    /// Receives that are posted.
    pub receives: u16,
    /// Most bytes of an inline write.
    pub inline: usize,
    /// Mappings that the peer may expose.
    pub mappings: u16,
}

impl Sizes {
    fn new(device: &Device, settings: &Settings) -> Result<Self> {
        let carrier = Carrier::of(device.transport()).ok_or(Error::new(
            libc::ENOTSUP,
            "use sockets over RDMA on a device of this kind",
        ))?;
        let most = u16::try_from(device.max_queue())
            .unwrap_or(MAX_QUEUE)
            .clamp(MIN_QUEUE, MAX_QUEUE);
        let room = most / carrier.requests();
        let receive_queue = settings.receive_queue.clamp(MIN_QUEUE, most);
        // The peer's control messages take receives as well.
        let receives = receive_queue
            .saturating_add(carrier.spare_receives())
            .min(most);
        Ok(Self {
            carrier,
            send_length: settings.send_buffer as usize,
            receive_length: (settings.receive_buffer as usize).next_multiple_of(TARGET_LEN),
            send_queue: fitting(settings.send_queue).clamp(MIN_QUEUE.min(room), room),
            receive_queue: match carrier {
                Carrier::Immediate => receive_queue,
                // Without a receive the connection would break.
                Carrier::Send => receives.saturating_sub(carrier.spare_receives()),
            },
            receives,
            inline: usize::from(settings.inline).max(carrier.receive_length()),
            mappings: settings.mappings,
        })
    }

    fn sends(&self) -> u16 {
        self.send_queue.saturating_mul(self.carrier.requests())
    }

    /// Receives that may be missing for a while after they completed.
    pub fn late_receives(&self) -> usize {
        let spare = self.receives.saturating_sub(self.receive_queue);
        self.carrier.late_receives().min(spare).into()
    }

    /// Where in the receive memory the messages that travel alone are.
    pub fn words(&self) -> usize {
        self.receive_length
            + TARGETS as usize * TARGET_LEN
            + usize::from(self.mappings) * MAPPING_LEN
    }
}

/// Entries of a send queue where `wanted` are wanted. Devices make queues a power
/// of two long, and soft-RoCE leaves one entry of it empty. Where much of that would
/// be of no use, the next lower one is taken: with room for 384 sends, the queue
/// has half the memory of a connection, which the kernel clears for each.
fn fitting(wanted: u16) -> u16 {
    let whole = wanted.saturating_add(1).checked_next_power_of_two();
    match whole {
        Some(whole) if wanted >= SMALL_QUEUE && wanted <= whole / 4 * 3 => {
            (whole / 2).saturating_sub(1)
        }
        _ => wanted,
    }
}

/// All of an endpoint but for its identifier.
#[derive(Debug)]
pub struct Prepared {
    /// How much there is of everything.
    pub sizes: Sizes,
    // In the order in which they are to be dropped.
    /// The queue pair.
    pub pair: Unattached,
    /// Received data, then the target list and the peer's mappings, then the
    /// messages that travel alone.
    pub receive: Region,
    /// Where the queue pair's requests complete.
    pub completions: Queue,
    device: Arc<Device>,
    settings: Settings,
}

impl Prepared {
    /// Makes it for connections over `device`.
    ///
    /// # Errors
    /// `ENOTSUP` on devices other than InfiniBand, RoCE and iWARP, else what
    /// libibverbs says.
    pub fn new(device: &Arc<Device>, settings: &Settings) -> Result<Self> {
        let mut sizes = Sizes::new(device, settings)?;
        let (sends, receives) = (sizes.sends(), sizes.receives);
        let entries = u32::from(sends).saturating_add(u32::from(receives));
        let completions = Queue::new(device, entries)?;
        let words = usize::from(receives) * sizes.carrier.receive_length();
        let length = sizes.words() + words;
        // SAFETY: the device, which is kept beside it, keeps its domain.
        let receive = unsafe { Region::new(device.pd()?, length, Access::RemoteWrite) }?;
        let pair = QueuePair {
            qp_type: IBV_QPT_RC,
            sends,
            send_parts: 2,
            receives,
            inline: sizes.inline,
        };
        // SAFETY: the queue is kept beside it and dropped after it, as in the
        // endpoint that both become part of.
        let (pair, inline) = unsafe { pair.prepare(device, &completions) }?;
        if inline < sizes.carrier.receive_length() {
            return Err(Error::new(
                libc::ENOTSUP,
                "use sockets over RDMA on a device without inline data",
            ));
        }
        sizes.inline = inline;
        Ok(Self {
            sizes,
            pair,
            receive,
            completions,
            device: Arc::clone(device),
            settings: settings.clone(),
        })
    }

    /// As [`Prepared::new`], for a connection that there may be: nothing if it
    /// fails, and nothing that takes much memory.
    pub fn ahead(device: &Arc<Device>, settings: &Settings) -> Option<Self> {
        if settings.receive_buffer > MOST_AHEAD {
            return None;
        }
        Self::new(device, settings)
            .inspect_err(|error| log::debug!("{device}: nothing is prepared: {error}"))
            .ok()
    }

    /// Whether its device was removed.
    pub fn is_useless(&self) -> bool {
        self.device.is_removed()
    }

    /// Whether it is what [`Prepared::new`] would make.
    pub fn fits(&self, device: &Arc<Device>, settings: &Settings) -> bool {
        Arc::ptr_eq(&self.device, device) && self.settings == *settings
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
