//! A logical unit as the initiator sees it: its size, what it can do, and the
//! names by which it is recognised. Where its data is kept is not known here.

use std::sync::atomic::{AtomicU64, Ordering};

/// A disk.
#[derive(Debug)]
pub struct Unit {
    /// Bytes per block, a power of two from 512 to 4096.
    block_size: u32,
    /// Blocks that it has. Changes when the disk is resized.
    blocks: AtomicU64,
    /// How it is recognised.
    pub identity: Identity,
    /// Only reads are allowed.
    pub read_only: bool,
    /// Blocks can be given back (UNMAP), and read as zeros afterwards.
    pub thin: bool,
}

/// The names of a disk. Initiators find a disk again by them, so they must stay
/// the same over restarts and differ between disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The unit serial number: up to 32 printable ASCII characters.
    pub serial: String,
    /// The world wide name, in NAA format 6.
    pub naa: [u8; 16],
}

impl Unit {
    /// A disk of `bytes` bytes; what does not fill a block is not used.
    pub fn new(block_size: u32, bytes: u64, identity: Identity) -> Self {
        let block_size = block_size.clamp(512, 4096).next_power_of_two();
        Self {
            block_size,
            blocks: AtomicU64::new(bytes / u64::from(block_size)),
            identity,
            read_only: false,
            thin: false,
        }
    }

    /// Bytes per block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Blocks that it has at the moment.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Notes another size. True if the number of blocks has changed.
    pub fn resize(&self, bytes: u64) -> bool {
        let blocks = bytes / u64::from(self.block_size);
        self.blocks.swap(blocks, Ordering::Relaxed) != blocks
    }

    /// How many times a block of 4 KiB, what files are kept in, is as big as a
    /// block of the disk, as a power of two.
    pub fn physical_exponent(&self) -> u8 {
        const PHYSICAL: u32 = 4096;
        // At most 3.
        (PHYSICAL / self.block_size).trailing_zeros() as u8
    }
}

impl Identity {
    /// Longest serial number.
    pub const SERIAL_LENGTH: usize = 32;

    /// Names that follow from a serial number given by a person. Characters
    /// that SCSI does not allow become `_`.
    pub fn from_serial(serial: &str) -> Self {
        let serial: String = serial
            .chars()
            .take(Self::SERIAL_LENGTH)
            .map(|c| if c.is_ascii_graphic() { c } else { '_' })
            .collect();
        let naa = naa(serial.as_bytes());
        Self { serial, naa }
    }

    /// Names that follow from what makes the disk unique, for instance the
    /// machine and the path of the file.
    pub fn derived(unique: &[u8]) -> Self {
        let naa = naa(unique);
        Self {
            serial: naa.iter().map(|byte| format!("{byte:02x}")).collect(),
            naa,
        }
    }
}

/// The world wide name for `unique`: NAA format 6, the rest a hash. No company
/// identifier is claimed.
fn naa(unique: &[u8]) -> [u8; 16] {
    let mut naa = hash(unique).to_be_bytes();
    for byte in naa.iter_mut().take(4) {
        *byte = 0;
    }
    if let Some(first) = naa.first_mut() {
        *first = 0x60;
    }
    naa
}

/// FNV-1a with 128 bits: the same on every machine and in every version.
fn hash(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_the_same_and_differ_between_disks() {
        let one = Identity::derived(b"machine:/disks/a.img");
        assert_eq!(one, Identity::derived(b"machine:/disks/a.img"));
        assert_ne!(one.naa, Identity::derived(b"machine:/disks/b.img").naa);
        assert_eq!(one.naa[0] >> 4, 6);
        assert_eq!(one.serial.len(), Identity::SERIAL_LENGTH);
        // Written down once: initiators remember it.
        assert_eq!(one.serial, "6000000009861b155377d29b3ebb360c");
    }

    #[test]
    fn a_serial_number_is_made_printable() {
        let identity = Identity::from_serial("disk 1\nä");
        assert_eq!(identity.serial, "disk_1__");
    }

    #[test]
    fn odd_bytes_at_the_end_are_no_block() {
        let unit = Unit::new(512, 1024 + 511, Identity::from_serial("x"));
        assert_eq!(unit.blocks(), 2);
        assert!(!unit.resize(1024));
        assert!(unit.resize(4096));
        assert_eq!(unit.blocks(), 8);
    }
}
