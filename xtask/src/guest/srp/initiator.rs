//! The kernel's initiator, `ib_srp`: loading it with options, logging in and
//! out, the disks that appear.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{names, read, sh, unload, until, write};
use crate::guest::variable;

const PORTS: &str = "/sys/class/srp_remote_ports";
const HOSTS: &str = "/sys/class/scsi_host";

/// Loads the module anew, with parameters such as `ch_count=1`: loaded, it would
/// keep those that it has.
///
/// A session that has ended may have left a disk that somebody still has open, or
/// that the kernel is still looking at: each such use is waited for.
pub fn load(parameters: &str) -> Result<()> {
    unload("ib_srp")?;
    sh(&format!(
        "modprobe -a sd_mod sg
         modprobe ib_srp {parameters}"
    ))?;
    Ok(())
}

/// A target to log in to.
#[derive(Clone, Debug)]
pub struct Address {
    /// `id_ext` and `ioc_guid`.
    pub ids: (String, String),
    /// Where it listens: `IP:PORT`.
    pub portal: String,
}

impl Address {
    /// What `add_target` wants to know.
    pub fn login_line(&self, options: &str) -> String {
        let (id_ext, ioc_guid) = &self.ids;
        let line = format!("id_ext={id_ext},ioc_guid={ioc_guid},dest={}", self.portal);
        if options.is_empty() {
            line
        } else {
            format!("{line},{options}")
        }
    }
}

/// A target that the initiator is logged in to.
#[derive(Debug)]
pub struct Session {
    /// Name of the remote port, `port-H:1`.
    pub port: String,
    /// Number of the SCSI host.
    pub host: String,
}

/// Logs in. Returns when the kernel has looked for disks.
///
/// A session that was just ended may still be known to the initiator for a
/// moment: this waits for its end.
pub fn login(address: &Address, options: &str) -> Result<Session> {
    const EEXIST: i32 = 17;
    until("the login succeeds", || match attempt(address, options) {
        Err(error) if errno(&error) == Some(EEXIST) => Ok(None),
        result => result.map(Some),
    })
}

/// Tries to log in, once.
///
/// # Errors
/// The kernel's, among others; see [`errno`].
pub fn attempt(address: &Address, options: &str) -> Result<Session> {
    let before = names(PORTS);
    let file = format!(
        "/sys/class/infiniband_srp/srp-{}-1/add_target",
        variable("RDMACM_TEST_DEV")?
    );
    let line = address.login_line(options);
    fs::write(&file, &line).with_context(|| format!("login {line}"))?;
    let port = names(PORTS)
        .into_iter()
        .find(|port| !before.contains(port))
        .context("the login left no remote port")?;
    let host = port
        .strip_prefix("port-")
        .and_then(|rest| rest.split_once(':'))
        .context("odd name of a remote port")?
        .0
        .to_owned();
    Ok(Session { port, host })
}

/// The error number of a failed [`attempt`].
pub fn errno(error: &anyhow::Error) -> Option<i32> {
    error.downcast_ref::<std::io::Error>()?.raw_os_error()
}

impl Session {
    /// A file of the remote port.
    pub fn port_file(&self, name: &str) -> PathBuf {
        Path::new(PORTS).join(&self.port).join(name)
    }

    /// A value of the SCSI host.
    pub fn host_value(&self, name: &str) -> Result<String> {
        read(
            Path::new(HOSTS)
                .join(format!("host{}", self.host))
                .join(name),
        )
    }

    /// How many channels it has.
    pub fn channels(&self) -> Result<usize> {
        Ok(self.host_value("ch_count")?.parse()?)
    }

    /// Waits until it has exactly so many disks, by rising logical unit number,
    /// and their driver is done with them.
    ///
    /// The driver asks for sizes and modes twice, the second time when the disk
    /// can be used already. Until it says that it has attached the disk, values
    /// in sysfs may be false for a moment, and its own commands take credits.
    pub fn disks(&self, count: usize) -> Result<Vec<Disk>> {
        until(&format!("{count} disks are attached"), || {
            let disks = self.disks_now();
            let there = disks.len() == count
                && disks
                    .iter()
                    .all(|disk| disk.path().exists() && disk.bytes().is_ok_and(|bytes| bytes > 0));
            Ok((there && self.attached(&disks)?).then_some(disks))
        })
    }

