//! Where things are: the repository and the folders below its `target/` that
//! the subcommands share. Creates folders, knows nothing of their contents.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

/// The root folder of the repository.
///
/// Cargo names it at run time; a copy of the binary that runs without cargo
/// falls back to where it was built.
pub fn root() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.ends_with("xtask"))
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    manifest.parent().map(Path::to_path_buf).unwrap_or(manifest)
}

/// A folder below `target/`, created when missing.
///
/// It does not follow `CARGO_TARGET_DIR`, so that everyone who works in this
/// tree shares one cache of kernels and root file systems.
pub fn target(name: &str) -> Result<PathBuf> {
    create(root().join("target").join(name))
}

/// Creates a folder with its parents and returns it.
pub fn create(dir: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}

/// Waits for the exclusive right to write what `file` stands for. The right
/// ends when the returned handle is dropped or the process dies.
pub fn lock(file: &Path) -> Result<File> {
    let handle = File::create(file).with_context(|| format!("cannot create {}", file.display()))?;
    flock(&handle, FlockOperation::LockExclusive)
        .with_context(|| format!("cannot lock {}", file.display()))?;
    Ok(handle)
}
