//! Fields of a command descriptor block. Reads bytes; what they mean is known
//! to the modules that ask.

/// A command descriptor block: the first 16 bytes, shorter ones padded with
/// zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdb([u8; Self::LENGTH]);

impl Cdb {
    /// Bytes of the longest block that is understood.
    pub const LENGTH: usize = 16;

    /// Takes the block from what the initiator sent.
    pub fn new(bytes: &[u8]) -> Self {
        let mut cdb = [0; Self::LENGTH];
        for (to, from) in cdb.iter_mut().zip(bytes) {
            *to = *from;
        }
        Self(cdb)
    }

    /// The operation code.
    pub fn opcode(&self) -> u8 {
        self.byte(0)
    }

    /// The service action, where the operation code has them.
    pub fn service_action(&self) -> u8 {
        self.byte(1) & 0x1f
    }

    /// One byte; 0 beyond the end.
    pub fn byte(&self, at: usize) -> u8 {
        byte(&self.0, at)
    }

    /// A 16-bit field.
    pub fn be16(&self, at: usize) -> u16 {
        be16(&self.0, at)
    }

    /// A 32-bit field.
    pub fn be32(&self, at: usize) -> u32 {
        be32(&self.0, at)
    }

    /// A 64-bit field.
    pub fn be64(&self, at: usize) -> u64 {
        be64(&self.0, at)
    }
}

/// Byte `at` of `bytes`; 0 beyond the end.
pub fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// The big-endian 16-bit field at `at`; bytes beyond the end count as 0.
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(field(bytes, at))
}

/// The big-endian 32-bit field at `at`; bytes beyond the end count as 0.
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(field(bytes, at))
}

/// The big-endian 64-bit field at `at`; bytes beyond the end count as 0.
pub fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(field(bytes, at))
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_big_endian_and_end_in_zeros() {
        let cdb = Cdb::new(&[0x88, 0x1f, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(cdb.opcode(), 0x88);
        assert_eq!(cdb.be16(2), 0x0102);
        assert_eq!(cdb.be32(6), 0x0506_0708);
        assert_eq!(cdb.be64(2), 0x0102_0304_0506_0708);
        assert_eq!(cdb.be64(6), 0x0506_0708_0000_0000);
        assert_eq!(cdb.be32(14), 0);
        assert_eq!(cdb.byte(99), 0);
    }
}
