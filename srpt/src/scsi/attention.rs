//! Unit attention conditions (SAM-5 5.14): news about a disk that the next
//! command of a session is told instead of being executed.

use std::sync::atomic::{AtomicU8, Ordering};

use super::opcode;
use super::sense;
use crate::executor::Sense;

/// A piece of news. The more important come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The session is new.
    PowerOn,
    /// The disk was reset.
    Reset,
    /// The disk has another size.
    Resized,
}

impl News {
    const ALL: [Self; 3] = [Self::PowerOn, Self::Reset, Self::Resized];

    fn bit(self) -> u8 {
        1 << (self as u8)
    }

    fn sense(self) -> Sense {
        match self {
            Self::PowerOn => sense::POWER_ON,
            Self::Reset => sense::DEVICE_RESET,
            Self::Resized => sense::CAPACITY_CHANGED,
        }
    }
}

/// What one session has not been told yet about one disk. Shared by the
/// session's channels.
#[derive(Debug, Default)]
pub struct Attention(AtomicU8);

impl Attention {
    /// There is something to tell.
    pub fn raise(&self, news: News) {
        self.0.fetch_or(news.bit(), Ordering::Relaxed);
    }

    /// What a command with this operation code is told; it is told once.
    /// INQUIRY, REPORT LUNS and REQUEST SENSE are executed all the same.
    pub fn take(&self, opcode: u8) -> Option<Sense> {
        let pending = self.0.load(Ordering::Relaxed);
        if pending == 0
            || matches!(
                opcode,
                opcode::INQUIRY | opcode::REPORT_LUNS | opcode::REQUEST_SENSE
            )
        {
            return None;
        }
        News::ALL.into_iter().find_map(|news| {
            let before = self.0.fetch_and(!news.bit(), Ordering::Relaxed);
            (before & news.bit() != 0).then(|| news.sense())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_is_told_once_and_in_order() {
        let attention = Attention::default();
        attention.raise(News::Resized);
        attention.raise(News::PowerOn);
        assert_eq!(attention.take(opcode::INQUIRY), None);
        assert_eq!(attention.take(opcode::READ_10), Some(sense::POWER_ON));
        let second = attention.take(opcode::TEST_UNIT_READY);
        assert_eq!(second, Some(sense::CAPACITY_CHANGED));
        assert_eq!(attention.take(opcode::READ_10), None);
    }
}
