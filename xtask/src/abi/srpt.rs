//! libsrpt as the dynamic loader and programs in C and C++ see it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::binary;
use crate::report::Suite;
use crate::{process, symbols, workspace};

/// The name under which the dynamic loader looks for the library.
const SONAME: &str = "libsrpt.so.1";

/// The file of the example.
pub const EXAMPLE: &str = "srpt-server";

/// Checks the library staged in the folder `stage`, its header and its example.
pub fn run(stage: &Path, suite: &mut Suite) -> Result<()> {
    let library = stage.join(SONAME);
    suite.check(
        "libsrpt: every symbol is at its version node, and no other exists",
        symbols::promised_srpt().and_then(|promised| binary::versions(&library, &promised)),
    );
    suite.check(
        "libsrpt: SONAME and needed libraries",
        binary::dynamic_section(&library, SONAME),
    );
    for (language, compiler) in [("c", "cc"), ("c++", "c++")] {
        suite.check(
            format!("rdma/srpt.h compiles alone as {language}"),
            header_compiles(language, compiler),
        );
    }
    let programs = workspace::target("abi")?;
    suite.check(
        "the example of srpt(7) compiles and links",
        compile_example(stage, &programs).map(drop),
    );
    Ok(())
}

/// The folders of the headers of both libraries, for a compiler.
fn includes() -> [String; 2] {
    ["include", "srpt/include"].map(|dir| format!("-I{}", workspace::root().join(dir).display()))
}

fn header_compiles(language: &str, compiler: &str) -> Result<()> {
    let header = workspace::root().join("srpt/include/rdma/srpt.h");
    process::output(
        Command::new(compiler)
            .args([
                "-fsyntax-only",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-x",
                language,
            ])
            .args(includes())
            .arg(header),
    )?;
    Ok(())
}

/// Compiles `capi-tests/srpt/server.c` against the public headers and the
/// libraries in `stage`, and returns the program in `dir`.
pub fn compile_example(stage: &Path, dir: &Path) -> Result<PathBuf> {
    let program = dir.join(EXAMPLE);
    process::output(
        Command::new("cc")
            .args(["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g"])
            .args(["-Wall", "-Wextra", "-Werror"])
            .args(includes())
            .arg(workspace::root().join("capi-tests/srpt/server.c"))
            .arg(format!("-L{}", stage.display()))
            .args(["-lsrpt", "-lrdmacm", "-libverbs", "-o"])
            .arg(&program),
    )?;
    Ok(program)
}
