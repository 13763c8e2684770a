//! Words for the numbers with which a peer refuses: reject reasons of the
//! InfiniBand and iWARP connection managers and statuses of InfiniBand
//! service resolution. The texts are those of the Linux kernel's log, which
//! users find when they search for them.

use std::fmt;
use std::io;

use crate::abi::{
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_USER, rdma_cm_event_type,
};

const UNRECOGNIZED: &str = "unrecognized reason";

/// Why an InfiniBand or RoCE peer rejected: the positive `status` of
/// `RDMA_CM_EVENT_REJECTED` (InfiniBand specification, volume 1, 12.6.7.2).
pub const fn ib_reject_reason(status: i32) -> &'static str {
    match status {
        1 => "no QP",
        2 => "no EEC",
        3 => "no resources",
        4 => "timeout",
        5 => "unsupported",
        6 => "invalid comm ID",
        7 => "invalid comm instance",
        8 => "invalid service ID",
        9 => "invalid transport type",
        10 => "stale conn",
        11 => "RDC not exist",
        12 => "invalid GID",
        13 => "invalid LID",
        14 => "invalid SL",
        15 => "invalid traffic class",
        16 => "invalid hop limit",
        17 => "invalid packet rate",
        18 => "invalid alt GID",
        19 => "invalid alt LID",
        20 => "invalid alt SL",
        21 => "invalid alt traffic class",
        22 => "invalid alt hop limit",
        23 => "invalid alt packet rate",
        24 => "port CM redirect",
        25 => "port redirect",
        26 => "invalid MTU",
        27 => "insufficient resp resources",
        28 => "consumer defined",
        29 => "invalid RNR retry",
        30 => "duplicate local comm ID",
        31 => "invalid class version",
        32 => "invalid flow label",
        33 => "invalid alt flow label",
        35 => "vendor option is not supported",
        _ => UNRECOGNIZED,
    }
}

/// Why an iWARP connection was rejected: the negative `status` of
/// `RDMA_CM_EVENT_REJECTED`.
pub const fn iwarp_reject_reason(status: i32) -> &'static str {
    match status.saturating_neg() {
        libc::ECONNRESET => "reset by remote host",
        libc::ECONNREFUSED => "refused by remote application",
        libc::ETIMEDOUT => "setup timeout",
        _ => UNRECOGNIZED,
    }
}

/// Why a datagram peer did not give its address: the positive `status` of
/// `RDMA_CM_EVENT_UNREACHABLE` (InfiniBand specification, volume 1, 12.11).
pub const fn sidr_status(status: i32) -> &'static str {
    match status {
        0 => "success",
        1 => "service unknown",
        2 => "application refused",
        3 => "no QP",
        4 => "redirected",
        5 => "version unsupported",
        _ => UNRECOGNIZED,
    }
}

/// The status of an event, in words.
#[derive(Clone, Copy, Debug)]
pub struct EventStatus {
    /// Type of the event.
    pub event: rdma_cm_event_type,
    /// Its status.
    pub status: i32,
}

impl EventStatus {
    /// Whether the event reports a failure. The status of a program's own
    /// event means what the program likes.
    pub const fn is_failure(&self) -> bool {
        self.status != 0 && self.event != RDMA_CM_EVENT_USER
    }
}

impl fmt::Display for EventStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status;
        match (self.event, status) {
            (RDMA_CM_EVENT_USER, _) => write!(f, "status {status}"),
            (RDMA_CM_EVENT_REJECTED, 1..) => {
                write!(f, "reason {status}: {}", ib_reject_reason(status))
            }
            (RDMA_CM_EVENT_REJECTED, ..=-1) => {
                write!(f, "reason {status}: {}", iwarp_reject_reason(status))
            }
            (RDMA_CM_EVENT_UNREACHABLE, 1..) => {
                write!(f, "status {status}: {}", sidr_status(status))
            }
            (_, ..=-1) => {
                let cause = io::Error::from_raw_os_error(status.saturating_neg());
                write!(f, "status {status}: {cause}")
            }
            _ => write!(f, "status {status}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reasons_users_meet_have_words() {
        assert_eq!(ib_reject_reason(8), "invalid service ID");
        assert_eq!(ib_reject_reason(10), "stale conn");
        assert_eq!(ib_reject_reason(28), "consumer defined");
        assert_eq!(ib_reject_reason(35), "vendor option is not supported");
        assert_eq!(
            iwarp_reject_reason(-libc::ECONNREFUSED),
            "refused by remote application"
        );
        assert_eq!(sidr_status(1), "service unknown");
    }

    #[test]
    fn an_event_explains_its_status() {
        let words = |event, status| EventStatus { event, status }.to_string();
        assert_eq!(
            words(RDMA_CM_EVENT_REJECTED, 8),
            "reason 8: invalid service ID"
        );
        assert_eq!(
            words(RDMA_CM_EVENT_REJECTED, -libc::ECONNREFUSED),
            "reason -111: refused by remote application"
        );
        assert_eq!(
            words(RDMA_CM_EVENT_UNREACHABLE, 1),
            "status 1: service unknown"
        );
        let timeout = words(RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT);
        assert!(timeout.contains("timed out"), "{timeout}");
        assert_eq!(words(RDMA_CM_EVENT_USER, -5), "status -5");
        assert!(!words(0, i32::MIN).is_empty());
    }

    #[test]
    fn a_programs_own_status_is_no_failure() {
        let failure = |event, status| EventStatus { event, status }.is_failure();
        assert!(failure(RDMA_CM_EVENT_REJECTED, 28));
        assert!(!failure(RDMA_CM_EVENT_REJECTED, 0));
        assert!(!failure(RDMA_CM_EVENT_USER, -5));
    }

    #[test]
    fn numbers_outside_the_tables_are_named_as_such() {
        for status in [i32::MIN, -1, 0, 34, 36, i32::MAX] {
            assert_eq!(ib_reject_reason(status), UNRECOGNIZED);
        }
        for status in [i32::MIN, 0, 28, i32::MAX] {
            assert_eq!(iwarp_reject_reason(status), UNRECOGNIZED);
        }
        for status in [i32::MIN, -1, 6, i32::MAX] {
            assert_eq!(sidr_status(status), UNRECOGNIZED);
        }
    }
}
