//! A C conformance program on our library under a tool of valgrind: how it is
//! run, and the reading of what the tool found. Which findings count is the
//! suite's business.

use std::fs;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::conformance;
use crate::guest::{Bench, program};
use crate::report::{Case, Outcome, Tally};

/// The longest one program may take.
const PROGRAM_LIMIT: Duration = Duration::from_secs(900);

/// How many times longer a case may take than by itself.
const PATIENCE: (&str, &str) = ("RDMACM_TEST_PATIENCE", "10");

/// How often cases try for a race that may or may not happen: every instruction
/// is emulated, on some machines twice.
const ROUNDS: (&str, &str) = ("RDMACM_TEST_ROUNDS", "3");

/// What to run.
pub struct Run<'a> {
    /// The tool with its options.
    pub tool: &'a str,
    /// The program.
    pub program: &'a str,
    /// Which of its cases; all if empty.
    pub cases: &'a [&'a str],
}

impl Run<'_> {
    /// Runs the program on our library: its cases pass, and `judge` finds
    /// nothing in what the tool says of the process of any of them.
    pub fn check(&self, bench: &Bench, judge: impl Fn(&str) -> Vec<String>) -> Result<()> {
        let folder = std::env::temp_dir().join(format!("checked-{}", self.program));
        fs::create_dir_all(&folder)?;
        let command = format!(
            "valgrind {} --xml=yes --xml-file={}/%p.xml",
            self.tool,
            folder.display()
        );
        let path = bench.programs.join(self.program);
        let path = path.to_string_lossy();
        let mut words: Vec<_> = command.split(' ').collect();
        words.push(&path);
        words.extend(self.cases);
        let mut running = program::start_with(&words, &bench.ours, &[PATIENCE, ROUNDS])?;
        if running.wait_for(PROGRAM_LIMIT)?.is_none() {
            bail!("hangs: {}", running.said());
        }
        let results = conformance::read(&running.output());
        let failed: Vec<_> = results
            .iter()
            .filter(|case| matches!(case.outcome, Outcome::Failed(_)))
            .map(Case::to_string)
            .collect();
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder)? {
            // A case may kill its processes: what they left is judged, not
            // whether it is complete.
            found.extend(judge(&fs::read_to_string(entry?.path())?));
        }
        fs::remove_dir_all(&folder)?;
        ensure!(found.is_empty(), "{}", found.join("; "));
        ensure!(failed.is_empty(), "{}", failed.join("; "));
        ensure!(
            Tally::of(&results).passed > 0,
            "no case passed: {}",
            running.said()
        );
        Ok(())
    }
}

/// What the tool complains of.
pub fn errors(xml: &str) -> impl Iterator<Item = &str> {
    xml.split("<error>").skip(1)
}

/// An error in one line: its kind, what the tool says of it, and the functions
/// that led to it.
pub fn describe(error: &str) -> String {
    let first = |name| elements(error, name).next();
    let kind = first("kind").unwrap_or_default();
    let said = first("what").or_else(|| first("text")).unwrap_or_default();
    let stacks: Vec<_> = elements(error, "stack")
        .map(|stack| {
            let functions: Vec<_> = elements(stack, "fn").take(16).collect();
            functions.join(" < ")
        })
        .collect();
    format!("{kind} ({said}) at {}", stacks.join("; and at "))
}

/// The texts of all elements called `name`.
pub fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        let start = rest.find(&open)? + open.len();
        let text = &rest[start..];
        let end = text.find(&close)?;
        rest = &text[end..];
        Some(&text[..end])
    })
}
