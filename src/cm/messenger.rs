//! Events of the library's own on kernels before 6.17, which have no command
//! to queue one.
//!
//! For each event there is a messenger: a throw-away identifier of the kernel
//! on the same channel, which resolves a loopback address. What the kernel
//! reports of it makes the channel's descriptor readable and keeps its place
//! among the other events; whoever fetches it gets the event meant instead. A
//! messenger moves with its identifier to another channel and is gone with it.
//!
//! Which event is to be queued, and on which kernels, is [`super::post`]'s
//! business.

use std::net::Ipv4Addr;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

use crate::abi::{RDMA_PS_TCP, rdma_event_channel};
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::kernel::command::submit;
use crate::kernel::ucma::{CreateId, DestroyId, KernelEvent, MigrateId, ResolveIp};
use crate::lock::atomic::{AtomicU64, Ordering};
use crate::verbs::bindings::IBV_QPT_RC;

use super::channel;
use super::id::{Id, State};
use super::registry::Registry;

/// The identifier of each messenger under way, by the messenger's number.
pub(super) static OWNERS: Registry<Weak<Id>> = Registry::new();
/// The next messenger's number. Its two lowest bits are set, which they are in
/// no identifier's (an aligned address) and no multicast membership's.
static NEXT_UID: AtomicU64 = AtomicU64::new(TAG);
const TAG: u64 = 3;
const STEP: u64 = TAG + 1;
/// Number of a messenger that has nothing to tell.
const NOBODY: u64 = u64::MAX;

/// Resolving a loopback address takes no time.
const RESOLVE_TIMEOUT_MS: u32 = 1000;

/// The event that a messenger stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// `RDMA_CM_EVENT_…`.
    pub event: u32,
    /// Its status.
    pub status: i32,
    /// Its argument.
    pub arg: u64,
}

/// A messenger under way; belongs to the [`State`] of its identifier.
#[derive(Debug)]
pub struct Messenger {
    uid: u64,
    handle: u32,
    channel: *mut rdma_event_channel,
    message: Message,
}

// SAFETY: the channel is only looked up in the table of open channels.
unsafe impl Send for Messenger {}

impl Messenger {
    fn descriptor(&self) -> Result<RawFd> {
        // SAFETY: a program destroys a channel only after the identifiers on
        // it, which take their messengers along, and not while it fetches
        // events from it.
        unsafe { channel::descriptor(self.channel) }
    }

    /// Gives the kernel's identifier back, with what is queued of it.
    fn dismiss(self) {
        OWNERS.remove(self.uid);
        let gone = self
            .descriptor()
            .and_then(|fd| submit(fd, DestroyId::new(self.handle)));
        if let Err(error) = gone {
            log::debug!("messenger {}: left to its channel: {error}", self.handle);
        }
    }
}

/// Makes the kernel report something of a new identifier numbered `uid` on the
/// channel `fd`, and returns the kernel's number for it.
fn start(fd: RawFd, uid: u64) -> Result<u32> {
    let handle = submit(fd, CreateId::new(uid, RDMA_PS_TCP, IBV_QPT_RC))?.id;
    // The wildcard means the host itself, and is known without a loopback
    // interface, which a network namespace may lack.
    let resolved = [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED]
        .iter()
        .map(|&host| {
            let here = SockAddr::v4(host, 1);
            submit(fd, ResolveIp::new(handle, None, &here, RESOLVE_TIMEOUT_MS)?)
        })
        .reduce(|first, second| first.or(second));
    match resolved {
        Some(Err(error)) => {
            if let Err(leftover) = submit(fd, DestroyId::new(handle)) {
                log::debug!("messenger {handle}: left to its channel: {leftover}");
            }
            Err(error)
        }
        _ => Ok(handle),
    }
}

/// Has an event reported on a channel that the library swallows, to wake one
/// thread which waits there. The kernel's identifier stays until the channel
/// is closed.
///
/// # Errors
/// What the kernel says.
pub fn wake(fd: RawFd) -> Result<()> {
    start(fd, NOBODY).map(drop)
}

