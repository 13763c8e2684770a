//! Entries of the lists that one side writes into the other's memory.

use super::{put, take};

/// Entries of a target list.
pub const TARGETS: u32 = 2;
/// Bytes of a [`Target`].
pub const TARGET_LEN: usize = 16;
/// Bytes of a [`Mapping`].
pub const MAPPING_LEN: usize = 24;

/// A range of the peer's memory that may be written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Address in the memory's owner.
    pub addr: u64,
    /// Remote key.
    pub key: u32,
    /// Bytes; in [`super::ConnData::target_list`] entries.
    pub length: u32,
}

/// A range of memory that its owner exposes under an offset of its choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First offset.
    pub offset: u64,
    /// The memory behind it.
    pub memory: Target,
}

impl Target {
    /// The entry as its reader, whose byte order may be the `swapped` one,
    /// keeps it in memory.
    pub fn encode(&self, swapped: bool) -> [u8; TARGET_LEN] {
        let mut bytes = [0; TARGET_LEN];
        put(&mut bytes, 0, &native64(self.addr, swapped));
        put(&mut bytes, 8, &native32(self.key, swapped));
        put(&mut bytes, 12, &native32(self.length, swapped));
        bytes
    }

    /// An entry of this host's own list.
    pub fn decode(bytes: &[u8; TARGET_LEN]) -> Self {
        Self {
            addr: u64::from_ne_bytes(take(bytes, 0)),
            key: u32::from_ne_bytes(take(bytes, 8)),
            length: u32::from_ne_bytes(take(bytes, 12)),
        }
    }
}

impl Mapping {
    /// As [`Target::encode`].
    pub fn encode(&self, swapped: bool) -> [u8; MAPPING_LEN] {
        let mut bytes = [0; MAPPING_LEN];
        put(&mut bytes, 0, &native64(self.offset, swapped));
        put(&mut bytes, 8, &self.memory.encode(swapped));
        bytes
    }

    /// As [`Target::decode`].
    pub fn decode(bytes: &[u8; MAPPING_LEN]) -> Self {
        Self {
            offset: u64::from_ne_bytes(take(bytes, 0)),
            memory: Target::decode(&take(bytes, 8)),
        }
    }
}

fn native64(value: u64, swapped: bool) -> [u8; 8] {
    if swapped { value.swap_bytes() } else { value }.to_ne_bytes()
}

fn native32(value: u32, swapped: bool) -> [u8; 4] {
    if swapped { value.swap_bytes() } else { value }.to_ne_bytes()
}
