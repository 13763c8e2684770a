//! Queue pairs of identifiers: creation with all that the program left out,
//! and destruction.
//!
//! Which states a queue pair passes through is said in
//! [`super::transition`], the completion queues are made in [`super::cq`].

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::verbs::bindings::{
    IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_XRCD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, ibv_cq,
    ibv_destroy_qp, ibv_pd, ibv_qp, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};
use crate::verbs::{self, dispatch};

use super::cq::{self, Side};
use super::device::Device;
use super::endpoint::EndpointAttr;
use super::id::Id;
use super::{ece, multicast, transition};

const NO_ATTRIBUTES: &str = "create a queue pair without attributes";

/// Creates the identifier's queue pair and moves it to INIT (datagrams: to
/// RTS).
///
/// Missing in `attr` and supplied here: the protection domain (the
/// identifier's), completion queues (new ones, of one entry for empty queues,
/// which libibverbs cannot do without), the shared receive queue (the
/// identifier's) and the XRC domain. `attr` afterwards says what was used and
/// granted; after a failure it does not point to completion queues of the failed
/// call.
///
/// # Errors
/// `EINVAL` if there is a queue pair already, the identifier is not bound to
/// a device, the protection domain is another device's, a completion queue
/// differs from the identifier's, or there is none for a shared receive queue
/// that is not the identifier's; else what the kernel or libibverbs says.
/// The identifier is then as before.
///
/// # Safety
/// `attr` is null or points to attributes in which every pointer that
/// `comp_mask` or the basic members name is null or points to a living object.
pub unsafe fn create_ex(id: &Arc<Id>, attr: *mut ibv_qp_init_attr_ex) -> Result<()> {
    // SAFETY: the caller vouches for the pointer.
    let attr = unsafe { attr.as_mut() }.ok_or(Error::invalid(NO_ATTRIBUTES))?;
    let _guard = id.lock_qp();
    // SAFETY: the caller vouches for the pointers.
    let result = unsafe { create_locked(id, attr) };
    result.inspect_err(|error| log::error!("{id}: {error}"))
}

/// Like [`create_ex`] for the basic attributes and a protection domain that may
/// be null. The attributes are copied back on failure as well.
///
/// # Errors
/// As for [`create_ex`].
///
/// # Safety
/// `attr` is null or points to attributes; `pd` and every pointer in them is
/// null or points to a living object.
pub unsafe fn create(id: &Arc<Id>, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> Result<()> {
    // SAFETY: the caller vouches for the pointer.
    let attr = unsafe { attr.as_mut() }.ok_or(Error::invalid(NO_ATTRIBUTES))?;
    let mut extended = extend(attr);
    if !pd.is_null() {
        extended.comp_mask = IBV_QP_INIT_ATTR_PD;
        extended.pd = pd;
    }
    // SAFETY: the caller vouches for the pointers.
    let result = unsafe { create_ex(id, &mut extended) };
    attr.send_cq = extended.send_cq;
    attr.recv_cq = extended.recv_cq;
    attr.srq = extended.srq;
    attr.cap = extended.cap;
    result
}

/// The basic attributes in the extended structure, without a protection domain.
fn extend(attr: &ibv_qp_init_attr) -> ibv_qp_init_attr_ex {
    // SAFETY: plain numbers and pointers, for which zero is valid.
    let mut extended: ibv_qp_init_attr_ex = unsafe { MaybeUninit::zeroed().assume_init() };
    extended.qp_context = attr.qp_context;
    extended.send_cq = attr.send_cq;
    extended.recv_cq = attr.recv_cq;
    extended.srq = attr.srq;
    extended.cap = attr.cap;
    extended.qp_type = attr.qp_type;
    extended.sq_sig_all = attr.sq_sig_all;
    extended
}

/// Creates the queue pair of a connection request that arrived at an
/// endpoint, with the attributes stored there.
///
/// # Errors
/// As for [`create`].
pub fn create_for_endpoint(id: &Arc<Id>, pd: *mut ibv_pd, mut attr: EndpointAttr) -> Result<()> {
    // SAFETY: the program gave the attributes to rdma_create_ep(3), which
    // obliges it to keep what they point to while the endpoint lives.
    unsafe { create(id, pd, attr.basic_mut()) }
}

unsafe fn create_locked(id: &Arc<Id>, attr: &mut ibv_qp_init_attr_ex) -> Result<()> {
    if !id.qp().is_null() {
        return Err(Error::invalid("create a second queue pair"));
    }
    // SAFETY: the caller vouches for the pointers.
    unsafe { choose_domains(id, attr) }?;
    let given = (attr.send_cq, attr.recv_cq);
    // SAFETY: as above.
    let result = unsafe { create_with_queues(id, attr) };
    if result.is_err() {
        (attr.send_cq, attr.recv_cq) = given;
    }
    result
}

/// Supplies protection and XRC domain and checks that they fit.
unsafe fn choose_domains(id: &Id, attr: &mut ibv_qp_init_attr_ex) -> Result<()> {
    let device = id
        .require_device()
        .map_err(|_| Error::invalid("create a queue pair on an unbound identifier"))?;
    if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.pd = id.pd();
        attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
    }
    // SAFETY: null is checked; else alive, as the caller vouches or as the
    // identifier's device guarantees.
    if attr.pd.is_null() || unsafe { (*attr.pd).context } != id.verbs() {
        return Err(Error::invalid(
            "create a queue pair in a protection domain of another device",
        ));
    }
    if attr.qp_type == IBV_QPT_XRC_RECV && attr.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 {
        attr.xrcd = device.xrcd()?;
        attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
    }
    Ok(())
}

