//! `docs/matrix.md`: the results of the matrix, area by column, and the reason
//! of everything that failed or was not tried. Knows how cases are named, not
//! how they are run.
//!
//! The matrix takes an hour and more where the machine is emulated, so its
//! results may come from several runs. The document keeps them: a suite that
//! has run takes the place of what the document says about it in the same
//! column, and everything else stays.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::columns::{Column, SUITES};
use crate::report::{Case, Outcome, Suite, Tally};
use crate::{process, workspace};

const DOCUMENT: &str = "docs/matrix.md";

const INTRODUCTION: &str = "# Test results by kernel\n\n\
    Written by `cargo xtask test`, with `--matrix` or `--record`; do not edit. Each\n\
    column is one kernel with one userland, whose librdmacm is the original that the\n\
    conformance cases and the clients are compared with. A conformance case passes when\n\
    ours does what is right and the original is as the case says (`[fix]`: wrong);\n\
    areas are the programs of `capi-tests/`. A client passes in one pairing of ours and\n\
    the original. Cells are cases passed / failed / skipped.\n\n";
const SEEN: &str = "Seen at these commits:";
const FAILED: &str = "Failed";
const SKIPPED: &str = "Skipped";

/// Which commit is being tested.
pub fn commit() -> Result<String> {
    let described = process::output(
        Command::new("git")
            .args(["describe", "--always", "--dirty"])
            .current_dir(workspace::root()),
    )?;
    Ok(described.trim().to_owned())
}

/// Writes what a suite has shown in a column, at this commit, into the document.
pub fn record(column: Column, commit: &str, suite: &Suite) -> Result<()> {
    let path = workspace::root().join(DOCUMENT);
    let old = fs::read_to_string(&path).unwrap_or_default();
    let mut document = Document::read(&old);
    document.replace(column, column.heading()?, commit, suite);
    fs::write(&path, document.to_string())
        .with_context(|| format!("cannot write {}", path.display()))
}

/// A suite, and the area in it: a C program or a client.
type Area = (String, String);

/// What the document says.
struct Document {
    /// One for each of [`Column::ALL`].
    columns: Vec<Seen>,
    failed: Vec<Note>,
    skipped: Vec<Note>,
}

/// What was seen in one column.
struct Seen {
    /// The column's name, with the version of the original.
    heading: String,
    /// Suites and the commits that they were seen at.
    commits: Vec<(String, String)>,
    tallies: Vec<(Area, Tally)>,
}

/// Why a case failed or was not tried, and in which columns.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Note {
    suite: String,
    case: String,
    why: String,
    columns: Vec<usize>,
}

impl Document {
    /// Reads what [`record`] wrote; what is missing was not seen.
    fn read(text: &str) -> Self {
        let mut document = Self {
            columns: Vec::new(),
            failed: Vec::new(),
            skipped: Vec::new(),
        };
        let headings: Vec<_> = text
            .lines()
            .filter_map(cells)
            .find(|cells| cells.starts_with(&["suite", "area"]))
            .map(|cells| cells.into_iter().skip(2).collect())
            .unwrap_or_default();
        for column in Column::ALL {
            let name = column.name();
            let begins = |heading: &&str| heading.starts_with(&format!("{name} ("));
            document
                .columns
                .push(match headings.iter().position(begins) {
                    Some(index) => Seen::read(text, headings[index], index),
                    None => Seen::nothing(name),
                });
        }
        document.failed = document.read_notes(text, FAILED);
        document.skipped = document.read_notes(text, SKIPPED);
        document
    }

    fn read_notes(&self, text: &str, title: &str) -> Vec<Note> {
        let of_title = |line: &&str| *line != format!("## {title}");
        let lines = text.lines().skip_while(of_title).skip(1);
        lines
            .take_while(|line| !line.starts_with("## "))
            .filter_map(cells)
            .filter_map(|cells| {
                let [suite, case, why, places] = cells[..] else {
                    return None;
                };
                let column = |place| self.columns.iter().position(|seen| seen.heading == place);
                let columns: Vec<_> = places.split("; ").filter_map(column).collect();
                (!columns.is_empty()).then(|| Note {
                    suite: suite.to_owned(),
                    case: case.to_owned(),
                    why: why.replace("\\|", "|"),
                    columns,
                })
            })
            .collect()
    }

