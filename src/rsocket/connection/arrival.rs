//! What completes on the queue pair of a connection, what the peer's messages
//! say, and how a connection ends or breaks.

use std::mem::MaybeUninit;

use crate::error::{Error, Result};
use crate::verbs::bindings::{
    IBV_WC_LOC_QP_OP_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR, ibv_wc, ibv_wc_status,
};

use super::work::Work;
use super::{Connection, Core, Link};
use crate::rsocket::completion::{BATCH, Batch};
use crate::rsocket::flow::Violation;
use crate::rsocket::wire::Message;

/// Receives to be posted again that a look which finds nothing posts.
const IDLE_RECEIVES: usize = 8;

impl Core {
    /// Whether the peer may still send: it has not said otherwise, and the program
    /// has not either.
    fn expects_more(&self) -> bool {
        self.link == Link::Up && self.readable
    }
}

impl Connection {
    /// Handles what has completed. Returns whether anything has, or the device
    /// has failed.
    #[inline]
    pub(super) fn progress(&self, core: &mut Core) -> bool {
        core.unlooked = 0;
        let mut batch = [const { MaybeUninit::uninit() }; BATCH];
        let found = self.endpoint.completions().poll(&mut batch);
        let happened = found != Ok(0);
        if happened {
            self.take_completions(core, &mut batch, found);
        } else if core.consumed_receives >= IDLE_RECEIVES {
            // Nobody waits for this now, unlike when the next message is there.
            self.post_receives(core);
        }
        happened
    }

    /// Handles what was found, and all that is found after it.
    fn take_completions(&self, core: &mut Core, batch: &mut Batch, mut found: Result<usize>) {
        loop {
            match found {
                Ok(count) => {
                    for wc in batch.iter().take(count) {
                        // SAFETY: the poll filled the first `count`.
                        self.completed(core, unsafe { wc.assume_init_ref() });
                    }
                    if count < BATCH {
                        break;
                    }
                }
                Err(error) => {
                    self.device_failed(core, &error);
                    break;
                }
            }
            found = self.endpoint.completions().poll(batch);
        }
        core.changed = true;
        if core.consumed_receives > self.endpoint.late_receives() {
            self.post_receives(core);
        }
        self.send_urgent_controls(core);
    }

    /// Posts the receives anew that have completed.
    pub(super) fn post_receives(&self, core: &mut Core) {
        let receives = std::mem::take(&mut core.consumed_receives);
        if receives > 0
            && core.link == Link::Up
            && let Err(error) = self.endpoint.post_receives(receives)
        {
            self.device_failed(core, &error);
        }
    }

    fn completed(&self, core: &mut Core, wc: &ibv_wc) {
        let work = Work::decode(wc.wr_id);
        if wc.status != IBV_WC_SUCCESS {
            self.work_failed(core, work, wc.status);
            return;
        }
        core.liveness.note_success(work);
        match work {
            Work::Receive => {
                core.consumed_receives = core.consumed_receives.saturating_add(1);
                if let Some(message) = self.endpoint.message(wc, self.swapped) {
                    self.received(core, message, wc);
                }
            }
            Work::Data(cost) => core.outbox.complete(cost),
            Work::Control(cost) => core.outbox.complete_control(cost),
            Work::Shutdown(cost) => {
                core.outbox.complete_control(cost);
                core.telling = false;
            }
            Work::Disconnect(cost) => {
                core.outbox.complete_control(cost);
                self.end(core);
            }
        }
    }

    fn work_failed(&self, core: &mut Core, work: Work, status: ibv_wc_status) {
        let (expected, step) = match work {
            // Receives are flushed whenever a queue pair ends. If more could come, the
            // peer has done what its device may not. If not, sends tell.
            Work::Receive => (!core.expects_more(), "receive from the peer"),
            _ => (core.link != Link::Up && !core.draining, "send to the peer"),
        };
        if expected {
            return;
        }
        let errno = match status {
            _ if work == Work::Receive => libc::ECONNRESET,
            IBV_WC_RETRY_EXC_ERR | IBV_WC_RNR_RETRY_EXC_ERR => libc::ETIMEDOUT,
            // The second is what soft-RoCE says without a network.
            IBV_WC_WR_FLUSH_ERR | IBV_WC_LOC_QP_OP_ERR => libc::ECONNRESET,
            _ => libc::EIO,
        };
        log::info!("{}: {step}: status {status}", self.endpoint.id());
        self.fail(core, &Error::new(errno, step));
    }

    fn received(&self, core: &mut Core, message: Message, wc: &ibv_wc) {
        match message {
            Message::Data(length) => {
                if let Err(violation) = core.inbox.deliver(length) {
                    self.violated(core, violation);
                }
            }
            Message::Grant(limit) => {
                let target = self.endpoint.granted(wc, core.outbox.next_target());
                core.outbox.grant(limit, target);
            }
            // The entry itself was written to our list of mappings.
            Message::Mapping(_) => core.inbox.count_message(),
            Message::Disconnect => self.end(core),
            Message::Shutdown => {
                core.readable = false;
                if !core.writable {
                    self.end(core);
                    core.draining = core.link == Link::Down;
                }
            }
            Message::Ignored => {}
        }
    }

    fn violated(&self, core: &mut Core, violation: Violation) {
        log::error!(
            "{}: the peer broke the protocol: {violation:?}",
            self.endpoint.id()
        );
        self.fail(core, &Error::new(libc::EPROTO, "receive from the peer"));
    }

    fn end(&self, core: &mut Core) {
        if core.link == Link::Up {
            core.link = Link::Down;
            core.changed = true;
            log::debug!("{}: connection ended", self.endpoint.id());
        }
    }

    /// A call of the device's failed. Once the device is gone, all do.
    pub(super) fn device_failed(&self, core: &mut Core, error: &Error) {
        let errno = match error.errno() {
            libc::EIO | libc::ENODEV => libc::ECONNRESET,
            errno => errno,
        };
        self.fail(core, &Error::new(errno, error.step()));
    }

    pub(super) fn fail(&self, core: &mut Core, error: &Error) {
        core.changed |= std::mem::take(&mut core.draining);
        if core.link == Link::Up {
            core.link = Link::Broken {
                errno: error.errno(),
                reported: false,
            };
            core.changed = true;
            log::info!("{}: connection broken: {error}", self.endpoint.id());
        }
    }
}
