//! The small values that information units are made of.

use std::fmt;

/// Names a command or task management request between the initiator and the
/// target. Opaque: compared and echoed byte for byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tag(pub [u8; 8]);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// A port of an initiator or target: 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortId(pub [u8; 16]);

impl PortId {
    /// Reads a port from text: an even number of hexadecimal digits, at most
    /// 32, after an optional `0x`; zeroes are added in front.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let usable = (2..=32).contains(&digits.len())
            && digits.len().is_multiple_of(2)
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = usable.then(|| u128::from_str_radix(digits, 16).ok());
        number.flatten().map(|number| Self(number.to_be_bytes()))
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// A logical unit number: eight bytes as in SAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lun(pub [u8; 8]);

impl Lun {
    /// The number of a logical unit that has a single level: peripheral device
    /// addressing (0 to 255 on bus 0) or flat space addressing (0 to 16383).
    /// `None` for well-known logical units, further levels and other methods.
    pub const fn number(self) -> Option<u16> {
        let [high, low, rest @ ..] = self.0;
        if u64::from_be_bytes([0, 0, rest[0], rest[1], rest[2], rest[3], rest[4], rest[5]]) != 0 {
            return None;
        }
        match high {
            0x00 => Some(low as u16),
            0x40..=0x7F => Some(u16::from_be_bytes([high & 0x3F, low])),
            _ => None,
        }
    }

    /// The logical unit `number` (0 to 16383) as REPORT LUNS shows it:
    /// peripheral device addressing up to 255, flat space addressing above.
    pub const fn from_number(number: u16) -> Self {
        let [high, low] = number.to_be_bytes();
        let method = if number > 0xFF { 0x40 } else { 0 };
        Self([method | (high & 0x3F), low, 0, 0, 0, 0, 0, 0])
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => number.fmt(f),
            None => write!(f, "{:#018x}", u64::from_be_bytes(self.0)),
        }
    }
}

/// How a command is ordered among others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskAttribute {
    /// In any order.
    #[default]
    Simple,
    /// Before all others.
    HeadOfQueue,
    /// In the order of arrival.
    Ordered,
    /// To clear an auto contingent allegiance.
    Aca,
}

impl TaskAttribute {
    /// The attribute in the low bits of byte 29 of a command.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0x07 {
            0 => Self::Simple,
            1 => Self::HeadOfQueue,
            4 => Self::Aca,
            _ => Self::Ordered,
        }
    }

    /// The attribute as [`TaskAttribute::from_bits`] takes it.
    pub const fn bits(self) -> u8 {
        match self {
            Self::Simple => 0,
            Self::HeadOfQueue => 1,
            Self::Ordered => 2,
            Self::Aca => 4,
        }
    }
}

/// Why a login is refused, as the initiator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// No reason that the protocol has a name for.
    UnableToEstablish,
    /// No memory, no queue pair, or the target is disabled.
    InsufficientResources,
    /// The initiator's information units are too long, or too short.
    IuLengthUnsupported,
    /// The target port does not exist.
    UnableToAssociate,
    /// No data buffer format is supported by both sides.
    DescriptorFormatUnsupported,
    /// Several channels per session are not supported.
    MultiChannelUnsupported,
    /// No more channels for this initiator, or none at all.
    ChannelLimitReached,
}

impl RejectReason {
    /// The number on the wire.
    pub const fn number(self) -> u32 {
        match self {
            Self::UnableToEstablish => 0x0001_0000,
            Self::InsufficientResources => 0x0001_0001,
            Self::IuLengthUnsupported => 0x0001_0002,
            Self::UnableToAssociate => 0x0001_0003,
            Self::DescriptorFormatUnsupported => 0x0001_0004,
            Self::MultiChannelUnsupported => 0x0001_0005,
            Self::ChannelLimitReached => 0x0001_0006,
        }
    }
}

impl RejectReason {
    /// The reason with this number on the wire; the one without a name for
    /// unknown numbers.
    pub const fn from_number(number: u32) -> Self {
        match number {
            0x0001_0001 => Self::InsufficientResources,
            0x0001_0002 => Self::IuLengthUnsupported,
            0x0001_0003 => Self::UnableToAssociate,
            0x0001_0004 => Self::DescriptorFormatUnsupported,
            0x0001_0005 => Self::MultiChannelUnsupported,
            0x0001_0006 => Self::ChannelLimitReached,
            _ => Self::UnableToEstablish,
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnableToEstablish => "unable to establish a channel",
            Self::InsufficientResources => "insufficient resources",
            Self::IuLengthUnsupported => "information unit length not supported",
            Self::UnableToAssociate => "no such target port",
            Self::DescriptorFormatUnsupported => "no common data buffer format",
            Self::MultiChannelUnsupported => "several channels not supported",
            Self::ChannelLimitReached => "initiator not allowed or channel limit reached",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_from_digits() {
        let port =
            |text: &str| PortId::from_hex(text).map(|PortId(bytes)| u128::from_be_bytes(bytes));
        assert_eq!(port("0x00fF"), Some(0xFF));
        assert_eq!(
            port(&"12".repeat(16)),
            Some(0x1212_1212_1212_1212_1212_1212_1212_1212)
        );
        for bad in ["", "0x", "abc", "+1", "0x0g"] {
            assert_eq!(port(bad), None, "{bad}");
        }
        assert_eq!(port(&"12".repeat(17)), None);
    }

    #[test]
    fn logical_unit_numbers_have_two_forms() {
        assert_eq!(Lun([0, 200, 0, 0, 0, 0, 0, 0]).number(), Some(200));
        assert_eq!(Lun([0x41, 0x02, 0, 0, 0, 0, 0, 0]).number(), Some(0x102));
        assert_eq!(Lun([0xC1, 0x01, 0, 0, 0, 0, 0, 0]).number(), None);
        assert_eq!(Lun([0, 1, 0, 1, 0, 0, 0, 0]).number(), None);
        assert_eq!(Lun([1, 1, 0, 0, 0, 0, 0, 0]).number(), None);
        for number in [0, 1, 255, 256, 16383] {
            assert_eq!(Lun::from_number(number).number(), Some(number));
        }
    }
}
