//! What a channel needs of the connection manager, and the connection manager
//! of this library. Programs in C bring their own, see [`crate::capi`].

use std::ptr;
use std::sync::Arc;

use rdmacm::Result;
use rdmacm::cm::connect::{self, Param, Reason};
use rdmacm::cm::id::Id;
use rdmacm::cm::{qp, transition};
use rdmacm::verbs::bindings::{ibv_context, ibv_qp, ibv_qp_attr, ibv_qp_init_attr};

/// RDMA reads under way at once on a queue pair.
const READS: u8 = 4;

/// The connection of one channel. What its methods return stays valid as long
/// as the connection; nothing blocks for longer than the kernel takes.
pub trait Connection {
    /// The device.
    ///
    /// # Errors
    /// `EINVAL` if the connection is bound to none.
    fn context(&self) -> Result<*mut ibv_context>;

    /// Makes the queue pair, in INIT, in the device's usual protection domain.
    ///
    /// # Errors
    /// What libibverbs says.
    ///
    /// # Safety
    /// The completion queues in `attr` are alive.
    unsafe fn create_qp(&self, attr: &mut ibv_qp_init_attr) -> Result<()>;

    /// Destroys the queue pair, if there is one.
    fn destroy_qp(&self);

    /// The queue pair, null without.
    fn qp(&self) -> *mut ibv_qp;

    /// Fills in what the queue pair needs for the state in `attr`; returns
    /// which attributes are set.
    ///
    /// # Errors
    /// What the kernel says.
    fn init_attr(&self, attr: &mut ibv_qp_attr) -> Result<i32>;

    /// Accepts with `private_data`. `initiator_depth` is what the peer can
    /// answer at once.
    ///
    /// # Errors
    /// What the kernel or libibverbs says.
    fn accept(&self, private_data: &[u8], initiator_depth: u8) -> Result<()>;

    /// Rejects with `private_data`.
    ///
    /// # Errors
    /// What the kernel says.
    fn reject(&self, private_data: &[u8]) -> Result<()>;

    /// Ends the connection.
    ///
    /// # Errors
    /// What the kernel says.
    fn disconnect(&self) -> Result<()>;

    /// Tells the kernel of an asynchronous event of the queue pair.
    ///
    /// # Errors
    /// What the kernel says.
    fn notify(&self, event: u32) -> Result<()>;
}

/// How a target accepts.
pub(crate) fn accept_param(private_data: &[u8], initiator_depth: u8) -> Param<'_> {
    Param {
        private_data,
        responder_resources: READS,
        initiator_depth: READS.min(initiator_depth),
        flow_control: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: 0,
    }
}

impl Connection for Arc<Id> {
    fn context(&self) -> Result<*mut ibv_context> {
        Ok(self.require_device()?.context())
    }

    unsafe fn create_qp(&self, attr: &mut ibv_qp_init_attr) -> Result<()> {
        // SAFETY: the caller vouches for the attributes.
        unsafe { qp::create(self, ptr::null_mut(), attr) }
    }

    fn destroy_qp(&self) {
        qp::destroy(self);
    }

    fn qp(&self) -> *mut ibv_qp {
        Id::qp(self)
    }

    fn init_attr(&self, attr: &mut ibv_qp_attr) -> Result<i32> {
        transition::query_attr(self, attr)
    }

    fn accept(&self, private_data: &[u8], initiator_depth: u8) -> Result<()> {
        let device = self.require_device()?;
        let mut param = accept_param(private_data, initiator_depth);
        param.responder_resources = READS.min(device.max_responder_resources());
        param.initiator_depth = param.initiator_depth.min(device.max_initiator_depth());
        connect::accept(self, Some(&param))
    }

    fn reject(&self, private_data: &[u8]) -> Result<()> {
        connect::reject(self, private_data, Reason::Consumer)
    }

    fn disconnect(&self) -> Result<()> {
        connect::disconnect(self)
    }

    fn notify(&self, event: u32) -> Result<()> {
        connect::notify(self, event)
    }
}
