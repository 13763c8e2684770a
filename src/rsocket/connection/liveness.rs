//! Whether the peer is still there: messages that its device has to confirm,
//! sent when nothing else would tell.

use super::work::Work;
use super::{Connection, Core, Link};
use crate::error::Error;

/// Probes without any sign of life of the peer, nor a word of the device, after
/// which a connection is broken. Devices give up earlier, if they do not lose
/// themselves: soft-RoCE was seen to send nothing any more after the link was down.
const MOST_SILENT: u32 = 8;

/// What was seen of the peer since somebody last looked.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    /// Somebody was asked to call [`Connection::probe`].
    probing: bool,
    /// How often [`Connection::probe`] was called since anything succeeded.
    silent_probes: u32,
    /// Data has come or gone since the last look of the keep-alive timer.
    active: bool,
}

impl Liveness {
    /// Work has succeeded, as it does with the peer's help only.
    #[inline]
    pub(super) fn note_success(&mut self, work: Work) {
        self.silent_probes = 0;
        self.active |= matches!(work, Work::Receive | Work::Data(_));
    }

    /// Whether no data has come or gone since the last call.
    fn was_idle(&mut self) -> bool {
        !std::mem::take(&mut self.active)
    }

    /// Whether the peer must be taken for gone.
    fn is_silent(&self) -> bool {
        self.silent_probes >= MOST_SILENT
    }

    /// The peer was asked, and nothing but its silence can keep it from answering.
    fn note_probe(&mut self) {
        self.silent_probes = self.silent_probes.saturating_add(1);
    }
}

impl Connection {
    /// Makes the peer's device answer if nothing has happened since the last
    /// call; if it does not, the connection breaks. Returns `false` once there
    /// is no connection any more.
    pub fn keep_alive(&self) -> bool {
        self.with_core(|core| {
            self.progress(core);
            let idle = core.liveness.was_idle();
            if core.link == Link::Up && idle {
                self.ask_peer(core);
            }
            core.link == Link::Up
        })
    }

    /// Whether anything has come or gone, of a connection that nobody keeps alive.
    pub fn was_used(&self) -> bool {
        self.with_core(|core| {
            self.progress(core);
            core.liveness.active
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
            Self::awaits_peer(core) && !std::mem::replace(&mut core.liveness.probing, true)
        })
    }

    /// Makes the peer's device answer if something still waits for the peer; if it
    /// does not, the connection breaks. Returns `false` once nothing waits.
    pub fn probe(&self) -> bool {
        self.with_core(|core| {
            self.progress(core);
            let mut probing = Self::awaits_peer(core);
            if probing && core.liveness.is_silent() {
                let error = Error::new(libc::ETIMEDOUT, "hear from the peer");
                self.fail(core, &error);
                probing = false;
            }
            core.liveness.probing = probing;
            if probing {
                // A peer of the original's may just be at work with something else:
                // its device lets all wait that comes after a message without a
                // receive. Ours posts more than it has credits for.
                if self.peer.counts_mappings || !core.outbox.may_lack_receives() {
                    core.liveness.note_probe();
                }
                self.ask_peer(core);
            }
            probing
        })
    }
}
