//! What the kernel has said since some moment.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};

use super::{sh, until};

/// A moment: a line in the log.
pub struct Mark(String);

impl Mark {
    /// Now.
    pub fn now() -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let line = format!("xtask: mark {}-{number}", std::process::id());
        fs::write("/dev/kmsg", &line).context("cannot write to the kernel's log")?;
        Ok(Self(line))
    }

    /// What was said since then, without the times.
    pub fn since(&self) -> Result<Vec<String>> {
        let log = sh("dmesg")?;
        let lines: Vec<_> = log
            .lines()
            .filter_map(|line| Some(line.split_once("] ")?.1))
            .collect();
        // A log that has lost the mark has nothing older either.
        let mark = lines.iter().rposition(|line| *line == self.0);
        let since = lines.get(mark.map_or(0, |mark| mark + 1)..);
        Ok(since
            .unwrap_or_default()
            .iter()
            .map(|line| (*line).to_owned())
            .collect())
    }

    /// Waits until a line with `text` was said since then.
    pub fn wait(&self, text: &str) -> Result<String> {
        until(&format!("the kernel says `{text}`"), || {
            Ok(self.since()?.into_iter().find(|line| line.contains(text)))
        })
    }
}
