//! Suite `helgrind`: C conformance programs with several threads on our library
//! under helgrind, which finds accesses that no lock orders, and locks that are
//! taken in different orders.
//!
//! It knows the locks of the C library only, so the library is built with
//! those. Nothing is suppressed; an error counts if one of its accesses, or one
//! of its lock operations, is our library's.

use anyhow::Result;

use super::checked::{Run, describe, elements, errors};
use crate::guest::Bench;
use crate::library::Library;
use crate::report::Suite;

const TOOL: &str = "--tool=helgrind --history-level=full";

/// Objects that act on behalf of who called them.
const ON_BEHALF: [&str; 4] = ["vgpreload", "libc.so", "libc-", "libpthread"];

/// Programs, and which of their cases. Left out is the case of `race` for which
/// the library starts threads: how Rust's standard library hands a thread its
/// work is hidden from helgrind.
const PROGRAMS: [(&str, &[&str]); 8] = [
    ("id", &["the first calls may come from several threads"]),
    ("event", &["two threads that wait"]),
    ("robust", &["threads that", "several threads get"]),
    ("race", &["while other threads get"]),
    ("rsocket_poll", &["62", "63", "68", "70"]),
    (
        "rsocket_end",
        &["a shutdown wakes", "two threads", "close ends"],
    ),
    ("rsocket_stream", &["a shutdown ends", "66 67"]),
    ("rsocket_dgram", &["close ends", "epoll sets"]),
];

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    for (program, cases) in PROGRAMS {
        let run = Run {
            tool: TOOL,
            program,
            cases,
        };
        suite.check(
            format!("{program}: no race, no lock out of order"),
            run.check(bench, |xml| findings(xml, &bench.ours)),
        );
    }
    Ok(())
}

/// The errors of `library`, one line each.
fn findings(xml: &str, library: &Library) -> Vec<String> {
    errors(xml)
        // Behind those of the two accesses come the stacks of allocations.
        .filter(|error| {
            let mut accesses = elements(error, "stack").take(2);
            accesses.any(|stack| acts(stack, library))
        })
        .map(describe)
        .collect()
}

/// Whether it was `library` that did what a stack ends with, and not Rust's
/// standard library inside it, whose own synchronisation helgrind cannot see.
fn acts(stack: &str, library: &Library) -> bool {
    elements(stack, "frame")
        .find(|frame| !on_behalf(frame))
        .is_some_and(|frame| {
            let ours = elements(frame, "obj").any(|object| library.is(object.as_ref()));
            ours && !source(frame).contains("library/std/")
        })
}

/// Whether what a frame does is done for who called it.
fn on_behalf(frame: &str) -> bool {
    let object = elements(frame, "obj").next().unwrap_or_default();
    let name = object.rsplit('/').next().unwrap_or_default();
    let source = source(frame);
    ON_BEHALF.iter().any(|prefix| name.starts_with(prefix))
        || source.contains("library/core/")
        || source.contains("library/alloc/")
}

/// The source file of a frame.
fn source(frame: &str) -> String {
    let part = |name| elements(frame, name).next().unwrap_or_default();
    format!("{}/{}", part("dir"), part("file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(objects: &[&str]) -> String {
        let frames: String = objects
            .iter()
            .map(|object| format!("<frame><obj>{object}</obj><fn>f</fn></frame>"))
            .collect();
        format!("<stack>{frames}</stack>")
    }

    #[test]
    fn who_does_the_access_counts() {
        let library = Library::Ours("/stage".into());
        let ours = "/stage/librdmacm.so.1";
        let found = |stacks: &[&str]| {
            let xml = format!("<error><kind>Race</kind>{}</error>", stacks.concat());
            findings(&xml, &library).len()
        };
        let here = stack(&[ours, "/usr/bin/race"]);
        let copied = stack(&["/usr/lib/vgpreload_helgrind-amd64-linux.so", ours]);
        let elsewhere = stack(&["/usr/lib/libibverbs.so.1", ours]);
        let program = stack(&["/usr/bin/race"]);
        assert_eq!(found(&[&here, &program]), 1);
        assert_eq!(found(&[&program, &here]), 1);
        assert_eq!(found(&[&copied]), 1);
        assert_eq!(found(&[&elsewhere, &elsewhere]), 0);
    }
}
