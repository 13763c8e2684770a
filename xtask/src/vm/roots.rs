//! `cargo xtask root`: other userlands for the test machine, made with
//! debootstrap below `target/vm/roots/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use super::apt;
use crate::{process, setup, workspace};

/// What the tests call inside, beyond a minimal system.
const PACKAGES: &[&str] = &[
    "iproute2",
    "kmod",
    "procps",
    "strace",
    "ibverbs-providers",
    "ibverbs-utils",
    "rdmacm-utils",
    "perftest",
    "valgrind",
    "libc6-dbg",
    "fio",
    "sg3-utils",
    "e2fsprogs",
    "mount",
    "curl",
    "iperf3",
    "memcached",
    "netcat-openbsd",
    "nginx",
    "python3",
    "redis-server",
    "redis-tools",
    "socat",
];

/// How often debootstrap is tried.
const TRIES: u32 = 2;

/// The command line of `cargo xtask root`.
#[derive(clap::Args)]
pub struct Args {
    /// Debian suite, for example `sid`, `forky` or `trixie`
    suite: String,
}

impl Args {
    /// Makes the root unless it exists.
    pub fn run(self) -> Result<ExitCode> {
        setup::ensure()?;
        println!("{}", get(&self.suite)?.display());
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the root of a Debian suite, made on first use. Safe to call from
/// several processes at once.
pub fn get(suite: &str) -> Result<PathBuf> {
    let roots = workspace::target("vm/roots")?;
    let root = roots.join(suite);
    let _lock = workspace::lock(&roots.join(format!("{suite}.lock")))?;
    if let Err(lacks) = complete(&root) {
        let why = if root.exists() {
            format!("anew: {lacks:#}")
        } else {
            "(once)".to_owned()
        };
        eprintln!("vm: making a root of Debian {suite} {why}");
        make(suite, &roots.join(format!("{suite}.new")), &root)?;
    }
    fs::canonicalize(&root).with_context(|| format!("no root {}", root.display()))
}

/// Makes it in `fresh` and moves it to `root` when it is whole.
fn make(suite: &str, fresh: &Path, root: &Path) -> Result<()> {
    let mut tries = 0;
    loop {
        remove(fresh)?;
        tries += 1;
        match debootstrap(suite, fresh) {
            Ok(()) => break,
            // A mirror that is being updated offers packages and index of
            // different times for a while.
            Err(error) if tries < TRIES => eprintln!("vm: {error:#}\nvm: once more"),
            Err(error) => return Err(error),
        }
    }
    remove(root)?;
    fs::rename(fresh, root)?;
    Ok(())
}

fn remove(dir: &Path) -> Result<()> {
    // What root has made, root removes.
    process::output(setup::privileged("rm")?.arg("-rf").arg(dir)).map(drop)
}

/// Fails if the root lacks a program that the tests need by now.
fn complete(root: &Path) -> Result<()> {
    for package in PACKAGES {
        version(Some(root), package)
            .with_context(|| format!("{} lacks {package}", root.display()))?;
    }
    Ok(())
}

/// The version of a package in a root, or on this machine.
pub fn version(root: Option<&Path>, package: &str) -> Result<String> {
    let mut query = Command::new("dpkg-query");
    if let Some(root) = root {
        query.arg("--admindir").arg(root.join("var/lib/dpkg"));
    }
    process::output(query.args(["--show", "--showformat=${Version}", package]))
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
    let mirror = apt::mirror();
    // A suite that came after this machine's debootstrap has no script there,
    // but all are made like sid.
    let scripts = Path::new("/usr/share/debootstrap/scripts");
    let script = (!scripts.join(suite).exists()).then(|| scripts.join("sid"));
    let output = setup::privileged("debootstrap")?
        .arg("--variant=minbase")
        .arg(format!("--include={}", PACKAGES.join(",")))
        .arg(suite)
        .args([root.as_os_str(), mirror.as_ref()])
        .args(script)
        // Nothing may ask a question: there is nobody to answer.
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .context("cannot start debootstrap (cargo xtask setup installs it)")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let log = fs::read_to_string(root.join("debootstrap/debootstrap.log")).unwrap_or_default();
    bail!(
        "debootstrap of Debian {suite} from {mirror} failed ({}).\n\
         The suite may have moved on (a package renamed or not installable for some days): \
         take another suite in xtask/src/test/columns.rs, or `--kernel 6.1` to do without.\n{}\n{}",
        output.status,
        last(&said),
        last(&log),
    )
}

/// The end of what a program said.
fn last(text: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
