//! `docs/matrix.md`: the results of the matrix, area by column, and the reason
//! of everything that was not tried. Knows how cases are named, not how they
//! are run.
//!
//! The matrix takes an hour and more where the machine is emulated, so results
//! are kept below `target/`, suite by suite and column by column, each with the
//! commit that it was seen at, and may come from several runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::columns::{Column, SUITES};
use crate::report::{Case, Outcome, Suite, Tally};
use crate::{process, workspace};

const DOCUMENT: &str = "docs/matrix.md";

/// What was seen in one column.
struct Seen {
    /// The column's heading.
    heading: String,
    /// Its suites.
    suites: Vec<Suite>,
    /// The commits that they were seen at.
    commits: Vec<String>,
}

fn file(column: Column, suite: &str) -> Result<PathBuf> {
    let folder = workspace::target(&format!("matrix-results/{}", column.key()))?;
    Ok(folder.join(suite).with_extension("tap"))
}

/// Keeps the results of a suite for the document.
pub fn keep(column: Column, suite: &Suite) -> Result<()> {
    let commit = process::output(
        Command::new("git")
            .args(["describe", "--always", "--dirty"])
            .current_dir(workspace::root()),
    )?;
    let mut text = format!("# {}\n", commit.trim());
    for case in &suite.cases {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{case}");
    }
    fs::write(file(column, &suite.name)?, text).context("cannot keep results")
}

/// Writes the document from all results that are kept.
pub fn write() -> Result<()> {
    let mut columns = Vec::new();
    for column in Column::ALL {
        let mut seen = Seen {
            heading: column.heading()?,
            suites: Vec::new(),
            commits: Vec::new(),
        };
        for name in SUITES {
            let Ok(text) = fs::read_to_string(file(column, name.text())?) else {
                continue;
            };
            let mut suite = Suite::new(name.text());
            suite.cases = text.lines().filter_map(Case::parse).collect();
            let commit = text.lines().find_map(|line| line.strip_prefix("# "));
            seen.commits
                .push(format!("{} {}", name.text(), commit.unwrap_or("unknown")));
            seen.suites.push(suite);
        }
        columns.push(seen);
    }
    let path = workspace::root().join(DOCUMENT);
    fs::write(&path, render(&columns))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}

/// A suite, and the area in it: a C program or a client.
type Area<'a> = (&'a str, &'a str);

fn area<'a>(suite: &'a str, case: &'a Case) -> Area<'a> {
    let mark = match suite {
        "conformance" => '/',
        "clients" => ':',
        _ => return (suite, ""),
    };
    let name = case.name.split_once(mark).map(|(area, _)| area);
    (suite, name.unwrap_or("the suite itself"))
}

fn render(columns: &[Seen]) -> String {
    let mut areas: Vec<Area> = Vec::new();
    let mut tallies: BTreeMap<(Area, usize), Vec<&Case>> = BTreeMap::new();
    for (column, seen) in columns.iter().enumerate() {
        for suite in &seen.suites {
            for case in &suite.cases {
                let area = area(&suite.name, case);
                if !areas.contains(&area) {
                    areas.push(area);
                }
                tallies.entry((area, column)).or_default().push(case);
            }
        }
    }
    areas.sort_by_key(|(suite, _)| columns.first().map(|seen| place(seen, suite)));

    let mut text = String::from(
        "# Test results by kernel\n\n\
         Written by `cargo xtask test --matrix`; do not edit. Each column is one kernel with\n\
         one userland, whose librdmacm is the original that the conformance cases and the\n\
         clients are compared with. A conformance case passes when ours does what is right\n\
         and the original is as the case says (`[fix]`: wrong); areas are the programs of\n\
         `capi-tests/`. A client passes in one pairing of ours and the original. Cells are\n\
         cases passed / failed / skipped.\n\n",
    );
    let mut line = |cells: &[String]| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    let mut heading = vec!["suite".to_owned(), "area".to_owned()];
    heading.extend(columns.iter().map(|seen| seen.heading.clone()));
    line(&heading);
    line(&vec!["---".to_owned(); heading.len()]);
    let mut totals = vec![String::new(), "**all**".to_owned()];
    for &area in &areas {
        let mut cells = vec![area.0.to_owned(), area.1.to_owned()];
        for column in 0..columns.len() {
            cells.push(match tallies.get(&(area, column)) {
                Some(cases) => cell(Tally::of(cases.iter().copied())),
                None => "–".to_owned(),
            });
        }
        line(&cells);
    }
    totals.extend(columns.iter().map(|seen| {
        let cases = seen.suites.iter().flat_map(|suite| &suite.cases);
        format!("**{}**", cell(Tally::of(cases)))
    }));
    line(&totals);

    text.push_str("\nSeen at these commits:\n\n");
    for seen in columns {
        let _ = writeln!(text, "- {}: {}", seen.heading, seen.commits.join(", "));
    }
    notes(&mut text, columns, "Failed", |outcome| match outcome {
        Outcome::Failed(why) => Some(why),
        Outcome::Passed | Outcome::Skipped(_) => None,
    });
    notes(&mut text, columns, "Skipped", |outcome| match outcome {
        Outcome::Skipped(why) => Some(why),
        Outcome::Passed | Outcome::Failed(_) => None,
    });
    text
}

