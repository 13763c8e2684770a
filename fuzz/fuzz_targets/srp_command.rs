//! SRP_CMD: descriptors, tables of pieces and immediate data, agreed on as the
//! first bytes say.

#![no_main]

use libfuzzer_sys::fuzz_target;
use srpt::wire::command::{Command, Immediate};
use srpt::wire::descriptor::{Descriptor, MAX_TABLE_ENTRIES, Table};

fuzz_target!(|input: (u16, u16, &[u8])| {
    let (offset, most, unit) = input;
    let immediate = Immediate {
        offset,
        most: most.into(),
    };
    let Some(command) = Command::parse(unit) else {
        return;
    };
    assert!(command.cdb.len() >= 16);
    let Ok(data) = command.data(immediate) else {
        return;
    };
    assert!(data.out == Descriptor::None || data.into == Descriptor::None);
    for descriptor in [data.out, data.into] {
        match descriptor {
            Descriptor::Indirect(table) => {
                let room: u64 = table.segments().map(|piece| u64::from(piece.length)).sum();
                assert!(room >= u64::from(descriptor.length()));
                // The same bytes, fetched from the initiator.
                assert_eq!(Table::new(table.bytes(), descriptor.length()), Ok(table));
            }
            Descriptor::Immediate { length } => {
                assert!(usize::from(offset) + length as usize <= unit.len());
            }
            Descriptor::Remote { list, .. } => assert!(list.length <= MAX_TABLE_ENTRIES * 16),
            Descriptor::None | Descriptor::Direct(_) => {}
        }
    }
});
