//! The crate `witness`: the layouts of libibverbs and of the public structures
//! against those that the independent crate `rdma-sys` finds in the installed
//! headers.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::report::{Outcome, Suite};
use crate::{library, process, workspace};

/// The newest libclang that the bindgen of `rdma-sys` understands.
const NEWEST: u32 = 15;

pub fn run(suite: &mut Suite) {
    let name = "layouts agree with rdma-sys";
    let Some(libclang) = libclang() else {
        let why = format!(
            "no libclang of version {NEWEST} or older found (Debian 12: libclang-dev); \
             set LIBCLANG_PATH to its folder"
        );
        return suite.record(name, Outcome::Skipped(why));
    };
    suite.check(name, check(&libclang));
}

fn check(libclang: &Path) -> Result<()> {
    process::output(
        Command::new(library::env_cargo())
            .args(["check", "--locked", "--target-dir"])
            .arg(workspace::target("witness")?)
            .env("LIBCLANG_PATH", libclang)
            .current_dir(workspace::root().join("witness")),
    )
    .map(drop)
}

/// The folder of a suitable libclang.
fn libclang() -> Option<PathBuf> {
    if let Some(given) = env::var_os("LIBCLANG_PATH") {
        return Some(given.into());
    }
    (9..=NEWEST)
        .rev()
        .map(|version| Path::new("/usr/lib").join(format!("llvm-{version}/lib")))
        .find(|dir| dir.join("libclang.so.1").exists())
}
