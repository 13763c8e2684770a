//! Judging logins: what the protocol and the settings say, in the order in
//! which the kernel's target looks. Who may log in, says the
//! [`crate::executor::Target`].

use crate::channel::rings::Sizes;
use crate::server::Settings;
use crate::wire::RejectReason;
use crate::wire::command::Immediate;
use crate::wire::login::{FORMAT_DIRECT, FORMAT_INDIRECT, LoginRequest};

/// The shortest information units that an initiator may announce, in bytes.
const MIN_IU: u32 = 64;
/// Immediate data cannot start within the fixed part of a command.
const MIN_IMMEDIATE_OFFSET: u16 = 48;
/// Bytes of a command with the longest additional CDB and immediate data
/// descriptor, before the data.
const MAX_COMMAND: u32 = 80 + 4;

/// Initiators announce units with room for so much immediate data before they
/// know whether it is supported.
const USUAL_IMMEDIATE: u32 = 8192;

impl Settings {
    /// Bytes of the longest information unit that is received.
    pub fn max_iu(&self) -> u32 {
        MAX_COMMAND.saturating_add(self.immediate.max(USUAL_IMMEDIATE))
    }

    /// How large everything of a channel is whose commands have immediate data at
    /// this place.
    pub fn sizes(&self, immediate_offset: u16) -> Sizes {
        Sizes {
            credits: self.credits,
            receive: self.max_iu(),
            immediate_offset,
            pool: self.pool,
            max_transfer: self.max_transfer,
        }
    }

    /// Most bytes of memory of one channel.
    pub fn channel_memory(&self) -> usize {
        self.sizes(0).bytes()
    }
}

/// Checks a login request, short of who it comes from.
///
/// # Errors
/// Why it is refused.
pub fn check(login: &LoginRequest, settings: &Settings) -> Result<(), RejectReason> {
    if !login.is_login() {
        return Err(RejectReason::UnableToEstablish);
    }
    if !(MIN_IU..=settings.max_iu()).contains(&login.iu_length) {
        return Err(RejectReason::IuLengthUnsupported);
    }
    if login.target != settings.port_id {
        return Err(RejectReason::UnableToAssociate);
    }
    if login.formats & (FORMAT_DIRECT | FORMAT_INDIRECT) == 0 {
        return Err(RejectReason::DescriptorFormatUnsupported);
    }
    Ok(())
}

/// What is agreed on about immediate data.
pub fn immediate(login: &LoginRequest, settings: &Settings) -> Immediate {
    let room = settings
        .max_iu()
        .saturating_sub(login.immediate_offset.into());
    let agreed = settings.immediate > 0
        && login.wants_immediate()
        && login.immediate_offset >= MIN_IMMEDIATE_OFFSET
        && room > 0;
    if !agreed {
        return Immediate::default();
    }
    Immediate {
        offset: login.immediate_offset,
        most: room,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{PortId, Tag};

    const PORT: PortId = PortId([7; 16]);

    fn settings() -> Settings {
        Settings::new("127.0.0.1:5555".parse().unwrap(), PORT)
    }

    fn login() -> LoginRequest {
        LoginRequest {
            tag: Tag::default(),
            formats: 6,
            flags: 0x80,
            opcode: 0,
            iu_length: 8260,
            initiator: PortId([1; 16]),
            target: PORT,
            immediate_offset: 68,
        }
    }

    #[test]
    fn each_fault_has_its_reason() {
        let judge = |change: fn(&mut LoginRequest)| {
            let mut login = login();
            change(&mut login);
            check(&login, &settings())
        };
        assert_eq!(judge(|_| {}), Ok(()));
        assert_eq!(judge(|login| login.iu_length = 64), Ok(()));
        assert_eq!(judge(|login| login.formats = 2), Ok(()));
        type Fault = fn(&mut LoginRequest);
        let cases: [(Fault, RejectReason); 6] = [
            (
                |login| login.iu_length = 63,
                RejectReason::IuLengthUnsupported,
            ),
            (
                |login| login.iu_length = 1 << 20,
                RejectReason::IuLengthUnsupported,
            ),
            (
                |login| login.target.0[0] ^= 1,
                RejectReason::UnableToAssociate,
            ),
            (
                |login| login.target.0[15] ^= 1,
                RejectReason::UnableToAssociate,
            ),
            (|login| login.opcode = 0xFF, RejectReason::UnableToEstablish),
            (
                |login| login.formats = 8,
                RejectReason::DescriptorFormatUnsupported,
            ),
        ];
        for (change, reason) in cases {
            assert_eq!(judge(change), Err(reason));
        }
    }

    #[test]
    fn no_login_takes_more_memory_than_is_counted() {
        let settings = settings();
        for offset in [0, 48, 68, 4095, 4096, u16::MAX] {
            assert!(
                settings.sizes(offset).bytes() <= settings.channel_memory(),
                "{offset}"
            );
        }
    }

    #[test]
    fn immediate_data_is_agreed_on_only_when_both_want_it() {
        let agreed = immediate(&login(), &settings());
        assert_eq!(agreed.offset, 68);
        assert!(agreed.most >= 8192);
        let mut without = login();
        without.flags = 0;
        let mut early = login();
        early.immediate_offset = 47;
        let mut beyond = login();
        beyond.immediate_offset = u16::MAX;
        for login in [without, early, beyond] {
            assert_eq!(immediate(&login, &settings()), Immediate::default());
        }
        let none = Settings {
            immediate: 0,
            ..settings()
        };
        assert_eq!(immediate(&login(), &none), Immediate::default());
    }
}
