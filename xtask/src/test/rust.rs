//! Suite `rust`: formatting, lints, documentation, unit and property tests and
//! models of the workspace.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::report::{Outcome, Suite};
use crate::{library, workspace};

/// Runs the suite.
pub fn run(suite: &mut Suite) -> Result<()> {
    suite.check(
        "cargo fmt --all --check",
        succeeds(&["fmt", "--all", "--check"]),
    );
    suite.check(
        "cargo clippy --workspace --all-targets -- -D warnings",
        succeeds(&[
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]),
    );
    suite.check("cargo doc, -D warnings", documented());
    tests(&["--workspace"], suite)?;
    // Models of what threads share: through many orders of their steps.
    tests(
        &["--package=rdmacm", "--lib", "--features=model", "model::"],
        suite,
    )
}

/// Whether the documentation builds without a warning.
fn documented() -> Result<()> {
    finished(
        cargo(&["doc", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
    )
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(library::env_cargo());
    command.args(arguments).current_dir(workspace::root());
    command
}

fn succeeds(arguments: &[&str]) -> Result<()> {
    finished(&mut cargo(arguments))
}

fn finished(command: &mut Command) -> Result<()> {
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// `cargo test`, each test a case.
fn tests(selection: &[&str], suite: &mut Suite) -> Result<()> {
    let mut child = cargo(&["test", "--no-fail-fast"])
        .args(selection)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    if let Some(pipe) = child.stdout.take() {
        for line in BufReader::new(pipe).lines() {
            match result(&line?) {
                Some((name, outcome)) => suite.record(name, outcome),
                None => continue,
            }
        }
    }
    let status = child.wait()?;
    if !status.success() && !suite.has_failures() {
        suite.record(
            format!("cargo test {}", selection.join(" ")),
            Outcome::Failed(status.to_string()),
        );
    }
    Ok(())
}

/// Reads `test NAME ... ok`, as the test harness prints it.
fn result(line: &str) -> Option<(String, Outcome)> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let outcome = match verdict.split(',').next()? {
        "ok" => Outcome::Passed,
        "FAILED" => Outcome::Failed("see cargo test".to_owned()),
        "ignored" => Outcome::Skipped("ignored".to_owned()),
        _ => return None,
    };
    Some((name.to_owned(), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harness_lines_are_read() {
        assert_eq!(
            result("test a::b ... ok"),
            Some(("a::b".to_owned(), Outcome::Passed))
        );
        assert!(matches!(
            result("test a - should panic ... FAILED"),
            Some((_, Outcome::Failed(_)))
        ));
        assert!(matches!(
            result("test slow ... ignored, takes hours"),
            Some((_, Outcome::Skipped(_)))
        ));
        assert_eq!(result("test result: ok. 3 passed; 0 failed"), None);
    }
}