unsafe fn create_with_queues(id: &Arc<Id>, attr: &mut ibv_qp_init_attr_ex) -> Result<()> {
    for (side, given) in [(Side::Recv, attr.recv_cq), (Side::Send, attr.send_cq)] {
        let own = cq::of(id, side);
        if !given.is_null() && !own.is_null() && given != own {
            return Err(Error::invalid(
                "create a queue pair with another completion queue than the identifier's",
            ));
        }
    }
    let shared = !attr.srq.is_null() || !id.srq().is_null();
    let needs_recv = needs_queue(Side::Recv, attr.qp_type);
    let needs_send = needs_queue(Side::Send, attr.qp_type);
    // libibverbs takes a completion queue for granted even where nothing will
    // complete. Of a shared receive queue only the program knows how much may.
    let recv_entries = attr.cap.max_recv_wr.max((needs_recv && !shared).into());
    let send_entries = attr.cap.max_send_wr.max(needs_send.into());
    let made_recv = supply_queue(id, Side::Recv, &mut attr.recv_cq, recv_entries)?;
    if needs_recv && attr.recv_cq.is_null() {
        return Err(Error::invalid(
            "create a queue pair on a shared receive queue without completion queue",
        ));
    }
    let undo_recv = || {
        if made_recv {
            cq::destroy(id, Side::Recv);
        }
    };
    let made_send = supply_queue(id, Side::Send, &mut attr.send_cq, send_entries)
        .inspect_err(|_| undo_recv())?;
    if attr.srq.is_null() {
        attr.srq = id.srq();
    }
    // SAFETY: the caller vouches for the pointers; the rest was supplied.
    unsafe { create_and_move(id, attr) }.inspect_err(|_| {
        if made_send {
            cq::destroy(id, Side::Send);
        }
        undo_recv();
    })
}

/// Whether queue pairs of `qp_type` need a completion queue for `side`.
fn needs_queue(side: Side, qp_type: u32) -> bool {
    match side {
        Side::Recv => !matches!(qp_type, IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV),
        Side::Send => qp_type != IBV_QPT_XRC_RECV,
    }
}

/// Puts the identifier's completion queue where the program gave none, and
/// makes it if need be. Returns whether it was made.
fn supply_queue(id: &Id, side: Side, given: &mut *mut ibv_cq, entries: u32) -> Result<bool> {
    if !given.is_null() {
        return Ok(false);
    }
    let make = cq::of(id, side).is_null() && entries > 0;
    if make {
        cq::create(id, side, entries)?;
    }
    *given = cq::of(id, side);
    Ok(make)
}

unsafe fn create_and_move(id: &Arc<Id>, attr: &mut ibv_qp_init_attr_ex) -> Result<()> {
    // SAFETY: the caller vouches for the attributes.
    let pair = unsafe { Unattached::create_with(id.require_device()?, attr) }?;
    pair.attach_locked(id)
}

/// A queue pair in RESET that no identifier has yet. It is destroyed when dropped.
#[derive(Debug)]
pub struct Unattached {
    /// Null once attached.
    qp: *mut ibv_qp,
    pd: *mut ibv_pd,
    /// Keeps the context open.
    device: Arc<Device>,
}

// SAFETY: verbs objects may be used from any thread; they are owned.
unsafe impl Send for Unattached {}
// SAFETY: as for `Send`; what is behind a shared reference does not change.
unsafe impl Sync for Unattached {}

