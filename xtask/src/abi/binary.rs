//! The shared library as the dynamic loader and the packaging tools see it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::report::{Outcome, Suite};
use crate::{process, symbols, workspace};

/// Where the linker finds the distribution's library.
const ORIGINAL: &str = "librdmacm.so.1";

pub fn run(library: &Path, suite: &mut Suite) {
    suite.check(
        "every symbol is at its version node, and no other exists",
        symbols::promised().and_then(|promised| versions(library, &promised)),
    );
    suite.check(
        "SONAME and needed libraries",
        dynamic_section(library, ORIGINAL),
    );
    match original() {
        Some(original) => {
            suite.check(
                "abidiff: nothing of the original is missing",
                abidiff(&original, library),
            );
        }
        None => suite.record(
            "abidiff: nothing of the original is missing",
            Outcome::Skipped("the original library is not installed".to_owned()),
        ),
    }
    let name = "dpkg-gensymbols: as the distribution's symbols file says";
    match symbols_file() {
        Some(file) => suite.check(name, gensymbols(&file, library)),
        None => suite.record(
            name,
            Outcome::Skipped("the package librdmacm1 is not installed".to_owned()),
        ),
    }
}

/// Fails unless the library exports what was promised, where it was, and
/// nothing else.
pub fn versions(library: &Path, promised: &symbols::Versions) -> Result<()> {
    let exported = symbols::exported(library)?;
    for (name, node) in promised {
        match exported.get(name) {
            Some(found) if found == node => {}
            Some(found) => bail!("{name} is at node `{found}`, not {node}"),
            None => bail!("{name} is not exported"),
        }
    }
    for name in exported.keys() {
        ensure!(
            promised.contains_key(name),
            "{name} is exported and should not be"
        );
    }
    let nodes = symbols::nodes(library)?;
    for node in promised.values() {
        ensure!(
            nodes.contains(node),
            "the node {node} has no symbol of its own"
        );
    }
    Ok(())
}

/// Fails unless the library is called `soname` and needs libibverbs, but no
/// librdmacm.
pub fn dynamic_section(library: &Path, soname: &str) -> Result<()> {
    let section = process::output(Command::new("readelf").args(["-d", "-W"]).arg(library))?;
    let named = |tag: &str| -> Vec<&str> {
        section
            .lines()
            .filter(|line| line.contains(tag))
            .filter_map(|line| line.split_once('[')?.1.split(']').next())
            .collect()
    };
    ensure!(
        named("(SONAME)") == [soname],
        "SONAME is {:?}",
        named("(SONAME)")
    );
    let needed = named("(NEEDED)");
    ensure!(
        needed.iter().any(|name| name.starts_with("libibverbs.so.")),
        "libibverbs is not needed: {needed:?}"
    );
    ensure!(
        !needed.iter().any(|name| name.starts_with("librdmacm")),
        "needs the library that it replaces: {needed:?}"
    );
    Ok(())
}

/// Ours has no debug information on C types, so this compares symbols; the
/// types are compared by the header checks. Additions are wanted: the
/// distribution may be older than our interface.
fn abidiff(original: &Path, library: &Path) -> Result<()> {
    process::output(
        Command::new("abidiff")
            .arg("--no-added-syms")
            .args([original, library]),
    )
    .map(drop)
}

/// With `-c4` any difference is an error, so that the symbols of nodes which
/// the distribution does not know yet are added to its file first.
fn gensymbols(file: &Path, library: &Path) -> Result<()> {
    let dir = workspace::target("abi/gensymbols")?;
    workspace::create(dir.join("debian"))?;
    fs::write(
        dir.join("debian/control"),
        "Source: rdmacm\n\nPackage: librdmacm1\nArchitecture: any\n",
    )?;
    let text = fs::read_to_string(file)?;
    let unknown: Vec<_> = symbols::promised()?
        .into_iter()
        .filter(|(_, node)| !text.contains(&format!(" {node}@{node} ")))
        .collect();
    let mut lines: Vec<_> = unknown
        .iter()
        .flat_map(|(name, node)| [format!(" {name}@{node} 0\n"), format!(" {node}@{node} 0\n")])
        .collect();
    lines.sort();
    lines.dedup();
    let expected = dir.join("librdmacm1.symbols");
    fs::write(&expected, text + &lines.concat())?;
    process::output(
        Command::new("dpkg-gensymbols")
            .current_dir(&dir)
            .args(["-c4", "-plibrdmacm1", "-v0", "-O/dev/null"])
            .arg(format!("-I{}", expected.display()))
            .arg(format!("-e{}", library.display())),
    )
    .map(drop)
}

/// The distribution's library, as the loader finds it.
fn original() -> Option<PathBuf> {
    let listing = process::output(Command::new("/sbin/ldconfig").arg("-p")).ok()?;
    listing
        .lines()
        .filter(|line| line.trim_start().starts_with(ORIGINAL))
        .find_map(|line| Some(PathBuf::from(line.split_once("=> ")?.1)))
}

fn symbols_file() -> Option<PathBuf> {
    let dir = fs::read_dir("/var/lib/dpkg/info").ok()?;
    dir.filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("librdmacm1") && name.ends_with(".symbols")
        })
}

/// Runs `program` and returns its standard output, without our library unless
/// `library_path` names it.
pub fn run_program(program: &Path, library_path: Option<&Path>) -> Result<String> {
    let mut command = Command::new(program);
    match library_path {
        Some(dir) => command.env("LD_LIBRARY_PATH", dir),
        None => command.env_remove("LD_LIBRARY_PATH"),
    };
    process::output(&mut command).with_context(|| format!("running {}", program.display()))
}
