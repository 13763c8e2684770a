//! What the kernel has said since some moment.

use anyhow::Result;

use super::{sh, until};

/// A moment.
#[derive(Clone, Copy)]
pub struct Mark {
    seconds: f64,
}

impl Mark {
    /// Now.
    pub fn now() -> Result<Self> {
        let log = sh("dmesg")?;
        let seconds = log.lines().filter_map(time).next_back().unwrap_or(0.0);
        Ok(Self { seconds })
    }

    /// What was said since then, without the times.
    pub fn since(&self) -> Result<Vec<String>> {
        Ok(sh("dmesg")?
            .lines()
            .filter(|line| time(line).is_some_and(|seconds| seconds > self.seconds))
            .filter_map(|line| Some(line.split_once("] ")?.1.to_owned()))
            .collect())
    }

    /// Waits until a line with `text` was said since then.
    pub fn wait(&self, text: &str) -> Result<String> {
        until(&format!("the kernel says `{text}`"), || {
            Ok(self.since()?.into_iter().find(|line| line.contains(text)))
        })
    }
}

/// The time of a line: `[   12.345678] …`.
fn time(line: &str) -> Option<f64> {
    let (time, _) = line.strip_prefix('[')?.split_once(']')?;
    time.trim().parse().ok()
}
