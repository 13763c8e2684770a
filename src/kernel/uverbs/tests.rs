//! Conversions, checked against recorded bytes and against the table of
//! source and target offsets.

use proptest::prelude::*;

use super::*;
use crate::kernel::plain::Plain;

/// Source offset, target offset and length of what is copied unchanged.
type Copies = &'static [(usize, usize, usize)];

const AH_ATTR: Copies = &[
    (0, 0, 16),
    (16, 16, 4),
    (20, 20, 1),
    (21, 21, 1),
    (22, 22, 1),
    (24, 24, 2),
    (26, 26, 1),
    (27, 27, 1),
    (28, 28, 1),
    (29, 29, 1),
    (30, 30, 1),
];

/// Without the address handles.
const QP_ATTR: Copies = &[
    (8, 4, 4),
    (12, 8, 4),
    (16, 12, 4),
    (20, 16, 4),
    (24, 20, 4),
    (28, 24, 4),
    (32, 28, 4),
    (36, 32, 4),
    (104, 36, 20),
    (124, 120, 2),
    (126, 122, 2),
    (128, 124, 11),
];
const QP_ATTR_AH: (usize, usize) = (40, 56);
const QP_ATTR_ALT_AH: (usize, usize) = (72, 88);

const PATH_RECORD: Copies = &[
    (0, 0, 32),
    (32, 32, 2),
    (34, 34, 2),
    (36, 36, 4),
    (40, 40, 4),
    (44, 48, 4),
    (48, 58, 1),
    (52, 54, 2),
    (54, 44, 1),
    (55, 45, 1),
    (56, 52, 1),
    (57, 56, 1),
    (58, 57, 1),
    (59, 59, 1),
    (60, 60, 1),
    (61, 61, 1),
    (62, 62, 1),
    (63, 63, 1),
];

fn bytes_of<T, const N: usize>(value: &T) -> [u8; N] {
    assert_eq!(size_of::<T>(), N);
    // SAFETY: `N` bytes; the callers zero the padding of `T` or do not look
    // at it.
    unsafe { (&raw const *value).cast::<[u8; N]>().read() }
}

#[test]
fn recorded_init_attributes() {
    // What a soft-RoCE device's identifier gets for INIT before a connection.
    let mut bytes = [0; 144];
    bytes[0] = 0x39;
    bytes[4] = 1;
    bytes[133] = 1;
    // SAFETY: all members are integers or arrays of them.
    let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
    attr.qp_state = 1;
    attr.rate_limit = 77;
    attr.qkey = 5;
    assert_eq!(QpAttr::from_kernel(&bytes).apply_to(&mut attr), 0x39);
    assert_eq!((attr.qp_state, attr.rate_limit), (1, 77));
    assert_eq!(
        (
            attr.port_num,
            attr.pkey_index,
            attr.qp_access_flags,
            attr.qkey
        ),
        (1, 0, 0, 0)
    );
}

#[test]
fn recorded_packed_path() {
    let mut bytes = [0; 72];
    bytes[0] = 0x2B;
    bytes[16..20].copy_from_slice(&[0xFE, 0x80, 0, 0]);
    bytes[48..50].copy_from_slice(&[0x12, 0x34]);
    bytes[52..56].copy_from_slice(&[0x0A, 0xBC, 0xDE, 0x40]);
    bytes[56] = 0x77;
    bytes[57] = 0x85;
    bytes[58..60].copy_from_slice(&[0xFF, 0xFF]);
    bytes[60..62].copy_from_slice(&[0x12, 0x39]);
    bytes[62] = 0x83;
    bytes[63] = 0x86;
    bytes[64] = 0x92;
    bytes[65] = 0x55;
    let record = PathData::from_prefix(&bytes).to_verbs();
    assert_eq!(record.dlid.to_ne_bytes(), [0x12, 0x34]);
    assert_eq!(u32::from_be(record.flow_label), 0x000A_BCDE);
    assert_eq!((record.hop_limit, record.traffic_class), (0x40, 0x77));
    assert_eq!((record.reversible, record.numb_path), (1, 1));
    assert_eq!((record.pkey, record.sl), (0xFFFF, 9));
    assert_eq!((record.mtu_selector, record.mtu), (2, 3));
    assert_eq!((record.rate_selector, record.rate), (2, 6));
    assert_eq!(
        (record.packet_life_time_selector, record.packet_life_time),
        (2, 0x12)
    );
    assert_eq!((record.raw_traffic, record.preference), (0, 0x2B));
}

