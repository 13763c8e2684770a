//! What tells this machine from others, so that names derived from it are
//! unique and stay the same.

use std::fs;

/// The machine's identifier (machine-id(5)), or else its name.
pub fn identity() -> Vec<u8> {
    ["/etc/machine-id", "/proc/sys/kernel/hostname"]
        .into_iter()
        .filter_map(|file| fs::read(file).ok())
        .map(|text| text.trim_ascii().to_vec())
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}
