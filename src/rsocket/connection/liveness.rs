//! Whether the peer is still there: messages that its device has to confirm,
//! sent when nothing else would tell.

use super::{Connection, Core, Link};
use crate::error::Error;

/// Probes without any sign of life of the peer, nor a word of the device, after
/// which a connection is broken. Devices give up earlier, if they do not lose
/// themselves: soft-RoCE was seen to send nothing any more after the link was down.
const MOST_SILENT: u32 = 8;

impl Connection {
    /// Makes the peer's device answer if nothing has happened since the last
    /// call; if it does not, the connection breaks. Returns `false` once there
    /// is no connection any more.
    pub fn keep_alive(&self) -> bool {
        self.with_core(|core| {
            self.progress(core);
            let idle = !std::mem::take(&mut core.active);
            if core.link == Link::Up && idle {
                self.ask_peer(core);
            }
            core.link == Link::Up
        })
    }

    /// Whether something waits for the peer: sends for room or for the
    /// confirmation of what is on its way, or a shutdown for its own.
    fn awaits_peer(core: &Core) -> bool {
        let sends = core.writable && !core.outbox.can_send();
        core.link == Link::Up && (sends || core.telling || core.pending.is_some())
    }

    /// Whether the caller is to see to it that [`Connection::probe`] is called
    /// from time to time: something waits for a peer that may be gone.
    pub fn wants_probes(&self) -> bool {
        self.with_core(|core| {
            Self::awaits_peer(core) && !std::mem::replace(&mut core.probing, true)
        })
    }

    /// Makes the peer's device answer if something still waits for the peer; if it
    /// does not, the connection breaks. Returns `false` once nothing waits.
    pub fn probe(&self) -> bool {
        self.with_core(|core| {
            self.progress(core);
            core.probing = Self::awaits_peer(core);
            if core.probing && core.silent_probes >= MOST_SILENT {
                let error = Error::new(libc::ETIMEDOUT, "hear from the peer");
                self.fail(core, &error);
                core.probing = false;
            }
            if core.probing {
                // A peer of the original's may just be at work with something else:
                // its device lets all wait that comes after a message without a
                // receive. Ours posts more than it has credits for.
                if self.peer.counts_mappings || !core.outbox.may_lack_receives() {
                    core.silent_probes = core.silent_probes.saturating_add(1);
                }
                self.ask_peer(core);
            }
            core.probing
        })
    }
}
