//! Reading packages of a Debian suite that the machine itself does not use:
//! apt with its own sources, lists and cache below `target/vm/apt/`. Installs
//! nothing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use crate::{process, workspace};

const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// apt, pointed at one suite.
pub struct Apt {
    dir: PathBuf,
}

impl Apt {
    /// Reads the suite's package index (signature checked by apt).
    pub fn new(suite: &str) -> Result<Self> {
        let dir = workspace::target(&format!("vm/apt/{suite}"))?;
        let sources = format!(
            "Types: deb\nURIs: {}\nSuites: {suite}\nComponents: main\n\
             Architectures: amd64\nTargets: Packages\nSigned-By: {KEYRING}\n",
            mirror()
        );
        workspace::create(dir.join("lists/partial"))?;
        workspace::create(dir.join("cache/archives/partial"))?;
        fs::write(dir.join("debian.sources"), sources)?;
        let apt = Self { dir };
        process::output(apt.command("apt-get").args(["update", "--error-on=any"]))
            .with_context(|| format!("cannot read the package index of Debian {suite}"))?;
        Ok(apt)
    }

    /// The package and everything it depends on, by name.
    pub fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let listing = process::output(self.command("apt-cache").args([
            "depends",
            "--recurse",
            "--important",
            "--no-conflicts",
            "--no-breaks",
            "--no-replaces",
            package,
        ]))?;
        Ok(listing
            .lines()
            .filter(|line| line.starts_with(|c: char| c.is_ascii_alphanumeric()))
            .map(str::to_owned)
            .collect())
    }

    /// Downloads the packages, checksums verified, and returns the files.
    pub fn download(&self, packages: &[String]) -> Result<Vec<PathBuf>> {
        let dir = self.dir.join("downloads");
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let dir = workspace::create(dir)?;
        process::output(
            self.command("apt-get")
                .current_dir(&dir)
                .arg("download")
                .args(packages),
        )?;
        let debs: Vec<_> = fs::read_dir(&dir)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        if debs.len() == packages.len() {
            Ok(debs)
        } else {
            Err(anyhow!(
                "apt-get download left {} of {packages:?}",
                debs.len()
            ))
        }
    }

    fn command(&self, program: &str) -> Command {
        let dir = self.dir.display();
        let mut command = Command::new(program);
        for option in [
            format!("Dir::Etc::SourceList={dir}/debian.sources"),
            "Dir::Etc::SourceParts=/dev/null".into(),
            format!("Dir::State::Lists={dir}/lists"),
            "Dir::State::status=/dev/null".into(),
            format!("Dir::Cache={dir}/cache"),
            "APT::Architecture=amd64".into(),
            "APT::Sandbox::User=root".into(),
            // A mirror snapshot is welcome here: nothing of it gets installed.
            "Acquire::Check-Valid-Until=false".into(),
        ] {
            command.arg("-o").arg(option);
        }
        command
    }
}

/// The machine's own Debian mirror, else the public one.
pub fn mirror() -> String {
    let listed = process::output(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(ORIGIN) $(REPO_URI)",
    ]))
    .unwrap_or_default();
    listed
        .lines()
        .filter_map(|line| line.strip_prefix("Debian "))
        .find(|uri| uri.trim_end_matches('/').ends_with("/debian"))
        .unwrap_or(DEFAULT_MIRROR)
        .to_owned()
}
