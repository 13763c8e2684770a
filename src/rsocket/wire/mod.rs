//! What stream rsockets say to each other: the private data of a connection,
//! the messages in immediate data, and the entries of the lists that one side
//! writes into the other's memory.
//!
//! Pure encoding and decoding. Whether a value makes sense at this point of a
//! connection is decided in [`super::flow`].

mod connection;
mod entry;
mod message;
#[cfg(test)]
mod tests;

pub use connection::{CONN_DATA_LEN, ConnData, IB_HEADER_LEN, Malformed, round_mappings};
pub use entry::{MAPPING_LEN, Mapping, TARGET_LEN, TARGETS, Target};
pub use message::{MAX_MESSAGE, Message, WORD_LEN};

/// Whether this host is big-endian.
pub const BIG_ENDIAN: bool = cfg!(target_endian = "big");

/// The `N` bytes at `offset`, which lie within `bytes` for all callers.
fn take<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .unwrap_or([0; N])
}

fn put(bytes: &mut [u8], offset: usize, field: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(offset).zip(field) {
        *to = *from;
    }
}
