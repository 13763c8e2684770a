//! Login over the RDMA connection manager: request, response and reject travel
//! as private data.

use super::bytes::{get, put, u8_at, u16_at, u32_at};
use super::{PortId, RejectReason, Tag};

/// Direct data buffer descriptors.
pub const FORMAT_DIRECT: u16 = 0x0002;
/// Indirect data buffer descriptors.
pub const FORMAT_INDIRECT: u16 = 0x0004;

/// Bits 0 and 1 of a request's flags: what to do with other channels.
const MULTI_CHANNEL_ACTION: u8 = 0x03;
const MULTI_CHANNEL_MULTI: u8 = 0x01;
/// Immediate data is wanted (request) or supported (response).
const IMMEDIATE: u8 = 0x80;

const OPCODE_LOGIN_REQUEST: u8 = 0x00;
const OPCODE_LOGIN_RESPONSE: u8 = 0xC0;
const OPCODE_LOGIN_REJECT: u8 = 0xC2;

/// A login request. Any 56 bytes are one; what it asks for is to be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    /// Echoed in the answer.
    pub tag: Tag,
    /// Data buffer formats that the initiator uses.
    pub formats: u16,
    /// Flags, see the methods.
    pub flags: u8,
    /// Operation code; 0 for a login.
    pub opcode: u8,
    /// Bytes of the longest information unit to the target.
    pub iu_length: u32,
    /// The initiator port.
    pub initiator: PortId,
    /// The target port.
    pub target: PortId,
    /// Where in a command immediate data starts.
    pub immediate_offset: u16,
}

impl LoginRequest {
    /// Bytes of a request.
    pub const LENGTH: usize = 56;

    /// Reads the private data of a connection request, which may be followed
    /// by zeroes. `None` if there is not enough.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::LENGTH)?;
        Some(Self {
            tag: Tag(get(bytes, 0)?),
            formats: u16_at(bytes, 8)?,
            flags: u8_at(bytes, 10)?,
            opcode: u8_at(bytes, 11)?,
            iu_length: u32_at(bytes, 12)?,
            initiator: PortId(get(bytes, 16)?),
            target: PortId(get(bytes, 32)?),
            immediate_offset: u16_at(bytes, 48)?,
        })
    }

    /// Whether it is a login at all.
    pub fn is_login(&self) -> bool {
        self.opcode == OPCODE_LOGIN_REQUEST
    }

    /// Whether the initiator wants to keep its other channels.
    pub fn multi_channel(&self) -> bool {
        self.flags & MULTI_CHANNEL_ACTION == MULTI_CHANNEL_MULTI
    }

    /// Whether the initiator wants to send immediate data.
    pub fn wants_immediate(&self) -> bool {
        self.flags & IMMEDIATE != 0
    }
}

/// What became of the session's other channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherChannels {
    /// There were none.
    None,
    /// They were closed.
    Terminated,
    /// They stay.
    Maintained,
}

/// The answer to an accepted login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginResponse {
    /// Commands that the initiator may have under way.
    pub credits: u32,
    /// The request's tag.
    pub tag: Tag,
    /// Bytes of the longest information unit to the target.
    pub to_target: u32,
    /// Bytes of the longest information unit to the initiator.
    pub to_initiator: u32,
    /// Other channels of the session.
    pub others: OtherChannels,
    /// Whether immediate data is supported.
    pub immediate: bool,
}

impl LoginResponse {
    /// Bytes of a response.
    pub const LENGTH: usize = 52;

    /// The response as private data.
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let flags = match self.others {
            OtherChannels::None => 0,
            OtherChannels::Terminated => 1,
            OtherChannels::Maintained => 2,
        };
        let immediate = if self.immediate { IMMEDIATE } else { 0 };
        put(&mut bytes, 0, &[OPCODE_LOGIN_RESPONSE]);
        put(&mut bytes, 4, &self.credits.to_be_bytes());
        put(&mut bytes, 8, &self.tag.0);
        put(&mut bytes, 16, &self.to_target.to_be_bytes());
        put(&mut bytes, 20, &self.to_initiator.to_be_bytes());
        put(
            &mut bytes,
            24,
            &(FORMAT_DIRECT | FORMAT_INDIRECT).to_be_bytes(),
        );
        put(&mut bytes, 26, &[flags | immediate]);
        bytes
    }
}

/// Bytes of a reject.
pub const LOGIN_REJECT_LENGTH: usize = 32;

/// The reject of a login as private data.
pub fn login_reject(reason: RejectReason, tag: Tag) -> [u8; LOGIN_REJECT_LENGTH] {
    let mut bytes = [0; LOGIN_REJECT_LENGTH];
    put(&mut bytes, 0, &[OPCODE_LOGIN_REJECT]);
    put(&mut bytes, 4, &reason.number().to_be_bytes());
    put(&mut bytes, 8, &tag.0);
    put(
        &mut bytes,
        24,
        &(FORMAT_DIRECT | FORMAT_INDIRECT).to_be_bytes(),
    );
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What ib_srp of Linux 6.1 sent, the port identifiers shortened.
    fn observed() -> [u8; 56] {
        let mut bytes = [0; 56];
        bytes[8..16].copy_from_slice(&[0, 6, 0x80, 0, 0, 0, 0x20, 0x44]);
        bytes[24..32].copy_from_slice(&[0x3c, 0xe6, 0x19, 0xff, 0xfe, 0x6c, 0x4f, 0xb1]);
        bytes[48..50].copy_from_slice(&[0, 0x44]);
        bytes
    }

    #[test]
    fn what_linux_sends_is_understood() {
        let login = LoginRequest::parse(&observed()).unwrap();
        assert_eq!((login.formats, login.iu_length), (6, 8260));
        assert_eq!(login.immediate_offset, 68);
        assert!(login.is_login() && login.wants_immediate() && !login.multi_channel());
        let mut multi = observed();
        multi[10] = 0x81;
        assert!(LoginRequest::parse(&multi).unwrap().multi_channel());
        assert!(LoginRequest::parse(&observed()[..55]).is_none());
    }

    #[test]
    fn answers_have_their_documented_bytes() {
        let response = LoginResponse {
            credits: 128,
            tag: Tag([1, 2, 3, 4, 5, 6, 7, 8]),
            to_target: 0x4040,
            to_initiator: 0x104,
            others: OtherChannels::Maintained,
            immediate: true,
        };
        let bytes = response.encode();
        let mut expected = [0; 52];
        expected[..28].copy_from_slice(&[
            0xC0, 0, 0, 0, 0, 0, 0, 0x80, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x40, 0x40, 0, 0, 1, 4, 0,
            6, 0x82, 0,
        ]);
        assert_eq!(bytes, expected);

        let reject = login_reject(RejectReason::UnableToAssociate, Tag([9; 8]));
        assert_eq!(
            reject[..16],
            [0xC2, 0, 0, 0, 0, 1, 0, 3, 9, 9, 9, 9, 9, 9, 9, 9]
        );
        assert_eq!(reject[16..26], [0, 0, 0, 0, 0, 0, 0, 0, 0, 6]);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let parsed = LoginRequest::parse(&bytes);
            prop_assert_eq!(parsed.is_some(), bytes.len() >= 56);
            if let Some(login) = parsed {
                prop_assert_eq!(&login.initiator.0[..], &bytes[16..32]);
                prop_assert_eq!(&login.target.0[..], &bytes[32..48]);
            }
        }
    }
}
