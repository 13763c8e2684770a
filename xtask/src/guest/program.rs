//! Running a program on a chosen librdmacm: starting it, waiting until it is
//! ready or has ended, never longer than a limit, and knowing which library
//! file it has mapped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::device;
use crate::library::Library;

/// Everything is emulated and may run beside other machines: a program that
/// needs two seconds alone gets minutes.
pub const LIMIT: Duration = Duration::from_secs(300);

/// How long a killed program may take to be gone.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// How often to look where the kernel offers nothing to wait for.
pub const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// When another program may start to talk to this one.
#[derive(Clone, Copy)]
pub enum Ready {
    /// The kernel lists an identifier of it that listens.
    Listening,
    /// Somebody listens on this TCP port.
    ListeningOnTcp(u16),
    /// Somebody is bound to this UDP port.
    BoundToUdp(u16),
    /// It has printed this text so many times.
    Printed(&'static str, usize),
}

/// A program that runs, killed when dropped.
pub struct Running {
    name: String,
    child: Child,
    output: PathBuf,
}

/// Starts `words` on `library`, output going to a file.
pub fn start(words: &[&str], library: &Library) -> Result<Running> {
    start_with(words, library, &[])
}

/// As [`start`], with environment variables for it.
pub fn start_with(words: &[&str], library: &Library, env: &[(&str, &str)]) -> Result<Running> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let output = std::env::temp_dir().join(format!(
        "xtask-{}-{}",
        std::process::id(),
        NUMBER.fetch_add(1, Ordering::Relaxed)
    ));
    let file = File::create(&output)?;
    // Lines are needed when they are printed, not when a buffer is full.
    let mut command = Command::new("stdbuf");
    command.args(["-oL", "-eL"]).args(words);
    library.apply(&mut command);
    let child = command
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .context("cannot start stdbuf")?;
    Ok(Running {
        name: words.first().copied().unwrap_or_default().to_owned(),
        child,
        output,
    })
}

impl Running {
    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    pub fn output(&self) -> String {
        let bytes = fs::read(&self.output).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until it is ready.
    pub fn wait_ready(&mut self, ready: Ready) -> Result<()> {
        self.wait_until("is ready", |program| {
            Ok(match ready {
                Ready::Listening => device::identifiers(program.pid(), "LISTEN")? > 0,
                Ready::ListeningOnTcp(port) => has_socket("tcp", port, TCP_LISTEN)?,
                Ready::BoundToUdp(port) => has_socket("udp", port, UDP_BOUND)?,
                Ready::Printed(text, times) => program.output().matches(text).count() >= times,
            })
        })
    }

    /// Waits until `condition` holds.
    ///
    /// # Errors
    /// When the program ends first, or the limit is reached.
    pub fn wait_until(
        &mut self,
        what: &str,
        condition: impl Fn(&Self) -> Result<bool>,
    ) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            // Looked at before the condition: the last that it does may be what
            // is waited for.
            let ended = self.child.try_wait()?;
            if condition(self)? {
                return Ok(());
            }
            if let Some(status) = ended {
                bail!(
                    "{} ended with {status} before it {what}: {}",
                    self.name,
                    self.said()
                );
            }
            if Instant::now() > deadline {
                bail!("{} never {what}: {}", self.name, self.said());
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// The librdmacm file that it has mapped.
    pub fn mapped(&mut self) -> Result<PathBuf> {
        self.wait_until("mapped librdmacm", |program| Ok(program.maps().is_some()))?;
        self.maps()
            .with_context(|| format!("{} ended too early", self.name))
    }

    fn maps(&self) -> Option<PathBuf> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid())).ok()?;
        maps.lines()
            .filter_map(|line| line.split_whitespace().nth(5))
            .map(Path::new)
            .find(|file| {
                file.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("librdmacm.so"))
            })
            .map(Path::to_path_buf)
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.wait_for(LIMIT)?
            .with_context(|| format!("{} hangs: {}", self.name, self.said()))
    }

    /// Waits for its end, and demands that it succeeds.
    pub fn wait_success(&mut self) -> Result<()> {
        let status = self.wait()?;
        if !status.success() {
            bail!("{}: {status}: {}", self.name, self.said());
        }
        Ok(())
    }

    /// Asks it to end (SIGTERM).
    pub fn terminate(&self) -> Result<()> {
        kill_process(self.process()?, Signal::TERM).context("kill")
    }

    fn process(&self) -> Result<Pid> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        pid.context("no process number")
    }

    /// Waits for its end up to `limit`; `None` when it still runs.
    pub fn wait_for(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(Some(status));
        }
        let handle = pidfd_open(self.process()?, PidfdFlags::empty()).context("pidfd_open")?;
        let limit = Timespec::try_from(limit)?;
        let ended =
            poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit)).context("poll")?;
        // A traced process is reaped by its tracer first: the wait may block
        // for a moment, and a look without waiting would miss it.
        Ok(if ended > 0 {
            Some(self.child.wait()?)
        } else {
            None
        })
    }

    /// The end of what it printed, on one line.
    pub fn said(&self) -> String {
        const LINES: usize = 6;
        let output = self.output();
        let lines: Vec<_> = output.lines().collect();
        let start = lines.len().saturating_sub(LINES);
        format!("\"{}\"", lines[start..].join(" | "))
    }
}

/// States of sockets as the kernel lists them: of TCP, listening; of UDP, not
/// connected.
const TCP_LISTEN: &str = "0A";
const UDP_BOUND: &str = "07";

/// Whether the kernel lists an IPv4 socket of that protocol, local port and
/// state.
fn has_socket(protocol: &str, port: u16, state: &str) -> Result<bool> {
    let port = format!(":{port:04X}");
    let list = fs::read_to_string(format!("/proc/net/{protocol}"))?;
    Ok(list.lines().any(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|local| local.ends_with(&port)) && fields.get(3) == Some(&state)
    }))
}

impl Drop for Running {
    fn drop(&mut self) {
        // These fail only when there is nothing left to end or to remove. The
        // wait has a limit: a process stuck in the kernel cannot be ended.
        let _ = self.child.kill();
        let _ = self.wait_for(LAST_WAIT);
        let _ = fs::remove_file(&self.output);
    }
}
