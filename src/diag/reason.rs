//! Words for the numbers with which a peer refuses: reject reasons of the
//! InfiniBand and iWARP connection managers and statuses of InfiniBand
//! service resolution. The texts are those of the Linux kernel's log, which
//! users find when they search for them.

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
