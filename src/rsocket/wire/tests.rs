use super::*;
use proptest::prelude::*;

fn target() -> impl Strategy<Value = Target> {
    (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(addr, key, length)| Target {
        addr,
        key,
        length,
    })
}

fn swap(target: Target) -> Target {
    Target {
        addr: target.addr.swap_bytes(),
        key: target.key.swap_bytes(),
        length: target.length.swap_bytes(),
    }
}

proptest! {
    #[test]
    fn connection_data_survives(
        (big_endian, counts_mappings) in any::<(bool, bool)>(),
        credits in any::<u16>(),
        mappings in any::<u16>(),
        target_list in target(),
        buffer in target(),
        padding in 0usize..200,
    ) {
        let data = ConnData {
            big_endian,
            counts_mappings,
            credits,
            mappings: round_mappings(mappings),
            target_list,
            buffer,
        };
        let mut bytes = data.encode().to_vec();
        bytes.resize(CONN_DATA_LEN + padding, 0);
        prop_assert_eq!(ConnData::decode(&bytes), Ok(data));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        match ConnData::decode(&bytes) {
            Ok(_) => prop_assert!(bytes.len() >= CONN_DATA_LEN && bytes[0] == 1),
            Err(Malformed::Short) => prop_assert!(bytes.len() < CONN_DATA_LEN),
            Err(Malformed::Version(version)) => prop_assert_eq!(version, bytes[0]),
        }
    }

    #[test]
    fn messages_survive(value in 0..=MAX_MESSAGE, low in any::<u16>()) {
        for message in [
            Message::Data(value),
            Message::Grant(low),
            Message::Mapping(low),
            Message::Disconnect,
            Message::Shutdown,
            Message::Ignored,
        ] {
            prop_assert_eq!(Message::decode(message.encode()), message);
            let mut word = message.to_word();
            prop_assert_eq!(Message::from_word(word, false), message);
            word.reverse();
            prop_assert_eq!(Message::from_word(word, true), message);
        }
    }

    #[test]
    fn list_entries_are_in_the_order_of_their_reader(entry in target(), offset in any::<u64>()) {
        prop_assert_eq!(Target::decode(&entry.encode(false)), entry);
        prop_assert_eq!(Target::decode(&entry.encode(true)), swap(entry));
        let mapping = Mapping { offset, memory: entry };
        prop_assert_eq!(Mapping::decode(&mapping.encode(false)), mapping);
        prop_assert_eq!(Mapping::decode(&mapping.encode(true)).memory, swap(entry));
    }
}

#[test]
fn the_fields_lie_where_the_original_reads_them() {
    let data = ConnData {
        big_endian: false,
        counts_mappings: false,
        credits: 384,
        mappings: 1000,
        target_list: Target {
            addr: 0x0102_0304_0506_0708,
            key: 0x1112_1314,
            length: TARGETS,
        },
        buffer: Target {
            addr: 0x2122_2324_2526_2728,
            key: 0x3132_3334,
            length: 65536,
        },
    };
    let expected = [
        1, 2, 1, 128, 0, 0, 0, 131, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0, 0, 0, 2,
        0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0, 1, 0, 0,
    ];
    assert_eq!(data.encode(), expected);
    assert_eq!(data.mapping_address(2), 0x0102_0304_0506_0708 + 32 + 48);
}

#[test]
fn mapping_counts_are_rounded_as_on_the_wire() {
    for (count, rounded) in [
        (0, 0),
        (1, 1),
        (128, 128),
        (129, 128),
        (255, 128),
        (256, 256),
        (300, 256),
        (1000, 768),
        (32767, 32512),
    ] {
        assert_eq!(round_mappings(count), rounded, "{count}");
    }
}

#[test]
fn sends_of_either_byte_order_are_read() {
    let little = [0x05, 0, 0, 0x80];
    let big = [0x80, 0, 0, 0x05];
    for (word, swapped) in [(little, BIG_ENDIAN), (big, !BIG_ENDIAN)] {
        assert_eq!(Message::from_word(word, swapped), Message::Grant(5));
    }
}

#[test]
fn grants_beyond_sixteen_bits_wrap() {
    assert_eq!(Message::decode(4 << 29 | 0x1_0005), Message::Grant(5));
}

#[test]
fn unknown_operations_are_ignored() {
    for op in [1, 2, 3, 5] {
        assert_eq!(Message::decode(op << 29 | 7), Message::Ignored);
    }
    assert_eq!(Message::decode(7 << 29 | 99), Message::Ignored);
}
