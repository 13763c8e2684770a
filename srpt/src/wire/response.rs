//! SRP_RSP: how a command or task management request ended.

use super::Tag;
use super::bytes::put;
use crate::executor::Sense;

const OPCODE: u8 = 0xC1;
/// Bytes before response and sense data.
const FIXED_LENGTH: usize = 36;

const RESPONSE_VALID: u8 = 0x01;
const SENSE_VALID: u8 = 0x02;
const OUT_OVERFLOW: u8 = 0x04;
const OUT_UNDERFLOW: u8 = 0x08;
const IN_OVERFLOW: u8 = 0x10;
const IN_UNDERFLOW: u8 = 0x20;

/// Bytes of fixed format sense data.
const SENSE_LENGTH: usize = 18;

/// Bytes of the longest response that is ever built.
pub const MAX_RESPONSE: usize = FIXED_LENGTH + SENSE_LENGTH;

/// The answer to a task management request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskResponse {
    /// The function is complete.
    Complete,
    /// The function is not supported.
    NotSupported,
    /// The function failed.
    Failed,
}

impl TaskResponse {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::NotSupported => 4,
            Self::Failed => 5,
        }
    }

    /// The answer with this number on the wire.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Complete),
            4 => Some(Self::NotSupported),
            5 => Some(Self::Failed),
            _ => None,
        }
    }
}

/// Which way data went, or was to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    #[default]
    None,
    /// To the target.
    Out,
    /// To the initiator.
    In,
}

/// How the bytes that moved differ from the bytes that the initiator had
/// ready or room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residual {
    direction: Direction,
    difference: i64,
}

impl Residual {
    /// The residual of a command that had `offered` bytes of buffer in
    /// `direction`, would have used `needed`, and moved `transferred`.
    pub fn new(direction: Direction, offered: u32, needed: u32, transferred: u32) -> Self {
        let used = if needed > offered {
            needed
        } else {
            transferred
        };
        Self {
            direction,
            difference: i64::from(used) - i64::from(offered),
        }
    }

    fn flag(self) -> u8 {
        match (self.direction, self.difference.signum()) {
            (Direction::Out, 1) => OUT_OVERFLOW,
            (Direction::Out, -1) => OUT_UNDERFLOW,
            (Direction::In, 1) => IN_OVERFLOW,
            (Direction::In, -1) => IN_UNDERFLOW,
            _ => 0,
        }
    }

    fn count(self) -> [u8; 4] {
        u32::try_from(self.difference.unsigned_abs())
            .unwrap_or(u32::MAX)
            .to_be_bytes()
    }
}

/// Starts a response in `bytes`, which is cleared.
fn start(bytes: &mut [u8], tag: Tag, credits: u32) {
    bytes.fill(0);
    put(bytes, 0, &[OPCODE]);
    put(bytes, 4, &credits.to_be_bytes());
    put(bytes, 8, &tag.0);
}

/// Builds the response to a command in `bytes` and returns its length. Sense
/// data that does not fit is cut off; 36 bytes always have to fit.
pub fn command_response(
    bytes: &mut [u8],
    tag: Tag,
    credits: u32,
    status: u8,
    residual: Residual,
    sense: Option<Sense>,
) -> usize {
    start(bytes, tag, credits);
    let room = bytes.len().saturating_sub(FIXED_LENGTH);
    let sense_length = sense.map_or(0, |_| SENSE_LENGTH.min(room));
    let mut flags = residual.flag();
    if sense_length > 0 {
        flags |= SENSE_VALID;
    }
    put(bytes, 18, &[flags, status]);
    match residual.direction {
        Direction::Out => put(bytes, 20, &residual.count()),
        Direction::In => put(bytes, 24, &residual.count()),
        Direction::None => {}
    }
    put(bytes, 28, &(sense_length as u32).to_be_bytes());
    if let Some(sense) = sense {
        put(bytes, FIXED_LENGTH, &fixed_format(sense));
    }
    FIXED_LENGTH + sense_length
}

/// Builds the response to a task management request in `bytes` and returns
/// its length.
pub fn task_response(bytes: &mut [u8], tag: Tag, credits: u32, response: TaskResponse) -> usize {
    start(bytes, tag, credits);
    put(bytes, 18, &[RESPONSE_VALID]);
    put(bytes, 32, &4u32.to_be_bytes());
    put(bytes, FIXED_LENGTH + 3, &[response.number()]);
    FIXED_LENGTH + 4
}

/// Sense data as in SPC, fixed format.
fn fixed_format(sense: Sense) -> [u8; SENSE_LENGTH] {
    let mut bytes = [0; SENSE_LENGTH];
    let valid = if sense.information.is_some() { 0x80 } else { 0 };
    put(&mut bytes, 0, &[0x70 | valid, 0, sense.key & 0x0F]);
    put(&mut bytes, 3, &sense.information.unwrap_or(0).to_be_bytes());
    put(&mut bytes, 7, &[(SENSE_LENGTH - 8) as u8]);
    put(&mut bytes, 12, &[sense.asc, sense.ascq]);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TAG: Tag = Tag(*b"tag 1234");

    #[test]
    fn sense_follows_the_fixed_part() {
        let mut bytes = [0xAA; 64];
        let residual = Residual::new(Direction::In, 255, 36, 36);
        let sense = Some(Sense::new(5, 0x24, 0x01));
        let length = command_response(&mut bytes, TAG, 3, 2, residual, sense);
        assert_eq!(length, 54);
        assert_eq!(bytes[..8], [0xC1, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(bytes[8..16], TAG.0);
        assert_eq!(bytes[18..20], [SENSE_VALID | IN_UNDERFLOW, 2]);
        assert_eq!(bytes[20..28], [0, 0, 0, 0, 0, 0, 0, 219]);
        assert_eq!(bytes[28..36], [0, 0, 0, 18, 0, 0, 0, 0]);
        assert_eq!(
            bytes[36..54],
            [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 1, 0, 0, 0, 0]
        );
    }

    #[test]
    fn sense_is_cut_to_what_fits() {
        let mut bytes = [0; 40];
        let sense = Some(Sense::new(3, 0x11, 0));
        let length = command_response(&mut bytes, TAG, 1, 2, Residual::default(), sense);
        assert_eq!((length, bytes[31]), (40, 4));
    }

    #[test]
    fn task_responses_have_their_documented_bytes() {
        let mut bytes = [0xAA; 64];
        let length = task_response(&mut bytes, TAG, 2, TaskResponse::NotSupported);
        assert_eq!((length, bytes[18], bytes[19]), (40, RESPONSE_VALID, 0));
        assert_eq!(bytes[28..40], [0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4]);
    }

    proptest! {
        #[test]
        fn residuals_add_up(offered in any::<u32>(), needed in any::<u32>(), short in any::<u32>()) {
            let transferred = needed.min(offered).saturating_sub(short);
            let residual = Residual::new(Direction::Out, offered, needed, transferred);
            let count = u32::from_be_bytes(residual.count());
            if needed > offered {
                prop_assert_eq!((residual.flag(), count), (OUT_OVERFLOW, needed - offered));
            } else if transferred < offered {
                prop_assert_eq!((residual.flag(), count), (OUT_UNDERFLOW, offered - transferred));
            } else {
                prop_assert_eq!((residual.flag(), count), (0, 0));
            }
        }
    }
}
