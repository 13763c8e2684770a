//! Words for the numbers with which a peer refuses: reject reasons of the
//! InfiniBand and iWARP connection managers and statuses of InfiniBand
//! service resolution. The texts are those of the Linux kernel's log, which
//! users find when they search for them.

use std::ffi::CStr;
use std::fmt;
use std::io;

use crate::abi::{
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_USER, rdma_cm_event_type,
};

const UNRECOGNIZED: &CStr = c"unrecognized reason";

/// Why an InfiniBand or RoCE peer rejected, for C: the positive `status` of
/// `RDMA_CM_EVENT_REJECTED` (InfiniBand specification, volume 1, 12.6.7.2).
pub const fn ib_reject_message(status: i32) -> &'static CStr {
    match status {
        1 => c"no QP",
        2 => c"no EEC",
        3 => c"no resources",
        4 => c"timeout",
        5 => c"unsupported",
        6 => c"invalid comm ID",
        7 => c"invalid comm instance",
        8 => c"invalid service ID",
        9 => c"invalid transport type",
        10 => c"stale conn",
        11 => c"RDC not exist",
        12 => c"invalid GID",
        13 => c"invalid LID",
        14 => c"invalid SL",
        15 => c"invalid traffic class",
        16 => c"invalid hop limit",
        17 => c"invalid packet rate",
        18 => c"invalid alt GID",
        19 => c"invalid alt LID",
        20 => c"invalid alt SL",
        21 => c"invalid alt traffic class",
        22 => c"invalid alt hop limit",
        23 => c"invalid alt packet rate",
        24 => c"port CM redirect",
        25 => c"port redirect",
        26 => c"invalid MTU",
        27 => c"insufficient resp resources",
        28 => c"consumer defined",
        29 => c"invalid RNR retry",
        30 => c"duplicate local comm ID",
        31 => c"invalid class version",
        32 => c"invalid flow label",
        33 => c"invalid alt flow label",
        35 => c"vendor option is not supported",
        _ => UNRECOGNIZED,
    }
}

/// Why an iWARP connection was rejected, for C: the negative `status` of
/// `RDMA_CM_EVENT_REJECTED`.
pub const fn iwarp_reject_message(status: i32) -> &'static CStr {
    match status.saturating_neg() {
        libc::ECONNRESET => c"reset by remote host",
        libc::ECONNREFUSED => c"refused by remote application",
        libc::ETIMEDOUT => c"setup timeout",
        _ => UNRECOGNIZED,
    }
}

/// The text of [`ib_reject_message`].
pub fn ib_reject_reason(status: i32) -> &'static str {
    words(ib_reject_message(status))
}

/// The text of [`iwarp_reject_message`].
pub fn iwarp_reject_reason(status: i32) -> &'static str {
    words(iwarp_reject_message(status))
}

fn words(message: &'static CStr) -> &'static str {
    message.to_str().unwrap_or_default()
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
        _ => "unrecognized reason",
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
            assert_eq!(ib_reject_message(status), UNRECOGNIZED);
        }
        for status in [i32::MIN, 0, 28, i32::MAX] {
            assert_eq!(iwarp_reject_message(status), UNRECOGNIZED);
        }
        for status in [i32::MIN, -1, 6, i32::MAX] {
            assert_eq!(sidr_status(status), "unrecognized reason");
        }
    }
}
