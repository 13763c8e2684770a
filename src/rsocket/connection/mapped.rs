//! Direct placement on an established connection: memory that the peer may
//! write to, and writing to the memory that it exposed.

use crate::error::{Error, Result};

use super::send::next_segment;
use super::{Connection, Core, Link, retry};
use crate::rsocket::mapping::{Announcement, Range, locate};
use crate::rsocket::memory::{Access, Registration};
use crate::rsocket::vectors::Cursor;
use crate::rsocket::wire::{MAPPING_LEN, Message, Target};

impl Connection {
    /// Tells the peer of mappings that were made or withdrawn.
    pub(super) fn announce(&self, core: &mut Core) -> Result<()> {
        while let Some(Announcement { index, mapping }) = core.mappings.next() {
            // The original does not return credits for these messages, so
            // only a peer that says it does is charged.
            let charged = self.peer.counts_mappings;
            if !core.outbox.can_post() || charged && !core.outbox.has_credit() {
                return Err(retry());
            }
            let target = Target {
                addr: self.peer.mapping_address(index),
                key: self.peer.target_list.key,
                length: MAPPING_LEN as u32,
            };
            let mut bytes = mapping.encode(self.swapped);
            let vector = libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: MAPPING_LEN,
            };
            let vectors = [vector];
            // SAFETY: the bytes live until the end of this round.
            let mut source = unsafe { Cursor::new(&vectors) };
            self.post_segment(core, &mut source, MAPPING_LEN, |outbox, wanted, inline| {
                let segment = outbox.take_space(wanted, inline, target)?;
                if charged {
                    outbox.charge_message();
                } else {
                    outbox.count_uncharged();
                }
                Some((segment, Some(Message::Mapping(index))))
            });
            core.mappings.announced();
            Self::sendable(core)?;
        }
        Ok(())
    }

    /// Registers memory of the program's. With `write`, the peer may write to
    /// it from `offset` on, once it received data that is sent afterwards.
    ///
    /// # Errors
    /// `ENOMEM` if the peer has no room for one more mapping, else what
    /// libibverbs says.
    pub fn map(&self, range: Range, write: bool, offset: u64) -> Result<()> {
        let pd = self.endpoint.id().require_device()?.pd()?;
        let access = if write {
            Access::RemoteWrite
        } else {
            Access::Local
        };
        let length = range.length as usize;
        // Without the lock: the kernel pins all of the memory.
        // SAFETY: the domain lives as long as the device, which the identifier
        // keeps. The program asks for its memory to be written to.
        let registration = unsafe { Registration::new(pd, range.addr as *mut u8, length, access) }?;
        self.with_core(|core| {
            let index = if write {
                Some(core.mappings.free_index(self.peer.mappings)?)
            } else {
                None
            };
            core.mappings.add(range, registration, index, offset);
            Ok(())
        })
    }

    /// Withdraws memory that was given to [`Connection::map`].
    ///
    /// # Errors
    /// `EINVAL` if there is no such mapping.
    pub fn unmap(&self, range: Range) -> Result<()> {
        let withdrawn = self.with_core(|core| -> Result<_> {
            let registration = core.mappings.remove(range)?;
            self.progress(core);
            self.post_draft(core);
            if Self::is_up(core)
                && let Err(error) = self.announce(core)
            {
                log::debug!("{}: {error}", self.endpoint.id());
            }
            Ok(registration)
        });
        // Without the lock, as in `map`.
        withdrawn.map(drop)
    }

    /// The memory that the peer exposed at `offset`, up to where it ends.
    #[inline]
    pub(super) fn mapped(&self, offset: u64) -> Option<Target> {
        (0..self.endpoint.mappings())
            .find_map(|index| locate(&self.endpoint.read_mapping(index), offset))
    }

    fn is_up(core: &Core) -> bool {
        core.link == Link::Up && core.writable
    }

    /// Writes as much of `source` as there is room for to the memory that the
    /// peer exposed at `offset`, which moves on.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room, `EFAULT` if nothing is exposed there,
    /// else as for [`Connection::send`].
    pub fn write_mapped(
        &self,
        source: &mut Cursor<'_>,
        offset: &mut u64,
        ramp: &mut usize,
    ) -> Result<()> {
        self.with_core(|core| {
            self.progress(core);
            Self::sendable(core)?;
            self.post_draft(core);
            self.announce(core)?;
            if !core.outbox.can_post() {
                return Err(retry());
            }
            self.prepare_for(source)?;
            while source.remaining() > 0 && core.outbox.can_post() {
                let target = self
                    .mapped(*offset)
                    .ok_or(Error::new(libc::EFAULT, "write where nothing is mapped"))?;
                *ramp = next_segment(*ramp);
                let most = (*ramp).min(target.length as usize);
                let before = source.remaining();
                self.post_segment(core, source, most, |outbox, wanted, inline| {
                    Some((outbox.take_space(wanted, inline, target)?, None))
                });
                let written = before.saturating_sub(source.remaining());
                *offset = offset.wrapping_add(written as u64);
                Self::sendable(core)?;
            }
            Ok(())
        })
    }
}
