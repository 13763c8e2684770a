//! SRP_CMD: a SCSI command and where its data lies.

use super::bytes::{get, u8_at};
use super::descriptor::{self, Descriptor, Malformed};
use super::{Lun, Tag, TaskAttribute};

/// Bytes before the additional CDB.
const FIXED_LENGTH: usize = 48;
const CDB_OFFSET: usize = 32;
/// Bytes of an immediate data descriptor.
const IMMEDIATE_LENGTH: usize = 4;

/// What both sides agreed on about immediate data at login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Immediate {
    /// Where in a command the data starts.
    pub offset: u16,
    /// Most bytes of data; 0 if none may be sent.
    pub most: u32,
}

/// A command, borrowed from the information unit it came in.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    unit: &'a [u8],
    /// Names the command.
    pub tag: Tag,
    /// Logical unit.
    pub lun: Lun,
    /// How it is ordered among others.
    pub attribute: TaskAttribute,
    /// 16 bytes and the additional CDB, or as much of that as was received.
    pub cdb: &'a [u8],
    /// Where the CDB should end.
    end_of_cdb: usize,
}

/// Where the data of a command lies; at most one is not
/// [`Descriptor::None`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Data for the target.
    pub out: Descriptor<'a>,
    /// Room for data from the target.
    pub into: Descriptor<'a>,
}

impl<'a> Command<'a> {
    /// Operation code.
    pub const OPCODE: u8 = 0x02;

    /// Reads an information unit that starts with the operation code. `None`
    /// if it is too short to be answered. That a CDB is cut off shows in
    /// [`Command::data`].
    pub fn parse(unit: &'a [u8]) -> Option<Self> {
        // Bits 2 to 7 count words, so that as a number they count bytes.
        let additional = usize::from(u8_at(unit, 31)? & !0x03);
        let end_of_cdb = FIXED_LENGTH + additional;
        let received = end_of_cdb.min(unit.len());
        Some(Self {
            unit,
            tag: Tag(get(unit, 8)?),
            lun: Lun(get(unit, 20)?),
            attribute: TaskAttribute::from_bits(u8_at(unit, 29)?),
            cdb: unit
                .get(CDB_OFFSET..received)
                .filter(|cdb| CDB_OFFSET + cdb.len() >= FIXED_LENGTH)?,
            end_of_cdb,
        })
    }

