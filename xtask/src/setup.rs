//! `cargo xtask setup`: installs the Debian packages that building and testing
//! need. Installs nothing when all are present.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::process;

/// Package, and why it is here.
const PACKAGES: &[&str] = &[
    // Building the library and the C test programs.
    "gcc",
    "g++",
    "make",
    "pkg-config",
    "libibverbs-dev",
    "librdmacm-dev",
    "clang",
    "libclang-dev",
    // The original library and its unmodified programs.
    "rdmacm-utils",
    "ibverbs-providers",
    "ibverbs-utils",
    "perftest",
    // The test machine and its kernels.
    "qemu-system-x86",
    "busybox-static",
    "kmod",
    "xz-utils",
    "iproute2",
    "util-linux",
    "debian-archive-keyring",
    "debootstrap",
    // Programs on sockets, for the preload library.
    "netcat-openbsd",
    "socat",
    "curl",
    "python3",
    "iperf3",
    // Disks over SRP, in the test machine.
    "fio",
    "sg3-utils",
    "e2fsprogs",
    // Measuring and checking.
    "strace",
    "valgrind",
    "libc6-dbg",
    "abigail-tools",
    "dpkg-dev",
    "groff-base",
    "mandoc",
];

/// The command line of `cargo xtask setup`.
#[derive(clap::Args)]
pub struct Args {}

impl Args {
    /// Installs what is missing.
    pub fn run(self) -> Result<ExitCode> {
        ensure()?;
        println!("everything that is needed is installed");
        Ok(ExitCode::SUCCESS)
    }
}

/// Installs the packages that are missing, as root or through sudo.
pub fn ensure() -> Result<()> {
    let missing = missing()?;
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    eprintln!("installing: {list}");
    let apt_get = |arguments: &[&str]| -> Result<()> {
        let mut command = privileged("env")
            .with_context(|| format!("packages are missing; run: apt-get install {list}"))?;
        command
            .args(["DEBIAN_FRONTEND=noninteractive", "apt-get"])
            .args(arguments);
        let shown = process::show(&command);
        let status = command
            .status()
            .with_context(|| format!("cannot start `{shown}`"))?;
        if !status.success() {
            bail!("`{shown}` failed; install by hand: {list}");
        }
        Ok(())
    };
    apt_get(&["update"])?;
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(&missing);
    apt_get(&install)
}

/// A command that runs as root: directly, or through sudo.
pub fn privileged(program: &str) -> Result<Command> {
    if rustix::process::geteuid().is_root() {
        return Ok(Command::new(program));
    }
    if !Path::new("/usr/bin/sudo").exists() {
        bail!("`{program}` has to run as root, and there is no sudo");
    }
    let mut command = Command::new("sudo");
    command.arg(program);
    Ok(command)
}

fn missing() -> Result<Vec<&'static str>> {
    if !Path::new("/usr/bin/dpkg-query").exists() {
        bail!("this needs a Debian-family machine (no dpkg-query here)");
    }
    Ok(PACKAGES
        .iter()
        .copied()
        .filter(|package| !installed(package))
        .collect())
}

fn installed(package: &str) -> bool {
    let query = ["--show", "--showformat=${db:Status-Status}", package];
    process::output(Command::new("dpkg-query").args(query))
        .is_ok_and(|status| status.starts_with("installed"))
}
