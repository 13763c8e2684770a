//! Two test machines on a link, running the same command.

use std::fs;
use std::io::{self, Write};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Result, anyhow};

use super::machine::{self, Job, Link, Stop, Stopped};
use crate::workspace;

/// Where one machine's output goes.
pub type Sink<'a> = &'a mut (dyn Write + Send);

/// Runs the job that `job` makes for each end of the link, with one sink for
/// each; the exit status is the first that is not 0.
///
/// # Errors
/// What [`machine::run`] says of the machine that failed first; the other, which
/// may wait for it, is stopped then.
pub fn run<'a>(job: impl Fn(Option<Link>) -> Job<'a>, sinks: [Sink<'_>; 2]) -> Result<u8> {
    // Not below target/: the path of a socket may have 107 bytes only.
    let name = format!("xtask-link-{}", std::process::id());
    let folder = workspace::create(std::env::temp_dir().join(name))?;
    let jobs = [1, 2].map(|host| {
        let folder = folder.clone();
        job(Some(Link { host, folder }))
    });
    let stop = Stop::default();
    let run = |job: &Job<'_>, sink: Sink<'_>| {
        let result = machine::run_until(job, sink, &stop);
        if result.is_err() {
            stop.stop();
        }
        result
    };
    let results = thread::scope(|scope| {
        let runs: Vec<_> = jobs
            .iter()
            .zip(sinks)
            .map(|(job, sink)| scope.spawn(|| run(job, sink)))
            .collect();
        let join = |run: ScopedJoinHandle<'_, Result<u8>>| {
            run.join()
                .unwrap_or_else(|_| Err(anyhow!("the thread that ran the machine panicked")))
        };
        runs.into_iter().map(join).collect::<Vec<_>>()
    });
    // Sockets and notes of a link that no longer exists.
    let _ = fs::remove_dir_all(&folder);
    verdict(results)
}

/// The result of both, in the order of the machines.
fn verdict(results: Vec<Result<u8>>) -> Result<u8> {
    let mut statuses = Vec::new();
    let mut stopped = None;
    for (host, result) in (1..).zip(results) {
        match result {
            Ok(status) => statuses.push(status),
            Err(error) if error.is::<Stopped>() => stopped = Some(error),
            Err(error) => {
                return Err(error.context(format!(
                    "machine {host} of two failed; the other was stopped if it still ran"
                )));
            }
        }
    }
    if let Some(error) = stopped {
        return Err(error);
    }
    Ok(statuses
        .into_iter()
        .find(|status| *status != 0)
        .unwrap_or(0))
}

/// Writes whole lines to standard output, each after the machine's number.
pub struct Labelled {
    host: u8,
    line: Vec<u8>,
}

impl Labelled {
    /// For the machine with this number.
    pub fn new(host: u8) -> Self {
        Self {
            host,
            line: Vec::new(),
        }
    }
}

impl Write for Labelled {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            self.line.push(byte);
            if byte == b'\n' {
                let mut out = io::stdout().lock();
                write!(out, "{}: ", self.host)?;
                out.write_all(&self.line)?;
                self.line.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_that_failed_first_is_told_of() {
        let failed = || Err(anyhow!("the test machine's kernel failed"));
        for results in [
            vec![failed(), Err(Stopped.into())],
            vec![Err(Stopped.into()), failed()],
            vec![Ok(0), failed()],
        ] {
            let error = format!("{:#}", verdict(results).unwrap_err());
            assert!(error.contains("kernel failed"), "{error}");
        }
        assert_eq!(verdict(vec![Ok(0), Ok(3)]).unwrap(), 3);
        assert_eq!(verdict(vec![Ok(0), Ok(0)]).unwrap(), 0);
    }
}
