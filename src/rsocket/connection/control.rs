//! Messages beside the data of a connection: grants of room, shutdown and
//! disconnect, which wait for a slot in the send queue if there is none.

use super::work::Work;
use super::{Connection, Core, Link};
use crate::rsocket::carrier::Write;
use crate::rsocket::flow::{Cost, Grant};
use crate::rsocket::wire::{Message, TARGET_LEN, Target};

impl Connection {
    /// Sends the grants that are due and control messages that had to wait.
    #[inline]
    pub(super) fn send_controls(&self, core: &mut Core) {
        if core.pending.is_some() || core.draining || core.inbox.owes_grant() {
            self.send_due(core);
        }
    }

    /// As [`Connection::send_controls`], if that cannot wait for the next call:
    /// what the program received or sends meanwhile should not wait for a
    /// grant to be posted that the peer does not need yet.
    #[inline]
    pub(super) fn send_urgent_controls(&self, core: &mut Core) {
        if core.pending.is_some() || core.draining || core.inbox.owes_urgently() {
            self.send_due(core);
        }
    }

    fn send_due(&self, core: &mut Core) {
        while core.link == Link::Up || core.draining {
            let sent = if let Some(message) = core.pending {
                self.send_control(core, message)
            } else if core.draining {
                core.draining = !core.outbox.is_idle();
                return;
            } else if let Some(grant) = core.inbox.grant_due()
                && (core.readable || core.writable)
            {
                self.send_grant(core, &grant)
            } else {
                return;
            };
            if !sent {
                return;
            }
        }
    }

    fn take_control(core: &mut Core, work: fn(Cost) -> Work) -> Option<(u64, usize)> {
        let cost = core.outbox.take_control()?;
        core.controls = core.controls.wrapping_add(1);
        Some((work(cost).encode(), core.controls))
    }

    fn send_control(&self, core: &mut Core, message: Message) -> bool {
        let work = if message == Message::Disconnect {
            Work::Disconnect
        } else {
            Work::Shutdown
        };
        let Some((id, _)) = Self::take_control(core, work) else {
            return false;
        };
        core.outbox.count_uncharged();
        core.pending = None;
        core.telling = true;
        let write = Write {
            target: Target::default(),
            message: Some(message),
            id,
            signaled: true,
        };
        if let Err(error) = self.endpoint.post_empty(&write) {
            self.device_failed(core, &error);
        }
        true
    }

    fn send_grant(&self, core: &mut Core, grant: &Grant) -> bool {
        let Some((id, slot)) = Self::take_control(core, Work::Control) else {
            return false;
        };
        // Each credit stands for a receive.
        self.post_receives(core);
        core.inbox.granted(grant);
        core.outbox.count_uncharged();
        let mut write = Write {
            target: Target::default(),
            message: Some(Message::Grant(grant.limit)),
            id,
            signaled: true,
        };
        let posted = match grant.half {
            None => self.endpoint.post_empty(&write),
            Some(half) => {
                let entry = u64::from(half.entry).wrapping_mul(TARGET_LEN as u64);
                write.target = Target {
                    addr: self.peer.target_list.addr.wrapping_add(entry),
                    key: self.peer.target_list.key,
                    length: TARGET_LEN as u32,
                };
                let target = self.endpoint.receive_target(half.offset, half.length);
                let bytes = target.encode(self.swapped);
                self.endpoint.post_bytes(&write, &bytes, slot)
            }
        };
        if let Err(error) = posted {
            self.device_failed(core, &error);
        }
        true
    }

    /// Writes nothing, which the peer's device confirms.
    pub(super) fn ask_peer(&self, core: &mut Core) {
        let Some((id, _)) = Self::take_control(core, Work::Control) else {
            return;
        };
        let write = Write {
            target: Target::default(),
            message: None,
            id,
            signaled: true,
        };
        if let Err(error) = self.endpoint.post_empty(&write) {
            self.device_failed(core, &error);
        }
    }
}
