//! The information units besides commands and responses: task management,
//! logout, and the requests that a target makes.

use super::bytes::{get, put, u8_at};
use super::command::Command;
use super::{Lun, Tag};

/// What an initiator sent.
#[derive(Clone, Copy, Debug)]
pub enum Incoming<'a> {
    /// SRP_CMD.
    Command(Command<'a>),
    /// SRP_TSK_MGMT.
    TaskManagement(TaskManagement),
    /// SRP_I_LOGOUT.
    Logout,
    /// SRP_CRED_RSP or SRP_AER_RSP: the answer to the target's own request.
    Answered(Tag),
    /// Anything else, or cut short; with the operation code if there is one.
    Unknown(Option<u8>),
}

impl<'a> Incoming<'a> {
    /// Reads an information unit.
    pub fn parse(unit: &'a [u8]) -> Self {
        let opcode = u8_at(unit, 0);
        let parsed = match opcode {
            Some(Command::OPCODE) => Command::parse(unit).map(Self::Command),
            Some(TaskManagement::OPCODE) => TaskManagement::parse(unit).map(Self::TaskManagement),
            Some(0x03) => Some(Self::Logout),
            Some(0x41 | 0x42) => get(unit, 8).map(|tag| Self::Answered(Tag(tag))),
            _ => None,
        };
        parsed.unwrap_or(Self::Unknown(opcode))
    }
}

/// Whether the initiator spent a credit on an information unit, however little
/// of it arrived: on SRP_CMD and SRP_TSK_MGMT.
pub fn takes_credit(unit: &[u8]) -> bool {
    matches!(
        u8_at(unit, 0),
        Some(Command::OPCODE | TaskManagement::OPCODE)
    )
}

/// What a task management request wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskFunction {
    /// End one command.
    AbortTask,
    /// End this initiator's commands on the logical unit.
    AbortTaskSet,
    /// End all commands on the logical unit.
    ClearTaskSet,
    /// Reset the logical unit.
    LunReset,
    /// Clear an auto contingent allegiance.
    ClearAca,
    /// Something unknown.
    Other(u8),
}

impl TaskFunction {
    /// The function with this number on the wire.
    pub const fn from_number(number: u8) -> Self {
        match number {
            0x01 => Self::AbortTask,
            0x02 => Self::AbortTaskSet,
            0x04 => Self::ClearTaskSet,
            0x08 => Self::LunReset,
            0x40 => Self::ClearAca,
            other => Self::Other(other),
        }
    }
}

/// SRP_TSK_MGMT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagement {
    /// Names the request.
    pub tag: Tag,
    /// Logical unit.
    pub lun: Lun,
    /// What to do.
    pub function: TaskFunction,
    /// The command that is meant, where one is.
    pub task: Tag,
}

impl TaskManagement {
    /// Operation code.
    pub const OPCODE: u8 = 0x01;
    /// Bytes of a request.
    const LENGTH: usize = 48;

    fn parse(unit: &[u8]) -> Option<Self> {
        let unit = unit.get(..Self::LENGTH)?;
        Some(Self {
            tag: Tag(get(unit, 8)?),
            lun: Lun(get(unit, 20)?),
            function: TaskFunction::from_number(u8_at(unit, 30)?),
            task: Tag(get(unit, 32)?),
        })
    }
}

/// Bytes of the longest request that a target makes here.
pub const MAX_TARGET_REQUEST: usize = 16;

/// Builds SRP_CRED_REQ, which gives the initiator `credits`, in `bytes` and
/// returns its length.
pub fn credit_request(bytes: &mut [u8], tag: Tag, credits: u32) -> usize {
    const OPCODE: u8 = 0x81;
    bytes.fill(0);
    put(bytes, 0, &[OPCODE]);
    put(bytes, 4, &credits.to_be_bytes());
    put(bytes, 8, &tag.0);
    MAX_TARGET_REQUEST
}

/// Builds SRP_T_LOGOUT, without a reason, in `bytes` and returns its length. It
/// is not answered.
pub fn target_logout(bytes: &mut [u8], tag: Tag) -> usize {
    const OPCODE: u8 = 0x80;
    bytes.fill(0);
    put(bytes, 0, &[OPCODE]);
    put(bytes, 8, &tag.0);
    MAX_TARGET_REQUEST
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unit(opcode: u8, length: usize) -> Vec<u8> {
        let mut unit = vec![0; length];
        unit[0] = opcode;
        unit
    }

    #[test]
    fn a_task_management_request_is_read() {
        let mut bytes = unit(0x01, 48);
        bytes[8..16].copy_from_slice(b"tag 1234");
        bytes[21] = 3;
        bytes[30] = 0x08;
        bytes[32..40].copy_from_slice(b"task 567");
        let Incoming::TaskManagement(request) = Incoming::parse(&bytes) else {
            panic!("not recognised");
        };
        assert_eq!(request.tag, Tag(*b"tag 1234"));
        assert_eq!(request.task, Tag(*b"task 567"));
        assert_eq!(request.lun.number(), Some(3));
        assert_eq!(request.function, TaskFunction::LunReset);
    }

    #[test]
    fn the_operation_code_decides() {
        assert!(matches!(Incoming::parse(&unit(0x03, 16)), Incoming::Logout));
        assert!(matches!(
            Incoming::parse(&unit(0x41, 16)),
            Incoming::Answered(_)
        ));
        assert!(matches!(
            Incoming::parse(&unit(0x42, 16)),
            Incoming::Answered(_)
        ));
        assert!(matches!(
            Incoming::parse(&unit(0x02, 48)),
            Incoming::Command(_)
        ));
        for (opcode, length) in [(0x01, 47), (0x02, 47), (0x41, 15), (0x00, 64), (0xC1, 64)] {
            let unit = unit(opcode, length);
            assert!(matches!(Incoming::parse(&unit), Incoming::Unknown(Some(of)) if of == opcode));
        }
        assert!(matches!(Incoming::parse(&[]), Incoming::Unknown(None)));
    }

    #[test]
    fn commands_and_task_management_take_credits_even_cut_short() {
        for opcode in 0..=u8::MAX {
            let expected = matches!(opcode, 1 | 2);
            for length in [1, 16, 47, 48] {
                assert_eq!(takes_credit(&unit(opcode, length)), expected);
            }
        }
        assert!(!takes_credit(&[]));
    }

    #[test]
    fn a_credit_request_has_its_documented_bytes() {
        let mut bytes = [0xAA; 16];
        assert_eq!(credit_request(&mut bytes, Tag([7; 8]), 5), 16);
        assert_eq!(bytes, [0x81, 0, 0, 0, 0, 0, 0, 5, 7, 7, 7, 7, 7, 7, 7, 7]);
    }

    #[test]
    fn a_logout_has_its_documented_bytes() {
        let mut bytes = [0xAA; 16];
        assert_eq!(target_logout(&mut bytes, Tag([7; 8])), 16);
        assert_eq!(bytes, [0x80, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_something(unit in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Incoming::parse(&unit);
        }
    }
}
