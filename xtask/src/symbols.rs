//! The exported names: what the version maps in `link/` promise, what a library
//! exports and what a program imports.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{process, workspace};

/// Symbols with the version node of each.
pub type Versions = BTreeMap<String, String>;

/// The symbols of the version map, the contract of the library.
pub fn promised() -> Result<Versions> {
    promised_by("librdmacm.map")
}

/// The symbols of libsrpt's version map.
pub fn promised_srpt() -> Result<Versions> {
    promised_by("libsrpt.map")
}

fn promised_by(map: &str) -> Result<Versions> {
    let path = workspace::root().join("link").join(map);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(parse_map(&text))
}

/// The symbols that a shared library exports with a default version, and
/// those it exports without any, whose node is empty.
pub fn exported(library: &Path) -> Result<Versions> {
    let listing = nm(library, "--defined-only")?;
    Ok(listing
        .lines()
        .filter_map(|line| {
            let [_, kind, symbol] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                return None;
            };
            // "A" are the nodes themselves.
            let (name, node) = symbol.split_once("@@").unwrap_or((symbol, ""));
            (kind != "A").then(|| (name.to_owned(), node.to_owned()))
        })
        .collect())
}

/// The names of the version nodes that a shared library defines.
pub fn nodes(library: &Path) -> Result<Vec<String>> {
    let listing = nm(library, "--defined-only")?;
    Ok(listing
        .lines()
        .filter_map(|line| line.split_once(" A ")?.1.split('@').next())
        .map(str::to_owned)
        .collect())
}

/// The symbols of this library that a program or library imports.
pub fn imported(file: &Path) -> Result<Vec<String>> {
    let listing = nm(file, "--undefined-only")?;
    Ok(listing
        .lines()
        .filter_map(|line| line.trim().strip_prefix("U ")?.split_once("@RDMACM_"))
        .map(|(name, _)| name.to_owned())
        .collect())
}

fn nm(file: &Path, which: &str) -> Result<String> {
    process::output(
        Command::new("nm")
            .args(["-D", "--with-symbol-versions", which])
            .arg(file),
    )
}

fn parse_map(text: &str) -> Versions {
    let mut versions = Versions::new();
    let mut node = "";
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix('{') {
            node = name.trim();
        } else if let Some(name) = line.strip_suffix(';')
            && !name.contains([':', '}', '*'])
        {
            versions.insert(name.to_owned(), node.to_owned());
        }
    }
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_node_by_node() {
        let map = "A_1 {\n global:\n  one;\n local: *;\n};\nA_2 {\n global:\n  two;\n} A_1;\n";
        let expected =
            [("one", "A_1"), ("two", "A_2")].map(|(name, node)| (name.to_owned(), node.to_owned()));
        assert_eq!(parse_map(map), Versions::from(expected));
    }
}
