//! What can be chosen for a socket before it connects, and the defaults that
//! the administrator may put into files (rsocket(7)).

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::fork::Once;

const FOLDER: &str = "/etc/rdma/rsocket";

/// Largest number of entries of a queue.
pub const MAX_QUEUE: u16 = 65534;
/// Smallest size of a buffer in bytes.
const MIN_BUFFER: u32 = 4096;
/// Largest size of a buffer, so that sums of two stay in 32 bits.
const MAX_BUFFER: u32 = 1 << 30;

/// Sizes of a socket's buffers and queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of the send buffer, as `SO_SNDBUF` reports them.
    pub send_buffer: u32,
    /// Bytes of the receive buffer, as `SO_RCVBUF` reports them.
    pub receive_buffer: u32,
    /// Entries of the send queue.
    pub send_queue: u16,
    /// Entries of the receive queue.
    pub receive_queue: u16,
    /// Bytes that are sent inline.
    pub inline: u16,
    /// Mappings that the peer may expose.
    pub mappings: u16,
}

/// The administrator's defaults.
#[derive(Debug)]
pub struct Defaults {
    /// For each socket.
    pub settings: Settings,
    /// How long to look for completions before sleeping.
    pub polling_time: Duration,
}

impl Defaults {
    /// Read from files when first asked for.
    pub fn get() -> &'static Self {
        static DEFAULTS: Once<Defaults> = Once::new();
        DEFAULTS.get_or_init(|| Self::read(Path::new(FOLDER)))
    }

    fn read(folder: &Path) -> Self {
        let number = |name: &str, default: u32| {
            fs::read_to_string(folder.join(name))
                .ok()
                .and_then(|text| text.split_whitespace().next()?.parse::<i64>().ok())
                .map_or(default, |value| {
                    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
                })
        };
        let short = |name, default| u16::try_from(number(name, default)).unwrap_or(MAX_QUEUE);
        Self {
            settings: Settings {
                send_buffer: number("wmem_default", 1 << 17).clamp(MIN_BUFFER, MAX_BUFFER),
                receive_buffer: number("mem_default", 1 << 17).clamp(MIN_BUFFER, MAX_BUFFER),
                send_queue: short("sqsize_default", 384).min(MAX_QUEUE),
                receive_queue: short("rqsize_default", 384).min(MAX_QUEUE),
                inline: short("inline_default", 64),
                mappings: mappings_from_file(number("iomap_size", 0)),
            },
            polling_time: Duration::from_micros(number("polling_time", 10).into()),
        }
    }
}

/// What the file for the number of mappings means: above 128, the number is
/// taken for a code of the wire already, of which 8 bits count.
fn mappings_from_file(value: u32) -> u16 {
    match value & 0xFFFF {
        count @ 0..=128 => count as u16,
        code => (code & 0xFF) as u16,
    }
}

/// What `SO_SNDBUF` and `SO_RCVBUF` make of a value: twice as much, as on
/// Linux, but no less than the least that works.
pub fn buffer_from_option(value: i32) -> u32 {
    let value = u32::try_from(value.max(0)).unwrap_or(0);
    value.saturating_mul(2).clamp(MIN_BUFFER, MAX_BUFFER)
}

/// What an option makes of a number of queue entries or bytes.
pub fn short_from_option(value: i32) -> u16 {
    u16::try_from(value.clamp(0, i32::from(MAX_QUEUE))).unwrap_or(MAX_QUEUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_manual() {
        let defaults = Defaults::read(Path::new("/nonexistent"));
        assert_eq!(defaults.settings.send_buffer, 131072);
        assert_eq!(defaults.settings.receive_buffer, 131072);
        assert_eq!(defaults.settings.send_queue, 384);
        assert_eq!(defaults.settings.inline, 64);
        assert_eq!(defaults.settings.mappings, 0);
        assert_eq!(defaults.polling_time, Duration::from_micros(10));
    }

    #[test]
    fn values_in_files_stay_within_limits() {
        let folder = std::env::temp_dir().join(format!("rsocket-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let read = |value: &str| {
            for name in [
                "mem_default",
                "wmem_default",
                "sqsize_default",
                "rqsize_default",
                "inline_default",
                "iomap_size",
                "polling_time",
            ] {
                fs::write(folder.join(name), value).unwrap();
            }
            Defaults::read(&folder)
        };
        let settings = |buffer, queue, inline, mappings| Settings {
            send_buffer: buffer,
            receive_buffer: buffer,
            send_queue: queue,
            receive_queue: queue,
            inline,
            mappings,
        };
        for least in ["0", "-1\n", "-9223372036854775808"] {
            let defaults = read(least);
            assert_eq!(defaults.settings, settings(MIN_BUFFER, 0, 0, 0), "{least}");
            assert_eq!(defaults.polling_time, Duration::ZERO);
        }
        assert_eq!(read(" 200 x").settings, settings(MIN_BUFFER, 200, 200, 200));
        let most = read("9223372036854775807").settings;
        assert_eq!(most, settings(MAX_BUFFER, MAX_QUEUE, MAX_QUEUE, 255));
        for none in ["", "many", "9223372036854775808"] {
            assert_eq!(
                read(none).settings,
                Defaults::read(Path::new("/nonexistent")).settings
            );
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn buffers_double_within_limits() {
        assert_eq!(buffer_from_option(100), 4096);
        assert_eq!(buffer_from_option(65536), 131072);
        assert_eq!(buffer_from_option(-1), 4096);
        assert_eq!(buffer_from_option(i32::MAX), MAX_BUFFER);
    }
}
