//! Suite `valgrind`: rping, ucmatose, rstream and riostream, both sides on the
//! release library under memcheck, and some of the C conformance programs, each
//! case of which is a process of its own. No error and no definite leak may have
//! a frame of our library in its stack.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::conformance;
use crate::guest::program::{self, Ready, Running};
use crate::guest::{Bench, ip};
use crate::library::Library;
use crate::report::{Case, Outcome, Suite, Tally};

const MEMCHECK: &str =
    "valgrind --leak-check=full --show-leak-kinds=definite --xml=yes --xml-file=";

/// A conformance program, and which of its cases; all if empty.
type Program = (&'static str, &'static [&'static str]);

/// The programs that do most with memory that the library hands out or keeps.
/// Left out are cases in which thousands of rounds look for a race, and those
/// that take descriptors or memory away.
const PROGRAMS: &[Program] = &[
    ("sync", &[]),
    ("kapi", &[]),
    ("multicast", &[]),
    ("addrinfo", &[]),
    (
        "robust",
        &[
            "destroyed channel",
            "open channel",
            "under its ids",
            "becomes another file",
            "outlives its channel",
            "private channel",
            "pointer into an id",
            "only an event",
            "freed",
            "destroyed once",
            "get EINVAL",
            "waits",
            "numbers without meaning",
        ],
    ),
];

/// How many times longer a case may take than by itself.
const PATIENCE: &str = "10";

/// The longest one program may take.
const PROGRAM_LIMIT: Duration = Duration::from_secs(900);

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    clients(bench, suite)?;
    if !bench.quick {
        for (program, cases) in PROGRAMS {
            suite.check(
                format!("{program}: no error, no leak"),
                conformance_program(bench, program, cases),
            );
        }
    }
    Ok(())
}

/// Runs a conformance program on our library: its cases pass, and nothing is
/// found in the process of any of them.
fn conformance_program(bench: &Bench, name: &str, cases: &[&str]) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("memcheck-{name}"));
    fs::create_dir_all(&folder)?;
    let memcheck = format!("{MEMCHECK}{}/%p.xml", folder.display());
    let program = bench.programs.join(name);
    let program = program.to_string_lossy();
    let mut words: Vec<_> = memcheck.split(' ').collect();
    words.push(&program);
    words.extend(cases);
    let env = [("RDMACM_TEST_PATIENCE", PATIENCE)];
    let mut running = program::start_with(&words, &bench.ours, &env)?;
    if running.wait_for(PROGRAM_LIMIT)?.is_none() {
        bail!("hangs: {}", running.said());
    }
    let results = conformance::read(&running.output());
    let failed: Vec<_> = results
        .iter()
        .filter(|case| matches!(case.outcome, Outcome::Failed(_)))
        .map(Case::to_string)
        .collect();
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    ensure!(
        Tally::of(&results).passed > 0,
        "no case passed: {}",
        running.said()
    );
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder)? {
        // A case may kill its processes: what they left is judged, not whether
        // it is complete.
        found.extend(findings(&fs::read_to_string(entry?.path())?, &bench.ours));
    }
    fs::remove_dir_all(&folder)?;
    ensure!(found.is_empty(), "{}", found.join("; "));
    Ok(())
}

fn clients(bench: &Bench, suite: &mut Suite) -> Result<()> {
    let ip = ip()?;
    let rows = [
        (
            "rping",
            format!("rping -s -a {ip} -C 2 -v"),
            format!("rping -c -a {ip} -C 2 -v"),
        ),
        (
            "ucmatose",
            format!("ucmatose -b {ip} -c 2 -C 2"),
            format!("ucmatose -s {ip} -c 2 -C 2"),
        ),
        (
            "rstream",
            format!("rstream -b {ip} -S 100 -C 100 -T v"),
            format!("rstream -s {ip} -S 100 -C 100 -T v"),
        ),
        (
            "riostream",
            format!("riostream -b {ip} -S 10000 -C 5 -T v"),
            format!("riostream -s {ip} -S 10000 -C 5 -T v"),
        ),
    ];
    for (name, server, client) in rows {
        let mut server = Checked::start(&format!("{name}-server"), &server, &bench.ours)?;
        let client = match server.running.wait_ready(Ready::Listening) {
            Ok(()) => Checked::start(&format!("{name}-client"), &client, &bench.ours),
            Err(error) => Err(error),
        };
        suite.check(
            format!("{name} client: no error, no leak"),
            client.and_then(|mut client| client.finish(&bench.ours)),
        );
        suite.check(
            format!("{name} server: no error, no leak"),
            server.finish(&bench.ours),
        );
    }
    Ok(())
}

/// A program under memcheck.
struct Checked {
    running: Running,
    findings: PathBuf,
}

impl Checked {
    fn start(name: &str, command: &str, library: &Library) -> Result<Self> {
        let findings = std::env::temp_dir().join(format!("{name}.xml"));
        let words = format!("{MEMCHECK}{} {command}", findings.display());
        let words: Vec<_> = words.split(' ').collect();
        Ok(Self {
            running: program::start(&words, library)?,
            findings,
        })
    }

    /// Waits for its end and judges what memcheck found.
    fn finish(&mut self, library: &Library) -> Result<()> {
        self.running.wait_success()?;
        let xml = fs::read_to_string(&self.findings).context("memcheck left no findings")?;
        ensure!(
            xml.contains("</valgrindoutput>"),
            "memcheck's findings are incomplete"
        );
        let ours = findings(&xml, library);
        ensure!(ours.is_empty(), "{}", ours.join("; "));
        Ok(())
    }
}

/// The findings with a frame of `library`, one line each.
fn findings(xml: &str, library: &Library) -> Vec<String> {
    xml.split("<error>")
        .skip(1)
        .filter(|error| elements(error, "obj").any(|object| library.is(object.as_ref())))
        .map(|error| {
            let stack: Vec<_> = elements(error, "fn").take(8).collect();
            let kind = elements(error, "kind").next().unwrap_or_default();
            format!("{kind} at {}", stack.join(" < "))
        })
        .collect()
}

/// The texts of all elements called `name`.
fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stacks_with_our_library_count() {
        let library = Library::Ours("/stage".into());
        let error = |object: &str| {
            format!(
                "<error><kind>Leak_DefinitelyLost</kind><stack><frame><obj>{object}</obj>\
                 <fn>f</fn></frame></stack></error>"
            )
        };
        let xml = error("/stage/librdmacm.so.1") + &error("/usr/bin/rping");
        assert_eq!(findings(&xml, &library), ["Leak_DefinitelyLost at f"]);
    }
}