    /// Puts a suite's results in the place of what is known about it in a
    /// column.
    fn replace(&mut self, column: Column, heading: String, commit: &str, suite: &Suite) {
        let Some(index) = Column::ALL.iter().position(|other| *other == column) else {
            return;
        };
        let seen = &mut self.columns[index];
        seen.heading = heading;
        seen.commits.retain(|(name, _)| *name != suite.name);
        seen.commits.push((suite.name.clone(), commit.to_owned()));
        seen.tallies.retain(|((name, _), _)| *name != suite.name);
        for case in &suite.cases {
            let area = area(&suite.name, case);
            let tally = Tally::of([case]);
            match seen.tallies.iter_mut().find(|(other, _)| *other == area) {
                Some((_, sum)) => *sum = *sum + tally,
                None => seen.tallies.push((area, tally)),
            }
        }
        for notes in [&mut self.failed, &mut self.skipped] {
            for note in notes.iter_mut().filter(|note| note.suite == suite.name) {
                note.columns.retain(|other| *other != index);
            }
            notes.retain(|note| !note.columns.is_empty());
        }
        for case in &suite.cases {
            let (notes, why) = match &case.outcome {
                Outcome::Failed(why) => (&mut self.failed, why),
                Outcome::Skipped(why) => (&mut self.skipped, why),
                Outcome::Passed => continue,
            };
            add_note(notes, &suite.name, case, why, index);
        }
    }

    /// All areas, suite by suite, in the order of the columns.
    fn areas(&self) -> Vec<&Area> {
        let mut areas = Vec::new();
        for (area, _) in self.columns.iter().flat_map(|seen| &seen.tallies) {
            if !areas.contains(&area) {
                areas.push(area);
            }
        }
        areas.sort_by_key(|(suite, _)| SUITES.iter().position(|name| name.text() == suite));
        areas
    }

    fn notes(&self, title: &str, notes: &[Note]) -> String {
        let mut text = format!("\n## {title}\n\n");
        if notes.is_empty() {
            text.push_str("Nothing.\n");
            return text;
        }
        text.push_str("| suite | case | why | where |\n|---|---|---|---|\n");
        for note in notes {
            let why = note.why.replace('|', "\\|");
            let places: Vec<_> = note
                .columns
                .iter()
                .map(|&column| self.columns[column].heading.as_str())
                .collect();
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "| {} | {} | {why} | {} |",
                note.suite,
                note.case,
                places.join("; ")
            );
        }
        text
    }
}

impl std::fmt::Display for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seen = || self.columns.iter();
        let headings: Vec<_> = seen().map(|seen| seen.heading.as_str()).collect();
        f.write_str(INTRODUCTION)?;
        writeln!(f, "| suite | area | {} |", headings.join(" | "))?;
        writeln!(f, "| --- | --- |{}", " --- |".repeat(headings.len()))?;
        for area in self.areas() {
            write!(f, "| {} | {} |", area.0, area.1)?;
            for seen in seen() {
                let tally = seen.tallies.iter().find(|(other, _)| other == area);
                match tally {
                    Some((_, tally)) => write!(f, " {} |", cell(*tally))?,
                    None => write!(f, " – |")?,
                }
            }
            writeln!(f)?;
        }
        write!(f, "|  | **all** |")?;
        for seen in seen() {
            let sum = seen.tallies.iter().map(|(_, tally)| *tally);
            write!(f, " **{}** |", cell(sum.sum()))?;
        }
        write!(f, "\n\n{SEEN}\n\n")?;
        for seen in seen() {
            let commits: Vec<_> = seen
                .commits
                .iter()
                .map(|(suite, commit)| format!("{suite} {commit}"))
                .collect();
            writeln!(f, "- {}: {}", seen.heading, commits.join(", "))?;
        }
        f.write_str(&self.notes(FAILED, &self.failed))?;
        f.write_str(&self.notes(SKIPPED, &self.skipped))
    }
}

impl Seen {
    fn nothing(heading: String) -> Self {
        Self {
            heading,
            commits: Vec::new(),
            tallies: Vec::new(),
        }
    }

    /// What the column with this heading, the `index`th, says.
    fn read(text: &str, heading: &str, index: usize) -> Self {
        let mut seen = Self::nothing(heading.to_owned());
        for cells in text
            .lines()
            .take_while(|line| *line != SEEN)
            .filter_map(cells)
        {
            let [suite, area, ref tallies @ ..] = cells[..] else {
                continue;
            };
            // The line below has the sums, and suites have names.
            if !suite.is_empty()
                && let Some(tally) = tallies.get(index).and_then(|text| read_cell(text))
            {
                seen.tallies
                    .push(((suite.to_owned(), area.to_owned()), tally));
            }
        }
        let prefix = format!("- {heading}: ");
        let commits = text.lines().find_map(|line| line.strip_prefix(&prefix));
        seen.commits = commits
            .unwrap_or_default()
            .split(", ")
            .filter_map(|words| words.split_once(' '))
            .map(|(suite, commit)| (suite.to_owned(), commit.to_owned()))
            .collect();
        seen
    }
}

fn area(suite: &str, case: &Case) -> Area {
    let mark = match suite {
        "conformance" => '/',
        "clients" | "interop" => ':',
        _ => return (suite.to_owned(), String::new()),
    };
    let name = case.name.split_once(mark).map(|(area, _)| area);
    (
        suite.to_owned(),
        name.unwrap_or("the suite itself").to_owned(),
    )
}

