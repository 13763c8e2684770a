//! Whether QEMU may use KVM. A `/dev/kvm` can exist and still refuse or hang on
//! a stock kernel, so the answer comes from booting one, once; it is cached in
//! `target/vm/kvm-<host kernel>`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::workspace;

use super::kernel::Kernel;

/// A boot to the first user-space program takes a second or two under KVM.
const PATIENCE: Duration = Duration::from_secs(20);

/// QEMU's arguments for the fastest accelerator that works.
pub fn arguments(kernel: &Kernel) -> Result<[&'static str; 2]> {
    Ok(if kvm_works(kernel)? {
        ["-accel", "kvm"]
    } else {
        ["-accel", "tcg,thread=multi"]
    })
}

fn kvm_works(kernel: &Kernel) -> Result<bool> {
    if !Path::new("/dev/kvm").exists() {
        return Ok(false);
    }
    let cache = workspace::target("vm")?;
    let host = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let answer = cache.join(format!("kvm-{}", host.trim()));
    let _lock = workspace::lock(&cache.join("kvm.lock"))?;
    if let Ok(known) = fs::read_to_string(&answer) {
        return Ok(known.trim() == "yes");
    }
    let works = boot(kernel)?;
    fs::write(&answer, if works { "yes" } else { "no" })?;
    Ok(works)
}

/// Boots without a root: the kernel runs to its "no root" panic and, told not
/// to reboot, QEMU ends. Anything else means KVM cannot be used.
fn boot(kernel: &Kernel) -> Result<bool> {
    let mut qemu = Command::new("qemu-system-x86_64")
        .args([
            "-accel", "kvm", "-machine", "q35", "-cpu", "max", "-m", "512",
        ])
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .arg("-kernel")
        .arg(&kernel.image)
        .args(["-append", "panic=-1 quiet"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start qemu-system-x86_64 (cargo xtask setup installs it)")?;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = qemu.try_wait()? {
            return Ok(status.success());
        }
        // Polled: std has no wait with a time limit, and this runs once.
        std::thread::sleep(Duration::from_millis(50));
    }
    qemu.kill()?;
    qemu.wait()?;
    Ok(false)
}
