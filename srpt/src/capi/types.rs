//! The structures and constants of `<rdma/srpt.h>`. No behaviour lives here.

use std::ffi::{c_char, c_int, c_void};

use rdmacm::verbs::bindings::{ibv_mr, ibv_pd};

/// State of a channel. It only ever moves on.
pub type srpt_ch_state = u32;
/// The login was accepted, the connection is not established yet.
pub const CH_CONNECTING: srpt_ch_state = 0;
/// Commands are served.
pub const CH_LIVE: srpt_ch_state = 1;
/// One side has asked for the end.
pub const CH_DISCONNECTING: srpt_ch_state = 2;
/// The queue pair is in error, what was posted comes back.
pub const CH_DRAINING: srpt_ch_state = 3;
/// Nothing is under way any more: the channel may be freed.
pub const CH_DISCONNECTED: srpt_ch_state = 4;

/// State of a command or task management request.
pub type srpt_command_state = u32;
/// Arrived; commands without data to the target are executed in it.
pub const SRPT_STATE_NEW: srpt_command_state = 0;
/// Its data is on the way to the target.
pub const SRPT_STATE_NEED_DATA: srpt_command_state = 1;
/// Its data is there, it is executed.
pub const SRPT_STATE_DATA_IN: srpt_command_state = 2;
/// Its response is posted.
pub const SRPT_STATE_CMD_RSP_SENT: srpt_command_state = 3;
/// A task management request.
pub const SRPT_STATE_MGMT: srpt_command_state = 4;
/// The response of a task management request is posted.
pub const SRPT_STATE_MGMT_RSP_SENT: srpt_command_state = 5;
/// Finished for good.
pub const SRPT_STATE_DONE: srpt_command_state = 6;

/// Which way data goes.
pub type srpt_direction = u32;
/// No data.
pub const SRPT_NO_DATA: srpt_direction = 0;
/// To the target.
pub const SRPT_DATA_OUT: srpt_direction = 1;
/// To the initiator.
pub const SRPT_DATA_IN: srpt_direction = 2;

/// Rights of the initiator on the queue pair.
pub type srpt_qp_policy = u32;
/// Local write, as the code of today's kernel.
pub const SRPT_QP_CURRENT: srpt_qp_policy = 0;
/// Local write, remote read and remote write, as the kernel's manual says.
pub const SRPT_QP_MANUAL: srpt_qp_policy = 1;

/// A SCSI command. Valid during the call that it is given to.
#[repr(C)]
pub struct srpt_cmd {
    /// Names the command; eight bytes without meaning.
    pub tag: u64,
    /// Logical unit number.
    pub lun: [u8; 8],
    /// Command descriptor block.
    pub cdb: *const u8,
    /// Bytes at cdb, 16 or more.
    pub cdb_len: u32,
    /// Task attribute: 0 simple, 1 head of queue, 2 ordered, 4 ACA.
    pub task_attr: u32,
    /// Bytes that the initiator has ready.
    pub data_out: u32,
    /// Bytes for which the initiator has room.
    pub data_in: u32,
}

/// How a command ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct srpt_result {
    /// SCSI status, 0 for GOOD.
    pub status: u8,
    /// Sense key, with status 2 (CHECK CONDITION).
    pub sense_key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
    /// Bytes of the data that are meaningful.
    pub transferred: u32,
}

/// Who logs in.
#[repr(C)]
pub struct srpt_login {
    /// Initiator port.
    pub i_port_id: [u8; 16],
    /// Target port.
    pub t_port_id: [u8; 16],
    /// The other channels of the session are to stay.
    pub multi_channel: c_int,
    /// Address of the initiator as text.
    pub address: *const c_char,
}

/// What a program does for a target. The context is the one of srpt_port_attr.
/// All are called by the thread that works on the channel, from within
/// srpt_poll_ch or the function that was called; none may block or free the
/// channel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct srpt_ops {
    /// Whether a login may go on: 0, or the reason of the reject
    /// (0x00010001, 0x00010006, ...). NULL lets everyone in.
    pub admit: Option<unsafe extern "C" fn(context: *mut c_void, login: *const srpt_login) -> u32>,
    /// How much data a command moves, and which way. Sets length.
    pub plan: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            cmd: *const srpt_cmd,
            length: *mut u32,
        ) -> srpt_direction,
    >,
    /// Executes a command or begins to; it ends with srpt_queue_response.
    /// data is what the initiator sent, or the place for what it is to get,
    /// and the program's until then.
    pub execute: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            ioctx: *mut super::ioctx::srpt_send_ioctx,
            cmd: *const srpt_cmd,
            data: *mut c_void,
            length: u32,
        ),
    >,
    /// The result of a command is not wanted any more; srpt_queue_response is
    /// to be called all the same. May be NULL.
    pub abort: Option<
        unsafe extern "C" fn(context: *mut c_void, ioctx: *mut super::ioctx::srpt_send_ioctx),
    >,
    /// The initiator has reset a logical unit. May be NULL.
    pub reset: Option<unsafe extern "C" fn(context: *mut c_void, lun: *const u8)>,
}

/// What a target port is like. Zero stands for the usual value.
#[repr(C)]
pub struct srpt_port_attr {
    /// The target port: id_ext, then ioc_guid.
    pub port_id: [u8; 16],
    /// Commands under way on a channel, 2 to 1024; 128.
    pub credits: u32,
    /// Most bytes of immediate data; 8192.
    pub max_imm_data: u32,
    /// Most bytes of the data of a command; 1 MiB.
    pub max_transfer: u32,
    /// Bytes for the data of a channel's commands in all, at least 8192 and
    /// twice max_transfer; 32 MiB, or more if that takes it.
    pub pool_size: u64,
    /// Rights of the initiator on the queue pairs.
    pub qp_policy: srpt_qp_policy,
    /// For srpt_alloc_ioctx only: where its memory is registered.
    pub pd: *mut ibv_pd,
    /// What the program does. Copied.
    pub ops: *const srpt_ops,
    /// First argument of all these functions.
    pub context: *mut c_void,
}

/// A piece of the initiator's memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct srpt_direct_buf {
    /// Address.
    pub va: u64,
    /// Remote key.
    pub key: u32,
    /// Bytes.
    pub len: u32,
}

/// Registered memory of a program's own, see srpt_alloc_ioctx.
#[repr(C)]
pub struct srpt_ioctx {
    /// Zeroed memory.
    pub buf: *mut c_void,
    /// Bytes at buf.
    pub size: u64,
    /// Its registration.
    pub mr: *mut ibv_mr,
    /// Place in its ring.
    pub index: u32,
}
