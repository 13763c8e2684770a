//! Suite `helgrind`: C conformance programs with several threads on our library
//! under helgrind and DRD, which find accesses that no lock orders, and helgrind
//! also locks that are taken in different orders.
//!
//! They know the locks of the C library only, so the library is built with
//! those. An error counts if one of its accesses, or one of its lock operations,
//! is our library's; DRD tells only one of the two accesses by its stack.

use anyhow::Result;

use super::checked::{Run, describe, elements, errors};
use crate::guest::Bench;
use crate::library::Library;
use crate::report::Suite;

/// What a checker puts before the C library.
const CHECKER: &str = "vgpreload";
/// Objects that act on behalf of who called them.
const ON_BEHALF: [&str; 4] = [CHECKER, "libc.so", "libc-", "libpthread"];

/// A conformance program, and which of its cases.
type Program = (&'static str, &'static [&'static str]);

/// A tool that watches threads.
struct Checker {
    /// Its words for valgrind.
    tool: &'static str,
    /// What the names of the suite's cases end with.
    finds: &'static str,
    /// How many stacks an error begins with that are those of accesses; others,
    /// of allocations for instance, follow.
    accesses: usize,
    /// What it takes for errors and are none.
    mistakes: &'static [&'static str],
    programs: &'static [Program],
}

const HELGRIND: Checker = Checker {
    tool: "--tool=helgrind --history-level=full",
    finds: "no race, no lock out of order",
    accesses: 2,
    mistakes: &[],
    // Left out is the case of `race` for which the library starts threads: how
    // Rust's standard library hands a thread its work is hidden from helgrind.
    programs: &[
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
        ("rsocket_making", &["holds up no", "gives up", "make one"]),
        ("rsocket_dgram", &["close ends", "epoll sets"]),
        ("rsocket_epoll", WAITING_FOR_SETS),
    ],
};

const DRD: Checker = Checker {
    tool: "--tool=drd",
    finds: "no race by DRD",
    accesses: 1,
    // It gets to know a condition that was initialised by a constant when
    // somebody waits for it, and says this where one that nobody has ever
    // waited for is destroyed.
    mistakes: &["not a condition variable"],
    programs: &[
        ("rsocket_poll", &["62", "68", "70"]),
        (
            "rsocket_end",
            &["a shutdown wakes", "two threads", "close ends"],
        ),
        ("rsocket_dgram", &["close ends"]),
        ("rsocket_epoll", WAITING_FOR_SETS),
    ],
};

/// The cases of `rsocket_epoll` in which threads wait for a set that others
/// change or close.
const WAITING_FOR_SETS: &[&str] = &["each set that", "wakes all threads", "lets go of a thread"];

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    for checker in [HELGRIND, DRD] {
        for (program, cases) in checker.programs {
            let run = Run {
                tool: checker.tool,
                program,
                cases,
            };
            suite.check(
                format!("{program}: {}", checker.finds),
                run.check(bench, |xml| checker.findings(xml, &bench.ours)),
            );
        }
    }
    Ok(())
}

impl Checker {
    /// The errors of `library`, one line each.
    fn findings(&self, xml: &str, library: &Library) -> Vec<String> {
        errors(xml)
            .filter(|error| {
                let accesses = || elements(error, "stack").take(self.accesses);
                accesses().any(|stack| acts(stack, library)) && !accesses().any(is_checkers_own)
            })
            .filter(|error| {
                let mut texts = elements(error, "what");
                !texts.any(|text| self.mistakes.iter().any(|what| text.starts_with(what)))
            })
            .map(describe)
            .collect()
    }
}

/// Whether it was `library` that did what a stack ends with, and not Rust's
/// standard library inside it, whose own synchronisation helgrind cannot see.
fn acts(stack: &str, library: &Library) -> bool {
    let mut frames = elements(stack, "frame");
    frames.find(|frame| !on_behalf(frame)).is_some_and(|frame| {
        let ours = elements(frame, "obj").any(|object| library.is(object.as_ref()));
        ours && !source(frame).contains("library/std/")
    })
}

/// Whether it was the checker itself that did what a stack ends with, by a function
/// that stands for none of the C library, as those do that copy and compare memory:
/// where a lock is destroyed helgrind reads whether that was initialised by a
/// constant, in no order with the end of a release of it by another thread.
fn is_checkers_own(stack: &str) -> bool {
    elements(stack, "frame").next().is_some_and(|frame| {
        object(frame).starts_with(CHECKER) && elements(frame, "fn").next().is_none()
    })
}

/// The file name of a frame's object.
fn object(frame: &str) -> &str {
    let path = elements(frame, "obj").next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default()
}

/// Whether what a frame does is done for who called it.
fn on_behalf(frame: &str) -> bool {
    let source = source(frame);
    ON_BEHALF
        .iter()
        .any(|prefix| object(frame).starts_with(prefix))
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

    const OURS: &str = "/stage/librdmacm.so.1";

    fn found(checker: &Checker, what: &str, stacks: &[&str]) -> usize {
        let library = Library::Ours("/stage".into());
        let xml = format!("<error><what>{what}</what>{}</error>", stacks.concat());
        checker.findings(&xml, &library).len()
    }

    #[test]
    fn who_does_the_access_counts() {
        let found = |stacks: &[&str]| found(&HELGRIND, "Possible data race", stacks);
        let here = stack(&[OURS, "/usr/bin/race"]);
        let copied = stack(&["/usr/lib/vgpreload_helgrind-amd64-linux.so", OURS]);
        let elsewhere = stack(&["/usr/lib/libibverbs.so.1", OURS]);
        let program = stack(&["/usr/bin/race"]);
        assert_eq!(found(&[&here, &program]), 1);
        assert_eq!(found(&[&program, &here]), 1);
        assert_eq!(found(&[&copied]), 1);
        let own = copied.replace("<fn>f</fn>", "");
        let released = stack(&["/usr/lib/libc.so.6", OURS]);
        assert_eq!(found(&[&released]), 1);
        assert_eq!(found(&[&own]), 0);
        assert_eq!(found(&[&own, &released]), 0);
        assert_eq!(found(&[&released, &own]), 0);
        assert_eq!(found(&[&elsewhere, &elsewhere]), 0);
    }

    #[test]
    fn drd_is_believed_but_for_its_mistakes() {
        let here = stack(&["/usr/lib/vgpreload_drd-amd64-linux.so", OURS]);
        assert_eq!(found(&DRD, "Conflicting load by thread 2", &[&here]), 1);
        assert_eq!(
            found(&DRD, "not a condition variable: cond 0x1", &[&here]),
            0
        );
    }
}
