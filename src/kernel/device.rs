//! Finding and opening the connection manager's character device.
//!
//! [`locate`] asks the kernel by netlink and falls back to sysfs;
//! [`CharDevice::open`] opens the node, for which it waits only when the node
//! may yet appear. Nothing is remembered here: callers keep the located device
//! and may look again after a failure.

use std::fs::{self, Metadata, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::netlink;
use super::watch::Watch;
use crate::error::{Error, Result};

/// How the kernel calls the device, and the name of its node.
const KIND: &str = "rdma_cm";
/// Interface version when neither netlink nor sysfs tells.
const DEFAULT_ABI: u32 = 4;
/// How long a node that may yet appear is waited for.
const APPEARANCE_LIMIT: Duration = Duration::from_secs(5);

/// The connection manager's character device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CharDevice {
    /// File name below `/dev/infiniband`.
    name: String,
    /// Device number; `None` when only sysfs is known, and then unchecked.
    dev: Option<libc::dev_t>,
    abi: u32,
}

/// Finds the device, with the sysfs root that libibverbs uses (`/sys`, or what
/// `SYSFS_PATH` names unless the program runs with raised privileges).
///
/// Loads the kernel module if need be, which may block for a moment.
///
/// # Errors
///
/// `EPERM` when the kernel's interface has a version other than 3 and 4;
/// `EMFILE`, `ENFILE` or `ENOMEM` when there was nothing to ask it with.
pub fn locate() -> Result<CharDevice> {
    locate_with(netlink::get_chardev(KIND), &sysfs_root())
}

/// As [`locate`], from an answer of netlink and a sysfs root.
fn locate_with(answer: Result<netlink::CharDevReply>, sysfs: &Path) -> Result<CharDevice> {
    let device = match answer {
        Ok(reply) => CharDevice {
            name: reply.name,
            // A kernel that reports number 0 leaves the node unchecked.
            dev: Some(reply.dev).filter(|dev| *dev != 0),
            abi: reply.abi,
        },
        // Callers keep what was found; a lack of resources is no answer.
        Err(error) if matches!(error.errno(), libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
            return Err(error);
        }
        Err(error) => {
            log::debug!("{error}; looking into {} instead", sysfs.display());
            CharDevice {
                name: KIND.to_owned(),
                dev: None,
                abi: sysfs_abi(sysfs).unwrap_or(DEFAULT_ABI),
            }
        }
    };
    match device.abi {
        3 | 4 => Ok(device),
        _ => Err(Error::new(
            libc::EPERM,
            "check the version of the kernel's interface",
        )),
    }
}

/// The interface version that sysfs tells.
fn sysfs_abi(sysfs: &Path) -> Option<u32> {
    ["class/misc/rdma_cm", "class/infiniband_ucma"]
        .iter()
        .filter_map(|class| fs::read_to_string(sysfs.join(class).join("abi_version")).ok())
        .find_map(|version| version.trim().parse().ok())
}

fn sysfs_root() -> PathBuf {
    // SAFETY: takes no pointers.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    std::env::var_os("SYSFS_PATH")
        .filter(|path| !path.is_empty() && !privileged)
        .map_or_else(|| "/sys".into(), PathBuf::from)
}

/// The outcome of one attempt to open a node.
enum Attempt {
    Opened(OwnedFd),
    /// The node is missing or another device's: the right one may appear yet.
    NotYet(Error),
    Failed(Error),
}

impl Attempt {
    fn into_result(self) -> Result<OwnedFd> {
        match self {
            Self::Opened(fd) => Ok(fd),
            Self::NotYet(error) | Self::Failed(error) => Err(error),
        }
    }
}

impl CharDevice {
    /// The version of the kernel's interface: 3 or 4.
    pub fn abi(&self) -> u32 {
        self.abi
    }

    /// Opens the device: a new event channel. The descriptor is closed on exec,
    /// and has the `flags` of `open(2)`.
    ///
    /// When the node is missing or belongs to another device, and the device's
    /// number is known, waits up to five seconds for the right node to appear
    /// in `/dev/char`. Any other failure, `EACCES` among them, returns at once.
    ///
    /// # Errors
    ///
    /// The errno of the last attempt: `ENOENT` for no node, `ENXIO` if what it
    /// found is not this device. At once where there is no `/dev/char`.
    pub fn open(&self, flags: i32) -> Result<OwnedFd> {
        self.open_below(Path::new("/dev"), flags, APPEARANCE_LIMIT)
    }

    /// As [`CharDevice::open`], with the folder that takes the place of `/dev`
    /// and the time to wait for a node.
    fn open_below(&self, dev_root: &Path, flags: i32, limit: Duration) -> Result<OwnedFd> {
        let node = dev_root.join("infiniband").join(&self.name);
        match (self.try_open(&node, flags), self.dev) {
            (Attempt::NotYet(error), Some(dev)) => {
                log::debug!("{}: {error}; waiting for the node", node.display());
                self.open_when_created(&dev_root.join("char"), dev, flags, limit, error)
            }
            (attempt, _) => attempt.into_result(),
        }
    }

    /// Opens `folder/MAJOR:MINOR`, as soon as it is there. Without the folder,
    /// `error` stays the last word.
    fn open_when_created(
        &self,
        folder: &Path,
        dev: libc::dev_t,
        flags: i32,
        limit: Duration,
        error: Error,
    ) -> Result<OwnedFd> {
        let deadline = Instant::now() + limit;
        let node = folder.join(format!("{}:{}", libc::major(dev), libc::minor(dev)));
        let mut watch = match Watch::new(folder) {
            Err(failure) if failure.errno() == libc::ENOENT => return Err(error),
            watch => watch?,
        };
        loop {
            // Looked at before time is asked for: the last look is at expiry.
            let attempt = self.try_open(&node, flags);
            if !matches!(attempt, Attempt::NotYet(_)) || !watch.wait_until(deadline)? {
                return attempt.into_result();
            }
        }
    }

    fn try_open(&self, path: &Path, flags: i32) -> Attempt {
        const STEP: &str = "open the connection manager's device";
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags);
        let opened = options.open(path);
        let file = match opened {
            Ok(file) => file,
            Err(error) => {
                let error = Error::from_io(&error, STEP);
                return match error.errno() {
                    libc::ENOENT => Attempt::NotYet(error),
                    libc::EACCES | libc::EPERM => Attempt::Failed(error),
                    // A node whose device is gone cannot be opened.
                    _ => match fs::metadata(path) {
                        Ok(metadata) if !self.is_node(&metadata) => Attempt::NotYet(error),
                        _ => Attempt::Failed(error),
                    },
                };
            }
        };
        match file.metadata() {
            Ok(metadata) if self.is_node(&metadata) => Attempt::Opened(file.into()),
            Ok(_) => Attempt::NotYet(Error::new(libc::ENXIO, STEP)),
            Err(error) => Attempt::Failed(Error::from_io(&error, STEP)),
        }
    }

    /// Whether a file is the node of this device, as far as is known.
    fn is_node(&self, metadata: &Metadata) -> bool {
        metadata.file_type().is_char_device() && self.dev.is_none_or(|dev| dev == metadata.rdev())
    }
}

#[cfg(test)]
mod tests;
