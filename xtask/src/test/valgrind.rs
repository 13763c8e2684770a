//! Suite `valgrind`: rping, ucmatose, rstream and riostream, both sides on the
//! release library under memcheck, and some of the C conformance programs, each
//! case of which is a process of its own. No error and no definite leak may have
//! a frame of our library in its stack.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::checked::{Run, describe, elements, errors};
use super::pairing::SLOWLY;
use crate::guest::program::{self, Ready, Running};
use crate::guest::{Bench, ip, rping};
use crate::library::Library;
use crate::report::Suite;

const MEMCHECK: &str = "--leak-check=full --show-leak-kinds=definite";

/// A conformance program, and which of its cases; all if empty.
type Program = (&'static str, &'static [&'static str]);

/// The programs that do most with memory that the library hands out or keeps.
/// Left out are cases in which thousands of rounds look for a race, those that
/// take descriptors or memory away, and those with many queue pairs.
const PROGRAMS: &[Program] = &[
    ("sync", &[]),
    ("kapi", &[]),
    (
        "multicast",
        &["87", "88", "89", "90", "91", "92", "93", "leaving", "data"],
    ),
    ("addrinfo", &[]),
    ("resolve_addrinfo", &[]),
    ("event_wait", &["limits", "keeps its data"]),
    ("race", &[]),
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
    ("rsocket_stream", &["42 43", "46 ", "48 ", "66 67"]),
    ("rsocket_end", &["54 ", "two threads", "close ends"]),
    (
        "rsocket_epoll",
        &["lets go of a thread", "wakes all threads", "a set in a set"],
    ),
    ("rsocket_map", &["76 ", "77 ", "78 "]),
    (
        "rsocket_dgram",
        &["each receive", "knows its peer", "close ends", "malformed"],
    ),
];

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    clients(bench, suite)?;
    if !bench.quick {
        for (program, cases) in PROGRAMS {
            let run = Run {
                tool: MEMCHECK,
                program,
                cases,
            };
            suite.check(
                format!("{program}: no error, no leak"),
                run.check(bench, |xml| findings(xml, &bench.ours)),
            );
        }
    }
    Ok(())
}

fn clients(bench: &Bench, suite: &mut Suite) -> Result<()> {
    let ip = ip()?;
    let rows = [
        (
            "rping",
            // So that it does not use an event channel that it has freed.
            SLOWLY,
            format!("rping -s -a {ip} -C 2 -v"),
            format!("rping -c -a {ip} -C 2 -v"),
        ),
        (
            "ucmatose",
            "",
            format!("ucmatose -b {ip} -c 2 -C 2"),
            format!("ucmatose -s {ip} -c 2 -C 2"),
        ),
        (
            "rstream",
            "",
            format!("rstream -b {ip} -S 100 -C 100 -T v"),
            format!("rstream -s {ip} -S 100 -C 100 -T v"),
        ),
        (
            "riostream",
            "",
            format!("riostream -b {ip} -S 10000 -C 5 -T v"),
            format!("riostream -s {ip} -S 10000 -C 5 -T v"),
        ),
    ];
    for (name, before, server, client) in rows {
        let start =
            |role, command| Checked::start(&format!("{name}-{role}"), before, command, &bench.ours);
        let mut server = start("server", &server)?;
        let client = match server.running.wait_ready(Ready::Listening) {
            Ok(()) => start("client", &client),
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
    /// Starts it, with the words `before` in front of the tool's.
    fn start(name: &str, before: &str, command: &str, library: &Library) -> Result<Self> {
        let findings = std::env::temp_dir().join(format!("{name}.xml"));
        let words = format!(
            "{before} valgrind {MEMCHECK} --xml=yes --xml-file={} {command}",
            findings.display()
        );
        let words: Vec<_> = words.split_whitespace().collect();
        Ok(Self {
            running: program::start(&words, library)?,
            findings,
        })
    }

    /// Waits for its end and judges what memcheck found.
    fn finish(&mut self, library: &Library) -> Result<()> {
        rping::verdict(self.running.wait_success())?;
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
    errors(xml)
        .filter(|error| elements(error, "obj").any(|object| library.is(object.as_ref())))
        .map(describe)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stacks_with_our_library_count() {
        let library = Library::Ours("/stage".into());
        let error = |object: &str| {
            format!(
                "<error><kind>Leak_DefinitelyLost</kind><xwhat><text>1 byte</text></xwhat>\
                 <stack><frame><obj>{object}</obj><fn>f</fn></frame></stack></error>"
            )
        };
        let xml = error("/stage/librdmacm.so.1") + &error("/usr/bin/rping");
        assert_eq!(
            findings(&xml, &library),
            ["Leak_DefinitelyLost (1 byte) at f"]
        );
    }
}
