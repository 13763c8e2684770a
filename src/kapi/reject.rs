//! What the status of a rejection means, which depends on the transport.

use std::ffi::CStr;

use crate::abi::{RDMA_CM_EVENT_REJECTED, rdma_cm_event};
use crate::cm::device::Transport;
use crate::cm::id::Id;
use crate::diag::{ib_reject_message, iwarp_reject_message};

/// "Consumer defined" of the InfiniBand specification: the peer's program
/// rejected.
const IB_CONSUMER: i32 = 28;

fn transport(id: &Id) -> Transport {
    id.device()
        .map_or(Transport::Other, |device| device.transport())
}

/// The reason in words, or that there are none for it.
pub fn message(id: &Id, reason: i32) -> &'static CStr {
    message_of(transport(id), reason)
}

fn message_of(transport: Transport, reason: i32) -> &'static CStr {
    match transport {
        Transport::InfiniBand => ib_reject_message(reason),
        Transport::Iwarp => iwarp_reject_message(reason),
        Transport::Other => UNRECOGNIZED_TRANSPORT,
    }
}

/// The text for an identifier without device.
pub const UNRECOGNIZED_TRANSPORT: &CStr = c"unrecognized transport";

/// Whether the peer's program rejected, not its connection manager.
pub fn is_consumers(id: &Id, reason: i32) -> bool {
    is_consumers_on(transport(id), reason)
}

fn is_consumers_on(transport: Transport, reason: i32) -> bool {
    match transport {
        Transport::InfiniBand => reason == IB_CONSUMER,
        Transport::Iwarp => reason == -libc::ECONNREFUSED,
        Transport::Other => false,
    }
}

/// Whether `event` reports that the peer's program rejected, so that its
/// private data are the program's.
pub fn carries_consumers_data(id: &Id, event: &rdma_cm_event) -> bool {
    event.event == RDMA_CM_EVENT_REJECTED && is_consumers(id, event.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_depend_on_the_transport() {
        assert_eq!(message_of(Transport::InfiniBand, 8), c"invalid service ID");
        assert_eq!(
            message_of(Transport::Iwarp, -libc::ETIMEDOUT),
            c"setup timeout"
        );
        assert_eq!(message_of(Transport::Iwarp, 8), c"unrecognized reason");
        assert_eq!(message_of(Transport::Other, 8), UNRECOGNIZED_TRANSPORT);
    }

    #[test]
    fn only_the_peers_program_is_the_consumer() {
        assert!(is_consumers_on(Transport::InfiniBand, 28));
        assert!(!is_consumers_on(Transport::InfiniBand, 8));
        assert!(is_consumers_on(Transport::Iwarp, -libc::ECONNREFUSED));
        assert!(!is_consumers_on(Transport::Iwarp, 28));
        assert!(!is_consumers_on(Transport::Other, 28));
    }
}
