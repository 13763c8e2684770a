//! Checks of the manual pages under `man/`: each exported function has one, or
//! is covered by one through a `.so` line; pages of functions have the sections
//! that readers look for; and groff and mandoc find nothing to complain about.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{process, symbols, workspace};

/// Every page of section 3 has these.
const SECTIONS: [&str; 5] = [
    "NAME",
    "SYNOPSIS",
    "DESCRIPTION",
    "THREAD SAFETY",
    "SEE ALSO",
];

/// Programs that check a page, and that say nothing about a good one.
const LINTERS: [&[&str]; 2] = [
    &["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z"],
    &["mandoc", "-Tlint", "-Wwarning"],
];

/// Fails with a list of everything that is wrong.
pub fn check() -> Result<()> {
    let dir = workspace::root().join("man");
    let mut faults = Vec::new();
    let srpt = symbols::promised_srpt()?;
    for name in symbols::promised()?.keys().chain(srpt.keys()) {
        if let Err(error) = covered(&dir, name) {
            faults.push(format!("{name}: {error:#}"));
        }
    }
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if link(&fs::read_to_string(&path)?).is_none() {
            faults.extend(
                LINTERS
                    .iter()
                    .filter_map(|linter| lint(linter, &path).err())
                    .map(|error| format!("{error:#}")),
            );
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// Fails unless a page is found under the name of the function and tells of it.
fn covered(dir: &Path, function: &str) -> Result<()> {
    let own = page(dir, function)?;
    let text = match link(&own) {
        Some(target) => page(dir, target)?,
        None => own,
    };
    ensure!(
        link(&text).is_none(),
        "its page points to one that points on"
    );
    ensure!(
        names(&text).any(|name| name == function),
        "not among the names of its page"
    );
    for section in SECTIONS {
        ensure!(has_section(&text, section), "its page has no {section}");
    }
    Ok(())
}

fn page(dir: &Path, function: &str) -> Result<String> {
    let path: PathBuf = dir.join(format!("{function}.3"));
    fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))
}

/// The page of the same section that this one stands for.
pub fn link(text: &str) -> Option<&str> {
    text.strip_prefix(".so man3/")?
        .trim_end()
        .strip_suffix(".3")
}

/// The names before the dash in section NAME.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split_once(".SH NAME\n")
        .and_then(|(_, rest)| rest.split_once(" \\- "))
        .map_or("", |(names, _)| names)
        .split([',', '\n'])
        .map(str::trim)
}

fn has_section(text: &str, section: &str) -> bool {
    text.lines()
        .filter_map(|line| line.strip_prefix(".SH "))
        .any(|title| title.trim_matches('"') == section)
}

fn lint(linter: &[&str], path: &Path) -> Result<()> {
    let [program, options @ ..] = linter else {
        bail!("no linter");
    };
    let mut command = Command::new(program);
    command.args(options).arg(path).stdin(Stdio::null());
    let shown = process::show(&command);
    let output = command
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(
        output.status.success() && said.is_empty(),
        "{shown}: {}",
        String::from_utf8_lossy(&said).trim_end()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sections_are_read() {
        let text = ".TH A 3\n.SH NAME\na, b,\nc \\- letters\n.SH \"SEE ALSO\"\n.BR d (3)\n";
        assert_eq!(
            names(text)
                .filter(|name| !name.is_empty())
                .collect::<Vec<_>>(),
            ["a", "b", "c"]
        );
        assert!(has_section(text, "SEE ALSO"));
        assert!(!has_section(text, "SEE"));
    }

    #[test]
    fn links_name_their_function() {
        assert_eq!(link(".so man3/rdma_connect.3\n"), Some("rdma_connect"));
        assert_eq!(link(".TH RDMA_CONNECT 3\n"), None);
    }
}