fn add_note(notes: &mut Vec<Note>, suite: &str, case: &Case, why: &str, column: usize) {
    let fresh = Note {
        suite: suite.to_owned(),
        case: case.name.clone(),
        // A row of a table is one line.
        why: why.split_whitespace().collect::<Vec<_>>().join(" "),
        columns: vec![column],
    };
    let same = |note: &&mut Note| {
        (&note.suite, &note.case, &note.why) == (&fresh.suite, &fresh.case, &fresh.why)
    };
    match notes.iter_mut().find(same) {
        Some(note) => {
            note.columns.push(column);
            note.columns.sort_unstable();
        }
        None => notes.push(fresh),
    }
}

/// The cells of a row of a table; a `|` inside one is escaped.
fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
    Some(row.split(" | ").collect())
}

fn cell(tally: Tally) -> String {
    format!("{} / {} / {}", tally.passed, tally.failed, tally.skipped)
}

fn read_cell(text: &str) -> Option<Tally> {
    let mut numbers = text.split(" / ").map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten();
    Some(Tally {
        passed: next()?,
        failed: next()?,
        skipped: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Column = Column::FIRST;
    const NEW: Column = Column::LAST;

    fn suite(name: &str, lines: &[&str]) -> Suite {
        let mut suite = Suite::new(name);
        suite.cases = lines.iter().filter_map(|line| Case::parse(line)).collect();
        suite
    }

    /// The document after these runs, each of which reads what the one before
    /// wrote.
    fn after(runs: &[(Column, &str, Suite)]) -> String {
        runs.iter()
            .fold(String::new(), |text, (column, commit, suite)| {
                let mut document = Document::read(&text);
                let heading = format!("{} (original)", column.name());
                document.replace(*column, heading, commit, suite);
                document.to_string()
            })
    }

    #[track_caller]
    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|other| other == *line), "{line}\n{text}");
        }
    }

    #[test]
    fn areas_are_counted_by_column_and_reasons_are_told() {
        let text = after(&[
            (
                OLD,
                "abc",
                suite(
                    "conformance",
                    &["ok - bind/1 a", "ok - ece/1 b # SKIP too old"],
                ),
            ),
            (
                NEW,
                "def",
                suite(
                    "conformance",
                    &["ok - bind/1 a", "not ok - ece/1 b # no | event"],
                ),
            ),
            (NEW, "def", suite("commands", &["ok - counts"])),
        ]);
        has(
            &text,
            &[
                "| suite | area | 6.1 (original) | 6.1, sid | 6.12 | 7.3 | 7.3, sid (original) |",
                "| conformance | bind | 1 / 0 / 0 | – | – | – | 1 / 0 / 0 |",
                "| conformance | ece | 0 / 0 / 1 | – | – | – | 0 / 1 / 0 |",
                "| commands |  | – | – | – | – | 1 / 0 / 0 |",
                "|  | **all** | **1 / 0 / 1** | \
                 **0 / 0 / 0** | **0 / 0 / 0** | **0 / 0 / 0** | **2 / 1 / 0** |",
                "| conformance | ece/1 b | too old | 6.1 (original) |",
                "| conformance | ece/1 b | no \\| event | 7.3, sid (original) |",
                "- 7.3, sid (original): conformance def, commands def",
            ],
        );
        assert_eq!(Document::read(&text).to_string(), text);
    }

    #[test]
    fn a_run_replaces_its_suite_in_its_column_and_nothing_else() {
        let failing = || suite("conformance", &["not ok - bind/1 a # why", "ok - gone/1 b"]);
        let text = after(&[
            (OLD, "abc", failing()),
            (OLD, "abc", suite("commands", &["not ok - counts # why"])),
            (NEW, "abc", failing()),
            (OLD, "def", suite("conformance", &["ok - bind/1 a"])),
        ]);
        has(
            &text,
            &[
                "| conformance | bind | 1 / 0 / 0 | – | – | – | 0 / 1 / 0 |",
                "| conformance | gone | – | – | – | – | 1 / 0 / 0 |",
                "| commands |  | 0 / 1 / 0 | – | – | – | – |",
                "| conformance | bind/1 a | why | 7.3, sid (original) |",
                "| commands | counts | why | 6.1 (original) |",
                "- 6.1 (original): commands abc, conformance def",
            ],
        );
    }

    #[test]
    fn the_document_is_read_whole() {
        let text = fs::read_to_string(workspace::root().join(DOCUMENT)).unwrap();
        assert_eq!(Document::read(&text).to_string(), text);
    }

    #[test]
    fn a_reason_that_holds_everywhere_is_told_once() {
        let skipped = || suite("conformance", &["ok - qp/xrc # SKIP no XRC"]);
        let text = after(&[(OLD, "abc", skipped()), (NEW, "abc", skipped())]);
        has(
            &text,
            &["| conformance | qp/xrc | no XRC | 6.1 (original); 7.3, sid (original) |"],
        );
    }
}
