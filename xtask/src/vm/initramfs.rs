//! The initial RAM disk of the test machine: a static busybox, `init.sh` and
//! the modules that mounting the root needs, packed as a `newc` archive (the
//! format of the kernel's Documentation/driver-api/early-userspace).

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::kernel::Kernel;

const INIT: &str = include_str!("guest/init.sh");

/// What the machine needs before it can see the host's files.
const MODULES: [&str; 5] = [
    "virtio_pci",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "overlay",
];

const FILE: u32 = 0o100_755;
const DIRECTORY: u32 = 0o040_755;
const SYMLINK: u32 = 0o120_777;
const CHAR_DEVICE: u32 = 0o020_600;

/// Builds the archive for `kernel`.
pub fn build(kernel: &Kernel) -> Result<Vec<u8>> {
    let busybox = fs::read(busybox()?)?;
    let mut archive = Archive::default();
    for dir in ["bin", "dev", "proc", "sys", "modules"] {
        archive.add(dir, DIRECTORY, (0, 0), &[]);
    }
    archive.add("dev/console", CHAR_DEVICE, (5, 1), &[]);
    archive.add("bin/busybox", FILE, (0, 0), &busybox);
    archive.add("bin/sh", SYMLINK, (0, 0), b"busybox");
    archive.add("init", FILE, (0, 0), INIT.as_bytes());

    let mut order = String::new();
    for file in kernel.module_files(&MODULES)? {
        let (name, content) = read_module(&file)?;
        archive.add(&format!("modules/{name}"), FILE, (0, 0), &content);
        order.push_str(&name);
        order.push('\n');
    }
    archive.add("modules/order", FILE, (0, 0), order.as_bytes());
    Ok(archive.finish())
}

/// The static busybox of this machine.
fn busybox() -> Result<&'static Path> {
    ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .map(Path::new)
        .find(|path| path.exists())
        .context("no busybox: install busybox-static (cargo xtask setup does)")
}

/// Reads a module, decompressed: busybox's insmod does not know xz.
fn read_module(file: &Path) -> Result<(String, Vec<u8>)> {
    let name = file
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let Some(plain) = name.strip_suffix(".xz") else {
        let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        return Ok((name, content));
    };
    let unpacked = Command::new("xz")
        .arg("-dc")
        .arg(file)
        .output()
        .context("cannot start xz")?;
    if !unpacked.status.success() {
        bail!("xz cannot decompress {}", file.display());
    }
    Ok((plain.to_owned(), unpacked.stdout))
}

/// A `newc` archive under construction.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: usize,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, (major, minor): (u32, u32), content: &[u8]) {
        self.entries += 1;
        let inode = self.entries;
        let (size, name_size) = (content.len(), name.len() + 1);
        let header = format!(
            "070701{inode:08x}{mode:08x}{uid:08x}{gid:08x}{links:08x}{mtime:08x}{size:08x}\
             {dev:08x}{dev:08x}{major:08x}{minor:08x}{name_size:08x}{check:08x}",
            uid = 0,
            gid = 0,
            links = 1,
            mtime = 0,
            dev = 0,
            check = 0,
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}