/// Queues an event for the identifier whose locked state is `state`.
///
/// # Errors
/// `EINVAL` while the identifier is being destroyed, `ENETUNREACH` or `ENODEV`
/// where the host cannot reach itself; else what the kernel says.
pub fn send(id: &Arc<Id>, state: &mut State, message: Message) -> Result<()> {
    if id.is_destroying() {
        return Err(Error::invalid("queue an event for what is destroyed"));
    }
    let channel = id.channel();
    let uid = NEXT_UID.fetch_add(STEP, Ordering::Relaxed);
    OWNERS.insert(uid, Arc::downgrade(id));
    // A thread that fetches the event at once waits for the state.
    let handle = start(id.descriptor()?, uid).inspect_err(|_| {
        OWNERS.remove(uid);
    })?;
    log::debug!("{id}: event {} goes by messenger {handle}", message.event);
    state.messengers.push(Messenger {
        uid,
        handle,
        channel,
        message,
    });
    Ok(())
}

/// Puts the event that a messenger stands for in the place of the messenger's
/// own, and leaves others alone. `false` if it is of a messenger with nothing
/// to tell.
///
/// The event counts as reported for its identifier from here on.
pub fn translate(kernel: &mut KernelEvent) -> bool {
    if kernel.uid() & TAG != TAG {
        return true;
    }
    let meant = meaning(kernel.uid());
    if let Some(meant) = meant {
        *kernel = meant;
    }
    meant.is_some()
}

/// The event that the messenger `uid` stands for; the messenger is dismissed.
fn meaning(uid: u64) -> Option<KernelEvent> {
    let id = OWNERS.get(uid)?.upgrade()?;
    let messenger = {
        let mut state = id.state();
        let place = state.messengers.iter().position(|other| other.uid == uid)?;
        state.reported_otherwise = state.reported_otherwise.wrapping_add(1);
        state.messengers.remove(place)
    };
    let Message { event, status, arg } = messenger.message;
    messenger.dismiss();
    Some(KernelEvent::written(
        id.uid(),
        id.handle(),
        event,
        status,
        arg,
    ))
}

/// Lets the messengers of an identifier follow it to its new channel. One that
/// cannot is logged; its event comes on the old channel.
pub fn follow(id: &Id) {
    let channel = id.channel();
    // Held meanwhile, so that whoever fetches an event finds its messenger.
    // Moving one waits for callbacks of its own only, which are short.
    let mut state = id.state();
    for messenger in &mut state.messengers {
        let moved = id.descriptor().and_then(|fd| {
            submit(
                fd,
                MigrateId::new(messenger.handle, messenger.descriptor()?),
            )
        });
        match moved {
            Ok(_) => messenger.channel = channel,
            Err(error) => log::error!("{id}: an event stays on the old channel: {error}"),
        }
    }
}

/// Takes back all messengers of an identifier that is being destroyed.
pub fn dismiss_all(id: &Id) {
    let messengers = std::mem::take(&mut id.state().messengers);
    for messenger in messengers {
        messenger.dismiss();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_USER};

    fn event(uid: u64) -> KernelEvent {
        KernelEvent::written(uid, 1, RDMA_CM_EVENT_ADDR_RESOLVED, 0, 7)
    }

    #[test]
    fn events_of_identifiers_and_groups_pass() {
        for uid in [0, 0x7f00_1000, 1, 5] {
            let mut passing = event(uid);
            assert!(translate(&mut passing));
            assert_eq!(passing, event(uid));
        }
    }

    #[test]
    fn a_messenger_nobody_knows_says_nothing() {
        for uid in [3, 7, NOBODY] {
            assert!(!translate(&mut event(uid)));
        }
    }

    #[test]
    fn a_written_event_carries_its_argument() {
        let event = KernelEvent::written(8, 2, RDMA_CM_EVENT_USER, -5, u64::MAX - 1);
        assert_eq!((event.uid(), event.id()), (8, 2));
        assert_eq!(
            (event.event_type(), event.status()),
            (RDMA_CM_EVENT_USER, -5)
        );
        assert_eq!(event.user_arg(), u64::MAX - 1);
    }
}
