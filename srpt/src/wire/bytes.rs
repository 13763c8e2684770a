//! Reading and writing numbers at fixed places, without ever going beyond the
//! slice.

/// The `N` bytes at `offset`, if they are there.
pub fn get<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

/// The byte at `offset`.
pub fn u8_at(bytes: &[u8], offset: usize) -> Option<u8> {
    bytes.get(offset).copied()
}

/// The number at `offset`.
pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    get(bytes, offset).map(u16::from_be_bytes)
}

/// The number at `offset`.
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    get(bytes, offset).map(u32::from_be_bytes)
}

/// The number at `offset`.
pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    get(bytes, offset).map(u64::from_be_bytes)
}

/// Writes `value` at `offset`, or as much of it as fits.
pub fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(offset).zip(value) {
        *to = *from;
    }
}
