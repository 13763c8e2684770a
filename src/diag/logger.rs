//! The writer behind `RDMACM_LOG`: one line per record to standard error.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cancel::Uncancelled;
use log::{Level, LevelFilter, Log, Metadata, Record};

/// Environment variable that turns the writer on: `error`, `warn`, `info`,
/// `debug` or `trace`.
const VARIABLE: &str = "RDMACM_LOG";

/// Reads `RDMACM_LOG` and turns the writer on if it asks for it. Only the
/// first call of a process does anything, so a program that changes its
/// environment later changes nothing here. A logger that a Rust program has
/// installed is left alone. May be called from any thread.
pub fn initialise() {
    // Nobody waits for the first call: a forked child would, for ever.
    static CALLED: AtomicBool = AtomicBool::new(false);
    if !CALLED.load(Ordering::Relaxed)
        && !CALLED.swap(true, Ordering::Relaxed)
        && let Some(value) = env::var_os(VARIABLE)
    {
        install(&value);
    }
}

fn install(value: &OsStr) {
    let level = parse(value);
    // An unknown word is reported even though it asks for nothing we know.
    let effective = level.unwrap_or(LevelFilter::Warn);
    if effective == LevelFilter::Off || log::set_logger(&StandardError).is_err() {
        return;
    }
    log::set_max_level(effective);
    if level.is_none() {
        log::warn!(
            "{VARIABLE}={} is not one of off, error, warn, info, debug, trace",
            value.display()
        );
        log::set_max_level(LevelFilter::Off);
    }
}

/// What the variable asks for; `None` if it is no level. Empty means off.
fn parse(value: &OsStr) -> Option<LevelFilter> {
    let word = value.to_str()?;
    if word.is_empty() {
        return Some(LevelFilter::Off);
    }
    word.parse().ok()
}

struct StandardError;

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            write_line(&line(process::id(), record.level(), record.args()));
        }
    }

    fn flush(&self) {}
}

/// One line of the log. Control characters, which names from outside may
/// carry, do not get through: a record is always exactly one line.
fn line(pid: u32, level: Level, message: &std::fmt::Arguments<'_>) -> String {
    let mut text = format!("rdmacm[{pid}] {level} ");
    // Writing to a string does not fail.
    let _ = write!(text, "{message}");
    let mut line = text.replace(char::is_control, "?");
    line.push('\n');
    line
}

/// Writes a line in one piece, so that lines of several threads and processes
/// do not mix. There is nobody to tell if it fails.
fn write_line(line: &str) {
    let _whole = Uncancelled::throughout();
    // SAFETY: the buffer is readable for its length.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn levels_are_known_in_any_case() {
        assert_eq!(parse(OsStr::new("debug")), Some(LevelFilter::Debug));
        assert_eq!(parse(OsStr::new("TRACE")), Some(LevelFilter::Trace));
        assert_eq!(parse(OsStr::new("")), Some(LevelFilter::Off));
        assert_eq!(parse(OsStr::new("1")), None);
        assert_eq!(parse(OsStr::new("loud")), None);
    }

    #[test]
    fn a_line_names_process_and_level() {
        let text = line(7, Level::Warn, &format_args!("id 3: {}", "lost"));
        assert_eq!(text, "rdmacm[7] WARN id 3: lost\n");
    }

    proptest! {
        #[test]
        fn a_record_is_one_line(message in any::<String>()) {
            let text = line(1, Level::Error, &format_args!("{message}"));
            prop_assert!(text.ends_with('\n'));
            prop_assert_eq!(text.matches(char::is_control).count(), 1);
        }
    }
}
