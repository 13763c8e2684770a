//! What the program says. Nobody needs to listen: a reader that has gone or a
//! disk that is full must not end a target that others use.

use std::io::{self, Write};

/// Prints a line on standard output, if that is possible.
pub fn say(line: &str) {
    // With its end in one piece: lines of different threads do not mix.
    let _ = io::stdout().write_all(format!("{line}\n").as_bytes());
}

/// Prints a line on standard error, if that is possible.
pub fn complain(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
