//! Whether the peer is still there: messages that its device has to confirm,
//! sent when nothing else would tell.

use super::{Connection, Core, Link};

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

    fn is_starved(core: &Core) -> bool {
        core.link == Link::Up && core.writable && core.outbox.is_starved()
    }

    /// Whether the caller is to see to it that [`Connection::probe`] is called
    /// from time to time: sends wait for a peer that may be gone, and nothing is
    /// on its way that would tell.
    pub fn wants_probes(&self) -> bool {
        self.with_core(|core| Self::is_starved(core) && !std::mem::replace(&mut core.probing, true))
    }

    /// Makes the peer's device answer if sends still wait for the peer; if it
    /// does not, the connection breaks. Returns `false` once they do not wait.
    pub fn probe(&self) -> bool {
        self.with_core(|core| {
            self.progress(core);
            core.probing = Self::is_starved(core);
            if core.probing {
                self.ask_peer(core);
            }
            core.probing
        })
    }
}
