//! Connections and their parameters, and what a queue pair needs for one.

use crate::error::{Error, Result};
use crate::kernel::command::Command;
use crate::kernel::plain::{Plain, wire};
use crate::kernel::uverbs::AhAttr;

use super::bounded;

/// Room for private data in commands and events, in bytes.
pub const PRIVATE_DATA_LEN: usize = 256;

wire! {
    /// Parameters of a connection (`struct rdma_ucm_conn_param`).
    pub struct ConnParam: 272 {
        /// Queue pair number, 24 bits.
        pub qp_num: u32 = 0,
        /// Queue key.
        pub qkey: u32 = 4,
        private_data: [u8; PRIVATE_DATA_LEN] = 8,
        private_data_len: u8 = 264,
        /// Nonzero if the queue pair has a shared receive queue.
        pub srq: u8 = 265,
        /// RDMA reads and atomics that the sender of the message answers at a
        /// time.
        pub responder_resources: u8 = 266,
        /// RDMA reads and atomics that the sender issues at a time.
        pub initiator_depth: u8 = 267,
        /// Nonzero for hardware flow control.
        pub flow_control: u8 = 268,
        /// Retries after errors, 3 bits.
        pub retry_count: u8 = 269,
        /// Retries after "receiver not ready", 3 bits; 7 means for ever.
        pub rnr_retry_count: u8 = 270,
        /// Zero in [`Accept`] says that the rest is not set.
        pub valid: u8 = 271,
    }

    /// Parameters of a datagram service (`struct rdma_ucm_ud_param`).
    pub struct UdParam: 304 {
        /// Queue pair number, 24 bits.
        pub qp_num: u32 = 0,
        /// Queue key.
        pub qkey: u32 = 4,
        ah_attr: AhAttr = 8,
        private_data: [u8; PRIVATE_DATA_LEN] = 40,
        private_data_len: u8 = 296,
        reserved: [u8; 7] = 297,
    }

    /// Enhanced connection establishment: options of a vendor.
    pub struct Ece: 8 {
        /// Vendor; 0 for none.
        pub vendor_id: u32 = 0,
        /// Options.
        pub attr_mod: u32 = 4,
    }

    /// Sends a connection request (datagrams: asks for the service's address).
    pub struct Connect: 288 {
        param: ConnParam = 0,
        id: u32 = 272,
        reserved: u32 = 276,
        ece: Ece = 280,
    }

    /// Starts to listen for connection requests.
    pub struct Listen: 8 {
        id: u32 = 0,
        backlog: u32 = 4,
    }

    /// Accepts a connection request, or establishes an accepted connection.
    pub struct Accept: 296 {
        uid: u64 = 0,
        param: ConnParam = 8,
        id: u32 = 280,
        reserved: u32 = 284,
        ece: Ece = 288,
    }

    /// Rejects a connection request or response.
    pub struct Reject: 264 {
        id: u32 = 0,
        private_data_len: u8 = 4,
        reason: u8 = 5,
        reserved: [u8; 2] = 6,
        private_data: [u8; PRIVATE_DATA_LEN] = 8,
    }

    /// Ends a connection.
    pub struct Disconnect: 4 {
        id: u32 = 0,
    }

    /// Fetches the queue pair attributes for a state; the reply is `QpAttr`.
    pub struct InitQpAttr: 16 {
        pub(super) response: u64 = 0,
        id: u32 = 8,
        qp_state: u32 = 12,
    }

    /// Tells the connection manager of an asynchronous event of the queue pair.
    pub struct Notify: 8 {
        id: u32 = 0,
        event: u32 = 4,
    }
}

/// Copies private data, which comes in two parts, into the field of a command
/// and returns its length.
fn put_private_data(
    field: &mut [u8; PRIVATE_DATA_LEN],
    [first, second]: [&[u8]; 2],
    step: &'static str,
) -> Result<u8> {
    let len = first.len().saturating_add(second.len());
    let len = u8::try_from(len).map_err(|_| Error::invalid(step))?;
    field.fill(0);
    for (target, byte) in field.iter_mut().zip(first.iter().chain(second)) {
        *target = *byte;
    }
    Ok(len)
}

impl Default for ConnParam {
    fn default() -> Self {
        Self::new()
    }
}

impl ConnParam {
    /// All zero: no private data, not valid.
    pub fn new() -> Self {
        Self::zeroed()
    }

    /// The private data; at most 255 bytes.
    pub fn private_data(&self) -> &[u8] {
        bounded(&self.private_data, self.private_data_len.into())
    }

    /// Replaces the private data by both parts of `data`.
    ///
    /// # Errors
    ///
    /// `EINVAL`, with nothing changed, for more than 255 bytes. The kernel's
    /// own limits are lower and depend on message and address family.
    pub fn set_private_data(&mut self, data: [&[u8]; 2]) -> Result<()> {
        let step = "put private data into a connection message";
        self.private_data_len = put_private_data(&mut self.private_data, data, step)?;
        Ok(())
    }
}

impl UdParam {
    /// How to reach the queue pair.
    pub fn ah_attr(&self) -> &AhAttr {
        &self.ah_attr
    }

    /// The private data; at most 255 bytes.
    pub fn private_data(&self) -> &[u8] {
        bounded(&self.private_data, self.private_data_len.into())
    }
}

impl Default for Ece {
    /// No vendor.
    fn default() -> Self {
        Self::zeroed()
    }
}

impl Connect {
    /// Connects the identifier `id`.
    pub fn new(id: u32, param: &ConnParam, ece: Ece) -> Self {
        Self {
            param: *param,
            id,
            reserved: 0,
            ece,
        }
    }
}

impl Listen {
    /// Listens on the identifier `id` with room for `backlog` requests not yet
    /// fetched; values that are not positive, or too large, mean the system's
    /// maximum.
    pub fn new(id: u32, backlog: i32) -> Self {
        Self {
            id,
            backlog: backlog as u32,
        }
    }
}

impl Accept {
    /// Accepts the request of the identifier `id`, whose events carry the
    /// nonzero number `uid` from now on. `param.valid` is set.
    pub fn new(id: u32, uid: u64, param: &ConnParam, ece: Ece) -> Self {
        let param = ConnParam { valid: 1, ..*param };
        Self {
            uid,
            param,
            id,
            reserved: 0,
            ece,
        }
    }

    /// Tells that the connection of the identifier `id`, which the peer has
    /// accepted, is established; for the active side.
    pub fn established(id: u32) -> Self {
        Self {
            id,
            ..Self::zeroed()
        }
    }
}

impl Reject {
    /// Rejects the identifier `id`. `reason` 0 stands for 28, the
    /// application's own refusal; 35 is an ECE option that is not supported.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more than 255 bytes of private data.
    pub fn new(id: u32, private_data: &[u8], reason: u8) -> Result<Self> {
        let mut command = Self {
            id,
            reason,
            ..Self::zeroed()
        };
        command.private_data_len =
            put_private_data(&mut command.private_data, [private_data, &[]], Self::STEP)?;
        Ok(command)
    }
}

impl Disconnect {
    /// Disconnects the identifier `id`.
    pub fn new(id: u32) -> Self {
        Self { id }
    }
}

impl InitQpAttr {
    /// Fetches the attributes for the state `qp_state` (`IBV_QPS_…`).
    pub fn new(id: u32, qp_state: u32) -> Self {
        Self {
            id,
            qp_state,
            ..Self::zeroed()
        }
    }
}

impl Notify {
    /// Notifies the identifier `id` of `event` (`IBV_EVENT_…`).
    pub fn new(id: u32, event: u32) -> Self {
        Self { id, event }
    }
}
