//! The public headers as C programs see them: each compiles alone, and
//! layouts, constants and prototypes are those of the original.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::report::{Outcome, Suite};
use crate::{headers, process, workspace};

/// Compilers and the languages in which every header has to compile.
const COMPILERS: &[(&str, &[&str])] = &[
    ("gcc", &["c99", "c11", "c17"]),
    ("g++", &["c++11", "c++17"]),
    ("clang", &["c99", "c17"]),
    ("clang++", &["c++11", "c++17"]),
];

/// Where the distribution's headers are.
const INSTALLED: &str = "/usr/include";

pub fn run(originals: &[PathBuf], suite: &mut Suite) -> Result<()> {
    for (compiler, standards) in COMPILERS {
        let name = format!("headers compile alone: {compiler} {}", standards.join(", "));
        if process::output(Command::new(compiler).arg("--version")).is_ok() {
            suite.check(name, alone(compiler, standards));
        } else {
            let why = format!("{compiler} is not installed");
            suite.record(name, Outcome::Skipped(why));
        }
    }
    let ours = Headers::ours();
    suite.check("layouts and constants: ours", ours.layouts());
    let mut originals = originals.to_vec();
    originals.insert(0, INSTALLED.into());
    for dir in originals {
        let original = Headers { include: dir };
        let shown = original.include.display().to_string();
        if !original.path("rdma/rdma_cma.h").exists() {
            let why = "the original's headers are not installed (librdmacm-dev)".to_owned();
            suite.record(format!("compare with {shown}"), Outcome::Skipped(why));
            continue;
        }
        suite.check(
            format!("layouts and constants: {shown}"),
            original.layouts(),
        );
        suite.check(
            format!("values of all constants as in {shown}"),
            constants(&ours, &original),
        );
        suite.check(
            format!("all prototypes as in {shown}"),
            prototypes(&ours, &original),
        );
    }
    Ok(())
}

fn alone(compiler: &str, standards: &[&str]) -> Result<()> {
    let language = if compiler.ends_with("++") { "c++" } else { "c" };
    for standard in standards {
        for header in headers::paths() {
            // An empty source, so that the header is not the main file.
            process::output(
                Command::new(compiler)
                    .args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"])
                    .arg(format!("-std={standard}"))
                    .arg(format!("-I{}", Headers::ours().include.display()))
                    .args(["-include", header, "-x", language, "/dev/null"]),
            )
            .with_context(|| format!("{header} as {standard}"))?;
        }
    }
    Ok(())
}

/// A folder with the public headers.
struct Headers {
    include: PathBuf,
}

impl Headers {
    fn ours() -> Self {
        Self {
            include: workspace::root().join("include"),
        }
    }

    fn path(&self, header: &str) -> PathBuf {
        self.include.join(header)
    }

