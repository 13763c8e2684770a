//! The messages of ibacm: a header and up to eight entries of equal size, each
//! an address or a path record.

use std::ffi::c_int;

use crate::abi::AF_IB;
use crate::error::{Error, Result};
use crate::kernel::addr::{AF_INET, AF_INET6, SockAddr};
use crate::kernel::plain::Plain;
use crate::kernel::uverbs::PathData;

/// Length of what precedes the entries of a message.
pub const HEADER_LEN: usize = 16;
const ENTRY_LEN: usize = 72;
const MAX_ENTRIES: usize = 8;
/// Length of the longest message.
pub const MAX_MESSAGE: usize = HEADER_LEN + MAX_ENTRIES * ENTRY_LEN;
const RECORD_LEN: usize = 64;

const VERSION: u8 = 1;
const OPERATION_RESOLVE: u8 = 1;
const STATUS_SUCCESS: u8 = 0;

const TYPE_IPV4: u16 = 2;
const TYPE_IPV6: u16 = 3;
const TYPE_PATH: u16 = 0x10;

const FLAG_SOURCE: u32 = 1;
const FLAG_DESTINATION: u32 = 2;
const FLAG_NO_DELAY: u32 = 1 << 30;

/// Offsets of the GIDs in a path record on the wire.
const RECORD_DGID: usize = 8;
const RECORD_SGID: usize = 24;

/// What the daemon knows.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Local address from which the destination is reached.
    pub src: Option<SockAddr>,
    /// The route; at least one path.
    pub paths: Vec<PathData>,
}

/// What the daemon is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Question<'a> {
    /// Local address.
    pub src: Option<&'a SockAddr>,
    /// Address to be reached.
    pub dst: Option<&'a SockAddr>,
    /// Only what the daemon knows already.
    pub no_delay: bool,
    /// Path record that restricts the route.
    pub path: Option<[u8; RECORD_LEN]>,
}

/// The request for a question; `None` if there is nothing to ask.
pub fn encode(question: &Question<'_>) -> Option<Vec<u8>> {
    let mut message = vec![0; HEADER_LEN];
    let no_delay = if question.no_delay { FLAG_NO_DELAY } else { 0 };
    put_address(&mut message, question.src, FLAG_SOURCE);
    put_address(&mut message, question.dst, FLAG_DESTINATION | no_delay);
    put_path(&mut message, question);
    if message.len() == HEADER_LEN {
        return None;
    }
    let length = u16::try_from(message.len()).ok()?.to_ne_bytes();
    let head = [VERSION, OPERATION_RESOLVE, 0, 0, 0, 0, length[0], length[1]];
    message.splice(..head.len(), head);
    Some(message)
}

fn put_address(message: &mut Vec<u8>, address: Option<&SockAddr>, flags: u32) {
    let Some(address) = address else { return };
    let gid = address.gid();
    match address.family() {
        // The last four bytes of the mapped form are the IPv4 address.
        AF_INET => put_entry(message, flags, TYPE_IPV4, gid.split_at(12).1),
        AF_INET6 => put_entry(message, flags, TYPE_IPV6, &gid),
        _ => {}
    }
}

/// Adds the path entry, which carries InfiniBand addresses and restrictions.
fn put_path(message: &mut Vec<u8>, question: &Question<'_>) {
    let gid_of = |address: Option<&SockAddr>| {
        address
            .filter(|address| c_int::from(address.family()) == AF_IB)
            .map(SockAddr::gid)
    };
    let (sgid, dgid) = (gid_of(question.src), gid_of(question.dst));
    if question.path.is_none() && sgid.is_none() && dgid.is_none() {
        return;
    }
    let mut record = question.path.unwrap_or([0; RECORD_LEN]);
    for (offset, gid) in [(RECORD_SGID, sgid), (RECORD_DGID, dgid)] {
        let Some(gid) = gid else { continue };
        for (to, from) in record.iter_mut().skip(offset).zip(gid) {
            *to = from;
        }
    }
    put_entry(message, 0, TYPE_PATH, &record);
}