impl Unattached {
    /// Creates one in the protection domain that identifiers of `device` get.
    /// `attr` names the completion queues, and says afterwards what was granted.
    ///
    /// # Errors
    /// What libibverbs says.
    ///
    /// # Safety
    /// Every pointer in `attr` is null or points to a living object of the device,
    /// which outlives the queue pair.
    pub unsafe fn create(device: &Arc<Device>, attr: &mut ibv_qp_init_attr) -> Result<Self> {
        let mut extended = extend(attr);
        extended.comp_mask = IBV_QP_INIT_ATTR_PD;
        extended.pd = device.pd()?;
        // SAFETY: the caller vouches for the attributes.
        let pair = unsafe { Self::create_with(Arc::clone(device), &mut extended) }?;
        attr.cap = extended.cap;
        Ok(pair)
    }

    unsafe fn create_with(device: Arc<Device>, attr: &mut ibv_qp_init_attr_ex) -> Result<Self> {
        // SAFETY: the device keeps the context open; the caller vouches for the
        // attributes.
        let qp = unsafe { dispatch::create_qp_ex(device.context(), attr) };
        if qp.is_null() {
            return Err(Error::last_os("create a queue pair"));
        }
        let pd = attr.pd;
        Ok(Self { qp, pd, device })
    }

    /// Gives it to an identifier of the same device that has none, and moves it to
    /// INIT.
    ///
    /// # Errors
    /// `EINVAL` if the identifier has a queue pair or another device, else what
    /// the kernel or libibverbs says. The queue pair is gone then.
    pub fn attach(self, id: &Arc<Id>) -> Result<()> {
        let _guard = id.lock_qp();
        if !id.qp().is_null() || id.verbs() != self.device.context() {
            return Err(Error::invalid(
                "attach a queue pair where it does not belong",
            ));
        }
        self.attach_locked(id)
    }

    fn attach_locked(mut self, id: &Arc<Id>) -> Result<()> {
        prepare(id, self.qp)?;
        let qp = std::mem::replace(&mut self.qp, ptr::null_mut());
        id.set_pd(self.pd);
        id.set_qp(qp);
        // SAFETY: the identifier's, whose lock the caller holds.
        let (number, qp_type) = unsafe { ((*qp).qp_num, (*qp).qp_type) };
        log::debug!("{id}: QP {number:#x} created, type {qp_type}");
        Ok(())
    }
}

impl Drop for Unattached {
    fn drop(&mut self) {
        if self.qp.is_null() {
            return;
        }
        // SAFETY: nobody else knows it.
        let status = unsafe { ibv_destroy_qp(self.qp) };
        if status != 0 {
            let leftover = verbs::failure(status, "destroy a queue pair that was not used");
            log::error!("{}: {leftover}", self.device);
        }
    }
}

fn prepare(id: &Id, qp: *mut ibv_qp) -> Result<()> {
    ece::after_create(id, qp)?;
    transition::initialise(id, qp)?;
    ece::refresh_passive(id, qp)
}

/// Destroys the identifier's queue pair and the completion queues that the
/// library made for it. Without a queue pair, only the completion queues that
/// an earlier call had to leave.
///
/// Blocks until the program has acknowledged the asynchronous events of the
/// queue pair and the completion events of its queues, as `ibv_destroy_qp(3)`
/// and `ibv_destroy_cq(3)` say. No lock is held meanwhile, since the thread
/// that acknowledges them may be getting an event of this identifier.
///
/// What libibverbs cannot destroy stays with the identifier, for another call,
/// and the log says why.
pub fn destroy(id: &Id) {
    let Some(qp) = take(id) else {
        // Who destroys the queue pair still needs its completion queues, and sees
        // to them.
        if id.srq().is_null() && !id.state().qp_leaves {
            cq::destroy_both(id);
        }
        return;
    };
    // SAFETY: the program gave the queue pair to the identifier, which does
    // not name it any more, so the library uses it nowhere else.
    let (qp_type, status) = unsafe { ((*qp).qp_type, ibv_destroy_qp(qp)) };
    if status != 0 {
        let error = verbs::failure(status, "destroy a queue pair");
        log::error!("{id}: {error}");
        let _guard = id.lock_qp();
        id.set_qp(qp);
        id.state().qp_leaves = false;
        return;
    }
    {
        let mut state = id.state();
        state.qp_initialised = false;
        state.qp_leaves = false;
        state.attachments.clear();
    }
    log::debug!("{id}: QP destroyed");
    // An XRC shared receive queue uses the completion queue as well.
    if qp_type != IBV_QPT_XRC_RECV || id.srq().is_null() {
        cq::destroy_both(id);
    }
}

/// Takes the queue pair off the identifier. Threads that deliver events find
/// none from here on.
fn take(id: &Id) -> Option<*mut ibv_qp> {
    let _guard = id.lock_qp();
    let qp = id.qp();
    if qp.is_null() {
        return None;
    }
    // The kernel refuses to destroy a queue pair that is attached to a group.
    multicast::detach_all(id);
    id.set_qp(ptr::null_mut());
    id.state().qp_leaves = true;
    Some(qp)
}
