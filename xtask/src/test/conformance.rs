//! Suite `conformance`: the C programs of `capi-tests/` run on the original
//! library and on ours, in the same boot, and a table shows both results.
//!
//! Cases whose name contains `[fix]` must fail on the original (a crash or a
//! hang included) and pass on ours. Those with `[race]` let threads race for
//! something that the original does not protect: what happens there is luck
//! and is not judged. All others must pass on both; the original, which is the
//! measure and not what is on trial, may need several tries.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::beside::Beside;
use super::shares::Shares;
use crate::guest::{Bench, program};
use crate::library::Library;
use crate::report::{Case, Outcome, Suite, table};
use crate::{process, workspace};

/// How the original is expected to do in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Original {
    /// It passes.
    Agrees,
    /// It fails.
    IsWrong,
    /// Either, by luck.
    Gambles,
}

impl Original {
    /// What the marks in the name of a case say.
    pub fn of(case: &str) -> Self {
        if case.contains("[fix]") {
            Self::IsWrong
        } else if case.contains("[race]") {
            Self::Gambles
        } else {
            Self::Agrees
        }
    }
}

/// Machines that share the programs, which wait most of the time, above all for
/// the original to hang.
const MACHINES: usize = 3;

/// The longest one program may take with all its cases.
const PROGRAM_LIMIT: Duration = Duration::from_secs(600);

/// How often the original may try a case that it is expected to pass: on a busy
/// machine it loses some by luck.
const TRIES: usize = 3;

/// Builds the programs against our headers and returns their folder.
pub fn build(stage: &Path) -> Result<PathBuf> {
    let root = workspace::root();
    let programs = workspace::target("capi-tests")?;
    process::output(
        Command::new("make")
            // The headers are no dependency that make knows of.
            .args(["--always-make", "--jobs=2", "-C"])
            .arg(root.join("capi-tests"))
            .arg(format!("OUT={}", programs.display()))
            .arg(format!("INC={}", root.join("include").display()))
            .arg(format!("LIB={}", stage.display())),
    )
    .context("the programs do not compile with our headers")?;
    Ok(programs)
}

/// Runs all programs. One that hangs, or takes the machine down, is a failed
/// case.
pub fn run(beside: &Beside, suite: &mut Suite) -> Result<()> {
    let shares = Shares {
        pieces: programs()?,
        machines: MACHINES,
        options: Vec::new(),
        ended,
        defects: &[],
    };
    shares.run(beside, suite)
}

/// The case that a program came to its end on both libraries.
fn ended(program: &str) -> String {
    format!("{program} comes to its end")
}

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    let mut rows = vec![["case", "original", "ours", ""].map(str::to_owned).to_vec()];
    while let Some(name) = bench.take_piece()? {
        println!("# {name}");
        let program = bench.programs.join(&name);
        let mut original = results(&program, &[], &Library::Original)?;
        let ours = results(&program, &[], &bench.ours)?;
        for case in &ours {
            retry(&program, case, &mut original)?;
        }
        suite.record(ended(&name), Outcome::Passed);
        if ours.is_empty() {
            suite.record(name, Outcome::Failed("no results at all".to_owned()));
        }
        let gone = original.iter().filter(|case| find(&ours, case).is_none());
        for case in ours.iter().chain(gone) {
            let (original, ours) = (find(&original, case), find(&ours, case));
            let outcome = judge(Original::of(&case.name), original, ours);
            let verdict = match &outcome {
                Outcome::Passed => "",
                Outcome::Failed(_) => "FAILED",
                Outcome::Skipped(_) => "skipped",
            };
            rows.push(vec![
                case.name.clone(),
                word(original).to_owned(),
                word(ours).to_owned(),
                verdict.to_owned(),
            ]);
            suite.record(&case.name, outcome);
        }
    }
    println!("\n{}", table(&rows));
    Ok(())
}

/// The programs, those with much source first: they tend to take long, and the
/// last to begin should not be one that all machines then wait for.
fn programs() -> Result<Vec<String>> {
    let folder = workspace::root().join("capi-tests");
    let mut make = Command::new("make");
    let list = process::output(make.args(["--silent", "-C"]).arg(&folder).arg("list"))?;
    let mut programs: Vec<_> = list.split_whitespace().map(str::to_owned).collect();
    programs.sort_by_cached_key(|name| {
        let source = folder.join(format!("{name}.c"));
        Reverse(source.metadata().map_or(0, |file| file.len()))
    });
    Ok(programs)
}

/// Lets the original try a case again, if it failed what it is expected to pass
/// and ours did not. The last try is what counts.
fn retry(program: &Path, ours: &Case, original: &mut Vec<Case>) -> Result<()> {
    let expected = Original::of(&ours.name);
    if expected != Original::Agrees || ours.outcome != Outcome::Passed {
        return Ok(());
    }
    let title = ours.name.split_once('/').map_or("", |(_, title)| title);
    for _ in 1..TRIES {
        let Outcome::Failed(why) = judge(expected, find(original, ours), Some(&ours.outcome))
        else {
            break;
        };
        println!("# {}: {why}; once more", ours.name);
        let again = results(program, &[title], &Library::Original)?;
        original.retain(|case| case.name != ours.name);
        original.extend(again.into_iter().filter(|case| case.name == ours.name));
    }
    Ok(())
}

