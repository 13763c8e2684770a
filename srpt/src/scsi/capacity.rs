//! READ CAPACITY (SBC-3 5.15, 5.16): how many blocks, how big.

use super::unit::Unit;

/// Data of READ CAPACITY(10).
pub fn short(unit: &Unit) -> Vec<u8> {
    let last = u32::try_from(last(unit)).unwrap_or(u32::MAX);
    let mut data = last.to_be_bytes().to_vec();
    data.extend(unit.block_size().to_be_bytes());
    data
}

/// Data of READ CAPACITY(16).
pub fn long(unit: &Unit) -> Vec<u8> {
    const LENGTH: usize = 32;
    // Logical block provisioning management enabled, and what was given back
    // reads as zeros.
    const LBPME_LBPRZ: u8 = 0xc0;
    let mut data = last(unit).to_be_bytes().to_vec();
    data.extend(unit.block_size().to_be_bytes());
    data.extend([0, unit.physical_exponent()]);
    data.push(if unit.thin { LBPME_LBPRZ } else { 0 });
    data.resize(LENGTH, 0);
    data
}

/// The address of the last block.
fn last(unit: &Unit) -> u64 {
    unit.blocks().saturating_sub(1)
}
