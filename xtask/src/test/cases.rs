//! The names of the conformance cases, read from the C sources, and the check
//! that the documents speak of cases that exist and that no row of the
//! conformance tables is without one. Cases of the suites `preload` and `interop`
//! are those of their C sources and of their lists.

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;

use anyhow::{Context, Result, ensure};

use super::{interop, preload};
use crate::workspace;

/// The documents whose claims are checked.
const DOCUMENTS: [&str; 2] = ["docs/known-bugs.md", "docs/sockets.md"];

/// The rows of the table of connections that C programs prove. Those behind them
/// are about unmodified programs and counts, which suites of their own prove.
const ROWS: RangeInclusive<u32> = 1..=119;

/// The same of the table of sockets.
const SOCKET_ROWS: RangeInclusive<u32> = 1..=87;

/// The rows of that table that suites prove: a row of the document's own says by
/// which of their cases.
const SUITE_ROWS: RangeInclusive<u32> = 88..=101;
const SUITE_ROWS_IN: &str = "docs/sockets.md";

/// Programs whose numbers are those of the table of sockets.
const SOCKETS: &str = "rsocket_";

/// Fails with a list of what is missing.
pub fn check() -> Result<()> {
    let root = workspace::root();
    let mut cases = BTreeSet::new();
    for entry in fs::read_dir(root.join("capi-tests"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|suffix| suffix == "c") {
            let program = path.file_stem().unwrap_or_default().to_string_lossy();
            let names = names(&fs::read_to_string(&path)?);
            cases.extend(names.into_iter().map(|name| format!("{program}/{name}")));
        }
    }
    for source in preload::sources() {
        let texts = texts(&fs::read_to_string(
            root.join("xtask/programs").join(source),
        )?);
        cases.extend(texts.into_iter().map(|text| format!("preload/{text}")));
    }
    cases.extend(preload::names().map(|name| format!("preload/{name}")));
    cases.extend(interop::names().map(|name| format!("interop/{name}")));
    let mut missing = Vec::new();
    for document in DOCUMENTS {
        let text = fs::read_to_string(root.join(document))
            .with_context(|| format!("cannot read {document}"))?;
        let unknown = claimed(&text).filter(|name| !cases.contains(*name));
        missing.extend(unknown.map(|name| format!("{document} names {name}, which is no case")));
        if document == SUITE_ROWS_IN {
            let told = told(&text);
            let open = SUITE_ROWS.filter(|row| !told.contains(row));
            missing.extend(open.map(|row| format!("{document} names no case for row {row}")));
        }
    }
    for (table, of_sockets) in [(ROWS, false), (SOCKET_ROWS, true)] {
        let own = cases
            .iter()
            .filter(|case| case.starts_with(SOCKETS) == of_sockets);
        let covered: BTreeSet<_> = own.flat_map(|case| rows(case)).collect();
        let open = table.filter(|row| !covered.contains(row));
        missing.extend(open.map(|row| match of_sockets {
            false => format!("no case for row {row} of the conformance table"),
            true => format!("no case for row {row} of the table of sockets"),
        }));
    }
    ensure!(missing.is_empty(), "{}", missing.join("; "));
    Ok(())
}

/// The texts of the `TEST(identifier, "text" …)` in a C source, and of macros
/// whose names begin with `TEST_`.
fn names(source: &str) -> Vec<String> {
    let after = source.split("\nTEST").skip(1);
    after
        .filter_map(|rest| {
            let (arguments, _) = rest.split_once(')')?;
            let (kind, _) = arguments.split_once('(')?;
            if !kind.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
                return None;
            }
            let (_, rest) = rest.split_once(',')?;
            let mut rest = rest.trim_start();
            let mut name = String::new();
            // Adjacent literals are one.
            while let Some((piece, behind)) =
                rest.strip_prefix('"').and_then(|rest| rest.split_once('"'))
            {
                name.push_str(piece);
                rest = behind.trim_start();
            }
            (!name.is_empty()).then_some(name)
        })
        .collect()
}

/// The texts of the table of cases in a C source of the suite `preload`: what is
/// between quotes behind a case's function.
fn texts(source: &str) -> Vec<String> {
    let table = source.split_once("const struct test_case cases[]");
    let lines = table.map_or("", |(_, table)| table).lines();
    lines
        .take_while(|line| *line != "};")
        .filter_map(|line| {
            let (_, behind) = line.split_once(", \"")?;
            Some(behind.strip_suffix("\" },")?.to_owned())
        })
        .collect()
}

/// The numbers of the rows of a document's tables in which a case is named.
fn told(text: &str) -> BTreeSet<u32> {
    let cells = text.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("| ")?.split_once(" |")?;
        claimed(rest).next()?;
        number.parse().ok()
    });
    cells.collect()
}

/// The cases that a document names: what is between backquotes and begins with
/// a program and a slash.
fn claimed(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|word| {
        word.split_once('/').is_some_and(|(program, _)| {
            !program.is_empty() && program.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        }) && word.contains(' ')
    })
}

/// The rows that a case stands for: the numbers before its text.
fn rows(case: &str) -> impl Iterator<Item = u32> {
    let (_, name) = case.split_once('/').unwrap_or_default();
    name.split(' ').map_while(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_c() {
        let source = "#define TEST(x)\n\nTEST_BOTH(a, \"1 one\")\n{\n}\n\
                      TEST(b,\n     \"2 3 two \"\n     \"and three\", .timeout = 9)\n";
        assert_eq!(names(source), ["1 one", "2 3 two and three"]);
    }

    #[test]
    fn texts_are_read_from_tables() {
        let source = "x\nconst struct test_case cases[] = {\n\t{ \"a\", run, \"one's text\" },\n\
                      \t{ \"b\", other, NULL },\n\t{ NULL, NULL, NULL },\n};\n, \"no\" },\n";
        assert_eq!(texts(source), ["one's text"]);
    }

    #[test]
    fn rows_with_cases_are_told() {
        let text = "| 88 | one | `preload/a b` |\n| 89 | two | nothing |\n| x | `a/b c` |\n";
        assert_eq!(told(text), BTreeSet::from([88]));
    }

    #[test]
    fn numbers_before_the_text_are_rows() {
        assert_eq!(rows("qp/2 3 two").collect::<Vec<_>>(), [2, 3]);
        assert_eq!(rows("qp/twice 4").count(), 0);
        assert_eq!(rows("rsocket_stream/[fix] 3 two").count(), 0);
    }

    #[test]
    fn cases_are_told_from_other_code() {
        let text = "`ENODEV` `bind/1 a b` `src/cm/id.rs` `rdma_x` `cargo xtask test/x`";
        assert_eq!(claimed(text).collect::<Vec<_>>(), ["bind/1 a b"]);
    }
}