fn place(seen: &Seen, suite: &str) -> Option<usize> {
    seen.suites.iter().position(|other| other.name == suite)
}

fn cell(tally: Tally) -> String {
    format!("{} / {} / {}", tally.passed, tally.failed, tally.skipped)
}

/// A section with the cases for which `reason` has something to say: the
/// reason, and in which columns it holds.
fn notes(
    text: &mut String,
    columns: &[Seen],
    title: &str,
    reason: impl Fn(&Outcome) -> Option<&String>,
) {
    let mut found: Vec<((&str, &str), Vec<&str>)> = Vec::new();
    for seen in columns {
        for case in seen.suites.iter().flat_map(|suite| &suite.cases) {
            let Some(why) = reason(&case.outcome) else {
                continue;
            };
            let key = (case.name.as_str(), why.as_str());
            match found.iter_mut().find(|(other, _)| *other == key) {
                Some((_, headings)) => headings.push(&seen.heading),
                None => found.push((key, vec![&seen.heading])),
            }
        }
    }
    let _ = write!(text, "\n## {title}\n\n");
    if found.is_empty() {
        let _ = writeln!(text, "Nothing.");
        return;
    }
    let _ = writeln!(text, "| case | why | where |\n|---|---|---|");
    for ((name, why), headings) in found {
        let why = why.replace('|', "\\|");
        let _ = writeln!(text, "| {name} | {why} | {} |", headings.join("; "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(heading: &str, lines: &[&str]) -> Seen {
        let mut suite = Suite::new("conformance");
        suite.cases = lines.iter().filter_map(|line| Case::parse(line)).collect();
        Seen {
            heading: heading.to_owned(),
            suites: vec![suite],
            commits: vec!["conformance abc".to_owned()],
        }
    }

    #[test]
    fn areas_are_counted_by_column_and_reasons_are_told() {
        let text = render(&[
            seen("6.1", &["ok - bind/1 a", "ok - ece/1 b # SKIP too old"]),
            seen("7.3", &["ok - bind/1 a", "not ok - ece/1 b # no | event"]),
        ]);
        for line in [
            "| suite | area | 6.1 | 7.3 |",
            "| conformance | bind | 1 / 0 / 0 | 1 / 0 / 0 |",
            "| conformance | ece | 0 / 0 / 1 | 0 / 1 / 0 |",
            "|  | **all** | **1 / 0 / 1** | **1 / 1 / 0** |",
            "| ece/1 b | too old | 6.1 |",
            "| ece/1 b | no \\| event | 7.3 |",
            "- 7.3: conformance abc",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_reason_that_holds_everywhere_is_told_once() {
        let skipped = ["ok - qp/xrc # SKIP no XRC"];
        let text = render(&[seen("6.1", &skipped), seen("7.3", &skipped)]);
        assert!(text.contains("| qp/xrc | no XRC | 6.1; 7.3 |"), "{text}");
    }
}