fn put_entry(message: &mut Vec<u8>, flags: u32, kind: u16, info: &[u8]) {
    let end = message.len().saturating_add(ENTRY_LEN);
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&[0; 2]);
    message.extend_from_slice(info);
    message.resize(end, 0);
}

/// Length of the whole reply that starts with `header`.
///
/// # Errors
/// `EBADMSG` if no reply has that length.
pub fn reply_length(header: &[u8; HEADER_LEN]) -> Result<usize> {
    let length = usize::from(u16::from_ne_bytes([header[6], header[7]]));
    let entries = length.checked_sub(HEADER_LEN).ok_or(malformed())?;
    if length > MAX_MESSAGE || !entries.is_multiple_of(ENTRY_LEN) {
        return Err(malformed());
    }
    Ok(length)
}

/// The failure that a reply makes no sense.
pub const fn malformed() -> Error {
    Error::new(libc::EBADMSG, "read the reply of ibacm")
}

/// Reads a whole reply. Pure, so that any bytes can be tried on it.
///
/// # Errors
/// `EBADMSG` if the reply is malformed, `ENOENT` if the daemon knows nothing.
pub fn decode(reply: &[u8]) -> Result<Answer> {
    let (header, entries) = reply.split_first_chunk::<HEADER_LEN>().ok_or(malformed())?;
    if reply_length(header)? != reply.len() {
        return Err(malformed());
    }
    if header[2] != STATUS_SUCCESS {
        return Err(Error::new(libc::ENOENT, "ask ibacm: it knows no answer"));
    }
    let mut answer = Answer::default();
    for entry in entries.chunks_exact(ENTRY_LEN) {
        let Some((head, info)) = entry.split_first_chunk::<8>() else {
            continue;
        };
        let flags = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
        let kind = u16::from_ne_bytes([head[4], head[5]]);
        if kind == TYPE_PATH {
            answer.paths.push(path_data(flags, info));
        } else if flags & FLAG_SOURCE != 0 {
            answer.src = answer.src.or_else(|| source(kind, info));
        }
    }
    Ok(answer)
}

fn path_data(flags: u32, record: &[u8]) -> PathData {
    let bytes = [&flags.to_ne_bytes(), &[0; 4], record].concat();
    PathData::from_prefix(&bytes)
}