    /// Whether the kernel has said of each disk that it is attached. Numbers of
    /// hosts are never used again.
    fn attached(&self, disks: &[Disk]) -> Result<bool> {
        let log = sh("dmesg")?;
        Ok(disks.iter().all(|Disk { lun, name }| {
            log.contains(&format!("sd {}:0:0:{lun}: [{name}] Attached", self.host))
        }))
    }

    /// Waits until the initiator has `credits` on the channel with the fewest.
    pub fn wait_credits(&self, credits: &str) -> Result<()> {
        let mut seen = String::new();
        until(&format!("{credits} credits are back"), || {
            seen = self.host_value("req_lim")?;
            Ok((seen == credits).then_some(()))
        })
        .with_context(|| format!("there are {seen}"))
    }

    /// Waits for its one disk.
    pub fn disk(&self) -> Result<Disk> {
        let mut disks = self.disks(1)?;
        disks.pop().context("no disk")
    }

    /// The disks at the moment.
    pub fn disks_now(&self) -> Vec<Disk> {
        // `<host>:0:0:<lun>` are the devices.
        let prefix = format!("{}:", self.host);
        let mut disks: Vec<_> = names("/sys/class/scsi_device")
            .into_iter()
            .filter(|name| name.starts_with(&prefix))
            .filter_map(|name| {
                let lun = name.rsplit(':').next()?.parse().ok()?;
                let dir = format!("/sys/class/scsi_device/{name}/device/block");
                let block = names(dir).into_iter().next()?;
                Some(Disk { lun, name: block })
            })
            .collect();
        disks.sort_by_key(|disk| disk.lun);
        disks
    }

    /// Waits until the remote port is in this state.
    pub fn wait_state(&self, state: &str) -> Result<()> {
        until(&format!("{} is {state}", self.port), || {
            Ok((read(self.port_file("state"))? == state).then_some(()))
        })
    }

    /// Logs out. Returns when the SCSI host is gone.
    pub fn logout(self) -> Result<()> {
        self.abandon()?;
        self.wait_gone()
    }

    /// Begins to log out: commands that are held back fail.
    pub fn abandon(&self) -> Result<()> {
        write(self.port_file("delete"), "1")
    }

    /// Waits until the SCSI host is gone.
    pub fn wait_gone(&self) -> Result<()> {
        let host = format!("host{}", self.host);
        until(&format!("{host} is gone"), || {
            Ok((!names(HOSTS).contains(&host)).then_some(()))
        })
    }
}

/// Ends every session that a failed case may have left.
pub fn logout_all() -> Result<()> {
    for port in names(PORTS) {
        write(Path::new(PORTS).join(&port).join("delete"), "1")?;
    }
    // Hosts go after their ports, and only then can one log in again.
    until("all SRP hosts are gone", || {
        let hosts = names(HOSTS);
        let mut ours = hosts
            .iter()
            .map(|host| Path::new(HOSTS).join(host).join("ioc_guid"));
        Ok((names(PORTS).is_empty() && !ours.any(|file| file.exists())).then_some(()))
    })
}

/// A disk of a session.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Logical unit number as Linux counts.
    pub lun: u64,
    /// `sda`
    pub name: String,
}

impl Disk {
    /// `/dev/sda`
    pub fn path(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// Sets how long a command may take before the kernel aborts it.
    pub fn set_timeout(&self, limit: Duration) -> Result<()> {
        let file = format!("/sys/block/{}/device/timeout", self.name);
        write(file, &limit.as_secs().to_string())
    }

    /// A value of the request queue.
    pub fn queue(&self, name: &str) -> Result<String> {
        read(format!("/sys/block/{}/queue/{name}", self.name))
    }

    /// Bytes in all.
    pub fn bytes(&self) -> Result<u64> {
        let sectors: u64 = read(format!("/sys/block/{}/size", self.name))?.parse()?;
        Ok(sectors * 512)
    }

    /// Runs fio on it with these options and demands success.
    pub fn fio(&self, options: &str) -> Result<String> {
        let output = sh(&format!(
            "fio --name=job --filename=/dev/{} --ioengine=libaio --direct=1 \
             --verify_state_save=0 {options} 2>&1",
            self.name
        ));
        let output = output?;
        ensure!(!output.contains("verify: bad"), "{output}");
        Ok(output)
    }
}
