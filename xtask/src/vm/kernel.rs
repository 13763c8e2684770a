//! Distribution kernels for the test machine: fetched as packages from the
//! configured Debian mirror and unpacked below `target/vm/kernels/`. Nothing is
//! installed into the machine that runs this.
//!
//! apt does the fetching, with lists and cache of its own, so that signatures,
//! checksums, proxies and mirrors are handled as on any Debian machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};

use super::apt::Apt;
use crate::{process, workspace};

/// A kernel that `--kernel` can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Release {
    /// Debian 12 (bookworm)
    #[value(name = "6.1")]
    V6_1,
    /// Debian 13 (trixie)
    #[value(name = "6.12")]
    V6_12,
    /// trixie-backports
    #[value(name = "7.3")]
    V7_3,
}

impl Release {
    fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7_3 => "7.3",
        }
    }

    fn suite(self) -> &'static str {
        match self {
            Self::V6_1 => "bookworm",
            Self::V6_12 => "trixie",
            Self::V7_3 => "trixie-backports",
        }
    }
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// An unpacked kernel.
pub struct Kernel {
    /// The image to boot.
    pub image: PathBuf,
    /// The folder that holds `lib/modules/<version>`.
    pub tree: PathBuf,
    /// The full version, as `uname -r` says it.
    pub version: String,
}

impl Kernel {
    /// The folder with this kernel's modules.
    pub fn modules(&self) -> PathBuf {
        self.tree.join("lib/modules").join(&self.version)
    }

    /// The files to load, in order, for `modules` and all they depend on.
    /// Modules that are built in have none.
    pub fn module_files(&self, modules: &[&str]) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for module in modules {
            let listing = process::output(
                Command::new("modprobe")
                    .args([
                        "--show-depends",
                        "--set-version",
                        &self.version,
                        "--dirname",
                    ])
                    .arg(&self.tree)
                    .arg(module),
            )?;
            for line in listing.lines() {
                let mut words = line.split_whitespace();
                if let (Some("insmod"), Some(file)) = (words.next(), words.next()) {
                    let file = PathBuf::from(file);
                    if !files.contains(&file) {
                        files.push(file);
                    }
                }
            }
        }
        Ok(files)
    }
}

/// Returns the kernel, fetching and unpacking it on first use. Safe to call
/// from several processes at once.
pub fn get(release: Release) -> Result<Kernel> {
    let kernels = workspace::target("vm/kernels")?;
    let tree = kernels.join(release.name());
    let _lock = workspace::lock(&kernels.join(format!("{release}.lock")))?;
    if !tree.exists() {
        eprintln!("vm: fetching kernel {release} (once)");
        let fresh = kernels.join(format!("{release}.new"));
        if fresh.exists() {
            fs::remove_dir_all(&fresh)?;
        }
        unpack(release, &workspace::create(fresh.clone())?)
            .with_context(|| format!("cannot fetch kernel {release}"))?;
        fs::rename(&fresh, &tree)?;
    }
    open(tree)
}

fn unpack(release: Release, tree: &Path) -> Result<()> {
    let suite = release.suite();
    let apt = Apt::new(suite)?;
    let mut packages = apt.dependencies("linux-image-amd64")?;
    let version = format!("{release}.");
    packages.retain(|name| {
        [
            "linux-base-",
            "linux-image-",
            "linux-binary-",
            "linux-modules-",
        ]
        .iter()
        .any(|prefix| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| rest.starts_with(&version))
        })
    });
    if packages.is_empty() {
        bail!(
            "Debian suite {suite} no longer has kernel {release}; \
             choose another --kernel or update xtask/src/vm/kernel.rs"
        );
    }
    let debs = apt.download(&packages)?;
    for deb in &debs {
        process::output(Command::new("dpkg").arg("-x").arg(deb).arg(tree))?;
        fs::remove_file(deb)?;
    }
    // Newer packages keep everything below usr/; depmod and modprobe look in lib/.
    if !tree.join("lib").exists() {
        std::os::unix::fs::symlink("usr/lib", tree.join("lib"))?;
    }
    let kernel = open(tree.to_path_buf())?;
    process::output(
        Command::new("depmod")
            .arg("-b")
            .arg(tree)
            .arg(&kernel.version),
    )?;
    Ok(())
}

/// Finds the version and the image in an unpacked tree.
fn open(tree: PathBuf) -> Result<Kernel> {
    let version = fs::read_dir(tree.join("lib/modules"))
        .with_context(|| format!("no modules below {}", tree.display()))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .next()
        .ok_or_else(|| anyhow!("no modules below {}", tree.display()))?;
    let image = [
        tree.join("boot").join(format!("vmlinuz-{version}")),
        tree.join("lib/modules").join(&version).join("vmlinuz"),
    ]
    .into_iter()
    .find(|path| path.exists())
    .ok_or_else(|| anyhow!("no kernel image below {}", tree.display()))?;
    Ok(Kernel {
        image,
        tree,
        version,
    })
}
