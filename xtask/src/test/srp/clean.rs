//! Making the machine as it was before a case, whatever the case has left: no
//! session, nothing mounted, the link up, the RDMA device there. Programs that a
//! case has started end with it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::guest::srp::{self, initiator, names, read, sh, until};
use crate::guest::variable;

/// Does so.
///
/// # Errors
/// What could not be made good: the machine is of no use any more.
pub fn restore(dir: &Path) -> Result<()> {
    restored(dir).context("the case left a machine that cannot be made as it was")
}

fn restored(dir: &Path) -> Result<()> {
    initiator::logout_all()?;
    unmount(dir)?;
    link_up()?;
    if !Path::new("/sys/class/infiniband")
        .join(variable("RDMACM_TEST_DEV")?)
        .exists()
    {
        add_device()?;
    }
    Ok(())
}

/// Unmounts what is mounted in the folder, or from a file in it, and detaches
/// the loop devices of its files.
fn unmount(dir: &Path) -> Result<()> {
    let dir = dir.display();
    let mounts = fs::read_to_string("/proc/mounts")?;
    let ours = |line: &&str| line.contains(&format!(" {dir}/")) || line.contains(" /mnt/srp ");
    let points = mounts.lines().filter(ours);
    for point in points.filter_map(|line| line.split(' ').nth(1)) {
        srp::unmount(Path::new(point))?;
    }
    for device in sh("losetup --noheadings --output NAME,BACK-FILE")?.lines() {
        if let Some((name, file)) = device.split_once(' ')
            && file.trim_start().starts_with(&format!("{dir}/"))
        {
            sh(&format!("losetup --detach {name}"))?;
        }
    }
    Ok(())
}

/// Sets the link below the RDMA device up, if it is not, with its addresses.
pub fn link_up() -> Result<()> {
    const UP: u32 = 1;
    let netdev = variable("RDMACM_TEST_NETDEV")?;
    let flags = read(format!("/sys/class/net/{netdev}/flags"))?;
    let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16)?;
    if flags & UP == 0 {
        sh(&format!("ip link set {netdev} up"))?;
    }
    // The kernel forgets IPv6 addresses of a link that goes down.
    let ip6 = variable("RDMACM_TEST_IP6")?;
    let addresses = sh(&format!("ip -6 -oneline addr show dev {netdev}"))?;
    if !addresses.contains(&format!(" {ip6}/")) {
        sh(&format!("ip addr add {ip6}/64 dev {netdev} nodad"))?;
    }
    Ok(())
}

/// Adds the RDMA device that was removed. Returns when the initiator has it, if
/// that is loaded.
pub fn add_device() -> Result<()> {
    let (device, netdev) = (
        variable("RDMACM_TEST_DEV")?,
        variable("RDMACM_TEST_NETDEV")?,
    );
    sh(&format!("rdma link add {device} type rxe netdev {netdev}"))?;
    until("the initiator has the device", || {
        let loaded = Path::new("/sys/module/ib_srp").exists();
        Ok((!loaded || !names("/sys/class/infiniband_srp").is_empty()).then_some(()))
    })
}
