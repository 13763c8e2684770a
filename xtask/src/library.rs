//! The two libraries that are compared: ours, built in release mode and staged
//! with the file names that the dynamic loader looks for, and the original of
//! the distribution.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{process, workspace};

/// A librdmacm to run a program on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Library {
    /// The distribution's, found by the loader on its own.
    Original,
    /// Ours, in this folder.
    Ours(PathBuf),
}

impl Library {
    /// What tables call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::Ours(_) => "ours",
        }
    }

    /// Makes `command` load this library.
    pub fn apply(&self, command: &mut Command) {
        match self {
            Self::Original => command.env_remove("LD_LIBRARY_PATH"),
            Self::Ours(dir) => command.env("LD_LIBRARY_PATH", dir),
        };
    }

    /// Whether `file`, as mapped by a process, is this library.
    pub fn is(&self, file: &Path) -> bool {
        match self {
            Self::Original => !file.starts_with(workspace::root()),
            Self::Ours(dir) => file.starts_with(dir),
        }
    }
}

/// Builds the release library and returns the folder it is staged in.
pub fn stage() -> Result<PathBuf> {
    build("rdmacm", &[])?;
    let stage = workspace::target("stage/lib")?;
    copy_library("librdmacm", &target_directory()?, &stage)?;
    Ok(stage)
}

/// Builds the release library with locks that thread checkers know, apart from
/// the other, and returns the folder it is staged in.
pub fn stage_for_checkers() -> Result<PathBuf> {
    let target = target_directory()?.join("pthread-locks");
    build(
        "rdmacm",
        &[
            "--features=pthread-locks",
            &format!("--target-dir={}", target.display()),
        ],
    )?;
    let stage = workspace::target("stage/pthread-locks")?;
    copy_library("librdmacm", &target, &stage)?;
    Ok(stage)
}

/// Builds the release library libsrpt and stages it beside ours; returns the
/// folder.
pub fn stage_srpt() -> Result<PathBuf> {
    let stage = stage()?;
    build("srpt", &[])?;
    copy_library("libsrpt", &target_directory()?, &stage)?;
    Ok(stage)
}

/// Where the preload library is, below the folder of the others.
pub const PRELOAD: &str = "rsocket/librspreload.so";

/// Builds the preload library and stages it beside ours; returns the folder.
pub fn stage_preload() -> Result<PathBuf> {
    let stage = stage()?;
    build("rspreload", &[])?;
    let folder = workspace::target("stage/lib/rsocket")?;
    copy(
        "librspreload.so",
        &target_directory()?,
        &folder,
        "librspreload.so",
    )?;
    Ok(stage)
}

/// Copies a shared library that was built to `stage`, with the names for the
/// loader and the linker.
fn copy_library(name: &str, target: &Path, stage: &Path) -> Result<()> {
    let (soname, link) = (format!("{name}.so.1"), format!("{name}.so"));
    copy(&link, target, stage, &soname)?;
    let link = stage.join(link);
    if !link.exists() {
        symlink(soname, &link)?;
    }
    Ok(())
}

/// Builds srp-target, which has our library inside, and returns the folder it
/// is staged in.
pub fn stage_srp_target() -> Result<PathBuf> {
    build("srp-target", &[])?;
    let stage = workspace::target("stage/bin")?;
    copy("srp-target", &target_directory()?, &stage, "srp-target")?;
    Ok(stage)
}

fn build(package: &str, options: &[&str]) -> Result<()> {
    eprintln!("building {package} in release mode");
    let built = Command::new(env_cargo())
        .args(["build", "--release", "--package", package])
        .args(options)
        .current_dir(workspace::root())
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("{package} does not build");
    }
    Ok(())
}

/// Copies a file that was built to `stage`, as `name`.
fn copy(file: &str, target: &Path, stage: &Path, name: &str) -> Result<()> {
    let built = target.join("release").join(file);
    let _lock = workspace::lock(&stage.join(".lock"))?;
    // Copied aside and renamed: a running machine may have the old one mapped.
    let fresh = stage.join(format!(".{name}.new"));
    fs::copy(&built, &fresh).with_context(|| format!("cannot copy {}", built.display()))?;
    fs::rename(&fresh, stage.join(name))?;
    Ok(())
}

/// The cargo that runs us.
pub fn env_cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Where cargo puts what it builds.
pub fn target_directory() -> Result<PathBuf> {
    let metadata = process::output(
        Command::new(env_cargo())
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(workspace::root()),
    )?;
    // One string of one JSON object, without escapes in any sane path: not
    // worth a JSON reader.
    metadata
        .split_once("\"target_directory\":\"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(dir, _)| PathBuf::from(dir))
        .context("cargo metadata names no target directory")
}