/// What the program says about its cases, or those whose name contains one of
/// `titles`, when it runs on `library`.
fn results(program: &Path, titles: &[&str], library: &Library) -> Result<Vec<Case>> {
    let program = program.to_string_lossy();
    let words: Vec<_> = std::iter::once(&*program)
        .chain(titles.iter().copied())
        .collect();
    let mut running = program::start(&words, library)?;
    // The programs limit each case themselves; this is the net below.
    if running.wait_for(PROGRAM_LIMIT)?.is_none() {
        println!("{}", running.output());
        bail!("{program} hangs on {}", library.name());
    }
    Ok(read(&running.output()))
}

/// Reads TAP; the comment after a failed case is the reason.
pub fn read(output: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in output.lines() {
        if let Some(case) = Case::parse(line) {
            cases.push(case);
        } else if let Some(reason) = line.strip_prefix("# ") {
            if let Some(Outcome::Failed(why)) = cases.last_mut().map(|case| &mut case.outcome) {
                why.push_str(reason);
            }
        } else if line.starts_with("Bail out!") {
            cases.push(Case::new(line, Outcome::Failed("gave up".to_owned())));
        }
    }
    cases
}

fn find<'a>(cases: &'a [Case], wanted: &Case) -> Option<&'a Outcome> {
    cases
        .iter()
        .find(|case| case.name == wanted.name)
        .map(|case| &case.outcome)
}

fn word(outcome: Option<&Outcome>) -> &'static str {
    match outcome {
        Some(Outcome::Passed) => "ok",
        Some(Outcome::Failed(_)) => "not ok",
        Some(Outcome::Skipped(_)) => "skip",
        None => "missing",
    }
}

fn judge(expected: Original, original: Option<&Outcome>, ours: Option<&Outcome>) -> Outcome {
    let failed = |why: &str| Outcome::Failed(why.to_owned());
    match (ours, original) {
        (None, _) => failed("no result on ours"),
        (Some(Outcome::Failed(why)), _) => failed(why),
        (Some(Outcome::Skipped(why)), _) => Outcome::Skipped(why.clone()),
        (Some(Outcome::Passed), Some(Outcome::Passed)) if expected == Original::IsWrong => {
            failed("passes on the original as well: not a fix")
        }
        (Some(Outcome::Passed), Some(Outcome::Failed(why))) if expected == Original::Agrees => {
            Outcome::Failed(format!("the original disagrees: {why}"))
        }
        (Some(Outcome::Passed), None) if expected == Original::Agrees => {
            failed("no result on the original")
        }
        (Some(Outcome::Passed), _) => Outcome::Passed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fix_must_fail_on_the_original_only() {
        let broken = Outcome::Failed("crash".to_owned());
        let ok = Outcome::Passed;
        assert_eq!(
            judge(Original::IsWrong, Some(&broken), Some(&ok)),
            Outcome::Passed
        );
        assert_eq!(judge(Original::IsWrong, None, Some(&ok)), Outcome::Passed);
        for (original, ours) in [(&ok, &ok), (&ok, &broken), (&broken, &broken)] {
            let outcome = judge(Original::IsWrong, Some(original), Some(ours));
            assert!(matches!(outcome, Outcome::Failed(_)));
        }
    }

    #[test]
    fn a_race_is_judged_on_ours_only() {
        let expected = Original::of("robust/two threads [race]");
        let (broken, ok) = (Outcome::Failed("SIGSEGV".to_owned()), Outcome::Passed);
        for original in [Some(&ok), Some(&broken), None] {
            assert_eq!(judge(expected, original, Some(&ok)), Outcome::Passed);
            let outcome = judge(expected, original, Some(&broken));
            assert!(matches!(outcome, Outcome::Failed(_)));
        }
    }

    #[test]
    fn other_cases_must_agree() {
        let broken = Outcome::Failed("EINVAL".to_owned());
        let ok = Outcome::Passed;
        assert_eq!(
            judge(Original::Agrees, Some(&ok), Some(&ok)),
            Outcome::Passed
        );
        for (original, ours) in [
            (Some(&broken), Some(&ok)),
            (None, Some(&ok)),
            (Some(&ok), None),
        ] {
            assert!(matches!(
                judge(Original::Agrees, original, ours),
                Outcome::Failed(_)
            ));
        }
    }

    #[test]
    fn reasons_are_read_from_comments() {
        let cases = read("1..2\nok 1 - a/1 x\nnot ok 2 - a/2 y [fix]\n# line 3: no event\n");
        assert_eq!(
            cases,
            [
                Case::new("a/1 x", Outcome::Passed),
                Case::new(
                    "a/2 y [fix]",
                    Outcome::Failed("line 3: no event".to_owned())
                ),
            ]
        );
    }
}
