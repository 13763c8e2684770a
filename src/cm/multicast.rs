//! Multicast groups that identifiers have joined.
//!
//! The kernel reports on a membership under a number (`uid`) of the
//! membership's own and counts its events separately from the identifier's.
//! Queue pairs are attached to a group when the kernel reports that the join
//! is done, and detached when the group is left or the queue pair destroyed.

use std::ffi::c_void;
use std::fmt;
use std::mem;
use std::sync::{Arc, Weak};

use crate::abi::{
    RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, RDMA_CM_JOIN_MC_ATTR_RESERVED,
    RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, rdma_cm_join_mc_attr_ex,
    rdma_ud_param,
};
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::kernel::command::submit;
use crate::kernel::ucma::{JoinMulticast, LeaveMulticast};
use crate::lock::atomic::{AtomicU64, Ordering};
use crate::lock::{Condvar, Mutex, locked};
use crate::verbs;
use crate::verbs::bindings::{ibv_attach_mcast, ibv_detach_mcast, ibv_gid, ibv_qp};

use super::accounting::Accounting;
use super::id::Id;
use super::registry::Registry;
use super::sync::{self, Step};

/// Every living membership by its number.
pub(super) static BY_UID: Registry<Weak<Membership>> = Registry::new();
/// The next membership's number. Of its two lowest bits the last is set, so
/// that it is no identifier's, which is an aligned address, and no
/// messenger's.
static NEXT_UID: AtomicU64 = AtomicU64::new(1);

/// What a member of a group does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends and receives.
    FullMember,
    /// Sends only; its queue pair is not attached to the group.
    SendOnly,
}

impl Role {
    /// The role that the `join_flags` of a program stand for, if any.
    fn from_flags(flags: u32) -> Option<Self> {
        match flags {
            RDMA_MC_JOIN_FLAG_FULLMEMBER => Some(Self::FullMember),
            RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => Some(Self::SendOnly),
            _ => None,
        }
    }

    /// The role as the kernel's `join_flags`.
    fn to_flags(self) -> u16 {
        let flags = match self {
            Self::FullMember => RDMA_MC_JOIN_FLAG_FULLMEMBER,
            Self::SendOnly => RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        };
        flags as u16
    }
}

/// A multicast group that an identifier has joined or is joining.
pub struct Membership {
    uid: u64,
    id: Weak<Id>,
    addr: SockAddr,
    role: Role,
    context: *mut c_void,
    accounting: Accounting,
    progress: Mutex<Progress>,
    settled: Condvar,
}

// SAFETY: the context is the program's, passed on and never dereferenced; all
// else is `Send` and `Sync`.
unsafe impl Send for Membership {}
// SAFETY: as for `Send`.
unsafe impl Sync for Membership {}

/// What is known of the kernel's membership.
#[derive(Clone, Copy)]
enum Progress {
    /// The join command has not returned.
    Joining,
    /// The kernel's number for the membership.
    Joined(u32),
    /// The join command failed.
    Failed,
}

/// A group that the identifier's queue pair is attached to. Belongs to the
/// identifier: what libibverbs could not detach outlives the membership.
pub struct Attachment {
    /// The membership's number.
    uid: u64,
    gid: ibv_gid,
    lid: u16,
}

impl Membership {
    fn new(id: &Arc<Id>, addr: &SockAddr, role: Role, context: *mut c_void) -> Arc<Self> {
        let membership = Arc::new(Self {
            uid: NEXT_UID.fetch_add(4, Ordering::Relaxed),
            id: Arc::downgrade(id),
            addr: *addr,
            role,
            context,
            accounting: Accounting::new(),
            progress: Mutex::new(Progress::Joining),
            settled: Condvar::new(),
        });
        BY_UID.insert(membership.uid, Arc::downgrade(&membership));
        membership
    }

    /// The living membership with this number.
    pub fn by_uid(uid: u64) -> Option<Arc<Self>> {
        BY_UID.get(uid)?.upgrade()
    }

    /// The identifier that joined, if it is still there.
    pub fn id(&self) -> Option<Arc<Id>> {
        self.id.upgrade()
    }

    /// Acknowledgements of this membership's events.
    pub fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    /// The program's own value, given when joining.
    pub fn context(&self) -> *mut c_void {
        self.context
    }

