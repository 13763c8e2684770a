//! The check that what the documents point at is there: files, headings,
//! folders of the repository, subcommands of `cargo xtask` and suites. What they
//! say of conformance cases is checked in `cases`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{CommandFactory, ValueEnum};

use super::Name;
use crate::{Task, workspace};

/// Where the documents are, from the top of the repository.
const FOLDERS: [&str; 3] = ["", "docs", "capi-tests"];

/// Fails with a list of what points nowhere.
pub fn check() -> Result<()> {
    let root = workspace::root();
    let mut faults = Vec::new();
    for folder in FOLDERS {
        let dir = root.join(folder);
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {folder}"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|suffix| suffix == "md") {
                let text = fs::read_to_string(&path)?;
                let name = path.strip_prefix(&root).unwrap_or(&path).display();
                let dead = dead_links(&dir, &path, &text)
                    .chain(missing_paths(&root, &text))
                    .chain(unknown_commands(&text));
                faults.extend(dead.map(|target| format!("{name}: {target}")));
            }
        }
    }
    ensure!(faults.is_empty(), "points nowhere: {}", faults.join("; "));
    Ok(())
}

/// The links of a document in `dir` to a file or heading that is not there.
fn dead_links<'a>(
    dir: &'a Path,
    document: &'a Path,
    text: &'a str,
) -> impl Iterator<Item = &'a str> {
    targets(text).filter(move |target| {
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let path = if file.is_empty() {
            PathBuf::from(document)
        } else {
            dir.join(file)
        };
        if heading.is_empty() {
            return !path.exists();
        }
        !fs::read_to_string(path).is_ok_and(|text| anchors(&text).contains(heading))
    })
}

/// What the links of a document lead to within the repository.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target)
        .filter(|target| !target.contains("://"))
}

/// The anchors of a document's headings, as they are made for display.
fn anchors(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

/// The paths between backquotes that begin with a folder of the repository and
/// do not exist.
fn missing_paths<'a>(root: &'a Path, text: &'a str) -> impl Iterator<Item = &'a str> {
    let made = |folder: &str| matches!(folder, "" | "target");
    text.split('`').skip(1).step_by(2).filter(move |word| {
        let Some((folder, _)) = word.split_once('/') else {
            return false;
        };
        let is_path = word
            .chars()
            .all(|c| c.is_alphanumeric() || "/._-".contains(c));
        is_path && !made(folder) && root.join(folder).is_dir() && !root.join(word).exists()
    })
}

/// The subcommands and suites that a document asks for and nobody knows.
fn unknown_commands(text: &str) -> impl Iterator<Item = &str> {
    let commands: BTreeSet<_> = Task::command()
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect();
    let suites: BTreeSet<_> = Name::value_variants()
        .iter()
        .map(|suite| suite.text())
        .collect();
    let unknown_command = words_behind(text, "cargo xtask ")
        .chain(words_behind(text, "./run "))
        .filter(move |word| !commands.contains(*word));
    let unknown_suite =
        words_behind(text, "xtask test --only ").filter(move |word| !suites.contains(word));
    unknown_command.chain(unknown_suite)
}

/// The words in lower case that follow `before`.
fn words_behind<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(|rest| {
        let word = rest.split(|c: char| !c.is_ascii_lowercase()).next()?;
        (!word.is_empty()).then_some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_files_and_headings() {
        let text = "# A `b`, c\n[x](b.md#d) [y](https://e/f) [z](#a-b-c)";
        assert_eq!(targets(text).collect::<Vec<_>>(), ["b.md#d", "#a-b-c"]);
        assert!(anchors(text).contains("a-b-c"));
    }

    #[test]
    fn paths_are_told_from_other_code() {
        let text = "`src/no.rs` `src/main.rs` `nowhere/x` `src/ a` `target/x`";
        let root = workspace::root().join("xtask");
        assert_eq!(
            missing_paths(&root, text).collect::<Vec<_>>(),
            ["src/no.rs"]
        );
    }

    #[test]
    fn commands_and_suites_must_exist() {
        let text = "cargo xtask vm, cargo xtask SUITE, ./run nothing, cargo xtask test --only no";
        assert_eq!(
            unknown_commands(text).collect::<Vec<_>>(),
            ["nothing", "no"]
        );
    }
}
