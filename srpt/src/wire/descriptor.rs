//! Data buffer descriptors: where in the initiator's memory the data of a
//! command lies.

use std::fmt;

use super::bytes::{u32_at, u64_at};

/// Most entries of an indirect table that are served.
pub const MAX_TABLE_ENTRIES: u32 = 2048;

/// Bytes of a direct descriptor, and of each entry of an indirect table.
pub const SEGMENT_LENGTH: usize = 16;

/// Bytes of an indirect descriptor without its entries.
const TABLE_HEADER: usize = 20;

/// A piece of the initiator's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Address as the initiator's device knows it.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// Bytes.
    pub length: u32,
}

impl Segment {
    /// Reads the descriptor at `offset`.
    pub fn parse(bytes: &[u8], offset: usize) -> Option<Self> {
        Some(Self {
            address: u64_at(bytes, offset)?,
            key: u32_at(bytes, offset.checked_add(8)?)?,
            length: u32_at(bytes, offset.checked_add(12)?)?,
        })
    }
}

/// Why a descriptor cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The information unit ends within the descriptor or immediate data.
    Truncated,
    /// The format is none, or not for this direction.
    Format,
    /// The lengths contradict each other.
    Lengths,
    /// More entries than are served.
    TooManyEntries,
    /// Immediate data was not agreed on or does not lie where agreed.
    Immediate,
    /// Data in both directions.
    Bidirectional,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "information unit too short for its descriptor",
            Self::Format => "unknown data buffer format",
            Self::Lengths => "lengths in an indirect table contradict each other",
            Self::TooManyEntries => "too many entries in an indirect table",
            Self::Immediate => "immediate data not agreed on or misplaced",
            Self::Bidirectional => "data in both directions",
        })
    }
}

/// Where the data of one direction lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor<'a> {
    /// There is none.
    None,
    /// In one piece.
    Direct(Segment),
    /// In pieces that are all listed in the information unit.
    Indirect(Table<'a>),
    /// In pieces that are listed in the initiator's memory.
    Remote {
        /// Where the list is; its length is that of all entries.
        list: Segment,
        /// Bytes of data.
        total: u32,
    },
    /// In the information unit itself.
    Immediate {
        /// Bytes of data.
        length: u32,
    },
}

impl Descriptor<'_> {
    /// Bytes of data.
    pub fn length(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::Direct(segment) => segment.length,
            Self::Indirect(table) => table.total,
            Self::Remote { total, .. } => *total,
            Self::Immediate { length } => *length,
        }
    }
}

/// A list of pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table<'a> {
    /// Bytes of data.
    total: u32,
    /// The entries as bytes.
    entries: &'a [u8],
}

impl<'a> Table<'a> {
    /// A list of whole entries that have room for `total` bytes of data.
    ///
    /// # Errors
    /// [`Malformed::Lengths`] if the pieces are shorter in all.
    pub fn new(entries: &'a [u8], total: u32) -> Result<Self, Malformed> {
        let table = Self { total, entries };
        let room: u64 = table.segments().map(|piece| u64::from(piece.length)).sum();
        if room < u64::from(total) {
            return Err(Malformed::Lengths);
        }
        Ok(table)
    }

    /// The entries as bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.entries
    }

    /// The pieces in order.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + 'a {
        self.entries
            .chunks_exact(SEGMENT_LENGTH)
            .filter_map(|entry| Segment::parse(entry, 0))
    }
}

/// Reads the descriptor of `format` (a nibble) at `offset` of an information
/// unit, with `count` entries in it. Immediate data is told apart only.
pub(super) fn parse(
    unit: &[u8],
    offset: usize,
    format: u8,
    count: u8,
) -> Result<Descriptor<'_>, Malformed> {
    match format {
        0 => Ok(Descriptor::None),
        1 => Segment::parse(unit, offset)
            .map(Descriptor::Direct)
            .ok_or(Malformed::Truncated),
        2 => parse_indirect(unit, offset, usize::from(count)),
        3 => u32_at(unit, offset)
            .map(|length| Descriptor::Immediate { length })
            .ok_or(Malformed::Truncated),
        _ => Err(Malformed::Format),
    }
}

fn parse_indirect(unit: &[u8], offset: usize, count: usize) -> Result<Descriptor<'_>, Malformed> {
    let list = Segment::parse(unit, offset).ok_or(Malformed::Truncated)?;
    let total = u32_at(unit, offset + SEGMENT_LENGTH).ok_or(Malformed::Truncated)?;
    let start = offset + TABLE_HEADER;
    let present = unit
        .get(start..start + count * SEGMENT_LENGTH)
        .ok_or(Malformed::Truncated)?;
    let entries = list.length / SEGMENT_LENGTH as u32;
    if entries > MAX_TABLE_ENTRIES {
        return Err(Malformed::TooManyEntries);
    }
    match present.get(..entries as usize * SEGMENT_LENGTH) {
        Some(entries) => Table::new(entries, total).map(Descriptor::Indirect),
        None => Ok(Descriptor::Remote {
            list: Segment {
                length: entries * SEGMENT_LENGTH as u32,
                ..list
            },
            total,
        }),
    }
}
