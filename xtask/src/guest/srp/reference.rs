//! The kernel's own target, `ib_srpt`, serving one disk to this machine.

use std::path::Path;

use anyhow::{Context, Result};

use super::initiator::Address;
use super::{read, sh};
use crate::guest::{ip, variable};

const CONFIG: &str = "/sys/kernel/config";
const PORT: u16 = 5556;

/// The target, set up; taken down when dropped.
pub struct Reference {
    address: Address,
    take_down: String,
}

impl Reference {
    /// Sets it up, serving this file.
    pub fn start(file: &Path) -> Result<Self> {
        let bytes = file.metadata()?.len();
        let control = format!("fd_dev_name={},fd_dev_size={bytes}", file.display());
        let (device, ip) = (variable("RDMACM_TEST_DEV")?, ip()?);
        let gid = read(format!("/sys/class/infiniband/{device}/ports/1/gids/0"))?;
        let guid = gid.get(20..).context("a GID has 39 characters")?;
        // The same name for the target and for its portal group.
        let group = format!("{CONFIG}/target/srpt/{guid}/{guid}");
        let disk = format!("{CONFIG}/target/core/fileio_0/disk");
        sh(&format!(
            "modprobe -a target_core_mod target_core_file
             # Big enough for logins with immediate data.
             modprobe ib_srpt srp_max_req_size=16448
             mountpoint -q {CONFIG} || mount -t configfs configfs {CONFIG}
             mkdir -p {disk}
             echo {control} >{disk}/control
             echo 1 >{disk}/enable
             mkdir -p {CONFIG}/target/srpt
             echo {PORT} >{CONFIG}/target/srpt/discovery_auth/rdma_cm_port
             mkdir -p {group}/lun/lun_0 {group}/acls/{ip}
             ln -s {disk} {group}/lun/lun_0/disk
             mkdir {group}/acls/{ip}/lun_0
             ln -s {group}/lun/lun_0 {group}/acls/{ip}/lun_0/lun
             echo 1 >{group}/enable"
        ))
        .context("cannot set up ib_srpt")?;
        let id = read("/sys/module/ib_srpt/parameters/srpt_service_guid")?;
        let id = id.trim_start_matches("0x").to_owned();
        Ok(Self {
            address: Address {
                ids: (id.clone(), id),
                portal: format!("{ip}:{PORT}"),
            },
            take_down: format!(
                "echo 0 >{group}/enable
                 rm {group}/acls/{ip}/lun_0/lun {group}/lun/lun_0/disk
                 rmdir {group}/acls/{ip}/lun_0 {group}/acls/{ip} {group}/lun/lun_0 {group}
                 rmdir {disk}"
            ),
        })
    }

    /// Where an initiator finds it.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        if let Err(error) = sh(&self.take_down) {
            eprintln!("cannot take down ib_srpt: {error:#}");
        }
    }
}