fn source(kind: u16, info: &[u8]) -> Option<SockAddr> {
    match kind {
        TYPE_IPV4 => {
            let octets: [u8; 4] = *info.first_chunk()?;
            Some(SockAddr::v4(octets.into(), 0))
        }
        TYPE_IPV6 => {
            let octets: [u8; 16] = *info.first_chunk()?;
            Some(SockAddr::v6(octets.into(), 0, 0))
        }
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod samples {
    use super::*;

    /// A path record on the wire whose bytes are all `mark`.
    pub fn path(mark: u8) -> [u8; ENTRY_LEN] {
        entry(0, TYPE_PATH, &[mark; RECORD_LEN])
    }

    /// A question about two addresses, and so two entries.
    pub fn request() -> Vec<u8> {
        let (src, dst) = (v4(1), v4(2));
        encode(&Question {
            src: Some(&src),
            dst: Some(&dst),
            ..Question::default()
        })
        .unwrap_or_default()
    }

    /// Length of [`request`].
    pub const REQUEST_LEN: usize = HEADER_LEN + 2 * ENTRY_LEN;

    /// An address that differs in its last byte.
    pub fn v4(last: u8) -> SockAddr {
        SockAddr::v4(std::net::Ipv4Addr::new(10, 0, 0, last), 7174)
    }

    /// A reply with `entries`.
    pub fn reply(status: u8, entries: &[[u8; ENTRY_LEN]]) -> Vec<u8> {
        let length = (HEADER_LEN + entries.len() * ENTRY_LEN) as u16;
        let mut message = vec![0; HEADER_LEN];
        message[0] = VERSION;
        message[1] = OPERATION_RESOLVE | 0x80;
        message[2] = status;
        message[6..8].copy_from_slice(&length.to_ne_bytes());
        message.extend(entries.concat());
        message
    }

    /// An entry.
    pub fn entry(flags: u32, kind: u16, info: &[u8]) -> [u8; ENTRY_LEN] {
        let mut bytes = Vec::new();
        put_entry(&mut bytes, flags, kind, info);
        bytes.try_into().unwrap_or([0; ENTRY_LEN])
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{entry, reply, v4};
    use super::*;
    use proptest::prelude::*;

    fn errno<T>(result: Result<T>) -> Option<i32> {
        result.err().map(|error| error.errno())
    }

    #[test]
    fn a_question_about_ip_addresses_has_two_entries() {
        let (src, dst) = (v4(1), v4(2));
        let question = Question {
            src: Some(&src),
            dst: Some(&dst),
            no_delay: true,
            path: None,
        };
        let message = encode(&question).unwrap_or_default();
        assert_eq!(message.len(), HEADER_LEN + 2 * ENTRY_LEN);
        assert_eq!(message[..4], [1, 1, 0, 0]);
        assert_eq!(message[6..8], 160u16.to_ne_bytes());
        assert_eq!(
            message[16..],
            [
                entry(FLAG_SOURCE, TYPE_IPV4, &[10, 0, 0, 1]),
                entry(FLAG_DESTINATION | FLAG_NO_DELAY, TYPE_IPV4, &[10, 0, 0, 2]),
            ]
            .concat()
        );
    }

    #[test]
    fn gids_go_into_the_path_record() {
        let dst = SockAddr::ib(0xFFFF, 0, [9; 16], 1, 1);
        let message = encode(&Question {
            dst: Some(&dst),
            path: Some([3; RECORD_LEN]),
            ..Question::default()
        });
        let mut record = [3; RECORD_LEN];
        record[8..24].copy_from_slice(&[9; 16]);
        assert_eq!(
            message.unwrap_or_default()[16..],
            entry(0, TYPE_PATH, &record)
        );
        assert_eq!(encode(&Question::default()), None);
    }

    #[test]
    fn paths_and_source_are_read() {
        let record = [7; RECORD_LEN];
        let message = reply(
            0,
            &[
                entry(FLAG_SOURCE, TYPE_IPV6, &[1; 16]),
                entry(FLAG_DESTINATION, TYPE_IPV4, &[10, 0, 0, 2]),
                entry(0x2B, TYPE_PATH, &record),
            ],
        );
        let answer = decode(&message).unwrap_or_default();
        assert_eq!(answer.src, Some(SockAddr::v6([1; 16].into(), 0, 0)));
        assert_eq!(answer.paths.len(), 1);
        let bytes = answer.paths[0].as_bytes();
        assert_eq!(bytes[..8], [0x2B, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[8..], record);
    }

    #[test]
    fn a_wrong_length_or_status_is_no_answer() {
        let good = reply(0, &[entry(0, TYPE_PATH, &[0; 64])]);
        assert_eq!(errno(decode(&good[..good.len() - 1])), Some(libc::EBADMSG));
        assert_eq!(
            errno(decode(&[good, vec![0]].concat())),
            Some(libc::EBADMSG)
        );
        assert_eq!(errno(decode(&[])), Some(libc::EBADMSG));
        assert_eq!(errno(decode(&reply(5, &[]))), Some(libc::ENOENT));
        let too_many = [[0; ENTRY_LEN]; MAX_ENTRIES + 1];
        assert_eq!(errno(decode(&reply(0, &too_many))), Some(libc::EBADMSG));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
            if let Ok(answer) = decode(&bytes) {
                prop_assert!(answer.paths.len() <= MAX_ENTRIES);
            }
        }

        #[test]
        fn well_formed_replies_are_decoded(
            entries in prop::collection::vec(any::<[[u8; 24]; 3]>(), 0..=MAX_ENTRIES),
        ) {
            let entries: Vec<[u8; ENTRY_LEN]> = entries
                .iter()
                .map(|parts| parts.concat().try_into().unwrap_or([0; ENTRY_LEN]))
                .collect();
            let paths = entries
                .iter()
                .filter(|entry| entry[4..6] == TYPE_PATH.to_ne_bytes())
                .count();
            let answer = decode(&reply(0, &entries));
            prop_assert_eq!(answer.map(|answer| answer.paths.len()), Ok(paths));
        }
    }
}
