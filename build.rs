//! Gives the shared library its ELF identity: the SONAME and the symbol
//! versions of `link/librdmacm.map`.
//!
//! rustc passes its own anonymous version script to the linker and a second
//! one is ignored or refused, so the script is swapped on the way to GNU ld.

use std::env;
use std::path::PathBuf;

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let link = root.join("link");
    let swap = link.join("swap-version-script.sh");

    println!("cargo::rerun-if-changed={}", swap.display());
    println!(
        "cargo::rerun-if-changed={}",
        link.join("librdmacm.map").display()
    );
    println!("cargo::rustc-link-lib=dylib=ibverbs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librdmacm.so.1");
    // A thread of ours that resolves a name must not lose its code to dlclose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // lld omits the version node symbols that dpkg-gensymbols checks for.
    println!("cargo::rustc-cdylib-link-arg=-fuse-ld=bfd");
    println!("cargo::rustc-cdylib-link-arg=-wrapper");
    println!("cargo::rustc-cdylib-link-arg=sh,{}", swap.display());
}
