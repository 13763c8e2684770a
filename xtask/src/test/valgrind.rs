//! Suite `valgrind`: rping and ucmatose, both sides on the release library
//! under memcheck. No error and no definite leak may have a frame of our
//! library in its stack.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::guest::program::{self, Ready, Running};
use crate::guest::{Bench, ip};
use crate::library::Library;
use crate::report::Suite;

const MEMCHECK: &str =
    "valgrind --leak-check=full --show-leak-kinds=definite --xml=yes --xml-file=";

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
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
