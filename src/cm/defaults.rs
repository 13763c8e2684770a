//! Defaults that an administrator gives to unchanged programs by environment
//! variables, rdmacm_environment(7): type of service, ACK timeout, minimum RNR
//! timer, the least time for resolution and the longest wait for events to be
//! acknowledged.
//!
//! All are off unless set, and then cost no kernel command. A failure to apply
//! one is logged and never the program's failure. What a program sets itself
//! comes later and wins.

use std::env;
use std::ffi::{OsStr, c_int};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::abi::{RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_TOS};
use crate::fork::Once;
use crate::verbs::bindings::{IBV_QPT_RC, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND};

use super::id::Id;
use super::option;

const TOS: &str = "RDMACM_TOS";
const ACK_TIMEOUT: &str = "RDMACM_ACK_TIMEOUT";
const MIN_RNR_TIMER: &str = "RDMACM_MIN_RNR_TIMER";
const RESOLVE_TIMEOUT: &str = "RDMACM_RESOLVE_TIMEOUT";
const EVENT_WAIT: &str = "RDMACM_EVENT_WAIT";

/// Largest value of the five bits that a timer has in InfiniBand's messages.
pub const MAX_TIMER: u8 = 31;

/// What the environment asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    tos: Option<u8>,
    ack_timeout: Option<u8>,
    min_rnr_timer: Option<u8>,
    resolve_timeout: Option<i32>,
    event_wait: Option<Duration>,
}

impl Defaults {
    /// Read from the environment when first asked for.
    pub fn get() -> &'static Self {
        static DEFAULTS: Once<Defaults> = Once::new();
        DEFAULTS.get_or_init(|| Self::read(|name| env::var_os(name)))
    }

    fn read<S: AsRef<OsStr>>(variable: impl Fn(&str) -> Option<S>) -> Self {
        let number = |name: &str, range: RangeInclusive<i32>| {
            let value = variable(name)?;
            let number = parse(value.as_ref()).filter(|number| range.contains(number));
            if number.is_none() {
                log::warn!(
                    "{name}={} ignored: not a number from {} to {}",
                    value.as_ref().display(),
                    range.start(),
                    range.end()
                );
            }
            number
        };
        let byte = |name: &str, most: u8| {
            number(name, 0..=i32::from(most)).and_then(|number| u8::try_from(number).ok())
        };
        Self {
            tos: byte(TOS, u8::MAX),
            ack_timeout: byte(ACK_TIMEOUT, MAX_TIMER),
            min_rnr_timer: byte(MIN_RNR_TIMER, MAX_TIMER),
            resolve_timeout: number(RESOLVE_TIMEOUT, 1..=i32::MAX),
            event_wait: number(EVENT_WAIT, 0..=i32::MAX)
                .and_then(|milliseconds| u64::try_from(milliseconds).ok())
                .map(Duration::from_millis),
        }
    }

    /// Applies what concerns an identifier that the kernel has just made, by
    /// the program's wish or for a connection request.
    pub fn apply(&self, id: &Id) {
        if let Some(tos) = self.tos {
            set(id, TOS, RDMA_OPTION_ID_TOS, tos);
        }
        if let Some(timeout) = self.ack_timeout
            && matches!(id.qp_type(), IBV_QPT_RC | IBV_QPT_XRC_SEND)
        {
            set(id, ACK_TIMEOUT, RDMA_OPTION_ID_ACK_TIMEOUT, timeout);
        }
        if let Some(timer) = self.min_rnr_timer
            && matches!(id.qp_type(), IBV_QPT_RC | IBV_QPT_XRC_RECV)
        {
            id.state().min_rnr_timer = Some(timer);
            log::info!("{id}: {MIN_RNR_TIMER}={timer} applied");
        }
    }

    /// The time limit of a resolution for which `id`'s program gave
    /// `timeout_ms`: no less than the least one. Zero, which the kernel
    /// refuses, and negative ones, which it takes for very long, stay.
    pub fn resolve_timeout(&self, id: &Id, timeout_ms: i32) -> i32 {
        let raised = self.raise(timeout_ms);
        if raised != timeout_ms {
            log::info!("{id}: {RESOLVE_TIMEOUT}={raised} applied, not {timeout_ms} ms");
        }
        raised
    }

    /// The longest time to wait for a program to acknowledge its events;
    /// without limit if `None`.
    pub fn event_wait(&self) -> Option<Duration> {
        self.event_wait
    }

    fn raise(&self, timeout_ms: i32) -> i32 {
        match self.resolve_timeout {
            Some(least) if timeout_ms > 0 => timeout_ms.max(least),
            _ => timeout_ms,
        }
    }
}

fn set(id: &Id, variable: &str, name: c_int, value: u8) {
    match option::set_bytes(id, RDMA_OPTION_ID, name, &[value]) {
        Ok(()) => log::info!("{id}: {variable}={value} applied"),
        Err(error) => log::warn!("{id}: {variable}={value} not applied: {error}"),
    }
}

/// A number, decimal or with `0x` hexadecimal.
fn parse(value: &OsStr) -> Option<i32> {
    let text = value.to_str()?.trim();
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => i32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &'static str)]) -> Defaults {
        Defaults::read(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| *value)
        })
    }

    #[test]
    fn nothing_is_on_by_default() {
        let defaults = read(&[]);
        assert_eq!(defaults, Defaults::default());
        assert_eq!(defaults.raise(100), 100);
    }

    #[test]
    fn values_are_decimal_or_hexadecimal() {
        let defaults = read(&[
            (TOS, "0x68"),
            (ACK_TIMEOUT, "18"),
            (MIN_RNR_TIMER, " 12 "),
            (RESOLVE_TIMEOUT, "5000"),
            (EVENT_WAIT, "1500"),
        ]);
        assert_eq!(defaults.tos, Some(0x68));
        assert_eq!(defaults.ack_timeout, Some(18));
        assert_eq!(defaults.min_rnr_timer, Some(12));
        assert_eq!(defaults.resolve_timeout, Some(5000));
        assert_eq!(defaults.event_wait(), Some(Duration::from_millis(1500)));
    }

    #[test]
    fn what_is_out_of_range_or_no_number_is_ignored() {
        for value in ["", "-1", "256", "low", "0x", "1.5", "99999999999"] {
            assert_eq!(read(&[(TOS, value)]), Defaults::default(), "{value}");
        }
        for name in [ACK_TIMEOUT, MIN_RNR_TIMER] {
            assert_eq!(read(&[(name, "32")]), Defaults::default());
        }
        assert_eq!(read(&[(RESOLVE_TIMEOUT, "0")]), Defaults::default());
    }

    #[test]
    fn short_time_limits_are_raised_and_special_ones_stay() {
        let defaults = read(&[(RESOLVE_TIMEOUT, "5000")]);
        assert_eq!(defaults.raise(2000), 5000);
        assert_eq!(defaults.raise(9000), 9000);
        assert_eq!(defaults.raise(0), 0);
        assert_eq!(defaults.raise(-1), -1);
    }
}
