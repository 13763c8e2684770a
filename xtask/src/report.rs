//! Results of test cases: counting them, showing them, and carrying them out
//! of the test machine as TAP lines (`ok - suite: name`).

use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::iter::Sum;
use std::ops::Add;

/// How one case ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As it should.
    Passed,
    /// Not so; with the reason.
    Failed(String),
    /// Could not be tried; with the reason.
    Skipped(String),
}

/// One named result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// What was tried.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
}

impl Case {
    /// A case with its outcome.
    pub fn new(name: impl Into<String>, outcome: Outcome) -> Self {
        Self {
            name: name.into(),
            outcome,
        }
    }

    /// Reads one TAP result line; `None` for any other line.
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.trim_end();
        let (passed, rest) = match line.strip_prefix("not ok") {
            Some(rest) => (false, rest),
            None => (true, line.strip_prefix("ok")?),
        };
        let rest = rest.strip_prefix(' ')?;
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let rest = rest.trim_start().trim_start_matches("- ");
        let (name, note) = rest.split_once(" # ").unwrap_or((rest, ""));
        let outcome = match (note.strip_prefix("SKIP"), passed) {
            (Some(reason), _) => Outcome::Skipped(reason.trim().to_owned()),
            (None, true) => Outcome::Passed,
            (None, false) => Outcome::Failed(note.to_owned()),
        };
        Some(Self::new(name.trim(), outcome))
    }
}

impl fmt::Display for Case {
    /// The TAP line, without the newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        match &self.outcome {
            Outcome::Passed => write!(f, "ok - {}", self.name),
            Outcome::Failed(why) => write!(f, "not ok - {} # {}", self.name, line(why)),
            Outcome::Skipped(why) => write!(f, "ok - {} # SKIP {}", self.name, line(why)),
        }
    }
}

/// The results of one suite, shown as they come in.
pub struct Suite {
    /// Its name.
    pub name: String,
    /// Its cases so far.
    pub cases: Vec<Case>,
    /// What its lines begin with where suites run at the same time.
    label: Option<String>,
}

impl Suite {
    /// An empty suite.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            cases: Vec::new(),
            label: None,
        }
    }

    /// Puts `label` before each line that is shown from now on.
    pub fn with_label(mut self, label: String) -> Self {
        self.label = Some(label);
        self
    }

    /// An empty suite for a part that runs by itself, the `number`th.
    pub fn part(&self, number: usize) -> Self {
        let label = match &self.label {
            Some(label) => format!("{label}, {number}"),
            None => number.to_string(),
        };
        Self::new(&self.name).with_label(label)
    }

    /// Shows lines of text.
    pub fn say(&self, text: &str) {
        let mut out = io::stdout().lock();
        for line in text.lines() {
            // Nobody looks any more if it fails.
            let _ = match &self.label {
                Some(label) => writeln!(out, "{label}: {line}"),
                None => writeln!(out, "{line}"),
            };
        }
    }

    /// Prints and records a case.
    pub fn record(&mut self, name: impl Into<String>, outcome: Outcome) {
        let case = Case::new(name, outcome);
        self.say(&case.to_string());
        self.cases.push(case);
    }

    /// Records a case from a result: an error is a failure with its message.
    pub fn check(&mut self, name: impl Into<String>, result: anyhow::Result<()>) {
        let outcome = match result {
            Ok(()) => Outcome::Passed,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        self.record(name, outcome);
    }

    /// Shows and records the cases in what a program printed as TAP. The
    /// remarks (`# …`) above a failed case are the reason.
    pub fn record_tap(&mut self, output: &str) {
        let mut remarks = Vec::new();
        for line in output.lines() {
            if let Some(remark) = line.strip_prefix("# ") {
                self.say(line);
                remarks.push(remark);
            } else if let Some(case) = Case::parse(line) {
                let outcome = match case.outcome {
                    Outcome::Failed(_) => Outcome::Failed(remarks.join("; ")),
                    other => other,
                };
                self.record(case.name, outcome);
                remarks.clear();
            }
        }
    }

    /// Whether any case failed.
    pub fn has_failures(&self) -> bool {
        Tally::of(&self.cases).failed > 0
    }
}

/// Passes on what another process prints and collects the TAP lines in it.
pub struct Collector<'a> {
    suite: &'a mut Suite,
    line: Vec<u8>,
}

impl<'a> Collector<'a> {
    /// Collects into `suite`.
    pub fn new(suite: &'a mut Suite) -> Self {
        Self {
            suite,
            line: Vec::new(),
        }
    }
}

impl Write for Collector<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            if byte == b'\n' {
                let line = String::from_utf8_lossy(&self.line);
                let line = line.trim_end_matches('\r');
                self.suite.say(if line.is_empty() { "\n" } else { line });
                self.suite.cases.extend(Case::parse(line));
                self.line.clear();
            } else {
                self.line.push(byte);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// Cases counted by outcome.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed.
    pub failed: usize,
    /// Cases that could not be tried.
    pub skipped: usize,
}

impl Tally {
    /// Counts `cases`.
    pub fn of<'a>(cases: impl IntoIterator<Item = &'a Case>) -> Self {
        let mut tally = Self::default();
        for case in cases {
            match case.outcome {
                Outcome::Passed => tally.passed += 1,
                Outcome::Failed(_) => tally.failed += 1,
                Outcome::Skipped(_) => tally.skipped += 1,
            }
        }
        tally
    }
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// Rows with aligned columns; the first row is the heading.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a String cannot fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
        if index == 0 {
            let rule = widths.iter().map(|width| "-".repeat(*width));
            text.push_str(&rule.collect::<Vec<_>>().join("  "));
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tap_lines_survive_the_way_out_of_the_machine() {
        for outcome in [
            Outcome::Passed,
            Outcome::Failed("server: exit status 1".into()),
            Outcome::Skipped("no such kernel".into()),
        ] {
            let case = Case::new("clients: rping", outcome);
            assert_eq!(Case::parse(&case.to_string()), Some(case));
        }
    }

    #[test]
    fn numbered_tap_lines_are_understood() {
        let case = Case::parse("not ok 12 - 42 resolve_route on a fresh id [fix]");
        let expected = Case::new(
            "42 resolve_route on a fresh id [fix]",
            Outcome::Failed(String::new()),
        );
        assert_eq!(case, Some(expected));
    }

    #[test]
    fn remarks_go_with_the_failed_case_below_them() {
        let mut suite = Suite::new("faults");
        suite.record_tap("# 3 faults\nok - a\n# call 2: hangs\nnot ok - b\nfaults: 5\n");
        let cases = [
            Case::new("a", Outcome::Passed),
            Case::new("b", Outcome::Failed("call 2: hangs".into())),
        ];
        assert_eq!(suite.cases, cases);
    }

    #[test]
    fn other_lines_are_no_cases() {
        for line in ["1..4", "# okay", "okay", "ping data: ok", ""] {
            assert_eq!(Case::parse(line), None, "{line}");
        }
    }

    #[test]
    fn the_closing_line_counts_every_case() {
        let cases = ["ok - a", "not ok - b # why", "ok - c # SKIP no", "ok - d"]
            .map(|line| Case::parse(line).unwrap());
        assert_eq!(
            Tally::of(&cases).to_string(),
            "2 passed, 1 failed, 1 skipped"
        );
    }
}