    /// Where the data lies, checked against the received bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn data(&self, immediate: Immediate) -> Result<Data<'a>, Malformed> {
        let byte = |offset| u8_at(self.unit, offset).ok_or(Malformed::Truncated);
        let formats = byte(5)?;
        let (out, into) = (formats >> 4, formats & 0x0F);
        let at = self.end_of_cdb;
        if at > self.unit.len() {
            return Err(Malformed::Truncated);
        }
        match (out, into) {
            (0, 3) => Err(Malformed::Format),
            (0, _) => Ok(Data {
                out: Descriptor::None,
                into: descriptor::parse(self.unit, at, into, byte(7)?)?,
            }),
            (_, 0) => {
                let out = descriptor::parse(self.unit, at, out, byte(6)?)?;
                if let Descriptor::Immediate { length } = out {
                    self.check_immediate(length, immediate)?;
                }
                Ok(Data {
                    out,
                    into: Descriptor::None,
                })
            }
            _ => Err(Malformed::Bidirectional),
        }
    }

    fn check_immediate(&self, length: u32, immediate: Immediate) -> Result<(), Malformed> {
        let offset = usize::from(immediate.offset);
        let fits = length <= immediate.most
            && self.end_of_cdb + IMMEDIATE_LENGTH <= offset
            && (offset as u64).saturating_add(length.into()) <= self.unit.len() as u64;
        fits.then_some(()).ok_or(Malformed::Immediate)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::descriptor::{MAX_TABLE_ENTRIES, Segment};
    use super::*;

    const IMMEDIATE: Immediate = Immediate {
        offset: 68,
        most: 8192,
    };

    fn unit(formats: u8, counts: [u8; 2], tail: &[u8]) -> Vec<u8> {
        let mut unit = vec![0; 48];
        unit[0] = Command::OPCODE;
        unit[5] = formats;
        unit[6..8].copy_from_slice(&counts);
        unit[8..16].copy_from_slice(b"tag 1234");
        unit[21] = 7;
        unit[29] = 1;
        unit[32] = 0x28;
        unit.extend_from_slice(tail);
        unit
    }

    fn segment(address: u64, key: u32, length: u32) -> Vec<u8> {
        let mut bytes = address.to_be_bytes().to_vec();
        bytes.extend(key.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes
    }

    fn table(entries: u32, total: u32, lengths: &[u32]) -> Vec<u8> {
        let mut bytes = segment(0x5000, 9, entries * 16);
        bytes.extend(total.to_be_bytes());
        for length in lengths {
            bytes.extend(segment(0x1000, 3, *length));
        }
        bytes
    }

    fn data(unit: &[u8]) -> Result<Data<'_>, Malformed> {
        Command::parse(unit).unwrap().data(IMMEDIATE)
    }

    #[test]
    fn the_fixed_part_is_read() {
        let unit = unit(0, [0, 0], &[]);
        let command = Command::parse(&unit).unwrap();
        assert_eq!(command.tag, Tag(*b"tag 1234"));
        assert_eq!(command.lun.number(), Some(7));
        assert_eq!(command.attribute, TaskAttribute::HeadOfQueue);
        assert_eq!((command.cdb.len(), command.cdb[0]), (16, 0x28));
        assert!(Command::parse(&unit[..47]).is_none());
    }

    #[test]
    fn an_additional_cdb_moves_the_descriptor() {
        let mut tail = vec![0xEE; 8];
        tail.extend(segment(0xABCD, 5, 512));
        let mut unit = unit(0x01, [0, 1], &tail);
        unit[31] = 8 | 0x03;
        let command = Command::parse(&unit).unwrap();
        assert_eq!(command.cdb.len(), 24);
        let direct = Segment {
            address: 0xABCD,
            key: 5,
            length: 512,
        };
        let data = command.data(IMMEDIATE).unwrap();
        assert_eq!(data.into, Descriptor::Direct(direct));
        unit[31] = 0xFC;
        let cut = Command::parse(&unit).unwrap();
        assert_eq!(cut.data(IMMEDIATE), Err(Malformed::Truncated));
    }

    #[test]
    fn tables_are_complete_partial_or_wrong() {
        let complete = unit(0x20, [2, 0], &table(2, 1024, &[512, 512]));
        let Ok(Data {
            out: Descriptor::Indirect(pieces),
            ..
        }) = data(&complete)
        else {
            panic!("{:?}", data(&complete));
        };
        assert_eq!(pieces.segments().count(), 2);

        // More entries in the unit than in the table: the first ones count.
        let surplus = unit(0x20, [2, 0], &table(1, 512, &[512, 512]));
        assert_eq!(data(&surplus).unwrap().out.length(), 512);

        let partial = unit(0x20, [1, 0], &table(3, 1536, &[512]));
        assert!(matches!(
            data(&partial).unwrap().out,
            Descriptor::Remote { list, total: 1536 } if list.length == 48
        ));

        let cases = [
            (
                unit(0x20, [2, 0], &table(2, 1025, &[512, 512])),
                Malformed::Lengths,
            ),
            (
                unit(0x20, [3, 0], &table(2, 1024, &[512, 512])),
                Malformed::Truncated,
            ),
            (
                unit(0x20, [0, 0], &table(MAX_TABLE_ENTRIES + 1, 512, &[])),
                Malformed::TooManyEntries,
            ),
            (unit(0x10, [1, 0], &[0; 15]), Malformed::Truncated),
            (unit(0x02, [0, 1], &[0; 19]), Malformed::Truncated),
            (unit(0xF0, [1, 0], &[0; 64]), Malformed::Format),
            (unit(0x03, [0, 1], &[0; 64]), Malformed::Format),
            (unit(0x11, [1, 1], &[0; 64]), Malformed::Bidirectional),
        ];
        for (unit, error) in cases {
            assert_eq!(data(&unit), Err(error));
        }
    }

    #[test]
    fn immediate_data_lies_where_agreed() {
        let with = |length: u32, present: usize| {
            let mut tail = length.to_be_bytes().to_vec();
            tail.resize(20 + present, 0);
            unit(0x30, [1, 0], &tail)
        };
        assert_eq!(
            data(&with(512, 512)).unwrap().out,
            Descriptor::Immediate { length: 512 }
        );
        for bad in [with(513, 512), with(8193, 8193), with(u32::MAX, 512)] {
            assert_eq!(data(&bad), Err(Malformed::Immediate));
        }
        let good = with(512, 512);
        let command = Command::parse(&good).unwrap();
        for agreed in [
            Immediate::default(),
            Immediate {
                offset: 51,
                most: 8192,
            },
        ] {
            assert_eq!(command.data(agreed), Err(Malformed::Immediate));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged_without_harm(
            mut unit in prop::collection::vec(any::<u8>(), 0..700),
            shape in prop::sample::select(vec![0x01u8, 0x10, 0x02, 0x20, 0x30, 0x03, 0x22, 0x0F]),
            count in 0u8..40,
            offset in any::<u16>(),
            most in any::<u32>(),
        ) {
            if unit.len() > 31 {
                unit[5] = shape;
                unit[6] = count;
                unit[7] = count;
                unit[31] &= 0x0F;
            }
            if let Some(command) = Command::parse(&unit)
                && let Ok(data) = command.data(Immediate { offset, most })
            {
                prop_assert!(data.out == Descriptor::None || data.into == Descriptor::None);
                for descriptor in [data.out, data.into] {
                    match descriptor {
                        Descriptor::Indirect(table) => {
                            let room: u64 = table.segments().map(|s| u64::from(s.length)).sum();
                            prop_assert!(room >= u64::from(descriptor.length()));
                        }
                        Descriptor::Immediate { length } => {
                            prop_assert!(length <= most);
                            prop_assert!(usize::from(offset) + length as usize <= unit.len());
                        }
                        Descriptor::Remote { list, .. } => {
                            prop_assert!(list.length <= MAX_TABLE_ENTRIES * 16);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}
