//! What an event of the connection manager means for a channel.

use rdmacm::abi::{
    RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_DEVICE_REMOVAL,
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_UNREACHABLE, rdma_cm_event_type,
};

use crate::channel::Channel;
use crate::channel::link::Link;

/// Handles an event of a channel's connection, not a request for one.
pub fn handle<L: Link>(channel: &mut Channel<L>, event: rdma_cm_event_type) {
    match event {
        RDMA_CM_EVENT_ESTABLISHED => channel.established(),
        RDMA_CM_EVENT_DISCONNECTED => {
            if !channel.disconnect() {
                channel.close();
            }
        }
        RDMA_CM_EVENT_REJECTED
        | RDMA_CM_EVENT_UNREACHABLE
        | RDMA_CM_EVENT_CONNECT_ERROR
        | RDMA_CM_EVENT_TIMEWAIT_EXIT => {
            channel.close();
        }
        RDMA_CM_EVENT_DEVICE_REMOVAL => {
            // Nothing comes back from a device that is gone, and the kernel
            // waits for the identifier to be destroyed.
            channel.close();
            channel.give_up_draining();
        }
        RDMA_CM_EVENT_ADDR_CHANGE => {}
        other => log::info!("event {other} of a channel's connection"),
    }
    channel.settle();
}