    /// The public headers that are there: the original lacks the one of the
    /// functions that it never had.
    fn present(&self) -> impl Iterator<Item = &'static str> {
        headers::paths().filter(|header| self.path(header).exists())
    }

    /// A compiler that takes these headers.
    fn gcc(&self) -> Command {
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=gnu11", "-w"]);
        if self.include != Path::new(INSTALLED) {
            gcc.arg(format!("-I{}", self.include.display()));
        }
        gcc
    }

    /// The text of a header without its comments.
    fn text(&self, header: &str) -> Result<String> {
        let path = self.path(header);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(without_comments(&text))
    }

    /// Compiles the assertions of `xtask/abi/layout.c`.
    fn layouts(&self) -> Result<()> {
        let new = self
            .text("rdma/rdma_cma.h")?
            .contains("RDMA_CM_EVENT_INTERNAL");
        process::output(
            self.gcc()
                .arg("-fsyntax-only")
                .arg(format!("-DSINCE_60={}", u8::from(new)))
                .arg(workspace::root().join("xtask/abi/layout.c")),
        )
        .map(drop)
    }

    /// The names that look like constants of the interface.
    fn constants(&self) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for header in self.present() {
            let text = self.text(header)?;
            // The guard is an implementation detail.
            let guard = text
                .split_whitespace()
                .find(|word| word.trim_matches(['!', '(', ')']).ends_with("_H"))
                .map(|word| {
                    word.trim_start_matches("!defined(")
                        .trim_end_matches(')')
                        .to_owned()
                });
            names.extend(
                text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .filter(|word| {
                        ["RDMA_", "RAI_", "UCMA_", "AF_IB", "PF_IB", "SOL_"]
                            .iter()
                            .any(|prefix| word.starts_with(prefix))
                    })
                    .filter(|word| Some(*word) != guard.as_deref())
                    .map(str::to_owned),
            );
        }
        names.retain(|name| name.chars().all(|c| !c.is_ascii_lowercase()) && !name.ends_with("_H"));
        Ok(names)
    }

    /// The values of constants, one line each.
    fn values(&self, names: &BTreeSet<String>) -> Result<String> {
        let dir = workspace::target("abi")?;
        let (source, program) = (dir.join("values.c"), dir.join("values"));
        let mut text = String::from("#include <stdio.h>\n");
        for header in self.present() {
            text += &format!("#include <{header}>\n");
        }
        text += "int main(void)\n{\n";
        for name in names {
            // The width of a constant decides what `~` makes of it.
            text += &format!(
                "  printf(\"{name} %llx %zu\\n\", (unsigned long long)({name}), sizeof({name}));\n"
            );
        }
        text += "  return 0;\n}\n";
        fs::write(&source, text)?;
        process::output(self.gcc().arg(&source).arg("-o").arg(&program))?;
        process::output(&mut Command::new(&program))
    }

    /// The prototypes that the headers declare, in the compiler's words.
    fn prototypes(&self) -> Result<BTreeSet<String>> {
        let dir = workspace::target("abi")?;
        let (source, listing) = (dir.join("prototypes.c"), dir.join("prototypes.X"));
        let text: String = self
            .present()
            .map(|header| format!("#include <{header}>\n"))
            .collect();
        fs::write(&source, text)?;
        process::output(
            self.gcc()
                .arg("-fsyntax-only")
                .arg("-aux-info")
                .arg(&listing)
                .arg(&source),
        )?;
        let listing = fs::read_to_string(&listing)?;
        let own: Vec<_> = self
            .present()
            .map(|header| format!("/* {}:", self.path(header).display()))
            .collect();
        Ok(listing
            .lines()
            .filter(|line| own.iter().any(|start| line.starts_with(start)))
            .filter_map(|line| line.split_once("*/ "))
            .map(|(_, prototype)| {
                let prototype = prototype.split(" /*").next().unwrap_or(prototype);
                prototype.trim().to_owned()
            })
            .collect())
    }
}

fn constants(ours: &Headers, original: &Headers) -> Result<()> {
    let names = original.constants()?;
    ensure!(names.len() > 80, "only {} constants found", names.len());
    let (ours, original) = (ours.values(&names)?, original.values(&names)?);
    for (ours, original) in ours.lines().zip(original.lines()) {
        ensure!(
            ours == original,
            "`{ours}` in ours, `{original}` in the original"
        );
    }
    Ok(())
}

fn prototypes(ours: &Headers, original: &Headers) -> Result<()> {
    let (ours, original) = (ours.prototypes()?, original.prototypes()?);
    ensure!(
        original.len() > 80,
        "only {} prototypes found",
        original.len()
    );
    let missing: Vec<_> = original.difference(&ours).map(String::as_str).collect();
    if !missing.is_empty() {
        bail!("not in ours: {}", missing.join(" "));
    }
    Ok(())
}

/// C text without its comments. The headers have no strings.
fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some(start) = rest.find("/*").into_iter().chain(rest.find("//")).min() {
        kept += &rest[..start];
        let comment = &rest[start..];
        let end = if comment.starts_with("/*") {
            "*/"
        } else {
            "\n"
        };
        rest = comment.split_once(end).map_or("", |(_, after)| after);
        kept.push('\n');
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_both_kinds_vanish() {
        let text = "int a; // one /* two\nint b; /* three // four */ int c;";
        let words: Vec<_> = without_comments(text)
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        assert_eq!(words.join(" "), "int a; int b; int c;");
    }
}
