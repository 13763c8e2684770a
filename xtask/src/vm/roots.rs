//! `cargo xtask root`: other userlands for the test machine, made with
//! debootstrap below `target/vm/roots/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use super::apt;
use crate::workspace;

/// What the tests call inside, beyond a minimal system.
const PACKAGES: &str = "iproute2,kmod,procps,strace,ibverbs-providers,ibverbs-utils,rdmacm-utils,\
                        perftest,valgrind,libc6-dbg";

/// The command line of `cargo xtask root`.
#[derive(clap::Args)]
pub struct Args {
    /// Debian suite, for example `sid`, `forky` or `trixie`
    suite: String,
}

impl Args {
    /// Makes the root unless it exists.
    pub fn run(self) -> Result<ExitCode> {
        let roots = workspace::target("vm/roots")?;
        let root = roots.join(&self.suite);
        let _lock = workspace::lock(&roots.join(format!("{}.lock", self.suite)))?;
        if !root.exists() {
            let fresh = roots.join(format!("{}.new", self.suite));
            if fresh.exists() {
                fs::remove_dir_all(&fresh)?;
            }
            debootstrap(&self.suite, &fresh)?;
            fs::rename(&fresh, &root)?;
        }
        println!("{}", root.display());
        Ok(ExitCode::SUCCESS)
    }
}

/// A folder, or the name of a root made before.
pub fn find(name: &Path) -> Result<PathBuf> {
    let made = workspace::target("vm/roots")?.join(name);
    let root = if made.is_dir() { made.as_path() } else { name };
    fs::canonicalize(root).with_context(|| {
        format!(
            "no root {}; make one with `cargo xtask root SUITE`",
            name.display()
        )
    })
}

fn debootstrap(suite: &str, root: &Path) -> Result<()> {
    // A suite that came after this machine's debootstrap has no script there,
    // but all are made like sid.
    let status = Command::new("debootstrap")
        .args(["--variant=minbase", "--include", PACKAGES, suite])
        .arg(root)
        .arg(apt::mirror())
        .args(
            (!Path::new("/usr/share/debootstrap/scripts")
                .join(suite)
                .exists())
            .then_some("/usr/share/debootstrap/scripts/sid"),
        )
        .status()
        .context("cannot start debootstrap (cargo xtask setup installs it)")?;
    if !status.success() {
        bail!(
            "debootstrap of Debian {suite} failed ({status}); it needs root, and the suite may \
             have moved on: choose another one"
        );
    }
    Ok(())
}