#[test]
fn both_forms_of_an_ethernet_path_agree() {
    let mut unpacked = [0; 64];
    unpacked[15] = 1;
    unpacked[31] = 2;
    unpacked[40..44].copy_from_slice(&0x0A_BCDEu32.to_be_bytes());
    unpacked[44] = 1;
    unpacked[48] = 3;
    unpacked[52..56].copy_from_slice(&[0xFF, 0xFF, 0x40, 0x77]);
    unpacked[57..64].copy_from_slice(&[9, 2, 2, 6, 2, 0x12, 0]);
    let mut packed = [0; 72];
    packed[0] = 0x2B;
    packed[31] = 1;
    packed[47] = 2;
    packed[52..56].copy_from_slice(&[0x0A, 0xBC, 0xDE, 0x40]);
    packed[56..58].copy_from_slice(&[0x77, 0x80]);
    packed[58..60].copy_from_slice(&[0xFF, 0xFF]);
    packed[61..65].copy_from_slice(&[9, 0x83, 0x86, 0x92]);
    let one = PathRecord::from_prefix(&unpacked).to_verbs_ethernet();
    let other = PathData::from_prefix(&packed).to_verbs();
    let significant = |record: &_| {
        let mut bytes: [u8; 64] = bytes_of(record);
        // Padding.
        bytes[46..48].fill(0);
        bytes[53] = 0;
        bytes
    };
    assert_eq!(significant(&one), significant(&other));
}

fn bytes<const N: usize>() -> impl Strategy<Value = [u8; N]> {
    prop::collection::vec(any::<u8>(), N).prop_map(|bytes| bytes.try_into().unwrap())
}

fn assert_copied(source: &[u8], target: &[u8], copies: Copies) -> Result<(), TestCaseError> {
    for &(from, to, len) in copies {
        prop_assert_eq!(
            &source[from..from + len],
            &target[to..to + len],
            "from {}",
            from
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn address_handles_are_copied(source in bytes::<32>()) {
        let target: [u8; 32] = bytes_of(&AhAttr::from_prefix(&source).to_verbs());
        assert_copied(&source, &target, AH_ATTR)?;
    }

    #[test]
    fn queue_pair_attributes_are_copied(source in bytes::<144>(), kept: (u32, u32)) {
        // SAFETY: all members are integers or arrays of them.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        (attr.qp_state, attr.rate_limit) = kept;
        let mask = QpAttr::from_kernel(&source).apply_to(&mut attr);
        prop_assert_eq!(mask, u32::from_ne_bytes(source[..4].try_into().unwrap()));
        prop_assert_eq!((attr.qp_state, attr.rate_limit), kept);
        let target: [u8; 144] = bytes_of(&attr);
        assert_copied(&source, &target, QP_ATTR)?;
        for (from, to) in [QP_ATTR_AH, QP_ATTR_ALT_AH] {
            assert_copied(&source[from..from + 32], &target[to..to + 32], AH_ATTR)?;
        }
    }

    #[test]
    fn unpacked_paths_are_copied(source in bytes::<64>()) {
        let target: [u8; 64] = bytes_of(&PathRecord::from_prefix(&source).to_verbs());
        assert_copied(&source, &target, PATH_RECORD)?;
    }

    #[test]
    fn packed_paths_are_taken_apart(source in bytes::<72>()) {
        let record = PathData::from_prefix(&source).to_verbs();
        let target: [u8; 64] = bytes_of(&record);
        // GIDs, LIDs, traffic class, partition key; flags as preference.
        let same = &[(16, 0, 32), (48, 32, 4), (56, 45, 1), (58, 54, 2), (0, 63, 1)];
        assert_copied(&source, &target, same)?;
        let flow_and_hops = u32::from_be_bytes(source[52..56].try_into().unwrap());
        let again = u32::from_be(record.flow_label) << 8 | u32::from(record.hop_limit);
        prop_assert_eq!(again, flow_and_hops);
        prop_assert!(record.sl < 16 && record.mtu < 32 && record.rate < 32);
        prop_assert!(record.reversible == 0 || record.reversible == 1);
    }
}
