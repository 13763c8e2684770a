//! How a target serves: its address, its port and its limits.

use std::net::SocketAddr;

use crate::wire::PortId;

/// Rights of peers on the queue pairs, which INIT sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QpPolicy {
    /// Local write only, as today's kernel: in SRP the target alone starts
    /// transfers.
    #[default]
    Current,
    /// Local write, remote read and remote write, as srpt_init_ch_qp(9) says.
    Manual,
}

/// How to serve.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address and port to listen on.
    pub portal: SocketAddr,
    /// The target port: id_ext, then ioc_guid, eight bytes each.
    pub port_id: PortId,
    /// Commands that an initiator may have under way on each channel: 2 to
    /// 1024.
    pub credits: u16,
    /// Bytes for the data of a channel's commands in all.
    pub pool: usize,
    /// Most bytes of one command's data.
    pub max_transfer: usize,
    /// Most bytes of immediate data; 0 to do without.
    pub immediate: u32,
    /// Most channels at once, of all sessions.
    pub channels: usize,
    /// Rights of peers.
    pub policy: QpPolicy,
}

impl Settings {
    /// Serves `port_id` on `portal`, all else as the kernel's target does.
    pub fn new(portal: SocketAddr, port_id: PortId) -> Self {
        Self {
            portal,
            port_id,
            credits: 128,
            pool: 32 << 20,
            max_transfer: 1 << 20,
            immediate: 8192,
            channels: 256,
            policy: QpPolicy::Current,
        }
    }
}
