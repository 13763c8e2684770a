//! A small program, built through `pkg-config` as programs are: against an
//! installed tree of ours, shared and static, in C and C++, and against the
//! original, to run on ours without being relinked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};

use super::binary::run_program;
use crate::install::{self, Tree};
use crate::report::Suite;
use crate::{process, workspace};

/// What the program prints on a working library.
const EXPECTED: &str = "RDMA_CM_EVENT_ESTABLISHED";

pub fn run(stage: &Path, suite: &mut Suite) {
    let source = workspace::root().join("xtask/abi/consumer.c");
    let consumer = match Consumer::install(stage, "abi", source) {
        Ok(consumer) => consumer,
        Err(error) => return suite.check("install into a folder", Err(error)),
    };
    suite.check("install into a folder", Ok(()));
    suite.check("librdmacm.pc satisfies >= 1.3.44", consumer.version());
    suite.check(
        "a C program links to the shared library",
        consumer.shared("cc", "c99"),
    );
    suite.check(
        "a C++ program links to the shared library",
        consumer.shared("c++", "c++11"),
    );
    suite.check("a C program links to the static library", consumer.fixed());
    suite.check(
        "a C program links with everything static",
        consumer.wholly_static(),
    );
    suite.check(
        "a program linked to the original runs on ours",
        consumer.relinked(stage),
    );
    suite.check("an SRP target in C links by libsrpt.pc", consumer.target());
    suite.check("uninstall leaves nothing", consumer.uninstall());
}

/// Links a program of this package to the static library, alone and with everything
/// static, in a folder below `target/`; returns that.
pub fn link_statically(stage: &Path, source: &str, folder: &str) -> Result<PathBuf> {
    let source = workspace::root().join("xtask/programs").join(source);
    let consumer = Consumer::install(stage, folder, source)?;
    consumer.build("fixed", "cc", "c99", &consumer.fixed_flags()?)?;
    // Without dynamic libraries it has only the drivers that it asks for.
    let mut flags = consumer.wholly_static_flags()?;
    flags.push("-DRDMA_STATIC_PROVIDERS=all".to_owned());
    consumer.build("wholly-static", "cc", "c99", &flags)?;
    consumer.uninstall()?;
    Ok(consumer.folder)
}

struct Consumer {
    prefix: PathBuf,
    source: PathBuf,
    /// Where its programs go.
    folder: PathBuf,
}

impl Consumer {
    fn install(stage: &Path, folder: &str, source: PathBuf) -> Result<Self> {
        let folder = workspace::target(folder)?;
        let prefix = folder.join("prefix");
        fs::create_dir_all(&prefix)?;
        // Of an earlier run that failed.
        fs::remove_dir_all(&prefix)?;
        let mut tree = Tree::new(&prefix, None, Path::new("lib"))?;
        tree.install(stage)?;
        tree.keep_record()?;
        Ok(Self {
            prefix,
            source,
            folder,
        })
    }

    fn uninstall(&self) -> Result<()> {
        install::uninstall(&self.prefix)?;
        ensure!(!self.prefix.exists(), "{} exists", self.prefix.display());
        Ok(())
    }

    fn version(&self) -> Result<()> {
        self.pkg_config("librdmacm", &["--atleast-version=1.3.44"])
            .map(drop)
    }

    fn shared(&self, compiler: &str, standard: &str) -> Result<()> {
        let flags = self.pkg_config("librdmacm", &["--cflags", "--libs"])?;
        let program = self.build("consumer", compiler, standard, &flags)?;
        expect(&run_program(&program, Some(&self.prefix.join("lib")))?)
    }

    fn fixed_flags(&self) -> Result<Vec<String>> {
        let flags = self.pkg_config("librdmacm", &["--static", "--cflags", "--libs"])?;
        // The linker prefers the shared library that lies beside it.
        let flags = flags.into_iter();
        Ok(flags
            .map(|flag| flag.replace("-lrdmacm", "-l:librdmacm.a"))
            .collect())
    }

    fn fixed(&self) -> Result<()> {
        let program = self.build("consumer", "cc", "c99", &self.fixed_flags()?)?;
        let needed = process::output(Command::new("readelf").arg("-d").arg(&program))?;
        ensure!(
            !needed.contains("librdmacm"),
            "the program needs the shared library"
        );
        expect(&run_program(&program, None)?)
    }

    fn wholly_static_flags(&self) -> Result<Vec<String>> {
        let mut flags = self.pkg_config("librdmacm", &["--static", "--cflags", "--libs"])?;
        flags.push("-static".to_owned());
        Ok(flags)
    }

    fn wholly_static(&self) -> Result<()> {
        let program = self.build("consumer", "cc", "c99", &self.wholly_static_flags()?)?;
        expect(&run_program(&program, None)?)
    }

    fn relinked(&self, stage: &Path) -> Result<()> {
        // The original's leaves libibverbs to the program.
        let flags = words(&process::output(Command::new("pkg-config").args([
            "--cflags",
            "--libs",
            "librdmacm",
            "libibverbs",
        ]))?);
        let program = self.build("consumer", "cc", "c99", &flags)?;
        expect(&run_program(&program, None)?)?;
        expect(&run_program(&program, Some(stage))?)
    }

    /// The example of srpt(7).
    fn target(&self) -> Result<()> {
        let flags = self.pkg_config("libsrpt", &["--cflags", "--libs"])?;
        let program = self.folder.join("target");
        process::output(
            Command::new("cc")
                .args([
                    "-std=gnu11",
                    "-D_GNU_SOURCE",
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    "-o",
                ])
                .arg(&program)
                .arg(workspace::root().join("capi-tests/srpt/server.c"))
                .args(flags),
        )?;
        let needed = process::output(Command::new("readelf").arg("-d").arg(&program))?;
        ensure!(needed.contains("[libsrpt.so.1]"), "{needed}");
        Ok(())
    }

    fn pkg_config(&self, module: &str, arguments: &[&str]) -> Result<Vec<String>> {
        let path = self.prefix.join("lib/pkgconfig");
        process::output(
            Command::new("pkg-config")
                .env("PKG_CONFIG_PATH", path)
                .args(arguments)
                .arg(module),
        )
        .map(|flags| words(&flags))
    }

    fn build(
        &self,
        name: &str,
        compiler: &str,
        standard: &str,
        flags: &[String],
    ) -> Result<PathBuf> {
        let program = self.folder.join(name);
        let language = if compiler == "cc" { "c" } else { "c++" };
        process::output(
            Command::new(compiler)
                .args(["-x", language, "-Wall", "-Wextra", "-Werror"])
                .arg(format!("-std={standard}"))
                .arg(&self.source)
                .args(["-x", "none", "-o"])
                .arg(&program)
                .args(flags),
        )?;
        Ok(program)
    }
}

fn words(flags: &str) -> Vec<String> {
    flags.split_whitespace().map(str::to_owned).collect()
}

fn expect(output: &str) -> Result<()> {
    if output.trim() != EXPECTED {
        bail!("the program printed `{}`, not {EXPECTED}", output.trim());
    }
    Ok(())
}
