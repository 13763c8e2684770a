//! `cargo xtask matrix`: `docs/symbols.md`, which says of every exported name
//! where it stands, whether it is implemented and which packaged programs
//! import it.
//!
//! Names and nodes come from the version map, the status from the list of
//! stubs in the sources, so neither can be forgotten. The clients are read
//! from the packages of Debian's unstable suite, which download anew each
//! time the document is written; checking it needs no network.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use syn::Item;

use crate::vm::apt::Apt;
use crate::{process, symbols, workspace};

/// The suite that has the newest programs.
const SUITE: &str = "sid";

/// Packages with programs or libraries that use this one.
const PACKAGES: &[&str] = &[
    "fio",
    "libdapl2",
    "libfabric1",
    "libiscsi7",
    "librdmacm1t64",
    "libucx0",
    "perftest",
    "python3-pyverbs",
    "qemu-system-x86",
    "qperf",
    "rdmacm-utils",
    "tgt",
];

/// Which packages import a name.
type Clients = BTreeMap<String, BTreeSet<String>>;

/// Command line of `cargo xtask matrix`.
#[derive(clap::Args)]
pub struct Args {
    /// Change nothing, fail if names, nodes or status are stale
    #[arg(long)]
    check: bool,
}

impl Args {
    /// Writes or checks the document.
    pub fn run(self) -> Result<ExitCode> {
        if self.check {
            check()?;
        } else {
            let path = document();
            fs::write(&path, collect()?)
                .with_context(|| format!("cannot write {}", path.display()))?;
            println!("wrote {}", path.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Fails if the document disagrees with the version map or the sources.
pub fn check() -> Result<()> {
    let path = document();
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (sources, clients) = read(&text)?;
    ensure!(
        render(&sources, &clients)? == text,
        "{} is stale, run `cargo xtask matrix`",
        path.display()
    );
    Ok(())
}

fn document() -> PathBuf {
    workspace::root().join("docs/symbols.md")
}

/// Downloads the packages and looks into them.
fn collect() -> Result<String> {
    let names: Vec<_> = PACKAGES.iter().map(|name| (*name).to_owned()).collect();
    let packages = Apt::new(SUITE)?.download(&names)?;
    let (mut sources, mut clients) = (Vec::new(), Clients::new());
    let dir = workspace::target("matrix")?;
    for package in packages {
        let field = |name: &str| -> Result<String> {
            let value = process::output(
                Command::new("dpkg-deb")
                    .arg("-f")
                    .args([package.as_os_str(), name.as_ref()]),
            )?;
            Ok(value.trim().to_owned())
        };
        let name = field("Package")?;
        sources.push(format!("{name} {}", field("Version")?));
        let contents = dir.join(&name);
        if contents.exists() {
            fs::remove_dir_all(&contents)?;
        }
        process::output(
            Command::new("dpkg-deb")
                .arg("-x")
                .arg(&package)
                .arg(&contents),
        )?;
        for file in files(&contents)? {
            if !is_elf(&file)? {
                continue;
            }
            for symbol in symbols::imported(&file)? {
                clients.entry(symbol).or_default().insert(name.clone());
            }
        }
    }
    sources.sort();
    render(&sources, &clients)
}

/// The regular files below `dir`.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files_below = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            files_below.extend(files(&entry.path())?);
        } else if kind.is_file() {
            files_below.push(entry.path());
        }
    }
    Ok(files_below)
}

fn is_elf(file: &Path) -> Result<bool> {
    let mut magic = [0; 4];
    let read = File::open(file)?.read(&mut magic)?;
    Ok(magic[..read] == *b"\x7fELF")
}

/// The names in the `stubs!` lists of the sources.
fn stubs() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for file in files(&workspace::root().join("src/capi"))? {
        let text = fs::read_to_string(file)?;
        for item in syn::parse_file(&text)?.items {
            if let Item::Macro(item) = item
                && item.mac.path.is_ident("stubs")
            {
                names.extend(item.mac.tokens.into_iter().map(|token| token.to_string()));
            }
        }
    }
    Ok(names)
}

fn render(sources: &[String], clients: &Clients) -> Result<String> {
    let (promised, stubs) = (symbols::promised()?, stubs()?);
    if let Some(name) = stubs.iter().find(|name| !promised.contains_key(*name)) {
        bail!("the stub {name} is not in the version map");
    }
    let implemented = promised.len() - stubs.len();
    let mut text = format!(
        "# Status of the exported names\n\n\
         Generated by `cargo xtask matrix` from `link/librdmacm.map`, the list of stubs in\n\
         `src/capi`, and `nm -D` on the programs and libraries of the Debian packages below;\n\
         do not edit. \"ENOSYS\" means that the name exists, so that programs load, and fails\n\
         with that error.\n\n\
         {} names, {implemented} implemented.\n\n\
         | name | node | status | imported by |\n|---|---|---|---|\n",
        promised.len(),
    );
    let none = BTreeSet::new();
    for (name, node) in &promised {
        let status = if stubs.contains(name) {
            "ENOSYS"
        } else {
            "implemented"
        };
        let importers: Vec<_> = clients
            .get(name)
            .unwrap_or(&none)
            .iter()
            .map(String::as_str)
            .collect();
        let cells = ["", name, node, status, &importers.join(", "), ""];
        let line = cells.join(" | ").replace("  ", " ");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", line.trim());
    }
    text += "\nPackages read:\n\n";
    for source in sources {
        let _ = writeln!(text, "- {source}");
    }
    Ok(text)
}

/// The packages and clients that a document names.
fn read(text: &str) -> Result<(Vec<String>, Clients)> {
    let (table, list) = text
        .split_once("\nPackages read:\n")
        .context("docs/symbols.md does not say which packages were read")?;
    let sources = list
        .lines()
        .filter_map(|line| line.strip_prefix("- "))
        .map(str::to_owned)
        .collect();
    let mut clients = Clients::new();
    for line in table.lines().filter(|line| line.starts_with("| r")) {
        if let [_, name, _, _, importers, _] = line.split('|').collect::<Vec<_>>()[..] {
            let importers = importers
                .split(',')
                .map(|package| package.trim().to_owned())
                .filter(|package| !package.is_empty())
                .collect();
            clients.insert(name.trim().to_owned(), importers);
        }
    }
    Ok((sources, clients))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_says_what_it_was_made_from() {
        let sources = vec!["qperf 0.4".to_owned()];
        let importers = BTreeSet::from(["qperf".to_owned(), "fio".to_owned()]);
        let clients = Clients::from([("rdma_connect".to_owned(), importers.clone())]);
        let (read_sources, read_clients) = read(&render(&sources, &clients).unwrap()).unwrap();
        assert_eq!(read_sources, sources);
        assert_eq!(read_clients["rdma_connect"], importers);
        assert!(read_clients["rdma_accept"].is_empty());
    }
}
