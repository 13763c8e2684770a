//! What the SRP demo, suite and benchmark share: the kernel's initiator
//! (`ib_srp`), our target program and the kernel's own target (`ib_srpt`).

pub mod initiator;
pub mod kernel_log;
pub mod reference;
pub mod target;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::program::LOOK_AGAIN;
use crate::process;

/// Longest that anything may take; everything is emulated.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Runs a shell script; its standard output comes back.
pub fn sh(script: &str) -> Result<String> {
    process::output(Command::new("sh").args(["-euc", script]))
}

/// Waits until `condition` gives something, where the kernel offers nothing to
/// wait on.
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if Instant::now() > deadline {
            bail!("waited in vain until {what}");
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Unloads a kernel module, if it is there, once nobody uses it. What ended may
/// leave uses that the kernel gives up a moment later.
pub fn unload(module: &str) -> Result<()> {
    let dir = Path::new("/sys/module").join(module);
    if !dir.exists() {
        return Ok(());
    }
    until(&format!("nobody uses {module}"), || {
        Ok((read(dir.join("refcnt"))? == "0").then_some(()))
    })?;
    sh(&format!("modprobe -r {module}"))?;
    Ok(())
}

/// Unmounts a file system once nobody uses it: the kernel lets go of files that a
/// target had some time after its end.
pub fn unmount(point: &Path) -> Result<()> {
    let point = point.display();
    let mut why = None;
    until(&format!("{point} is unmounted"), || {
        match sh(&format!("umount {point}")) {
            Ok(_) => Ok(Some(())),
            Err(error) => {
                why = Some(error);
                Ok(None)
            }
        }
    })
    .with_context(|| format!("{why:?}"))
}

/// A file of sysfs or configfs, without the newline.
pub fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim_end().to_owned())
}

/// Writes a file of sysfs or configfs.
pub fn write(path: impl AsRef<Path>, text: &str) -> Result<()> {
    let path = path.as_ref();
    fs::write(path, text).with_context(|| format!("cannot write `{text}` to {}", path.display()))
}

/// The names in a folder; none if there is no such folder.
pub fn names(dir: impl AsRef<Path>) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
