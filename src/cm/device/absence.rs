//! Why there is no device to use, or why one cannot be opened. libibverbs
//! leaves out devices without a uverbs node, as containers often have them, and
//! devices of other network namespaces; from its list alone all causes look the
//! same. The kernel, asked over netlink, tells them apart.

use std::fs::{self, OpenOptions};
use std::path::Path;

use crate::error::{Error, Result};
use crate::kernel::netlink::{self, RdmaDevice};

/// Where libibverbs looks for the nodes of devices.
const NODES: &str = "/dev/infiniband";

/// The error for an empty list: `ENXIO` if the kernel has devices but all of
/// their nodes are missing, else `ENODEV`.
pub(super) fn none_listed() -> Error {
    let namespaces = || netlink::separate_namespaces().unwrap_or(false);
    explain_none(netlink::rdma_devices(), any_node(), namespaces)
}

fn explain_none(
    kernel: Result<Vec<RdmaDevice>>,
    any_node: bool,
    separate_namespaces: impl Fn() -> bool,
) -> Error {
    match kernel {
        Ok(devices) if devices.is_empty() && separate_namespaces() => Error::new(
            libc::ENODEV,
            "find an RDMA device in this network namespace, which sees its own devices only",
        ),
        Ok(devices) if !devices.is_empty() && !any_node => Error::new(
            libc::ENXIO,
            "find a uverbs node in /dev/infiniband for the RDMA devices that the kernel has",
        ),
        Ok(devices) if !devices.is_empty() => Error::new(
            libc::ENODEV,
            "find an RDMA device that libibverbs has a driver for",
        ),
        _ => Error::new(libc::ENODEV, "find an RDMA device"),
    }
}

/// The error for a device that the kernel names and the list lacks: `ENXIO` if
/// the kernel still has it, so that its node must be missing, else `ENODEV`.
pub(super) fn not_listed(index: i32) -> Error {
    explain_missing(netlink::rdma_devices(), index)
}

fn explain_missing(kernel: Result<Vec<RdmaDevice>>, index: i32) -> Error {
    let devices = kernel.unwrap_or_default();
    let device = devices
        .iter()
        .find(|device| i32::try_from(device.index) == Ok(index));
    match device {
        Some(device) => {
            log::error!(
                "device {} (index {index}): libibverbs does not list it; is its node in {NODES} \
                 missing?",
                device.name
            );
            Error::new(libc::ENXIO, "find the uverbs node of the RDMA device")
        }
        None => {
            log::error!("device index {index}: neither libibverbs nor the kernel lists it");
            Error::new(libc::ENODEV, "find the RDMA device that the kernel named")
        }
    }
}

/// The error for a device that libibverbs could not open. What it says after
/// several attempts is seldom the cause, so the node is asked.
pub(super) fn unopened(device: &str, node: &str, error: Error) -> Error {
    let node = Path::new(NODES).join(node);
    let error = match OpenOptions::new().read(true).write(true).open(&node) {
        Ok(_) => error,
        Err(cause) => Error::from_io(&cause, "open the uverbs node of an RDMA device"),
    };
    log::warn!("device {device}: {}: {error}", node.display());
    error
}

fn any_node() -> bool {
    let entries = fs::read_dir(NODES).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name())
        .any(|name| name.to_string_lossy().starts_with("uverbs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(count: u32) -> Result<Vec<RdmaDevice>> {
        let device = |index| RdmaDevice {
            index,
            name: format!("rxe{index}"),
        };
        Ok((0..count).map(device).collect())
    }

    #[test]
    fn each_cause_has_its_words() {
        let silent = Err(Error::new(libc::EOPNOTSUPP, "ask"));
        let errors = [
            explain_none(devices(0), false, || false),
            explain_none(devices(0), false, || true),
            explain_none(devices(1), false, || false),
            explain_none(devices(1), true, || true),
        ];
        let errnos = errors.map(|error| error.errno());
        assert_eq!(
            errnos,
            [libc::ENODEV, libc::ENODEV, libc::ENXIO, libc::ENODEV]
        );
        for (place, error) in errors.iter().enumerate() {
            assert!(errors.iter().skip(place + 1).all(|other| other != error));
        }
        assert_eq!(explain_none(silent, true, || true), errors[0]);
    }

    #[test]
    fn a_device_of_the_kernel_lacks_its_node_only() {
        assert_eq!(explain_missing(devices(2), 1).errno(), libc::ENXIO);
        assert_eq!(explain_missing(devices(2), 2).errno(), libc::ENODEV);
        // What a kernel says that does not tell the index.
        assert_eq!(explain_missing(devices(2), -1).errno(), libc::ENODEV);
        let silent = Err(Error::new(libc::EOPNOTSUPP, "ask"));
        assert_eq!(explain_missing(silent, 0).errno(), libc::ENODEV);
    }
}