    fn settle(&self, progress: Progress) {
        let mut guard = locked(&self.progress);
        *guard = progress;
        self.settled.notify_all();
    }

    /// The kernel's number; waits for a join command that another thread has
    /// under way, which does not block long.
    fn handle(&self) -> Option<u32> {
        let mut progress = locked(&self.progress);
        loop {
            match *progress {
                Progress::Joining => {
                    progress = self.settled.wait(progress);
                }
                Progress::Joined(handle) => return Some(handle),
                Progress::Failed => return None,
            }
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        BY_UID.remove(self.uid);
    }
}

impl fmt::Display for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}", self.addr)
    }
}

/// Joins the group that the attributes of `rdma_join_multicast_ex(3)` name;
/// see [`join`].
///
/// # Errors
/// `ENOTSUP` for attributes that this library does not know, `EINVAL` if
/// address or flags are missing or wrong; else as for [`join`].
///
/// # Safety
/// `attr` is null or valid. Its address, if announced in `comp_mask`, is null
/// or points to a socket address as long as its family says.
pub unsafe fn join_ex(
    id: &Arc<Id>,
    attr: *const rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> Result<()> {
    // SAFETY: the caller vouches for the pointer.
    let attr = unsafe { attr.as_ref() }.ok_or(Error::invalid("join: no attributes"))?;
    let role = check_attr(attr.comp_mask, attr.join_flags)?;
    // SAFETY: the caller vouches for the pointer.
    let addr = unsafe { SockAddr::from_ptr(attr.addr) }
        .ok_or(Error::invalid("join: address of no known family"))?;
    join(id, &addr, role, context)
}

fn check_attr(comp_mask: u32, join_flags: u32) -> Result<Role> {
    if comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED {
        return Err(Error::new(libc::ENOTSUP, "join: unknown attributes"));
    }
    if comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS == 0 {
        return Err(Error::invalid("join: no address"));
    }
    if comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS == 0 {
        return Err(Error::invalid("join: no flags"));
    }
    Role::from_flags(join_flags).ok_or(Error::invalid("join: unknown flags"))
}

/// Joins a group. Ends with `MULTICAST_JOIN` or `MULTICAST_ERROR`, whose
/// private data is `context`.
///
/// # Errors
/// What the kernel says: `EINVAL` for an identifier that is not bound to a
/// device or not for datagrams, and for the wildcard address; in synchronous
/// mode also the event's errno.
pub fn join(id: &Arc<Id>, addr: &SockAddr, role: Role, context: *mut c_void) -> Result<()> {
    let membership = Membership::new(id, addr, role, context);
    // The event may overtake the return of the command.
    id.state().memberships.insert(0, Arc::clone(&membership));
    let command = JoinMulticast::new(id.handle(), membership.uid, addr, role.to_flags());
    match id.descriptor().and_then(|fd| submit(fd, command)) {
        Ok(reply) => membership.settle(Progress::Joined(reply.id)),
        Err(error) => {
            membership.settle(Progress::Failed);
            unlink(id, &membership);
            log::error!("{id}: {membership}: {error}");
            return Err(error);
        }
    }
    log::debug!("{id}: joins {membership}, {role:?}");
    sync::complete(id, Step::Group(&membership))
}

/// Takes a membership off the identifier's list; `false` if it was not there.
fn unlink(id: &Id, membership: &Arc<Membership>) -> bool {
    let mut state = id.state();
    let place = state
        .memberships
        .iter()
        .position(|other| Arc::ptr_eq(other, membership));
    match place {
        Some(place) => {
            state.memberships.remove(place);
            true
        }
        None => false,
    }
}

/// Takes the newest membership of a group off the identifier's list.
fn unlink_newest(id: &Id, addr: &SockAddr) -> Option<Arc<Membership>> {
    let mut state = id.state();
    let place = state
        .memberships
        .iter()
        .position(|membership| membership.addr.same_host(addr))?;
    Some(state.memberships.remove(place))
}

/// Leaves the group that was joined last with this address. Blocks until all
/// events of the membership are acknowledged. If the queue pair cannot be
/// detached, which may be because the program has done so itself, the log says
/// so; destroying the queue pair tries once more.
///
/// # Errors
/// `EADDRNOTAVAIL` if the group was not joined; else what the kernel says,
/// and then the identifier remains a member.
pub fn leave(id: &Arc<Id>, addr: &SockAddr) -> Result<()> {
    let not_joined = Error::new(libc::EADDRNOTAVAIL, "leave a group that was not joined");
    // Once it is off the list, an event of the join does not attach the queue
    // pair any more.
    let membership = unlink_newest(id, addr).ok_or(not_joined)?;
    let handle = membership.handle().ok_or(not_joined)?;
    let reply = id
        .descriptor()
        .and_then(|fd| submit(fd, LeaveMulticast::new(handle)))
        .inspect_err(|error| {
            log::error!("{id}: {membership}: {error}");
            id.state().memberships.insert(0, Arc::clone(&membership));
        })?;
    {
        let _guard = id.lock_qp();
        detach(id, |attachment| attachment.uid == membership.uid);
    }
    let reported = reply.events_reported;
    membership
        .accounting
        .settle(reported, format_args!("{id}: leave {membership}"));
    log::debug!("{id}: left {membership}");
    Ok(())
}

/// The kernel reports that the join is done: attaches the identifier's queue
/// pair, unless it only sends or the group was left meanwhile.
///
/// # Errors
/// What libibverbs says; the identifier is a member nevertheless.
pub(super) fn joined(membership: &Arc<Membership>, id: &Id, ud: &rdma_ud_param) -> Result<()> {
    log::debug!("{id}: joined {membership}");
    if membership.role == Role::SendOnly {
        return Ok(());
    }
    let attachment = Attachment {
        uid: membership.uid,
        gid: ud.ah_attr.grh.dgid,
        lid: ud.ah_attr.dlid,
    };
    let _guard = id.lock_qp();
    let member = id
        .state()
        .memberships
        .iter()
        .any(|other| Arc::ptr_eq(other, membership));
    let qp = id.qp();
    if qp.is_null() || !member {
        return Ok(());
    }
    // SAFETY: the lock keeps the library from destroying the queue pair.
    let status = unsafe { ibv_attach_mcast(qp, &attachment.gid, attachment.lid) };
    if status != 0 {
        return Err(verbs::failure(status, "attach the queue pair to a group"));
    }
    id.state().attachments.push(attachment);
    Ok(())
}

/// Detaches the identifier's queue pair from all groups, before it is
/// destroyed. The caller holds [`Id::lock_qp`].
pub(super) fn detach_all(id: &Id) {
    detach(id, |_| true);
}

/// Detaches the identifier's queue pair from those groups that the library
/// attached it to and `chosen` names. Where that fails, it counts as attached.
/// The caller holds [`Id::lock_qp`].
fn detach(id: &Id, chosen: impl Fn(&Attachment) -> bool) {
    let qp = id.qp();
    if qp.is_null() {
        return;
    }
    let attachments = mem::take(&mut id.state().attachments);
    let remaining = attachments
        .into_iter()
        .filter(|attachment| !chosen(attachment) || !detach_from(id, qp, attachment))
        .collect();
    id.state().attachments = remaining;
}

/// Detaches the identifier's queue pair from a group; `false` if that fails.
/// The caller holds [`Id::lock_qp`].
fn detach_from(id: &Id, qp: *mut ibv_qp, attachment: &Attachment) -> bool {
    // SAFETY: the lock keeps the library from destroying the queue pair.
    let status = unsafe { ibv_detach_mcast(qp, &attachment.gid, attachment.lid) };
    if status != 0 {
        let error = verbs::failure(status, "detach the queue pair from a group");
        log::warn!("{id}: {error}");
    }
    status == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno(comp_mask: u32, join_flags: u32) -> Option<i32> {
        check_attr(comp_mask, join_flags)
            .err()
            .map(|error| error.errno())
    }

    #[test]
    fn attributes_are_checked_in_the_documented_order() {
        assert_eq!(errno(4, 9), Some(libc::ENOTSUP));
        assert_eq!(errno(7, 0), Some(libc::ENOTSUP));
        assert_eq!(errno(0, 0), Some(libc::EINVAL));
        assert_eq!(errno(1, 0), Some(libc::EINVAL));
        assert_eq!(errno(2, 0), Some(libc::EINVAL));
        assert_eq!(errno(3, 2), Some(libc::EINVAL));
        assert_eq!(check_attr(3, 0), Ok(Role::FullMember));
        assert_eq!(check_attr(3, 1), Ok(Role::SendOnly));
    }
}
